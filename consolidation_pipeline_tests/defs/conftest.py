"""Fixtures of Dagster tests: an instance in memory and sample memories; invariants are checked after every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consolidation_pipeline.defs.names import RESOURCE, prefixed
from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.service.intake.importer import ensure_project, import_memories
from consolidation_pipeline.settings import PROJECT_ROOT, Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.service.rules import rules_hold as rules_hold

SAMPLE_PATH = PROJECT_ROOT / "examples" / "memories.jsonl"
Sample = Callable[[str, int], None]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """In-memory Dagster instance: writing events to files takes longer than the run."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def sample(engine: Engine, settings: Settings, tmp_path: Path) -> Sample:
    """Function that imports the first n rows of the sample into a project."""
    del settings

    def import_rows(slug: str, count: int) -> None:
        rows = tmp_path / f"{count}.jsonl"
        rows.write_text("".join(SAMPLE_PATH.read_text().splitlines(keepends=True)[:count]))
        ensure_project(engine, slug, {"scope": "project"})
        import_memories(engine, slug, str(rows), format="jsonl", source="sample")

    return import_rows


_entered = ExitStack()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Leave the contexts of sensors and schedules before instances of Dagster, as they were entered after those."""
    _entered.close()


@cache
def load_definitions() -> dg.Definitions:
    from consolidation_pipeline.definitions import defs

    return defs()


def sensor_context(
    engine: Engine, instance: dg.DagsterInstance | None = None, *, cursor: str | None = None, **config: Any
) -> dg.SensorEvaluationContext:
    """Return the context of a tick of a sensor. ``config``: fields of the resource."""
    resources = _configure(engine, config)
    context = dg.build_sensor_context(instance, cursor, resources=resources, definitions=load_definitions())
    return _entered.enter_context(context)


def schedule_context(engine: Engine, instance: dg.DagsterInstance, **config: Any) -> dg.ScheduleEvaluationContext:
    """Return the context of a tick of a schedule. ``config``: fields of the resource."""
    return _entered.enter_context(dg.build_schedule_context(instance, resources=_configure(engine, config)))


def _configure(engine: Engine, config: Mapping[str, Any]) -> dict[str, object]:
    url = engine.url.render_as_string(hide_password=False)
    return {RESOURCE: ConsolidationResource(database_url=url, **config)}


def materialize(
    instance: dg.DagsterInstance, slug: str, job: str = "consolidate", **tags: str
) -> dg.ExecuteInProcessResult:
    """Run a job of a project in this process."""
    instance.add_dynamic_partitions(PROJECTS, [slug])
    resolved = load_definitions().resolve_job_def(prefixed(job))
    return resolved.execute_in_process(partition_key=slug, instance=instance, tags=tags, raise_on_error=False)
