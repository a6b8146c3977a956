"""The component: a YAML file configures the pipeline in another project."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from pydantic import ValidationError
from sqlalchemy import text

from consolidation_pipeline.component import ConsolidationComponent, MemorySourceComponent
from consolidation_pipeline.defs.declared_sources import source_key
from consolidation_pipeline.defs.names import PREFIX, RESOURCE
from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.resources import SENSOR_TAG, ConsolidationResource
from consolidation_pipeline.defs.sensors import task_memories_sensor
from consolidation_pipeline.defs.sources import sources_sensor, update_job
from consolidation_pipeline.service.runs.phases import ALL_PHASES
from consolidation_pipeline.service.sources.connections import connect_source, list_connected
from consolidation_pipeline.service.sources.write_back import write_source
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.defs.conftest import Sample, sensor_context
from consolidation_pipeline_tests.service.conftest import pipeline as pipeline
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.sources.conftest import PROJECT, SOURCE, URL_ENV
from consolidation_pipeline_tests.service.sources.conftest import make_store as make_store
from consolidation_pipeline_tests.service.sources.conftest import mem0_store as mem0_store
from consolidation_pipeline_tests.service.sources.conftest import store_url as store_url
from consolidation_pipeline_tests.service.sources.stores import FACTS, USERS, Store, all_wordings
from consolidation_pipeline_tests.service.sources.test_folder import linked as linked

ATTRIBUTES = {
    "database_url_env": "SHOP_DATABASE_URL",
    "projects": ["shop-*"],
    "options": {"t_merge": 0.97},
    "schedules": {"nightly": "0 3 * * *"},
    "asset_key_prefix": ["shop", "memory"],
    "group_name": "memory",
}


def write_project(folder: Path, attributes: dict[str, Any] | None) -> None:
    """Write a project of Dagster; with ``attributes``, its only definitions are the component."""
    (folder / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "shop_with_component"\n'
    )
    package = folder / "shop_with_component"
    (package / "defs").mkdir(parents=True)
    for name in ("__init__.py", "defs/__init__.py"):
        (package / name).touch()
    (package / "definitions.py").write_text(
        "from pathlib import Path\n\nimport dagster as dg\n\n\n@dg.definitions\ndef defs() -> dg.Definitions:\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    if attributes is not None:
        (package / "defs" / "memory").mkdir()
        written = {"type": "consolidation_pipeline.ConsolidationComponent", "attributes": attributes}
        (package / "defs" / "memory" / "defs.yaml").write_text(yaml.safe_dump(written))


@pytest.mark.slow
# Dagster passes the parameter to itself.
@pytest.mark.filterwarnings("ignore:Parameter `execution_type`")
def test_yaml_configures_keys_schedule_and_runs(
    engine: Engine, sample: Sample, instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slug in ("shop-north", "office"):
        sample(slug, 30)
        instance.add_dynamic_partitions(PROJECTS, [slug])
    write_project(tmp_path, ATTRIBUTES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SHOP_DATABASE_URL", os.environ["CONSOLIDATION_DATABASE_URL"])
    monkeypatch.setenv("CONSOLIDATION_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    loaded = dg.load_from_defs_folder(path_within_project=tmp_path)
    specs = {spec.key.to_user_string(): spec.group_name for spec in loaded.resolve_all_asset_specs()}
    names = ("task_memories", "synced_memories", "written_back", "shadows", *ALL_PHASES)
    assert specs == {f"shop/memory/{name}": "memory" for name in names}
    crons = {schedule.name: schedule.cron_schedule for schedule in loaded.schedules or ()}  # type: ignore[union-attr]
    assert (crons["consolidation_nightly"], crons["consolidation_daily_decay"]) == ("0 3 * * *", "0 4 * * *")
    job = loaded.resolve_job_def("consolidation_consolidate")
    done = {
        slug: job.execute_in_process(partition_key=slug, instance=instance, raise_on_error=False)
        for slug in ("shop-north", "office")
    }
    assert {slug: result.success for slug, result in done.items()} == {"shop-north": True, "office": False}
    assert all(
        check.asset_key.path[:2] == ["shop", "memory"] for check in done["shop-north"].get_asset_check_evaluations()
    )
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT options ->> 't_merge' FROM consolidation.consolidation_jobs")).all()
    assert [tuple(row) for row in rows] == [("0.97",)]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"options": {"t_merg": 0.9}}, "t_merg"),
        ({"schedules": {"hourly": "0 * * * *"}}, "schedule 'hourly' does not exist; the schedules are nightly"),
        ({"schedules": {"nightly": "0 99"}}, "'0 99' is not a cron of five fields"),
        ({"asset_key_prefix": []}, "asset_key_prefix"),
        ({"database_url": "postgresql://me:pw@host/db"}, "database_url"),
    ],
)
def test_invalid_attribute_is_named(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ConsolidationComponent(**attributes)
    assert message in str(refused.value)


def test_sensors_see_selected_projects_only(engine: Engine, sample: Sample, instance: dg.DagsterInstance) -> None:
    sample("shop-north", 3)
    sample("office", 3)
    tick = task_memories_sensor(sensor_context(engine, instance, projects=["shop-*"]))
    assert isinstance(tick, dg.SensorResult)
    assert [event.partition for event in tick.asset_events] == ["shop-north"]
    assert [list(one.partition_keys) for one in tick.dynamic_partitions_requests or ()] == [["shop-north"]]


@pytest.mark.slow
def test_component_is_listed_and_scaffolded(tmp_path: Path) -> None:
    write_project(tmp_path, None)
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(*arguments: str) -> str:
        command = [str(Path(sys.executable).parent / "dg"), *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    run("scaffold", "defs", "consolidation_pipeline.ConsolidationComponent", "memory")
    assert (tmp_path / "shop_with_component" / "defs" / "memory" / "defs.yaml").is_file()
    run("scaffold", "defs", "consolidation_pipeline.MemorySourceComponent", "mem0")
    written = yaml.safe_load((tmp_path / "shop_with_component" / "defs" / "mem0" / "defs.yaml").read_text())
    assert written["attributes"]["url_env"] == "MEM0_DATABASE_URL"
    assert "loaded successfully" in run("check", "defs")


STORE = dg.AssetKey([PREFIX, "stores", f"{PROJECT}-mem0"])
GROUPS = len(FACTS) * len(USERS)
STORE_ATTRIBUTES = {"kind": "mem0", "project": PROJECT, "url_env": URL_ENV, "mode": "write", "embedding_model": "local"}


def write_store(folder: Path, attributes: dict[str, Any]) -> None:
    """Add the component of a store to a project of Dagster."""
    place = folder / "shop_with_component" / "defs" / "store"
    place.mkdir()
    written = {"type": "consolidation_pipeline.MemorySourceComponent", "attributes": attributes}
    (place / "defs.yaml").write_text(yaml.safe_dump(written))


LoadStore = Callable[[dict[str, Any]], dg.Definitions]


@pytest.fixture
def load_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoadStore:
    """Return definitions of a project with both components, and jobs that observe and check the store."""

    def load(attributes: dict[str, Any]) -> dg.Definitions:
        write_project(tmp_path, {})
        write_store(tmp_path, attributes)
        monkeypatch.syspath_prepend(tmp_path)
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop_with_component"]:
            monkeypatch.delitem(sys.modules, name)
        key = source_key(f"{PROJECT}-{attributes['kind']}")
        selected = {"observe": dg.AssetSelection.assets(key), "check": dg.AssetSelection.checks_for_assets(key)}
        jobs = [dg.define_asset_job(name, selection) for name, selection in selected.items()]
        return dg.Definitions.merge(dg.load_from_defs_folder(path_within_project=tmp_path), dg.Definitions(jobs=jobs))

    return load


CHECKS = ("store_is_connected", "hidden_rows_have_images", "successors_are_found", "no_group_of_two_scopes")


def run_checks(defs: dg.Definitions, instance: dg.DagsterInstance) -> dict[str, bool]:
    """Run the checks of the store; return name and result of each."""
    result = defs.resolve_job_def("check").execute_in_process(instance=instance, raise_on_error=False)
    return {each.check_name: each.passed for each in result.get_asset_check_evaluations()}


@pytest.mark.filterwarnings("ignore:Parameter `execution_type`")
def test_declared_folder_is_connected_and_checked(
    linked: Path, pipeline: Pipeline, instance: dg.DagsterInstance, load_store: LoadStore
) -> None:
    defs = load_store({"kind": "folder", "project": PROJECT, "path": str(linked), "mode": "write"})
    assert defs.resolve_job_def("consolidation_update_sources").execute_in_process(instance=instance).success
    pipeline.run(PROJECT)
    assert write_source(pipeline.engine, f"{PROJECT}-folder", quiet_seconds=0, max_share=1).written == 1
    assert run_checks(defs, instance) == dict.fromkeys(CHECKS, True)


@pytest.mark.filterwarnings("ignore:Parameter `execution_type`")
def test_declared_store_is_connected_observed_and_checked(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance, load_store: LoadStore
) -> None:
    with_store = load_store(STORE_ATTRIBUTES)

    def execute(job: str) -> dg.ExecuteInProcessResult:
        return with_store.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False)

    def observe() -> tuple[str | None, int]:
        (event,) = execute("observe").get_asset_observation_events()
        found = event.asset_observation_data.asset_observation
        return found.data_version, int(str(found.metadata["dagster/row_count"].value))

    graph = with_store.resolve_asset_graph()
    assert graph.get(dg.AssetKey([PREFIX, "synced_memories"])).parent_keys == {STORE}
    assert execute("consolidation_update_sources").success
    assert [source.name for source in list_connected(pipeline.engine)] == [STORE.path[-1]]
    before = observe()
    assert before == observe()
    assert before[1] == len(all_wordings())
    pipeline.run(PROJECT)
    assert write_source(pipeline.engine, STORE.path[-1], quiet_seconds=0, max_share=1).written == GROUPS
    assert observe()[1] == GROUPS
    assert run_checks(with_store, instance) == dict.fromkeys(CHECKS, True)
    mem0_store.connection.execute("DELETE FROM mem0 WHERE id = (SELECT min(id::text)::uuid FROM mem0)")
    mem0_store.connection.execute(
        "DELETE FROM consolidation_sidecar.writes WHERE number = (SELECT max(number) FROM consolidation_sidecar.writes)"
    )
    assert run_checks(with_store, instance) == {
        **dict.fromkeys(CHECKS, False),
        **dict.fromkeys(("store_is_connected", "no_group_of_two_scopes"), True),
    }


def test_store_that_cannot_be_connected_is_named(
    mem0_store: Store, pipeline: Pipeline, instance: dg.DagsterInstance
) -> None:
    other = {"name": SOURCE, "project": PROJECT, "mode": "mirror", "config": {"kind": "agno", "url_env": URL_ENV}}
    config = {**mem0_store.kind.config, "url_env": URL_ENV}
    connect_source(pipeline.engine, SOURCE, project=PROJECT, config=config)

    def update(declared: dict[str, Any], *tags: str) -> tuple[str | None, list[bool]]:
        """Run the job; return its failure, and the results of the check of the store."""
        result = update_job.execute_in_process(
            instance=instance,
            resources={RESOURCE: ConsolidationResource(stores=[declared])},
            tags=dict.fromkeys(tags, sources_sensor.name),
            raise_on_error=False,
        )
        failed = result.filter_events(lambda event: event.is_step_failure)
        messages = [event.step_failure_data.user_failure_data.description for event in failed]
        found = [each for each in result.get_asset_check_evaluations() if each.check_name == "store_is_connected"]
        return next(iter(messages), None), [each.passed for each in found]

    message, results = update(other, SENSOR_TAG)
    assert "source shop is connected already, with " in str(message)
    assert results == [False]
    assert update(other, SENSOR_TAG) == (None, [])
    assert "source shop is connected already, with " in str(update(other)[0])
    assert update({**other, "config": config}, SENSOR_TAG) == (None, [True])
    assert update({**other, "config": config}, SENSOR_TAG) == (None, [])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"kind": "mem9"}, "there is no kind of store 'mem9'"),
        ({"mode": "overwrite"}, "expected one of mirror, review, write"),
        ({"url_env": "postgresql://me:pw@host/db"}, "is not the name of an environment variable"),
        ({"scope": ["tenant"]}, "mem0 has no scope tenant"),
        ({"url_env": None}, "url_env is missing"),
        ({"kind": "folder", "url_env": None}, "path is missing"),
    ],
)
def test_wrong_store_attribute_is_named(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MemorySourceComponent(**{**STORE_ATTRIBUTES, **attributes})
