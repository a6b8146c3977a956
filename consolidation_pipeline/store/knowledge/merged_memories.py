"""Consolidated memories: the inputs of merging, and writing derived rows through the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.schema import consolidated_memories, task_memories
from consolidation_pipeline.store.database.scope_keys import crosses_scopes, raw_scope_key
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys, reject_duplicates
from consolidation_pipeline.store.ledger.ledger_writer import (
    Author,
    Change,
    check_constraints_at_end,
    insert_rows,
    update_rows,
)
from consolidation_pipeline.store.memories.memories import join_text_columns
from consolidation_pipeline.store.similarity.similarity_graph import IS_NODE


@dataclass(frozen=True)
class MergeSource:
    """A raw memory to merge. ``texts``: in the order of ``TEXT_COLUMNS``. ``scope_key``: None without walls."""

    id: UUID
    version: int
    memory_type: str
    texts: tuple[str | None, ...]
    tags: tuple[str, ...]
    files: tuple[str, ...]
    success: bool | None
    importance: float
    pinned: bool
    reused_count: int
    last_accessed_at: datetime | None
    learned_at: datetime
    language: str
    consolidated_into_id: UUID | None
    scope_key: str | None

    @property
    def body(self) -> str:
        """The text that is embedded and merged."""
        return join_text_columns(self.texts)


_LOAD_UNMERGED_GROUPS = """
    SELECT c.cluster_key, array_agg(c.member_id ORDER BY c.is_representative DESC, c.member_id) AS members
    FROM consolidation.memory_clusters c
        LEFT JOIN consolidation.task_memories m ON m.id = c.member_id AND m.archived_at IS NULL
        LEFT JOIN consolidation.consolidated_memories waiting
            ON waiting.id = m.consolidated_into_id AND waiting.details ? CAST(:pending AS text)
    WHERE c.project_id = :project AND c.tier = 'merge' GROUP BY c.cluster_key
    HAVING count(m.consolidated_into_id) < count(*) OR count(DISTINCT m.consolidated_into_id) > 1
        OR count(waiting.id) > 0
    ORDER BY c.cluster_key
"""


def load_unmerged_groups(
    connection: Connection, project_id: UUID, *, pending: str | None = None
) -> dict[str, list[UUID]]:
    """Return the merge groups that are not one merged memory yet: members by cluster key, the representative first.

    Groups with a deleted or archived member are included. So are groups whose merged memory has the key ``pending`` in
    its details.
    """
    rows = connection.execute(text(_LOAD_UNMERGED_GROUPS), {"project": project_id, "pending": pending})
    return {row.cluster_key: row.members for row in rows}


_LOAD_SOURCES = compose(
    """
    SELECT id, version, memory_type, ARRAY[goal, execution_summary, result, lessons_learned, feedback] AS texts, tags,
        ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = t.id ORDER BY path) AS files,
        success, importance, pinned, reused_count, last_accessed_at, learned_at, language::text, consolidated_into_id,
        /* scope_key */ AS scope_key
    FROM consolidation.task_memories t WHERE id = ANY(:ids) /* filters */
    """,
    filters=conditions(IS_NODE),
)


def load_sources(connection: Connection, ids: Sequence[UUID], *, scope: str) -> dict[UUID, MergeSource]:
    """Return the raw memories by id, without archived ones and those of an archived merged memory.

    ``scope``: the project's option.
    """
    statement = compose(_LOAD_SOURCES, scope_key=raw_scope_key(scope))
    rows = connection.execute(text(statement), {"ids": list(ids)})
    return {
        row.id: MergeSource(
            **{**row._mapping, "texts": tuple(row.texts), "tags": tuple(row.tags), "files": tuple(row.files)}
        )
        for row in rows
    }


@dataclass(frozen=True)
class LineageEdge:
    """An edge from a derived row to a source. ``similarity``: cosine, None if the source has another model's vector."""

    parent_id: UUID
    parent_kind: str
    similarity: float | None


@dataclass(frozen=True, kw_only=True)
class DerivedMemory:
    """A consolidated memory to write.

    ``version``: the stored version that is updated, None for a new row. ``values``: its columns. ``vector``: float32
    (d,) of ``model``. ``source_ids``: the raw memories behind it. ``superseded``: (id, version) of rows to retire.
    ``keeps_sources``: the stored row has these sources already, and its lineage stays as it was drawn.
    """

    id: UUID
    version: int | None
    group_id: UUID
    values: Mapping[str, Any]
    vector: Vectors
    model: str
    source_ids: Sequence[UUID]
    lineage: Sequence[LineageEdge]
    reason: str
    superseded: Sequence[tuple[UUID, int]] = ()
    keeps_sources: bool = False

    @property
    def confidence(self) -> float:
        """The confidence that the ledger shows."""
        return float(self.values["confidence_score"])


@dataclass(frozen=True, kw_only=True)
class MergedMemory(DerivedMemory):
    """A merged memory to write. ``absorbed``: its sources that are not hidden behind it yet."""

    absorbed: Sequence[MergeSource]


def write_derived(
    connection: Connection, author: Author, rows: Sequence[DerivedMemory], *, operation: str, now: datetime
) -> None:
    """Write consolidated memories with vector, files, tags and lineage, then retire those they supersede.

    Each row and the rows that it supersedes are one group in the ledger.

    Raises:
        ConflictError: a row changed since it was read, or another active row has the same uniqueness key.
    """
    lock_active_keys(connection, [author.project_id])
    with check_constraints_at_end(connection, "memory"):
        _write_rows(connection, author, rows, operation=operation, now=now)
    reject_duplicates(connection, author.project_id, [row.group_id for row in rows])


def _write_rows(
    connection: Connection, author: Author, rows: Sequence[DerivedMemory], *, operation: str, now: datetime
) -> None:
    new = [_build_change(author, row, now) for row in rows if row.version is None]
    insert_rows(connection, author, consolidated_memories, new, operation=operation)
    updated: dict[frozenset[str], list[Change]] = defaultdict(list)
    for change in (_build_change(author, row, now) for row in rows if row.version is not None):
        updated[frozenset(change.values)].append(change)
    for changes in updated.values():  # A statement writes the same columns of each row.
        update_rows(connection, author, consolidated_memories, changes, operation=operation)
    superseded = [
        Change(id_, row.group_id, {"superseded_by_id": row.id, "retired_at": now}, version, row.reason, row.confidence)
        for row in rows
        for id_, version in row.superseded
    ]
    update_rows(connection, author, consolidated_memories, superseded, operation=operation)


def write_merged(connection: Connection, author: Author, merged: Sequence[MergedMemory], *, now: datetime) -> None:
    """Write merged memories as ``write_derived`` does, then hide their sources.

    Raises:
        ConflictError: a row changed since it was read, or another active merged memory has the same text and type.
    """
    write_derived(connection, author, merged, operation="merge", now=now)
    hidden = [
        Change(source.id, row.group_id, {"consolidated_into_id": row.id}, source.version, row.reason, row.confidence)
        for row in merged
        for source in row.absorbed
    ]
    update_rows(connection, author, task_memories, hidden, operation="merge")


def _build_change(author: Author, row: DerivedMemory, now: datetime) -> Change:
    values = {
        **row.values,
        **({"created_at": now} if row.version is None else {}),
        **({} if row.keeps_sources else _build_sources(author, row)),
        "embedding": row.vector,
        "embedding_model": row.model,
        "embedding_dim": len(row.vector),
        "updated_at": now,
    }
    return Change(row.id, row.group_id, values, row.version, row.reason, row.confidence)


def _build_sources(author: Author, row: DerivedMemory) -> dict[str, Any]:
    job_id = None if author.job_id is None else str(author.job_id)
    lineage = [
        {"parent_id": str(e.parent_id), "parent_kind": e.parent_kind, "similarity": e.similarity, "job_id": job_id}
        for e in row.lineage
    ]
    return {"source_memory_ids": list(row.source_ids), "source_count": len(row.source_ids), "lineage": lineage}


_LOAD_CONSOLIDATED_TEXTS = "SELECT id, content FROM consolidation.consolidated_memories WHERE id = ANY(:ids)"


def load_consolidated_texts(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the texts of consolidated memories by id."""
    rows = connection.execute(text(_LOAD_CONSOLIDATED_TEXTS), {"ids": list(ids)})
    return {row.id: row.content for row in rows}


_FIND_CROSSING = """
    SELECT id FROM consolidation.consolidated_memories c WHERE id = ANY(:ids) AND /* crosses_scopes */
"""


def find_crossing(connection: Connection, ids: Iterable[UUID], *, scope: str) -> set[UUID]:
    """Return the consolidated memories among ``ids`` whose raw memories are of several scopes.

    A run has dissolved them before it merges; a plan has to leave them out. ``scope``: the project's option.
    """
    statement = compose(_FIND_CROSSING, crosses_scopes=crosses_scopes(scope, "c"))
    return set(connection.scalars(text(statement), {"ids": list(ids)}))


_LOAD_CONSOLIDATED = """
    SELECT id, kind, version, content, details, source_memory_ids, source_count, importance, pinned, reuse_count,
        last_accessed_at, retired_at, archive_reason
    FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
"""


def load_consolidated(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Row[Any]]:
    """Return consolidated memories by id, retired ones too."""
    rows = connection.execute(text(_LOAD_CONSOLIDATED), {"ids": list(ids)})
    return {row.id: row for row in rows}
