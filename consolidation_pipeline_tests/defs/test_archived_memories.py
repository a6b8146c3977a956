"""The asset `archived_memories`: metadata, checks and the job row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from consolidation_pipeline.defs.archived_memories import archived_memories
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline_tests.defs.conftest import materialize
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline


@pytest.fixture
def pipeline(engine: Engine, settings: Settings, tmp_path: Path) -> Pipeline:
    """Project with two memories unused for 100 days, one of them a decision, and a new one."""
    pipeline = Pipeline(engine, settings, tmp_path)
    pipeline.configure_new("alpha", forgetting=True)
    created_at = (datetime.now(UTC) - timedelta(days=100)).isoformat()
    old = {"created_at": created_at, "last_accessed_at": created_at, "reused_count": 1, "importance": 0.5}
    rows = [note("old", "One.", **old), note("decision", "Two.", **old, memory_type="decision"), note("new", "Three.")]
    pipeline.add(rows, "alpha")
    return pipeline


def read_metadata(result: dg.ExecuteInProcessResult) -> dict[str, object]:
    """Return the metadata values of the asset's materialization."""
    (event,) = result.asset_materializations_for_node("consolidation__archived_memories")
    return {name: value.value for name, value in event.metadata.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("job", "forgotten"), [("consolidate", 0), ("forget", 1)])
def test_archive_job_reports_its_counts(
    pipeline: Pipeline, instance: dg.DagsterInstance, job: str, forgotten: int
) -> None:
    result = materialize(instance, "alpha", job=job)
    assert result.success
    values = read_metadata(result)
    counts = (values["memories_archived"], values["archived_forgotten"], values["archived_stale"])
    assert counts == (2, forgotten, 2 - forgotten)
    assert (values["merged_archived"], values["held_back"], values["active_after"]) == (0, 0, 1)
    checks = [e for e in result.get_asset_check_evaluations() if e.asset_key == archived_memories.key]
    assert len(checks) == 8
    assert all(check.passed for check in checks)
    assert pipeline.rows("SELECT status, memories_archived FROM {s}.consolidation_jobs") == [("completed", 2)]


@pytest.mark.slow
@pytest.mark.breaks_rules
def test_forgotten_decision_stops_run_before_report(pipeline: Pipeline, instance: dg.DagsterInstance) -> None:
    assert materialize(instance, "alpha", job="forget").success
    pipeline.write("UPDATE {s}.task_memories SET archive_reason = 'forgotten' WHERE memory_type = 'decision'")
    result = materialize(instance, "alpha")
    assert not result.success
    failed = [e.check_name for e in result.get_asset_check_evaluations() if not e.passed]
    assert failed == ["no_decision_is_forgotten"]
    assert not result.asset_materializations_for_node("consolidation__consolidation_report")
