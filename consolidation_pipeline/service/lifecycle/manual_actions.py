"""Archive memories by hand, bring them back, pin them: all of a call or nothing, each a group that one can undo."""

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
    find_duplicates,
    lock_memories,
    pin_rows,
    restore_rows,
)
from consolidation_pipeline.store.review.review_queue import DISMISSED

BY_HAND = "by hand"


@dataclass(frozen=True)
class Handled:
    """A memory that was archived, brought back or pinned by hand; rolling ``group_id`` back undoes just that."""

    id: UUID
    project: str
    kind: str
    group_id: UUID


Objection = Callable[[LockedMemory], str | None]
Write = Callable[[Connection, Author, str, list[MemoryUpdate]], None]


def archive_by_hand(
    engine: Engine, ids: Iterable[UUID], *, reason: str | None = None, changed_by: str
) -> list[Handled]:
    """Archive memories of any kind and any projects: all of them or none.

    A pattern or principle that was archived is not made again of the same memories.

    Raises:
        NotFoundError: an id is unknown. UsageError: ``reason`` is what a policy or a review gives. ConflictError: a
        memory is archived, hidden in a merged memory, superseded or pinned.
    """
    if reason in (STALENESS, FORGOTTEN, DISMISSED):
        raise UsageError(f"the reason {reason!r} is one that a policy or a review gives: use other words")
    write = partial(archive_rows, at=datetime.now(UTC))
    return _by_hand(engine, ids, changed_by, reason or BY_HAND, write=write, objection=_unfit_to_archive)


def restore_memories(
    engine: Engine, ids: Iterable[UUID], *, reason: str | None = None, changed_by: str
) -> list[Handled]:
    """Bring archived memories of any kind back, just as they were: all of them or none.

    Raises:
        NotFoundError: an id is unknown. ConflictError: a memory is not archived, or another one stands in its place: a
        merged memory that says the same word for word, a pattern or principle of the same group, a newer profile.
    """
    return _by_hand(engine, ids, changed_by, reason or BY_HAND, write=_restore, objection=_unfit_to_restore)


def pin_memories(
    engine: Engine, ids: Iterable[UUID], *, pinned: bool, reason: str | None = None, changed_by: str
) -> list[Handled]:
    """Pin active memories, or unpin them: all of them or none.

    No policy archives a pinned memory, and no other pattern takes the place of a pinned one.

    Raises:
        NotFoundError: an id is unknown. ConflictError: a memory is archived, hidden in a merged memory or superseded,
        or is pinned or unpinned already.
    """
    write = partial(pin_rows, pinned=pinned)
    return _by_hand(
        engine, ids, changed_by, reason or BY_HAND, write=write, objection=partial(_unfit_to_pin, pinned=pinned)
    )


def _by_hand(
    engine: Engine, ids: Iterable[UUID], changed_by: str, reason: str, *, write: Write, objection: Objection
) -> list[Handled]:
    """Write the memories in one transaction, under lock, each as a group of its own, by project and table."""
    chosen = list(dict.fromkeys(ids))
    with engine.begin() as connection:
        lock_active_keys_of(connection, chosen)
        held = lock_fit(connection, chosen, objection)
        groups = {memory.id: uuid4() for memory in held}
        for table in ARCHIVED_AT:
            for project_id in sorted({memory.project_id for memory in held if memory.table == table}):
                own = [memory for memory in held if (memory.project_id, memory.table) == (project_id, table)]
                marks = [MemoryUpdate(m.id, m.version, groups[m.id], reason, reason) for m in own]
                write(connection, Author(project_id, None, changed_by), table, marks)
    return [Handled(memory.id, memory.project, memory.kind, groups[memory.id]) for memory in held]


def lock_fit(connection: Connection, ids: Sequence[UUID], objection: Objection) -> list[LockedMemory]:
    """The memories in the order of ``ids``, locked, none of which there is an objection to.

    Raises:
        NotFoundError: an id is unknown. ConflictError: there is an objection.
    """
    found = lock_memories(connection, ids)
    for id_ in ids:
        if id_ not in found:
            raise NotFoundError(f"there is no memory {id_}")
    _refuse({id_: why for id_ in ids if (why := objection(found[id_])) is not None})
    return [found[id_] for id_ in ids]


def _refuse(objections: Mapping[UUID, str]) -> None:
    if objections:
        first = next(iter(objections.values()))
        raise ConflictError(first, tuple(str(id_) for id_ in objections))


def _unfit_to_archive(memory: LockedMemory) -> str | None:
    if memory.archived:
        return f"memory {memory.id} is archived already"
    if memory.pinned and memory.successor is None:
        return f"memory {memory.id} is pinned: unpin it first"
    return _replaced(memory, "archive that")


def _unfit_to_restore(memory: LockedMemory) -> str | None:
    if memory.archived:
        return None
    return _replaced(memory, "restore that if it is archived") or f"memory {memory.id} is not archived"


def unfit_to_weigh(memory: LockedMemory) -> str | None:
    """Why nobody can say how helpful a memory is: it is archived, or another one stands in its place."""
    if memory.archived:
        return f"memory {memory.id} is archived: restore it first"
    return _replaced(memory, "say it of that")


def _unfit_to_pin(memory: LockedMemory, *, pinned: bool) -> str | None:
    if memory.archived:
        return f"memory {memory.id} is archived: restore it first"
    if memory.pinned == pinned and memory.successor is None:
        return f"memory {memory.id} is {'pinned already' if pinned else 'not pinned'}"
    return _replaced(memory, "pin that" if pinned else "unpin that")


def _replaced(memory: LockedMemory, advice: str) -> str | None:
    if memory.successor is None:
        return None
    what = "hidden in merged" if memory.kind == "raw" else f"superseded by {memory.kind}"
    return f"memory {memory.id} is {what} memory {memory.successor}: {advice}"


def _restore(connection: Connection, author: Author, table: str, marks: list[MemoryUpdate]) -> None:
    twins = find_duplicates(connection, [mark.id for mark in marks]) if table == "consolidated_memories" else {}
    _refuse({id_: f"memory {id_} {_as_twin(twin)}: only one of them can be active" for id_, twin in twins.items()})
    restore_rows(connection, author, table, marks)


def _as_twin(twin: Duplicate) -> str:
    what = "says the same word for word" if twin.kind == "merged" else "stands for the same"
    return f"{what} as {twin.kind} memory {twin.id}"
