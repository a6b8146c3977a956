"""Consolidated memories: what merging reads, and how a merge is written through the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, select, text

from consolidation_pipeline.core.memories.memories import embedding_text
from consolidation_pipeline.store.database.schema import consolidated_memories, task_memories
from consolidation_pipeline.store.database.vector_copy import Vectors, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys, reject_duplicates
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows, update_rows
from consolidation_pipeline.store.memories.memories import FILES, TEXT_COLUMNS
from consolidation_pipeline.store.similarity.similarity_graph import IS_NODE


@dataclass(frozen=True)
class MergeSource:
    """A raw memory as merging sees it; ``texts`` in the order of ``TEXT_COLUMNS``."""

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

    @property
    def body(self) -> str:
        """The text that is embedded and merged."""
        return embedding_text(**dict(zip(TEXT_COLUMNS, self.texts, strict=True)))


_OPEN_GROUPS = """
    SELECT c.cluster_key, array_agg(c.member_id ORDER BY c.is_representative DESC, c.member_id) AS members
    FROM consolidation.memory_clusters c LEFT JOIN consolidation.task_memories m ON m.id = c.member_id AND m.archived_at IS NULL
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
    """The merge groups that are not one merged memory yet: cluster key -> members, the representative first.

    Groups of which a member is gone or archived are among them. ``pending``: those whose merged memory has this key in
    its ``details`` as well.
    """
    rows = connection.execute(text(_OPEN_GROUPS), {"project": project_id, "pending": pending})
    return {row.cluster_key: row.members for row in rows}


_SOURCE_QUERY = f"""
    SELECT id, version, memory_type, ARRAY[{", ".join(TEXT_COLUMNS)}] AS texts, tags,
        {FILES},
        success, importance, pinned, reused_count, last_accessed_at, learned_at, language::text, consolidated_into_id
    FROM consolidation.task_memories t WHERE id = ANY(:ids) AND {IS_NODE}
"""


def load_sources(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, MergeSource]:
    """Raw memories that are not archived, themselves or with the merged memory they are in, by id."""
    rows = connection.execute(text(_SOURCE_QUERY), {"ids": list(ids)})
    return {
        row.id: MergeSource(
            **{**row._mapping, "texts": tuple(row.texts), "tags": tuple(row.tags), "files": tuple(row.files)}
        )
        for row in rows
    }


def load_source_vectors(
    connection: Connection, ids: Sequence[UUID], dimension: int, *, model: str | None = None
) -> dict[UUID, Vectors]:
    """Plain vectors float32 (dimension,) of raw memories by id, of those alone that have one of ``model`` if given."""
    found, vectors = load_vectors(
        connection,
        "SELECT id, embedding FROM consolidation.task_memories WHERE id = ANY(%(ids)s) "
        "AND (%(model)s::text IS NULL OR embedding_model = %(model)s)",
        {"ids": list(ids), "model": model},
        dimension=dimension,
    )
    return dict(zip(to_uuids(found), vectors, strict=True))


@dataclass(frozen=True)
class LineageEdge:
    """One edge of lineage: what the row was made from, and how similar it is to it; None = in another model."""

    parent_id: UUID
    parent_kind: str
    similarity: float | None


@dataclass(frozen=True, kw_only=True)
class DerivedMemory:
    """A consolidated memory ready to be written. ``version`` None = new; ``superseded``: (id, version) of others."""

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

    @property
    def confidence(self) -> float:
        """How sure it is, for the ledger."""
        return float(self.values["confidence_score"])


@dataclass(frozen=True, kw_only=True)
class MergedMemory(DerivedMemory):
    """A merged memory ready to be written; ``absorbed``: the sources that are not behind it yet."""

    absorbed: Sequence[MergeSource]


def write_derived(
    connection: Connection, author: Author, rows: Sequence[DerivedMemory], *, operation: str, now: datetime
) -> None:
    """Consolidated memories with vector, files, tags and lineage, then those they supersede are retired.

    All in the caller's transaction, each a group of its own in the ledger.

    Raises:
        ConflictError: a row changed since it was read, or another one is active in the place of one of these.
    """
    lock_active_keys(connection, [author.project_id])
    new = [_change(author, row, now) for row in rows if row.version is None]
    insert_rows(connection, author, consolidated_memories, new, operation=operation)
    grown = [_change(author, row, now) for row in rows if row.version is not None]
    update_rows(connection, author, consolidated_memories, grown, operation=operation)
    superseded = [
        Change(id_, row.group_id, {"superseded_by_id": row.id, "retired_at": now}, version, row.reason, row.confidence)
        for row in rows
        for id_, version in row.superseded
    ]
    update_rows(connection, author, consolidated_memories, superseded, operation=operation)
    reject_duplicates(connection, author.project_id, [row.group_id for row in rows])


def write_merged(connection: Connection, author: Author, merged: Sequence[MergedMemory], *, now: datetime) -> None:
    """Successor first: the merged memories as by ``write_derived``, then their sources are hidden.

    Raises:
        ConflictError: a row changed since it was read, or another merged memory says the same word for word.
    """
    write_derived(connection, author, merged, operation="merge", now=now)
    hidden = [
        Change(s.id, m.group_id, {"consolidated_into_id": m.id}, s.version, m.reason, m.confidence)
        for m in merged
        for s in m.absorbed
    ]
    update_rows(connection, author, task_memories, hidden, operation="merge")


def _change(author: Author, row: DerivedMemory, now: datetime) -> Change:
    job_id = None if author.job_id is None else str(author.job_id)
    lineage = [
        {"parent_id": str(e.parent_id), "parent_kind": e.parent_kind, "similarity": e.similarity, "job_id": job_id}
        for e in row.lineage
    ]
    values = {
        **row.values,
        **({"created_at": now} if row.version is None else {}),
        "source_memory_ids": list(row.source_ids),
        "source_count": len(row.source_ids),
        "embedding": row.vector,
        "embedding_model": row.model,
        "embedding_dim": len(row.vector),
        "updated_at": now,
        "lineage": lineage,
    }
    return Change(row.id, row.group_id, values, row.version, row.reason, row.confidence)


def load_consolidated_texts(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Texts of consolidated memories by id."""
    query = select(consolidated_memories.c.id, consolidated_memories.c.content)
    rows = connection.execute(query.where(consolidated_memories.c.id.in_(list(ids))))
    return {row.id: row.content for row in rows}


def load_consolidated(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Row[Any]]:
    """Consolidated memories by id, vectors and caches left out."""
    hidden = {"embedding", "content_tsv", "content_hash", "normalized_hash"}
    columns = [column for column in consolidated_memories.c if column.name not in hidden]
    rows = connection.execute(select(*columns).where(consolidated_memories.c.id.in_(list(ids))))
    return {row.id: row for row in rows}
