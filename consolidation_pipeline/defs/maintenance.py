"""Maintenance: undoing, restoring, and removing what is older than the ledger is kept. Not per partition."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import dagster as dg
from pydantic import Field

from consolidation_pipeline.defs.resources import TRIGGERED_BY_TAG
from consolidation_pipeline.defs.run_requests import SCHEDULE_STATUS
from consolidation_pipeline.errors import ConflictError, ConsolidationError, UsageError
from consolidation_pipeline.service.lifecycle.manual_actions import Handled, restore_memories
from consolidation_pipeline.service.undo.ledger_retention import remove_expired_changes
from consolidation_pipeline.service.undo.rollback import Rollback, roll_back
from consolidation_pipeline.service.webhooks.event_delivery import remove_old_events
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine


class RollbackConfig(dg.Config):
    """What to undo."""

    target: str = Field(description="Id of a job, of a group of changes, or of a change; `history` lists them.")
    cascade: bool = Field(default=False, description="Undo what was built on it too.")
    reason: str | None = Field(default=None, description="Why; stands in the ledger.")


class RestoreConfig(dg.Config):
    """What to bring back."""

    memories: list[str] = Field(description="Ids of archived memories, raw or merged.")
    reason: str | None = Field(default=None, description="Why; stands in the ledger.")


@contextmanager
def _told_plainly() -> Iterator[None]:
    """An error raised on purpose fails the step with its own words and what is in conflict, without a traceback."""
    try:
        yield
    except ConsolidationError as error:
        conflicts = list(error.conflicts) if isinstance(error, ConflictError) else []
        metadata = {"conflicts": dg.MetadataValue.json(conflicts)} if conflicts else {}
        raise dg.Failure(str(error), metadata=metadata, allow_retries=False) from None


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(f"{text!r} is not an id: give the whole UUID") from None


def _who(context: dg.OpExecutionContext) -> str:
    return context.run.tags.get(TRIGGERED_BY_TAG, "dagster")


def _readable(done: Rollback | Handled) -> dict[str, Any]:
    """The fields of a result as metadata, ids as text."""
    return {name: str(value) if isinstance(value, UUID) else value for name, value in vars(done).items()}


@dg.op
def undo_changes(context: dg.OpExecutionContext, config: RollbackConfig, store: dg.ResourceParam[Engine]) -> None:
    """Roll back a job or a group of changes: all of it or, where something stands in the way, nothing."""
    with _told_plainly():
        done = roll_back(
            store,
            _id(config.target),
            settings=Settings(),
            changed_by=_who(context),
            reason=config.reason,
            cascade=config.cascade,
        )
    context.add_output_metadata(_readable(done))


@dg.op
def restore_archived(context: dg.OpExecutionContext, config: RestoreConfig, store: dg.ResourceParam[Engine]) -> None:
    """Make archived memories active again."""
    with _told_plainly():
        ids = [_id(memory) for memory in config.memories]
        done = restore_memories(store, ids, reason=config.reason, changed_by=_who(context))
    context.add_output_metadata({"restored": len(done), "memories": [_readable(memory) for memory in done]})


@dg.op
def remove_expired(context: dg.OpExecutionContext, store: dg.ResourceParam[Engine]) -> None:
    """Remove changes older than each project's audit_days, and record what went; and events that are a month old."""
    with _told_plainly():
        now = datetime.now(UTC)
        done = remove_expired_changes(store, settings=Settings(), now=now, changed_by=_who(context))
        events = remove_old_events(store, now=now)
    context.add_output_metadata(
        {
            "changes_removed": done.changes,
            "events_removed": events,
            "projects": len(done.removals),
            "projects_busy": len(done.busy),
            "busy": list(done.busy),
            "removals": {removal.project: dict(removal.summary) for removal in done.removals},
        }
    )


@dg.job(description="Undo a job or a group of changes, exactly; config: target, cascade, reason.")
def rollback() -> None:
    undo_changes()


@dg.job(description="Make archived memories active again; config: memories, reason.")
def restore() -> None:
    restore_archived()


@dg.job(description="Remove changes from the ledger that are older than audit_days, and old events.")
def audit_retention() -> None:
    remove_expired()


@dg.schedule(job=audit_retention, cron_schedule="0 5 * * 0", default_status=SCHEDULE_STATUS)
def weekly_audit_retention() -> dg.RunRequest:
    """Every Sunday: the ledger keeps what its projects want kept."""
    return dg.RunRequest(tags={TRIGGERED_BY_TAG: "weekly_audit_retention"})
