"""Deletion of memories, through the ledger, with all that was derived from them, so that it can be undone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

from consolidation_pipeline.errors import ConflictError, ForbiddenError
from consolidation_pipeline.service.lifecycle.changed_memories import (
    ANY_EDITOR,
    Editor,
    check_reasons,
    find_all,
    find_derived,
    load_allowed,
    tell_out_of_use,
)
from consolidation_pipeline.service.lifecycle.manual_actions import (
    MANUAL_REASON,
    find_archive_objection,
    lock_checked_memories,
)
from consolidation_pipeline.service.runs.run_lifecycle import hold_project
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.scope_keys import DELETED
from consolidation_pipeline.store.knowledge.quarantine import (
    WriterFilter,
    list_sources,
    list_suspects,
    write_quarantine,
)
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.memories.archive import MemoryUpdate, archive_rows


@dataclass(frozen=True)
class Deletion:
    """Result of a deletion.

    ``memories``: what was deleted, the sources of merged memories included. ``derived``: number of other rows by kind
    that went out of use with them. A rollback of ``group_id`` brings all of it back.
    """

    project: str
    memories: Sequence[UUID]
    derived: Mapping[str, int]
    group_id: UUID


def delete_memories(
    engine: Engine,
    ids: Iterable[UUID],
    *,
    changed_by: str,
    reason: str | None = None,
    editor: Editor = ANY_EDITOR,
) -> Deletion:
    """Delete memories of one project, with everything that was derived from them, as one change that can be undone.

    They are hidden at once, from search, context, playbook and the next runs. A merged memory is deleted with the
    memories that it was made from. A pattern, principle, summary or profile is archived: it is not derived again from
    the same memories, which stay. `erase_memories` removes for good.

    Raises:
        NotFoundError: There is no such memory, or it is of another scope.
        ForbiddenError: Another writer wrote it, or the caller may not delete a consolidated memory.
        UsageError: The memories are of several projects, or none is given.
        ConflictError: A memory is deleted or in quarantine already, or superseded by another one.
        ProjectBusyError: A run or a rollback holds the project.
    """
    check_reasons(reason)
    distinct = list(dict.fromkeys(ids))
    project, found = find_all(engine, distinct)
    derived_ids = [id_ for id_ in distinct if found[id_].kind not in ("raw", "merged")]
    if editor != ANY_EDITOR and any(found[id_].kind != "raw" for id_ in distinct):
        raise ForbiddenError("consolidated memories are made from those of several writers: an admin deletes them")
    group_id, author, now = uuid4(), Author(project.id, None, changed_by), datetime.now(UTC)
    words = f"{DELETED}{reason or MANUAL_REASON}"
    with hold_project(engine, project), engine.begin() as connection:
        lock_active_keys(connection, [project.id])
        merged = [id_ for id_ in distinct if found[id_].kind == "merged"]
        raw = [id_ for id_ in distinct if found[id_].kind == "raw"]
        load_allowed(connection, project, raw, editor)
        roots = _archive_derived(connection, author, derived_ids, group_id=group_id, reason=reason, now=now)
        raw_ids = [*raw, *list_sources(connection, merged)]
        suspects = list_suspects(connection, project.id, WriterFilter(ids=raw_ids)) if raw_ids else []
        gone = sorted(set(raw) - {memory.id for memory in suspects})
        if gone or (merged and not suspects):
            first = (gone or merged)[0]
            raise ConflictError(f"memory {first} is deleted or in quarantine already", (str(first),))
        rows = find_derived(connection, project.id, suspects, roots=roots)
        write_quarantine(connection, author, rows, group_id=group_id, reason=words, now=now)
        totals = tell_out_of_use(connection, author, rows, group_id)
    deleted = [*sorted(roots), *(memory.id for memory in suspects)]
    return Deletion(project.slug, deleted, totals, group_id)


def _archive_derived(
    connection: Connection, author: Author, ids: Sequence[UUID], *, group_id: UUID, reason: str | None, now: datetime
) -> set[UUID]:
    """Archive patterns, principles, summaries and profiles by hand; return their ids."""
    locked = lock_checked_memories(connection, ids, find_archive_objection)
    words = reason or MANUAL_REASON
    updates = [MemoryUpdate(memory.id, memory.version, group_id, words, words) for memory in locked]
    if updates:
        archive_rows(connection, author, "consolidated_memories", updates, at=now)
    return set(ids)
