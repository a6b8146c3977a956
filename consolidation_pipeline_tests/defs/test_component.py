"""The component: a YAML file configures the pipeline in another project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from pydantic import ValidationError
from sqlalchemy import text

from consolidation_pipeline.component import ConsolidationComponent
from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.sensors import task_memories_sensor
from consolidation_pipeline.service.runs.phases import ALL_PHASES
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.defs.conftest import Sample, sensor_context

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
    names = ("task_memories", "synced_memories", "written_back", *ALL_PHASES)
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
    assert "loaded successfully" in run("check", "defs")
