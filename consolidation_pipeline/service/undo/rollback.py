"""Rollback of a change group or a whole job: atomic, newest first, rejected if anything has changed since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline import tracing
from consolidation_pipeline.core.id_prefixes import choose_id, find_bounds
from consolidation_pipeline.errors import ConflictError, ExpiredError, NotFoundError
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.service.sources.dissolved import undo_dissolved
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys, reject_duplicates
from consolidation_pipeline.store.ledger.cannot_link import count_cannot_links
from consolidation_pipeline.store.ledger.ledger_reader import (
    RollbackTarget,
    count_entries,
    find_origin,
    find_rollback_ids,
    find_rollback_target,
    list_dependents,
    list_erased,
)
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.ledger.revert import revert_changes
from consolidation_pipeline.store.shadow.promotion import switch_options
from consolidation_pipeline.store.sources.sources import forget_stamps

_SHOWN_GROUPS = 5
_NO_ID = "is no id: `consolidation history PROJECT` lists those of runs and groups; give one, or"
_ERASED = "memories were erased for good"


@dataclass(frozen=True)
class Rollback:
    """Result of a rollback.

    Attributes:
        rollback_id: Change group of the rollback. Rolling it back redoes the changes.
        scope: group or job. A change is undone with its group. A redo has the scope of the rollback that it undoes.
        redone: True if a rollback was undone, so that the changes are in effect again.
        made_by_run: True if a run made the changes, False if a person or an agent did.
        kept_apart: Number of merges that later runs do not repeat, as they were undone one by one, not with their job.
        store_notes: What came back in connected stores with other values than before.
    """

    rollback_id: UUID
    scope: str
    changes: int
    memories_restored: int
    memories_deleted: int
    memories_recreated: int
    redone: bool
    made_by_run: bool
    kept_apart: int
    store_notes: Sequence[str] = ()

    @property
    def warnings(self) -> list[str]:
        """Rows that came back with other values, and the effect on later runs, if a run makes what was undone."""
        if self.kept_apart:
            merges = "1 merge" if self.kept_apart == 1 else f"{self.kept_apart} merges"
            told = f"later runs keep the memories of {merges} apart; undo this rollback to let them merge again"
        elif self.redone or not self.made_by_run:
            return [*self.store_notes]
        else:
            told = "the next run would do the same again: change the options, such as t_merge or merge=false, before it"
        return [*self.store_notes, told]


def find_target_id(engine: Engine, reference: str) -> UUID:
    """Return the id of a job, a group or a change. Whether a whole id exists is not checked.

    Args:
        reference: The id, or at least its first 8 hexadecimal digits.

    Raises:
        UsageError: The reference is no id, or several ids begin with it.
        NotFoundError: No id begins with it.
    """
    first, last = find_bounds(reference, _NO_ID)
    if first == last:
        return first
    with engine.connect() as connection:
        found = find_rollback_ids(connection, first, last, limit=2)
    missing = f"no change, group or job that changed anything has an id that begins with {reference}"
    return choose_id(reference, found, missing)


def roll_back(
    engine: Engine,
    target: UUID,
    *,
    settings: Settings,
    changed_by: str,
    reason: str | None = None,
    cascade: bool = False,
) -> Rollback:
    """Undo a job, a group, or the group of a change. If it fails, nothing is changed.

    Args:
        target: Id of a job, a group or a change.
        changed_by: Author of the rollback in the ledger.
        reason: Reason for the ledger; None = a standard text.
        cascade: Also undo the later changes that depend on it.

    Raises:
        NotFoundError: There is no such id, or nothing was changed under it.
        ExpiredError: It is older than ``rollback_days``.
        ConflictError: It was rolled back before, a row has changed since, later changes depend on it, or a row that it
            would restore has an active duplicate, or it changed memories that were erased since. ``conflicts`` are the
            rows or changes. A job is undone without the groups that changed erased memories.
        ProjectBusyError: A run or another rollback holds the project.
    """
    with engine.connect() as connection:
        project = _find_target(connection, target).project
    with hold_project(engine, project), engine.begin() as connection:
        lock_active_keys(connection, [project.id])
        found, dependents = _find_changes(connection, target, settings)
        if dependents and not cascade:
            _reject_dependents(target, dependents)
        changes = [*found.changes, *(change.seq for change in dependents)]
        attributes = {"consolidation.rollback.target": str(target), tracing.MEMORY_RECORD_COUNT: len(changes)}
        with tracing.memory_span("update_memory", found.project.slug, attributes):
            return _revert(connection, found, changes, target=target, changed_by=changed_by, reason=reason)


def list_later_changes(engine: Engine, target: UUID, *, settings: Settings) -> list[UUID]:
    """Return the ids of the later changes that depend on a job or group, which ``cascade`` undoes too; oldest first.

    Raises:
        NotFoundError, ExpiredError: As ``roll_back``.
        ConflictError: It was rolled back before, or it or what depends on it changed memories that were erased since.
    """
    with engine.connect() as connection:
        _, dependents = _find_changes(connection, target, settings)
    return [row.id for row in dependents]


def _find_target(connection: Connection, target: UUID) -> RollbackTarget:
    found = find_rollback_target(connection, target)
    if found is None:
        raise NotFoundError(f"{target} is not the id of a change, a group or a job that changed anything")
    return found


def _find_changes(
    connection: Connection, target: UUID, settings: Settings
) -> tuple[RollbackTarget, Sequence[Row[Any]]]:
    """Return the changes to roll back, and the later ones that depend on them. Raise the errors of ``roll_back``."""
    found = _find_target(connection, target)
    _check_target(found, target, effective_options(found.project, settings).rollback_days)
    found = _leave_out_erased(connection, found, target)
    dependents = list_dependents(connection, found.changes)
    if list_erased(connection, [change.seq for change in dependents]):
        raise ConflictError(f"{target} cannot be undone: {_ERASED}, and it depends on them")
    return found, dependents


def _check_target(found: RollbackTarget, target: UUID, days: int) -> None:
    """Raise ConflictError or ExpiredError if the target cannot be rolled back."""
    if "retention" in found.operations:
        raise ConflictError(f"{target} records what audit retention removed: that cannot be restored")
    if found.undone_by:
        undone_by = tuple(map(str, found.undone_by))
        parts = f" (and parts of it by {', '.join(undone_by[1:])})" if len(undone_by) > 1 else ""
        redo = f"`consolidation rollback {undone_by[0]}` redoes it"
        raise ConflictError(f"{target} was rolled back before, by {undone_by[0]}{parts}; {redo}", undone_by)
    if found.age > timedelta(days=days):
        raise ExpiredError(
            f"{target} is {found.age.days} days old: changes can be rolled back for {days} days (rollback_days)"
        )


def _leave_out_erased(connection: Connection, found: RollbackTarget, target: UUID) -> RollbackTarget:
    """Return the changes of a job without the groups that an erasure emptied. Raise ConflictError if none is left."""
    erased = list_erased(connection, found.changes)
    left = [seq for seq in found.changes if seq not in erased]
    if erased and (found.kind == "group" or not left):
        raise ConflictError(f"{target} cannot be undone: {_ERASED}, and it changed them")
    return replace(found, changes=left)


def _reject_dependents(target: UUID, dependents: Sequence[Row[Any]]) -> None:
    """Raise ConflictError naming the dependent groups, newest first: the order in which they can be undone."""
    groups = {row.group_id: row for row in reversed(dependents)}
    listed = [f"{row.operation} of {row.changed_at:%Y-%m-%d %H:%M}, group {id_}" for id_, row in groups.items()]
    more = [f"and {len(listed) - _SHOWN_GROUPS} more groups"] if len(listed) > _SHOWN_GROUPS else []
    count = "1 later change depends" if len(dependents) == 1 else f"{len(dependents)} later changes depend"
    raise ConflictError(
        f"{count} on it; `consolidation rollback {target} --cascade` undoes it with them, or roll these groups back "
        "first:",
        tuple(str(row.id) for row in dependents),
        (*listed[:_SHOWN_GROUPS], *more),
    )


def _revert(
    connection: Connection,
    found: RollbackTarget,
    changes: Sequence[int],
    *,
    target: UUID,
    changed_by: str,
    reason: str | None,
) -> Rollback:
    project, rollback_id = found.project, uuid4()
    origin = find_origin(connection, found.changes[0])
    author = Author(project.id, None, changed_by)
    reason = reason or f"{'redoes what was undone by' if origin.is_undo else 'undoes'} {found.kind} {target}"
    done = revert_changes(connection, author, changes, group_id=rollback_id, reason=reason, scope=found.kind)
    reject_duplicates(connection, project.id, [rollback_id])
    forget_stamps(connection, rollback_id)
    store_notes = undo_dissolved(connection, project.id)
    if found.kind == "job":
        switch_options(connection, project, seq=found.changes[0])
    payload = {"rollback_id": str(rollback_id), "target": str(target), "scope": found.kind}
    append_event(connection, project.id, "consolidation.rolled_back", payload)
    if entries := count_entries(connection, rollback_id):
        changed = {"rollback_id": str(rollback_id), "rolled_back": entries}
        append_event(connection, project.id, "playbook.changed", changed)
    return Rollback(
        rollback_id,
        found.kind,
        len(changes),
        done["restored"],
        done["deleted"],
        done["recreated"],
        origin.is_undo,
        origin.job_id is not None,
        count_cannot_links(connection, project.id, rollback_id),
        store_notes,
    )
