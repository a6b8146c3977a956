"""Quarantine, deletion and revision of raw memories: everything derived from them goes out of use with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE
from consolidation_pipeline.store.database.schema import (
    consolidated_memories,
    consolidation_suggestions,
    memory_relations,
    playbook_entries,
    task_memories,
)
from consolidation_pipeline.store.database.scope_keys import is_out_of_use
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, update_rows


@dataclass(frozen=True, kw_only=True)
class WriterFilter:
    """Raw memories of a project: those with these ``ids``, or else all that meet every given condition.

    ``key_id``: those that the agent of this key wrote.
    """

    ids: Sequence[UUID] = ()
    agent_id: str | None = None
    session_id: str | None = None
    user_id: str | None = None
    key_id: UUID | None = None


class OwnedMemory(NamedTuple):
    """A raw memory, or a consolidated one of another ``kind``, with the slug of its project."""

    id: UUID
    kind: str
    project: str


_LIST_OWNERS = """
    SELECT m.id, m.kind, p.slug FROM (
        SELECT id, 'raw' AS kind, project_id FROM consolidation.task_memories
        UNION ALL SELECT id, kind, project_id FROM consolidation.consolidated_memories) m
        JOIN consolidation.projects p ON p.id = m.project_id
    WHERE m.id = ANY(:ids)
"""


def list_owners(connection: Connection, ids: Sequence[UUID]) -> list[OwnedMemory]:
    """Return kind and project of the memories with these ids that exist."""
    return [OwnedMemory(*row) for row in connection.execute(text(_LIST_OWNERS), {"ids": list(ids)})]


class SuspectMemory(NamedTuple):
    """A raw memory that is in use, or archived. ``merged_id``: the merged memory that hides it."""

    id: UUID
    version: int
    content: str
    archived_at: datetime | None
    merged_id: UUID | None


_CONDITIONS = {
    "agent_id": "agent_id = :agent_id",
    "session_id": "session_id = :session_id",
    "user_id": "user_id = :user_id",
    "key_id": "writer = :writer",
}
_LIST_SUSPECTS = """
    SELECT id, version, execution_summary, archived_at, consolidated_into_id FROM consolidation.task_memories
    WHERE project_id = :project AND NOT /* is_out_of_use */ /* filters */ ORDER BY id
"""


def list_suspects(connection: Connection, project_id: UUID, where: WriterFilter) -> list[SuspectMemory]:
    """Return the raw memories of a project that meet the filter, by id, without those out of use already."""
    given = [sql for name, sql in _CONDITIONS.items() if getattr(where, name) is not None]
    filters = conditions("id = ANY(:ids)" if where.ids else None, *given)
    statement = compose(_LIST_SUSPECTS, is_out_of_use=is_out_of_use(), filters=filters)
    parameters = {
        "project": project_id,
        "ids": list(where.ids),
        "agent_id": where.agent_id,
        "session_id": where.session_id,
        "user_id": where.user_id,
        "writer": f"key:{where.key_id}",
    }
    return [SuspectMemory(*row) for row in connection.execute(text(statement), parameters)]


class KeptRow(NamedTuple):
    """A summary or profile that stays in use though some of its memories changed.

    ``changed``: how many have changed since it was written.
    """

    id: UUID
    version: int
    details: Mapping[str, Any]
    changed: int


# A summary or profile is written again when this share of its memories has changed, whatever it tells. A profile tells
# nothing that fewer than three memories share (``profile_counts``).
_KEPT_SHARE, _KEPT_OF_PROFILE = 0.05, 2
_LIST_KEPT = """
    WITH summarized AS (
        SELECT child_id AS id, count(*) AS changed FROM consolidation.memory_lineage
        WHERE parent_id = ANY(:ids) GROUP BY child_id),
    counted AS (
        SELECT id, changed FROM summarized
        UNION ALL
        SELECT l.child_id, sum(s.changed) FROM summarized s JOIN consolidation.memory_lineage l ON l.parent_id = s.id
        GROUP BY l.child_id)
    SELECT id, version, details, changed FROM (
        SELECT c.id, c.version, c.kind, c.details, c.source_count,
            coalesce((c.details ->> 'changed')::integer, 0) + counted.changed::integer AS changed
        FROM counted JOIN consolidation.consolidated_memories c USING (id)
        WHERE c.project_id = :project AND c.superseded_by_id IS NULL AND c.retired_at IS NULL
            AND c.consolidation_method = 'heuristic'
            AND (c.kind = 'procedural'
                OR (c.kind = 'summary' AND c.details ? 'told' AND NOT c.details -> 'told' ?| CAST(:texts AS text[])))) t
    WHERE changed <= :share * source_count AND (kind = 'summary' OR changed <= :of_profile)
    ORDER BY id
"""


def list_kept(connection: Connection, project_id: UUID, changed: Sequence[UUID]) -> list[KeptRow]:
    """Return the summaries and profiles that stay in use when these raw memories are edited or deleted, by id.

    A summary without a model tells something of few of its memories, and knows of which. A profile without a model
    counts. Each is kept until a twentieth of its memories has changed; it lists the changed ones as its sources.
    """
    parameters = {"project": project_id, "ids": list(changed), "texts": [str(id_) for id_ in changed]}
    parameters |= {"share": _KEPT_SHARE, "of_profile": _KEPT_OF_PROFILE}
    return [KeptRow(*row) for row in connection.execute(text(_LIST_KEPT), parameters)]


class AffectedRow(NamedTuple):
    """A row that was derived from suspect memories.

    ``table``: where it is. ``kind``: of a consolidated memory, or playbook, suggestion, relation. ``is_derived``: it
    was made of them; False for an entry that they only support. ``evidence``: the entry's memories that stay.
    """

    id: UUID
    version: int
    table: str
    kind: str
    status: str
    content: str
    is_derived: bool = True
    evidence: Sequence[UUID] = ()


# What a relation or suggestion says about an affected memory is affected too.
_LIST_AFFECTED = """
    WITH RECURSIVE up AS (
        SELECT id, version, kind, retired_at, content FROM consolidation.consolidated_memories
        WHERE project_id = :project AND superseded_by_id IS NULL AND id <> ALL(CAST(:kept AS uuid[]))
            AND (source_memory_ids && CAST(:ids AS uuid[]) OR id IN (
                SELECT child_id FROM consolidation.memory_lineage WHERE parent_id = ANY(:ids)))
        UNION
        SELECT c.id, c.version, c.kind, c.retired_at, c.content
        FROM up JOIN consolidation.memory_lineage l ON l.parent_id = up.id
            JOIN consolidation.consolidated_memories c ON c.id = l.child_id
        WHERE c.superseded_by_id IS NULL AND c.id <> ALL(CAST(:kept AS uuid[]))),
    touched AS (SELECT unnest(CAST(:ids AS uuid[])) AS id UNION SELECT id FROM up),
    ids AS MATERIALIZED (SELECT array_agg(id) AS ids FROM touched)
    SELECT id, version, 'consolidated_memories', kind, CASE WHEN retired_at IS NULL THEN 'active' ELSE 'archived' END,
        content, true, '{}'::uuid[]
    FROM up
    UNION ALL
    SELECT e.id, e.version, 'playbook_entries', 'playbook', e.status, e.content, e.source_id = ANY(ids.ids) IS TRUE,
        ARRAY(SELECT s FROM unnest(e.supporting_memory_ids) s WHERE s <> ALL(ids.ids) ORDER BY s)
    FROM consolidation.playbook_entries e, ids
    WHERE e.project_id = :project AND e.status <> 'retired'
        AND (e.source_id = ANY(ids.ids) OR e.supporting_memory_ids && ids.ids)
    UNION ALL
    SELECT s.id, s.version, 'consolidation_suggestions', 'suggestion', s.status, s.suggested_content, true, '{}'
    FROM consolidation.consolidation_suggestions s, ids
    WHERE s.project_id = :project AND s.status = 'pending' AND s.original_memory_ids && ids.ids
    UNION ALL
    SELECT r.id, r.version, 'memory_relations', 'relation', r.status,
        concat(r.a_id, ' ', r.relation_type, ' ', r.b_id), true, '{}'
    FROM consolidation.memory_relations r, ids
    WHERE r.project_id = :project AND r.status <> 'rejected' AND (r.a_id = ANY(ids.ids) OR r.b_id = ANY(ids.ids))
"""
# From the memories up to what agents are told.
_KIND_ORDER = ("merged", "pattern", "principle", "summary", "procedural", "playbook", "suggestion", "relation")


def list_affected(
    connection: Connection, project_id: UUID, suspects: Sequence[UUID], *, kept: Sequence[KeptRow] = ()
) -> list[AffectedRow]:
    """Return what was derived from these memories and is in use or may come back, lowest level first, then by id.

    Left out are the ``kept`` rows, superseded ones, retired entries and decided suggestions. What is out of use already
    is included: to undo what took it out of use, this change has to be undone first.
    """
    parameters = {"project": project_id, "ids": list(suspects), "kept": [row.id for row in kept]}
    rows = [AffectedRow(*row) for row in connection.execute(text(_LIST_AFFECTED), parameters)]
    return sorted(rows, key=lambda row: (_KIND_ORDER.index(row.kind), row.id))


class HiddenMemory(NamedTuple):
    """A raw memory that is hidden in a merged memory."""

    id: UUID
    version: int


_LIST_SOURCES = """
    SELECT DISTINCT unnest(source_memory_ids) FROM consolidation.consolidated_memories WHERE id = ANY(:ids) ORDER BY 1
"""


def list_sources(connection: Connection, ids: Sequence[UUID]) -> list[UUID]:
    """Return the raw memories behind consolidated ones, by id."""
    return list(connection.scalars(text(_LIST_SOURCES), {"ids": list(ids)}))


_LIST_HIDDEN = """
    SELECT id, version FROM consolidation.task_memories
    WHERE consolidated_into_id = ANY(:merged) AND id <> ALL(CAST(:suspects AS uuid[])) ORDER BY id
"""


def list_hidden(
    connection: Connection, affected: Sequence[AffectedRow], suspects: Sequence[SuspectMemory]
) -> list[HiddenMemory]:
    """Return the other raw memories that the affected merged memories hide, by id."""
    merged = [row.id for row in affected if row.kind == "merged"]
    parameters = {"merged": merged, "suspects": [memory.id for memory in suspects]}
    return [HiddenMemory(*row) for row in connection.execute(text(_LIST_HIDDEN), parameters)]


@dataclass(frozen=True)
class Quarantine:
    """Rows to take out of use together. ``shown``: raw memories that become active again. ``kept``: rows in use."""

    suspects: Sequence[SuspectMemory]
    affected: Sequence[AffectedRow]
    shown: Sequence[HiddenMemory] = field(default=())
    kept: Sequence[KeptRow] = field(default=())


def write_quarantine(
    connection: Connection, author: Author, rows: Quarantine, *, group_id: UUID, reason: str, now: datetime
) -> None:
    """Archive raw memories and what was made of them, as one group of changes in the ledger.

    ``reason`` begins with ``QUARANTINED`` or ``DELETED``.

    Raises:
        ConflictError: A row changed since it was read.
    """
    write_derived_out_of_use(connection, author, rows, group_id=group_id, reason=reason, now=now, operation="archive")
    archived = [
        Change(
            memory.id,
            group_id,
            {"archived_at": memory.archived_at or now, "consolidated_into_id": None, "archive_reason": reason},
            memory.version,
            reason,
        )
        for memory in rows.suspects
    ]
    update_rows(connection, author, task_memories, archived, operation="archive")


def write_revisions(
    connection: Connection,
    author: Author,
    rows: Quarantine,
    values: Mapping[UUID, Mapping[str, Any]],
    *,
    group_id: UUID,
    reason: str,
    now: datetime,
) -> None:
    """Write other columns of raw memories, and take what was made of them out of use, as one group of changes.

    Args:
        connection: Connection to the store.
        author: Author of the changes.
        rows: The memories as ``suspects``, with what was derived from them.
        values: The columns of each memory, the same for all.
        group_id: Group in the ledger.
        reason: Reason, which begins with ``REVISED``.
        now: Current time.

    Raises:
        ConflictError: A row changed since it was read.
    """
    write_derived_out_of_use(connection, author, rows, group_id=group_id, reason=reason, now=now, operation="edit")
    changes = [
        Change(memory.id, group_id, {**values[memory.id], "consolidated_into_id": None}, memory.version, reason)
        for memory in rows.suspects
    ]
    update_rows(connection, author, task_memories, changes, operation="edit")


def write_derived_out_of_use(
    connection: Connection,
    author: Author,
    rows: Quarantine,
    *,
    group_id: UUID,
    reason: str,
    now: datetime,
    operation: str,
) -> None:
    """Archive what is made of raw memories. Their other sources are active again.

    The memories of a summary that is out of use wait until a run writes it again. An entry that the memories only
    support loses them, and waits for a person if too few are left. Suggestions and relations are withdrawn.

    Raises:
        ConflictError: A row changed since it was read.
    """

    def change(row: AffectedRow | HiddenMemory | KeptRow, values: Mapping[str, Any]) -> Change:
        return Change(row.id, group_id, values, row.version, reason)

    of: dict[str, list[AffectedRow]] = {"consolidated_memories": [], "playbook_entries": []}
    of |= {"consolidation_suggestions": [], "memory_relations": []}
    for row in rows.affected:
        of[row.table].append(row)
    archived = {"retired_at": now, "archive_reason": reason}
    entries = of["playbook_entries"]
    for table, changes in (
        (consolidated_memories, [change(r, archived) for r in of["consolidated_memories"]]),
        (consolidated_memories, [change(r, {"details": {**r.details, "changed": r.changed}}) for r in rows.kept]),
        (playbook_entries, [change(r, {"status": "retired", "updated_at": now}) for r in entries if r.is_derived]),
        (playbook_entries, [change(r, reduce_entry(r.status, r.evidence, now)) for r in entries if not r.is_derived]),
        (consolidation_suggestions, [change(r, {"status": "superseded"}) for r in of["consolidation_suggestions"]]),
        (memory_relations, [change(r, {"status": "rejected"}) for r in of["memory_relations"]]),
        (task_memories, [change(m, {"consolidated_into_id": None}) for m in rows.shown]),
    ):
        update_rows(connection, author, table, changes, operation=operation)


def reduce_entry(status: str, evidence: Sequence[UUID], now: datetime) -> dict[str, Any]:
    """Return the columns of a playbook entry that is left with less ``evidence``: too little waits for a person."""
    waits = status == "active" and len(evidence) < REQUIRED_EVIDENCE
    return {
        "supporting_memory_ids": list(evidence),
        "status": "review" if waits else status,
        "updated_at": now,
    }
