"""Dagster jobs for rollback, restore and audit retention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from consolidation_pipeline.defs.maintenance import audit_retention, restore, rollback, weekly_audit_retention
from consolidation_pipeline.defs.resources import TRIGGERED_BY_TAG, store
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import task_memories
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, update_rows
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.undo.test_rollback import age_changes


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def merged(engine: Engine, settings: Settings, tmp_path: Path) -> Pipeline:
    """Project with one merge of two memories."""
    pipeline = Pipeline(engine, settings, tmp_path)
    pipeline.add([note("a", LESSONS[0]), note("b", f"Note to self: {LESSONS[0]}"), note("c", LESSONS[1])])
    pipeline.run()
    return pipeline


def execute(
    job: dg.JobDefinition, instance: dg.DagsterInstance, config: dict[str, Any] | None = None, **tags: str
) -> dg.ExecuteInProcessResult:
    (op,) = job.nodes
    run_config = {} if config is None else {"ops": {op.name: {"config": config}}}
    return job.execute_in_process(
        run_config=run_config, instance=instance, resources={"store": store}, tags=tags, raise_on_error=False
    )


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Return the metadata values of the only output."""
    (event,) = [event for event in result.all_node_events if event.is_successful_output]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def failure(result: dg.ExecuteInProcessResult) -> dg.DagsterEvent:
    (event,) = result.filter_events(lambda event: event.is_step_failure)
    return event


def job_of(pipeline: Pipeline) -> str:
    return str(pipeline.value("SELECT id FROM {s}.consolidation_jobs"))


def test_rollback_job_reports_its_counts(merged: Pipeline, instance: dg.DagsterInstance) -> None:
    target = job_of(merged)
    result = execute(rollback, instance, {"target": target, "reason": "wrong"}, **{TRIGGERED_BY_TAG: "ann"})
    assert result.success
    told = metadata(result)
    assert (told["scope"], told["changes"], told["memories_deleted"], told["redone"]) == ("job", 3, 1, False)
    query = "SELECT DISTINCT changed_by, reason, group_id FROM {s}.consolidation_changes WHERE operation = 'rollback'"
    assert [(r.changed_by, r.reason, str(r.group_id)) for r in merged.rows(query)] == [
        ("ann", "wrong", told["rollback_id"])
    ]


def test_rejected_rollback_job_keeps_error_text(merged: Pipeline, instance: dg.DagsterInstance) -> None:
    target = job_of(merged)
    first = metadata(execute(rollback, instance, {"target": target}))["rollback_id"]
    result = execute(rollback, instance, {"target": target})
    assert not result.success
    data = failure(result).step_failure_data
    assert data.user_failure_data is not None
    assert f"{target} was rolled back before" in (data.user_failure_data.description or "")
    assert data.user_failure_data.metadata["conflicts"].value == [first]
    assert data.error is not None
    assert data.error.cause is None


@pytest.mark.parametrize(
    ("target", "said"),
    [("nonsense", "'nonsense' is not an id"), ("00000000-0000-4000-8000-000000000000", "is not the id")],
)
def test_invalid_rollback_id_keeps_error_text(
    merged: Pipeline, instance: dg.DagsterInstance, target: str, said: str
) -> None:
    del merged
    data = failure(execute(rollback, instance, {"target": target})).step_failure_data
    assert data.user_failure_data is not None
    assert said in (data.user_failure_data.description or "")


def test_restore_job_restores_archived_memories(merged: Pipeline, instance: dg.DagsterInstance) -> None:
    id_ = merged.value("SELECT id FROM {s}.task_memories WHERE NOT is_consolidated")
    mark = {"archived_at": "2026-03-01T00:00:00Z", "archive_reason": "staleness"}
    with merged.engine.begin() as connection:
        author = Author(merged.project().id, None, "tester")
        update_rows(connection, author, task_memories, [Change(id_, uuid4(), mark, 1)], operation="archive")
    result = execute(restore, instance, {"memories": [str(id_)], "reason": "needed"})
    assert result.success
    told = metadata(result)
    assert (told["restored"], told["memories"][0]["id"], told["memories"][0]["project"]) == (1, str(id_), SLUG)
    assert merged.value("SELECT archived_at FROM {s}.task_memories WHERE id = :id", id=id_) is None
    data = failure(execute(restore, instance, {"memories": [str(uuid4())]})).step_failure_data
    assert data.user_failure_data is not None


@pytest.mark.breaks_rules
def test_retention_job_reports_removed_and_busy(merged: Pipeline, instance: dg.DagsterInstance) -> None:
    kept = metadata(execute(audit_retention, instance))
    assert (kept["changes_removed"], kept["events_removed"]) == (0, 0)
    age_changes(merged, timedelta(days=100))
    with project_lock(merged.engine, merged.project().id, SLUG, wait_seconds=0):
        told = metadata(execute(audit_retention, instance))
    assert (told["changes_removed"], told["projects_busy"], told["busy"]) == (0, 1, [SLUG])
    told = metadata(execute(audit_retention, instance, **{TRIGGERED_BY_TAG: "weekly_audit_retention"}))
    assert (told["changes_removed"], told["projects"], told["projects_busy"]) == (3, 1, 0)
    assert told["removals"][SLUG]["operations"] == {"merge": 3}
    by = "SELECT changed_by FROM {s}.consolidation_changes WHERE operation = 'retention'"
    assert merged.value(by) == "weekly_audit_retention"


def test_retention_schedule_is_weekly_and_stopped() -> None:
    assert weekly_audit_retention.cron_schedule == "0 5 * * 0"
    assert weekly_audit_retention.default_status is dg.DefaultScheduleStatus.STOPPED
    request = weekly_audit_retention(dg.build_schedule_context())
    assert isinstance(request, dg.RunRequest)
    assert request.tags[TRIGGERED_BY_TAG] == "weekly_audit_retention"


def test_maintenance_jobs_and_ops_are_described() -> None:
    for job in (rollback, restore, audit_retention):
        assert job.description
        assert all(node.definition.description for node in job.nodes)
    for job in (rollback, restore):
        (op,) = job.nodes
        fields = op.definition.config_schema.config_type.fields  # type: ignore[attr-defined]
        assert all(field.description for field in fields.values())
