"""Maintenance jobs: roll back, restore, and remove expired changes and events. They have no partitions."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import dagster as dg
from pydantic import Field

from consolidation_pipeline.defs.names import prefixed
from consolidation_pipeline.defs.resources import TRIGGERED_BY_TAG, ConsolidationResource
from consolidation_pipeline.errors import ConflictError, ConsolidationError, UsageError
from consolidation_pipeline.service.lifecycle.manual_actions import ManualChange, restore_memories
from consolidation_pipeline.service.undo.ledger_retention import remove_expired_changes
from consolidation_pipeline.service.undo.rollback import Rollback, roll_back
from consolidation_pipeline.service.webhooks.event_delivery import remove_old_events


class RollbackConfig(dg.Config):
    """Changes to undo."""

    target: str = Field(description="Id of a job, a group of changes, or a change; see `consolidation history`.")
    cascade: bool = Field(default=False, description="Also undo later changes that depend on these.")
    reason: str | None = Field(default=None, description="Reason, recorded in the ledger.")


class RestoreConfig(dg.Config):
    """Memories to restore."""

    memories: list[str] = Field(description="Ids of archived memories, raw or merged.")
    reason: str | None = Field(default=None, description="Reason, recorded in the ledger.")


@contextmanager
def fail_without_traceback() -> Iterator[None]:
    """Turn an expected error into a failure of the step with its message and conflicts, without traceback."""
    try:
        yield
    except ConsolidationError as error:
        conflicts = list(error.conflicts) if isinstance(error, ConflictError) else []
        metadata = {"conflicts": dg.MetadataValue.json(conflicts)} if conflicts else {}
        raise dg.Failure(str(error), metadata=metadata, allow_retries=False) from None


def parse_id(text: str) -> UUID:
    """Return an id of a run's config. Raise UsageError if it is none."""
    try:
        return UUID(text)
    except ValueError:
        raise UsageError(f"{text!r} is not an id: give a full UUID") from None


def _get_user(context: dg.OpExecutionContext) -> str:
    return context.run.tags.get(TRIGGERED_BY_TAG, "dagster")


def _describe(result: Rollback | ManualChange) -> dict[str, Any]:
    """Return the fields of a result as metadata, with ids as text."""
    return {name: str(value) if isinstance(value, UUID) else value for name, value in vars(result).items()}


@dg.op(name=prefixed("undo_changes"))
def undo_changes(context: dg.OpExecutionContext, config: RollbackConfig, consolidation: ConsolidationResource) -> None:
    """Roll back a job, a group of changes or a change; on a conflict, nothing is changed."""
    with fail_without_traceback():
        result = roll_back(
            consolidation.engine,
            parse_id(config.target),
            settings=consolidation.settings,
            changed_by=_get_user(context),
            reason=config.reason,
            cascade=config.cascade,
        )
    context.add_output_metadata(_describe(result))


@dg.op(name=prefixed("restore_archived"))
def restore_archived(
    context: dg.OpExecutionContext, config: RestoreConfig, consolidation: ConsolidationResource
) -> None:
    """Make archived memories active again."""
    with fail_without_traceback():
        if not config.memories:
            hint = "`consolidation memories list PROJECT --status archived`"
            raise UsageError(f"`memories` is empty: give the ids of archived memories, as in {hint}")
        ids = [parse_id(memory) for memory in config.memories]
        result = restore_memories(consolidation.engine, ids, reason=config.reason, changed_by=_get_user(context))
    context.add_output_metadata({"restored": len(result), "memories": [_describe(memory) for memory in result]})


@dg.op(name=prefixed("remove_expired"), retry_policy=dg.RetryPolicy(max_retries=2, delay=60))
def remove_expired(context: dg.OpExecutionContext, consolidation: ConsolidationResource) -> None:
    """Remove changes older than `audit_days` of their project, recording the counts, and events older than a month."""
    with fail_without_traceback():
        now = datetime.now(UTC)
        result = remove_expired_changes(
            consolidation.engine, settings=consolidation.settings, now=now, changed_by=_get_user(context)
        )
        events = remove_old_events(consolidation.engine, now=now)
    context.add_output_metadata(
        {
            "changes_removed": result.changes,
            "events_removed": events,
            "projects": len(result.removals),
            "projects_busy": len(result.busy),
            "busy": list(result.busy),
            "removals": {removal.project: dict(removal.summary) for removal in result.removals},
        }
    )


@dg.job(
    name=prefixed("rollback"),
    description="Undo a job, a group of changes or a change exactly. Config: target, cascade, reason.",
)
def rollback() -> None:
    undo_changes()


@dg.job(name=prefixed("restore"), description="Make archived memories active again. Config: memories, reason.")
def restore() -> None:
    restore_archived()


@dg.job(
    name=prefixed("audit_retention"),
    description="Remove ledger changes older than audit_days, and events older than a month.",
)
def audit_retention() -> None:
    remove_expired()
