"""Undo a change, a group or a whole job: atomic, newest first, refused when something changed since."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.service.runs import LOCK_WAIT_SECONDS, effective_options
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store import jobs
from consolidation_pipeline.store.changes import Scope, find_scope, list_dependents
from consolidation_pipeline.store.engine import Engine
from consolidation_pipeline.store.ledger import Author
from consolidation_pipeline.store.reverting import revert_changes


@dataclass(frozen=True)
class Rollback:
    """What a rollback did. ``rollback_id`` is the group of its own changes: rolling that back is the redo."""

    rollback_id: UUID
    scope: str
    changes: int
    memories_restored: int
    memories_deleted: int
    memories_recreated: int


def roll_back(
    engine: Engine,
    target: UUID,
    *,
    settings: Settings,
    changed_by: str,
    reason: str | None = None,
    cascade: bool = False,
) -> Rollback:
    """Undo the change, group or job with id ``target``; with ``cascade`` what was derived from it too.

    Raises:
        NotFoundError: there is no such id, or nothing under it. ConflictError: it was rolled back before, is older than
        ``rollback_days``, a row changed since, or something derived from it is alive. Nothing is changed then.
    """
    with engine.connect() as connection:
        scope = find_scope(connection, target)
    if scope is None:
        raise NotFoundError(f"{target} is not the id of a change, a group or a job that changed anything")
    with (
        jobs.project_lock(engine, scope.project.id, scope.project.slug, wait_seconds=LOCK_WAIT_SECONDS),
        engine.begin() as connection,
    ):
        scope = find_scope(connection, target) or scope
        _check_age(scope, effective_options(scope.project, settings).rollback_days)
        changes = list(scope.changes)
        dependents = list_dependents(connection, changes)
        if dependents and not cascade:
            raise ConflictError(
                f"{len(dependents)} later changes stand on it: roll them back first, or use --cascade",
                tuple(str(change.id) for change in dependents),
            )
        author = Author(scope.project.id, None, changed_by)
        group_id = uuid4()
        done = revert_changes(
            connection, author, [*changes, *(change.seq for change in dependents)], group_id=group_id, reason=reason
        )
        jobs.append_event(
            connection,
            scope.project.id,
            "consolidation.rolled_back",
            {"rollback_id": str(group_id), "target": str(target), "scope": scope.kind},
        )
    return Rollback(
        group_id, scope.kind, len(changes) + len(dependents), done["restored"], done["deleted"], done["recreated"]
    )


def _check_age(scope: Scope, days: int) -> None:
    if scope.age > timedelta(days=days):
        raise ConflictError(
            f"it is {scope.age.days} days old: changes can be rolled back for {days} days (rollback_days)"
        )
