"""Dagster asset and job of shadows: a partition PROJECT@NAME is a run of other options on a copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from consolidation_pipeline.defs.names import RESOURCE
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.defs.shadows import promote_shadow, shadow_partitions, shadows
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.shadow.databases import drop_shadows
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.table_dumps import compute_checksums


@pytest.fixture
def notes(engine: Engine, settings: Settings, tmp_path: Path) -> Iterator[Pipeline]:
    """Project with two memories that say the same."""
    pipeline = Pipeline(engine, settings, tmp_path)
    pipeline.add([note("a", LESSONS[0]), note("b", f"Note to self: {LESSONS[0]}"), note("c", LESSONS[1])])
    yield pipeline
    drop_shadows(engine, pipeline.project().id)


def materialize(instance: dg.DagsterInstance, partition: str, **options: Any) -> dg.ExecuteInProcessResult:
    instance.add_dynamic_partitions(str(shadow_partitions.name), [partition])
    return dg.materialize(
        [shadows],
        instance=instance,
        partition_key=partition,
        resources={RESOURCE: ConsolidationResource()},
        run_config={"ops": {"consolidation__shadows": {"config": {"options": options}}}},
        raise_on_error=False,
    )


def test_shadow_asset_tells_what_differs(notes: Pipeline, instance: dg.DagsterInstance) -> None:
    before = compute_checksums(notes)
    result = materialize(instance, "notes@strict", t_merge=0.999)
    assert result.success
    (event,) = result.get_asset_materialization_events()
    values = {name: value.value for name, value in event.materialization.metadata.items()}
    assert values["options"] == {"t_merge": 0.999}
    assert values["next_step"] == "consolidation shadow notes --name strict --promote"
    assert compute_checksums(notes) == before


def test_shadow_partition_without_name_fails(notes: Pipeline, instance: dg.DagsterInstance) -> None:
    del notes
    result = materialize(instance, "notes", t_merge=0.999)
    (event,) = result.filter_events(lambda event: event.is_step_failure)
    assert "name the partition PROJECT@NAME" in str(event.step_failure_data.error_display_string)


def promote(instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    return promote_shadow.execute_in_process(
        instance=instance,
        resources={RESOURCE: ConsolidationResource()},
        run_config={"ops": {"consolidation_promote_changes": {"config": {"project": "notes", **config}}}},
        raise_on_error=False,
    )


def test_promote_job_tries_until_confirmed(notes: Pipeline, instance: dg.DagsterInstance) -> None:
    notes.configure(t_merge=0.999)
    assert materialize(instance, "notes@next", t_merge=0.9).success
    before = compute_checksums(notes)
    assert promote(instance).success
    assert compute_checksums(notes) == before
    assert promote(instance, confirm=True).success
    assert notes.project().config == {"t_merge": 0.9}
    assert notes.value("SELECT count(*) FROM {s}.consolidated_memories WHERE kind = 'merged'") == 1
    again = promote(instance, confirm=True)
    (event,) = again.filter_events(lambda event: event.is_step_failure)
    assert "was promoted before" in str(event.step_failure_data.error_display_string)
