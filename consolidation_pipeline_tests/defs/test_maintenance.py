"""Dagster jobs for rollback, restore and audit retention."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from consolidation_pipeline.defs.maintenance import audit_retention, restore, rollback
from consolidation_pipeline.defs.names import RESOURCE
from consolidation_pipeline.defs.resources import TRIGGERED_BY_TAG, ConsolidationResource
from consolidation_pipeline.defs.schedules import weekly_audit_retention
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import task_memories
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, update_rows
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.undo.test_rollback import age_changes


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
        run_config=run_config,
        instance=instance,
        resources={RESOURCE: ConsolidationResource()},
        tags=tags,
        raise_on_error=False,
    )


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """Return the metadata values of the only output."""
    (event,) = [event for event in result.all_node_events if event.is_successful_output]
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def read_failure(result: dg.ExecuteInProcessResult) -> Any:
    """Return the failure data of the only failed step."""
    (event,) = result.filter_events(lambda event: event.is_step_failure)
    assert event.step_failure_data.user_failure_data is not None
    return event.step_failure_data


def load_job_id(pipeline: Pipeline) -> str:
    return str(pipeline.value("SELECT id FROM {s}.consolidation_jobs"))


def test_rollback_job_reports_its_counts(merged: Pipeline, instance: dg.DagsterInstance) -> None:
    target = load_job_id(merged)
    result = execute(rollback, instance, {"target": target, "reason": "wrong"}, **{TRIGGERED_BY_TAG: "ann"})
    assert result.success
    values = metadata(result)
    assert (values["scope"], values["changes"], values["memories_deleted"], values["redone"]) == ("job", 3, 1, False)
    query = "SELECT DISTINCT changed_by, reason, group_id FROM {s}.consolidation_changes WHERE operation = 'rollback'"
    (row,) = merged.rows(query)
    assert (row.changed_by, row.reason, str(row.group_id)) == ("ann", "wrong", values["rollback_id"])


def test_rejected_rollback_job_keeps_error_text(merged: Pipeline, instance: dg.DagsterInstance) -> None:
    target = load_job_id(merged)
    first = metadata(execute(rollback, instance, {"target": target}))["rollback_id"]
    result = execute(rollback, instance, {"target": target})
    assert not result.success
    data = read_failure(result)
    assert f"{target} was rolled back before" in (data.user_failure_data.description or "")
    assert data.user_failure_data.metadata["conflicts"].value == [first]
    assert data.error is not None
    assert data.error.cause is None


@pytest.mark.parametrize(
    ("target", "message"),
    [("nonsense", "'nonsense' is not an id"), ("00000000-0000-4000-8000-000000000000", "is not the id")],
)
def test_invalid_rollback_id_keeps_error_text(
    merged: Pipeline, instance: dg.DagsterInstance, target: str, message: str
) -> None:
    del merged
    data = read_failure(execute(rollback, instance, {"target": target}))
    assert message in (data.user_failure_data.description or "")


def test_restore_job_restores_archived_memories(merged: Pipeline, instance: dg.DagsterInstance) -> None:
    id_ = merged.value("SELECT id FROM {s}.task_memories WHERE NOT is_consolidated")
    archived = {"archived_at": "2026-03-01T00:00:00Z", "archive_reason": "staleness"}
    with merged.engine.begin() as connection:
        author = Author(merged.project().id, None, "tester")
        update_rows(connection, author, task_memories, [Change(id_, uuid4(), archived, 1)], operation="archive")
    result = execute(restore, instance, {"memories": [str(id_)], "reason": "needed"})
    assert result.success
    values = metadata(result)
    assert (values["restored"], values["memories"][0]["id"], values["memories"][0]["project"]) == (1, str(id_), SLUG)
    assert merged.value("SELECT archived_at FROM {s}.task_memories WHERE id = :id", id=id_) is None
    assert read_failure(execute(restore, instance, {"memories": [str(uuid4())]}))
    empty = read_failure(execute(restore, instance, {"memories": []}))
    assert empty.user_failure_data.description.startswith("`memories` is empty: give the ids of archived")


@pytest.mark.breaks_rules
def test_retention_job_reports_removed_and_busy(merged: Pipeline, instance: dg.DagsterInstance) -> None:
    unaged = metadata(execute(audit_retention, instance))
    assert (unaged["changes_removed"], unaged["events_removed"]) == (0, 0)
    age_changes(merged, timedelta(days=100))
    with project_lock(merged.engine, merged.project().id, SLUG, wait_seconds=0):
        values = metadata(execute(audit_retention, instance))
    assert (values["changes_removed"], values["projects_busy"], values["busy"]) == (0, 1, [SLUG])
    values = metadata(execute(audit_retention, instance, **{TRIGGERED_BY_TAG: "weekly_audit_retention"}))
    assert (values["changes_removed"], values["projects"], values["projects_busy"]) == (3, 1, 0)
    assert values["removals"][SLUG]["operations"] == {"merge": 3}
    by = "SELECT changed_by FROM {s}.consolidation_changes WHERE operation = 'retention'"
    assert merged.value(by) == "weekly_audit_retention"


def test_retention_schedule_is_weekly_and_stopped() -> None:
    assert weekly_audit_retention.cron_schedule == "0 5 * * 0"
    assert weekly_audit_retention.default_status is dg.DefaultScheduleStatus.STOPPED
    request = weekly_audit_retention(dg.build_schedule_context())
    assert isinstance(request, dg.RunRequest)
    assert request.tags[TRIGGERED_BY_TAG] == "consolidation_weekly_audit_retention"


def test_maintenance_jobs_and_ops_are_described() -> None:
    for job in (rollback, restore, audit_retention):
        assert job.description
        assert all(node.definition.description for node in job.nodes)
    for job in (rollback, restore):
        (op,) = job.nodes
        fields = op.definition.config_schema.config_type.fields  # type: ignore[attr-defined]
        assert all(field.description for field in fields.values())
