"""Undo a group of changes or a whole job: atomic, newest first, refused when something changed since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline import tracing
from consolidation_pipeline.errors import ConflictError, ExpiredError, NotFoundError
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys, reject_duplicates
from consolidation_pipeline.store.ledger.cannot_link import count_cannot_links
from consolidation_pipeline.store.ledger.ledger_reader import (
    RollbackTarget,
    count_entities,
    find_rollback_target,
    is_undo,
    list_dependents,
)
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.ledger.revert import revert_changes

_SHOWN_GROUPS = 5


@dataclass(frozen=True)
class Rollback:
    """What a rollback did. ``rollback_id`` is the group of its own changes: rolling that back is the redo.

    ``scope``: group or job; a change is undone with its group, and a rollback has the scope of what it undid.
    ``redone``: what was undone was a rollback, so that something is in force again. ``kept_apart``: merges that later
    runs do not make again, for they were undone as groups and not with their job.
    """

    rollback_id: UUID
    scope: str
    changes: int
    memories_restored: int
    memories_deleted: int
    memories_recreated: int
    redone: bool
    kept_apart: int

    @property
    def note(self) -> str | None:
        """What later runs will do with what was undone; nothing to say where it is in force again."""
        if self.kept_apart:
            merges = "1 merge" if self.kept_apart == 1 else f"{self.kept_apart} merges"
            return f"later runs keep the memories of {merges} apart; the redo lets them merge again"
        if self.redone:
            return None
        return "the next run would do the same again: change the options, such as t_merge or merge=false, before it"


def roll_back(
    engine: Engine,
    target: UUID,
    *,
    settings: Settings,
    changed_by: str,
    reason: str | None = None,
    cascade: bool = False,
) -> Rollback:
    """Undo the job or group with id ``target``, or the group of that change; with ``cascade`` what stands on it too.

    Raises:
        NotFoundError: there is no such id, or nothing under it. ExpiredError: it is older than ``rollback_days``.
        ConflictError: it was rolled back before, a row changed since, something that stands on it is alive, or another
        merged memory says the same by now; ``conflicts`` are the rows or changes. ProjectBusyError: a run or another
        rollback holds the project. Nothing is changed then.
    """
    with engine.connect() as connection:
        scope = find_rollback_target(connection, target)
    if scope is None:
        raise NotFoundError(f"{target} is not the id of a change, a group or a job that changed anything")
    with hold_project(engine, scope.project), engine.begin() as connection:
        lock_active_keys(connection, [scope.project.id])
        scope = find_rollback_target(connection, target) or scope
        _check(scope, target, effective_options(scope.project, settings).rollback_days)
        dependents = list_dependents(connection, scope.changes)
        if dependents and not cascade:
            _refuse(dependents)
        changes = [*scope.changes, *(change.seq for change in dependents)]
        told = {"consolidation.rollback.target": str(target), tracing.MEMORY_RECORD_COUNT: len(changes)}
        with tracing.memory_span("update_memory", scope.project.slug, told):
            return _revert(connection, scope, changes, target=target, changed_by=changed_by, reason=reason)


def _check(scope: RollbackTarget, target: UUID, days: int) -> None:
    if "retention" in scope.operations:
        raise ConflictError(f"{target} records what audit retention removed: that cannot be brought back")
    if scope.undone_by:
        undone_by = tuple(map(str, scope.undone_by))
        redo = f"`consolidation rollback {undone_by[0]}` redoes it"
        raise ConflictError(f"{target} was rolled back before, by {', '.join(undone_by)}; {redo}", undone_by)
    if scope.age > timedelta(days=days):
        raise ExpiredError(
            f"{target} is {scope.age.days} days old: changes can be rolled back for {days} days (rollback_days)"
        )


def _refuse(dependents: Sequence[Row[Any]]) -> None:
    """Name the groups in the way, newest first, which is the order in which they can be undone one by one."""
    groups = {row.group_id: row for row in reversed(dependents)}
    told = [f"{row.operation} of {row.changed_at:%Y-%m-%d %H:%M}, group {id_}" for id_, row in groups.items()]
    more = f"; and {len(told) - _SHOWN_GROUPS} more groups" if len(told) > _SHOWN_GROUPS else ""
    raise ConflictError(
        f"{len(dependents)} later changes stand on it: {'; '.join(told[:_SHOWN_GROUPS])}{more}; "
        "roll those back first, or use --cascade",
        tuple(str(row.id) for row in dependents),
    )


def _revert(
    connection: Connection,
    scope: RollbackTarget,
    changes: Sequence[int],
    *,
    target: UUID,
    changed_by: str,
    reason: str | None,
) -> Rollback:
    project, rollback_id = scope.project, uuid4()
    redone = is_undo(connection, scope.changes[0])
    author = Author(project.id, None, changed_by)
    why = reason or f"{'redoes what was undone by' if redone else 'undoes'} {scope.kind} {target}"
    done = revert_changes(connection, author, changes, group_id=rollback_id, reason=why, scope=scope.kind)
    reject_duplicates(connection, project.id, [rollback_id])
    payload = {"rollback_id": str(rollback_id), "target": str(target), "scope": scope.kind}
    append_event(connection, project.id, "consolidation.rolled_back", payload)
    if entries := count_entities(connection, rollback_id, "playbook_entries"):
        told = {"rollback_id": str(rollback_id), "rolled_back": entries}
        append_event(connection, project.id, "playbook.changed", told)
    return Rollback(
        rollback_id,
        scope.kind,
        len(changes),
        done["restored"],
        done["deleted"],
        done["recreated"],
        redone,
        count_cannot_links(connection, project.id, rollback_id),
    )
