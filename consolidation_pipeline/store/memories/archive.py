"""Archiving: what the policies judge, and memories that are archived, brought back, pinned and weighed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.core.lifecycle.archive_policies import Units
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.store.database.vector_copy import Ids, load_columns, to_uuids
from consolidation_pipeline.store.ledger.active_keys import duplicate_of
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED, Author, Change, update_rows
from consolidation_pipeline.store.memories.memories import lock_rows

# Table -> the column that says since when a row of it is archived. Merged memories come first, as whoever writes both
# takes their locks first.
ARCHIVED_AT = {"consolidated_memories": "retired_at", "task_memories": "archived_at"}


@dataclass(frozen=True)
class Judged:
    """Active memories of one table, by id: ids ``S16``, versions, what is judged, how many raw memories each hides."""

    ids: Ids
    versions: npt.NDArray[np.int32]
    units: Units
    sources: npt.NDArray[np.int64]


# Learning anew what is known already uses a merged memory: its newest source counts as an access.
_ACTIVE = {
    "task_memories": """
        SELECT id, version, coalesce(last_accessed_at, learned_at) AS used_at, reused_count AS reused, pinned,
            importance, learned_at, memory_type, relevance_score, 0::bigint AS sources
        FROM consolidation.task_memories
        WHERE project_id = %(project)s AND NOT is_archived AND NOT is_consolidated""",
    "consolidated_memories": """
        SELECT id, version, greatest(last_accessed_at, learned_at, newest) AS used_at, reuse_count AS reused, pinned,
            importance, learned_at, memory_type, relevance_score, sources
        FROM consolidation.consolidated_memories m, LATERAL (
            SELECT max(learned_at) AS newest, count(*) FILTER (WHERE NOT is_archived) AS sources
            FROM consolidation.task_memories WHERE consolidated_into_id = m.id) hidden
        WHERE project_id = %(project)s AND kind = 'merged' AND retired_at IS NULL""",
}
# Units that a person brought back, themselves or a source they were merged from since; a merged memory stands for all
# it was ever made from, which may have been parted again. Who undoes a whole job has not looked at each memory of it.
_BROUGHT_BACK = """
    WITH brought AS (
        SELECT entity_id AS id, max(seq) AS seq FROM consolidation.consolidation_changes
        WHERE project_id = %(project)s AND changed_at > %(kept_since)s
            AND (operation = 'restore' OR reverts_scope = 'group')
            AND previous_state ->> 'archive_reason' IS NOT NULL AND new_state ->> 'archive_reason' IS NULL
            AND new_state ? 'archive_reason' GROUP BY entity_id),
    origins AS (
        SELECT id FROM brought UNION
        SELECT source::uuid FROM brought b JOIN consolidation.consolidation_changes c
            ON c.entity_id = b.id AND c.seq < b.seq AND c.new_state ->> 'kind' = 'merged',
            jsonb_array_elements_text(c.new_state -> 'source_memory_ids') AS source)
    SELECT coalesce(m.consolidated_into_id, o.id) AS id
    FROM origins o LEFT JOIN consolidation.task_memories m ON m.id = o.id
"""
_KINDS = {
    "id": "S16",
    "version": ">i4",
    "idle": ">f8",
    "reused": ">i4",
    "pinned": ">i4",
    "importance": ">f8",
    "age": ">f8",
    "type": ">i4",
    "relevance": ">f8",
    "sources": ">i8",
}


def load_judged(
    connection: Connection,
    project_id: UUID,
    table: str,
    *,
    as_of: datetime,
    kept_since: datetime,
    ids: Ids | None = None,
) -> Judged:
    """The active memories of ``table`` (raw or merged), of those with ``ids`` where given, as of an instant.

    What was brought back by hand after ``kept_since`` counts as pinned.
    """
    types = "array_position(ARRAY[{}], memory_type)".format(", ".join(f"'{name}'" for name in MEMORY_TYPES))
    query = f"""
        WITH brought_back AS MATERIALIZED ({_BROUGHT_BACK})
        SELECT id, version, greatest(extract(epoch FROM %(as_of)s - used_at)::float8 / 86400, 0), reused,
            (pinned OR id IN (SELECT id FROM brought_back))::integer, importance,
            greatest(extract(epoch FROM %(as_of)s - learned_at)::float8 / 86400, 0), {types} - 1,
            coalesce(relevance_score, 'Infinity'), sources
        FROM ({_ACTIVE[table]} AND (%(ids)s::uuid[] IS NULL OR id = ANY(%(ids)s::uuid[]))) active ORDER BY id
    """
    chosen = None if ids is None else to_uuids(ids)
    parameters = {"project": project_id, "as_of": as_of, "kept_since": kept_since, "ids": chosen}
    found, versions, idle, reused, pinned, importance, age, kind, relevance, sources = load_columns(
        connection, query, parameters, _KINDS
    )
    names = np.array(MEMORY_TYPES)[kind]
    return Judged(
        found,
        versions,
        Units(idle, reused.astype(np.int64), pinned.astype(bool), importance, age, names, relevance),
        sources,
    )


def load_archived(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Which of the raw and merged memories with ``ids`` are archived."""
    query = " UNION ALL ".join(
        f"SELECT id FROM consolidation.{table} WHERE id = ANY(:ids) AND archive_reason IS NOT NULL"
        for table in ARCHIVED_AT
    )
    return set(connection.execute(text(query), {"ids": list(ids)}).scalars())


@dataclass(frozen=True)
class Held:
    """A memory as whoever changes it by hand finds it. ``carrier``: what stands in its place, if anything does."""

    id: UUID
    project_id: UUID
    project: str
    table: str
    kind: str
    version: int
    pinned: bool
    archived: bool
    importance: float
    carrier: UUID | None


def lock_memories(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Held]:
    """The raw and consolidated memories with these ids, by id, locked until the transaction ends."""
    chosen = {"ids": list(ids)}
    for table in ARCHIVED_AT:
        lock_rows(connection, table, "id = ANY(:ids)", chosen)
    rows = connection.execute(
        text(
            "SELECT m.id, m.project_id, p.slug, m.held_in, m.kind, m.version, m.pinned, m.archived, "
            "m.importance, m.carrier FROM ("
            "SELECT id, project_id, 'task_memories' AS held_in, 'raw' AS kind, version, pinned, "
            "is_archived AS archived, importance, consolidated_into_id AS carrier "
            "FROM consolidation.task_memories UNION ALL "
            "SELECT id, project_id, 'consolidated_memories', kind, version, pinned, "
            "retired_at IS NOT NULL AND superseded_by_id IS NULL, importance, superseded_by_id "
            "FROM consolidation.consolidated_memories) m JOIN consolidation.projects p ON p.id = m.project_id "
            "WHERE m.id = ANY(:ids)"
        ),
        chosen,
    )
    return {row.id: Held(*row) for row in rows}


class Twin(NamedTuple):
    """What stands in the place of a memory, and of which kind both are."""

    id: UUID
    kind: str


def find_twins(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Twin]:
    """Of the consolidated memories with ``ids``, those whose place another one has, active or among them."""
    table = "consolidation.consolidated_memories"
    rows = connection.execute(
        text(
            f"SELECT DISTINCT ON (m.id) m.id, duplicate.id, duplicate.kind "
            f"FROM {table} m JOIN {table} duplicate ON {duplicate_of('m')} "
            "WHERE m.id = ANY(:ids) AND (duplicate.retired_at IS NULL OR duplicate.id = ANY(:ids)) "
            "ORDER BY m.id, duplicate.id"
        ),
        {"ids": list(ids)},
    )
    return {row[0]: Twin(*row[1:]) for row in rows}


@dataclass(frozen=True)
class Mark:
    """A row to be archived, brought back or pinned, as a group of its own; ``words`` stand in the ledger.

    ``archive_reason`` is what the row says of why it is archived: a policy's name or a person's words.
    """

    id: UUID
    version: int
    group_id: UUID
    words: str | None
    archive_reason: str | None = None


def archive_rows(connection: Connection, author: Author, table: str, marks: Sequence[Mark], *, at: datetime) -> None:
    """Archive rows of ``table`` as of an instant.

    Raises:
        ConflictError: a row changed since it was read.
    """
    changes = [_change(m, {ARCHIVED_AT[table]: at, "archive_reason": m.archive_reason}) for m in marks]
    update_rows(connection, author, LEDGERED[table], changes, operation="archive")


def restore_rows(connection: Connection, author: Author, table: str, marks: Sequence[Mark]) -> None:
    """Bring archived rows of ``table`` back. Raises ConflictError: a row changed since it was read."""
    changes = [_change(m, {ARCHIVED_AT[table]: None, "archive_reason": None}) for m in marks]
    update_rows(connection, author, LEDGERED[table], changes, operation="restore")


def pin_rows(connection: Connection, author: Author, table: str, marks: Sequence[Mark], *, pinned: bool) -> None:
    """Pin rows of ``table``, or take the pins off. Raises ConflictError: a row changed since it was read."""
    changes = [_change(m, {"pinned": pinned}) for m in marks]
    update_rows(connection, author, LEDGERED[table], changes, operation="edit")


def weigh_rows(connection: Connection, author: Author, table: str, marks: Sequence[Mark], *, importance: float) -> None:
    """Set the importance of rows of ``table``. Raises ConflictError: a row changed since it was read."""
    changes = [_change(m, {"importance": importance}) for m in marks]
    update_rows(connection, author, LEDGERED[table], changes, operation="edit")


def _change(mark: Mark, values: Mapping[str, Any]) -> Change:
    return Change(mark.id, mark.group_id, values, mark.version, mark.words)
