"""Manual actions on memories: archive, restore, pin. A call is all or nothing; each memory is a change group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from uuid import UUID, uuid4

from consolidation_pipeline.core.lifecycle.archive_policies import FORGOTTEN, STALENESS
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys_of
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.memories.archive import (
    ARCHIVED_AT,
    Duplicate,
    LockedMemory,
    MemoryUpdate,
    archive_rows,
    edit_rows,
    find_duplicates,
    lock_memories,
    restore_rows,
)
from consolidation_pipeline.store.review.review_queue import DISMISSED

MANUAL_REASON = "by hand"


@dataclass(frozen=True)
class ManualChange:
    """Memory that was archived, restored or pinned manually. A rollback of ``group_id`` undoes this change alone."""

    id: UUID
    project: str
    kind: str
    group_id: UUID


Objection = Callable[[LockedMemory], str | None]
Write = Callable[[Connection, Author, str, list[MemoryUpdate]], None]


def archive_manually(
    engine: Engine, ids: Iterable[UUID], *, reason: str | None = None, changed_by: str
) -> list[ManualChange]:
    """Archive memories of any kind and any project: all of them or none.

    An archived pattern or principle is not derived again from the same memories.

    Raises:
        NotFoundError: An id is unknown.
        UsageError: ``reason`` is reserved for a policy or a review.
        ConflictError: A memory is archived, merged into another one, superseded or pinned.
    """
    check_archive_reason(reason)
    write = partial(archive_rows, at=datetime.now(UTC))
    return _apply(engine, ids, changed_by, reason or MANUAL_REASON, write=write, objection=find_archive_objection)


def check_archive_reason(reason: str | None) -> None:
    """Raise UsageError for a reason that a policy or a review archives with."""
    if reason in (STALENESS, FORGOTTEN, DISMISSED):
        raise UsageError(f"the reason {reason!r} is reserved for a policy or a review: use another text")


def restore_memories(
    engine: Engine, ids: Iterable[UUID], *, reason: str | None = None, changed_by: str
) -> list[ManualChange]:
    """Restore archived memories of any kind as they were: all of them or none.

    Raises:
        NotFoundError: An id is unknown.
        ConflictError: A memory is not archived, was dissolved, or has an active duplicate: a merged memory with
            the same text, a pattern or principle of the same group, or a newer profile.
    """
    return _apply(engine, ids, changed_by, reason or MANUAL_REASON, write=_restore, objection=_find_restore_objection)


def pin_memories(
    engine: Engine, ids: Iterable[UUID], *, pinned: bool, reason: str | None = None, changed_by: str
) -> list[ManualChange]:
    """Pin or unpin active memories: all of them or none.

    No policy archives a pinned memory, and no other pattern supersedes a pinned one.

    Raises:
        NotFoundError: An id is unknown.
        ConflictError: A memory is archived, merged into another one, superseded, or pinned or unpinned already.
    """
    write = partial(edit_rows, values={"pinned": pinned})
    objection = partial(_find_pin_objection, pinned=pinned)
    return _apply(engine, ids, changed_by, reason or MANUAL_REASON, write=write, objection=objection)


def _apply(
    engine: Engine, ids: Iterable[UUID], changed_by: str, reason: str, *, write: Write, objection: Objection
) -> list[ManualChange]:
    """Write the memories under lock in one transaction, each as a change group of its own."""
    distinct = list(dict.fromkeys(ids))
    with engine.begin() as connection:
        lock_active_keys_of(connection, distinct)
        locked = lock_checked_memories(connection, distinct, objection)
        groups = {memory.id: uuid4() for memory in locked}
        for table in ARCHIVED_AT:
            for project_id in sorted({memory.project_id for memory in locked if memory.table == table}):
                own = [memory for memory in locked if (memory.project_id, memory.table) == (project_id, table)]
                updates = [MemoryUpdate(m.id, m.version, groups[m.id], reason, reason) for m in own]
                write(connection, Author(project_id, None, changed_by), table, updates)
    return [ManualChange(memory.id, memory.project, memory.kind, groups[memory.id]) for memory in locked]


def lock_checked_memories(connection: Connection, ids: Sequence[UUID], objection: Objection) -> list[LockedMemory]:
    """Lock memories and return them in the order of ``ids``.

    Raises:
        NotFoundError: An id is unknown.
        ConflictError: ``objection`` returns a reason why one of the memories must not be changed.
    """
    found = lock_memories(connection, ids)
    for id_ in ids:
        if id_ not in found:
            raise NotFoundError(f"there is no memory {id_}")
    _raise_objections({id_: why for id_ in ids if (why := objection(found[id_])) is not None})
    return [found[id_] for id_ in ids]


def _raise_objections(objections: Mapping[UUID, str]) -> None:
    if objections:
        first = next(iter(objections.values()))
        raise ConflictError(first, tuple(str(id_) for id_ in objections))


def find_archive_objection(memory: LockedMemory) -> str | None:
    """Return the reason why a person cannot archive a memory: it is archived, pinned or replaced; else None."""
    if memory.archived:
        return f"memory {memory.id} is archived already"
    if memory.pinned and memory.successor is None:
        return f"memory {memory.id} is pinned: unpin it first"
    return _describe_replacement(memory, "archive that one")


def _find_restore_objection(memory: LockedMemory) -> str | None:
    if memory.dissolved:
        return f"memory {memory.id} was dissolved: memories behind it are of several scopes, in quarantine or replaced"
    if memory.archived:
        return None
    return _describe_replacement(memory, "restore that one if it is archived") or f"memory {memory.id} is not archived"


def find_feedback_objection(memory: LockedMemory) -> str | None:
    """Return the reason why a memory takes no feedback: it is archived, or another one replaces it; else None."""
    if memory.archived:
        return f"memory {memory.id} is archived: restore it first"
    return _describe_replacement(memory, "give feedback on that one")


def _find_pin_objection(memory: LockedMemory, *, pinned: bool) -> str | None:
    if memory.archived:
        return f"memory {memory.id} is archived: restore it first"
    if memory.pinned == pinned and memory.successor is None:
        return f"memory {memory.id} is {'pinned already' if pinned else 'not pinned'}"
    return _describe_replacement(memory, "pin that one" if pinned else "unpin that one")


def _describe_replacement(memory: LockedMemory, advice: str) -> str | None:
    if memory.successor is None:
        return None
    what = "hidden in merged" if memory.kind == "raw" else f"superseded by {memory.kind}"
    return f"memory {memory.id} is {what} memory {memory.successor}: {advice}"


def _restore(connection: Connection, author: Author, table: str, updates: list[MemoryUpdate]) -> None:
    if table == "consolidated_memories":
        duplicates = find_duplicates(connection, [update.id for update in updates])
        _raise_objections({id_: _describe_duplicate(id_, duplicate) for id_, duplicate in duplicates.items()})
    restore_rows(connection, author, table, updates)


def _describe_duplicate(id_: UUID, duplicate: Duplicate) -> str:
    same = {"merged": "text", "procedural": "user"}.get(duplicate.kind, "group")
    return f"memory {id_} has the same {same} as {duplicate.kind} memory {duplicate.id}: only one of them can be active"
