"""What a search shows of the memories it found, and the count of their uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.core.memories.memories import LEVELS, embedding_text
from consolidation_pipeline.store.database.raw_connections import autocommit_connection, fetch_rows
from consolidation_pipeline.store.database.schema import consolidated_memories, memory_lineage, task_memories
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS
from consolidation_pipeline.store.search.retrievers import TABLES

_COUNTERS = {"task_memories": "reused_count", "consolidated_memories": "reuse_count"}

# Longer than any search between two others, shorter than the second after which Postgres looks for deadlocks. The disk
# is not waited for: a count that a crash of the server takes back is no loss.
_LOCK_PATIENCE = "250ms"


@dataclass(frozen=True)
class Found:
    """A memory that a search may show. ``confidence`` and ``source_count`` are those of consolidated memories."""

    id: UUID
    kind: str
    level: int
    memory_type: str
    pattern_type: str | None
    content: str
    confidence: float | None
    tags: list[str]
    learned_at: datetime
    source_count: int


_TOLD = ("id", "kind", "memory_type", "pattern_type", "confidence", "tags", "learned_at", "source_count", "content")
_HITS = f"""
    SELECT id, 'raw', memory_type, NULL, NULL, tags, learned_at, 0, NULL, {", ".join(TEXT_COLUMNS)}
    FROM {task_memories} WHERE id = ANY(%(ids)s) UNION ALL
    SELECT id, kind, memory_type, pattern_type, confidence_score, tags, learned_at, source_count, content,
        {", ".join("NULL" for _ in TEXT_COLUMNS)}
    FROM {consolidated_memories} WHERE id = ANY(%(ids)s)
"""


def load_hits(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Found]:
    """Raw and consolidated memories by id, with the whole text that is searched."""
    return {row[0]: _found(row) for row in fetch_rows(connection, _HITS, {"ids": list(ids)})}


def _found(row: Sequence[Any]) -> Found:
    told = dict(zip(_TOLD, row, strict=False))
    if told["content"] is None:
        told["content"] = embedding_text(**dict(zip(TEXT_COLUMNS, row[len(_TOLD) :], strict=True)))
    return Found(level=LEVELS[told["kind"]], **told)


def load_sources(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, list[dict[str, Any]]]:
    """What each memory was made from, the most similar first: id, kind, memory_type, content and similarity."""
    rows = connection.execute(
        text(
            "SELECT l.child_id, l.parent_id AS id, l.parent_kind AS kind, l.similarity, "
            "coalesce(r.memory_type, d.memory_type) AS memory_type, "
            "coalesce(r.execution_summary, d.content) AS content "
            f"FROM {memory_lineage} l LEFT JOIN {task_memories} r ON r.id = l.parent_id "
            f"LEFT JOIN {consolidated_memories} d ON d.id = l.parent_id WHERE l.child_id = ANY(:ids) "
            "ORDER BY l.child_id, l.similarity DESC NULLS LAST, l.parent_id"
        ),
        {"ids": list(ids)},
    )
    sources: dict[UUID, list[dict[str, Any]]] = {id_: [] for id_ in ids}
    for row in rows:
        told = dict(row._mapping)
        sources[told.pop("child_id")].append(told)
    return sources


def count_reuse(engine: Engine, table: str, uses: Mapping[UUID, int]) -> int:
    """Count reuses of rows of ``table``, each so often, now, in a transaction of its own; returns how many rows it met.

    Rows are locked in the order of their ids, as everyone does who changes many. A run that changes them for long is
    not waited for: the rows it holds go uncounted then, the others are counted.
    """
    bound = {"ids": list(uses), "times": list(uses.values())}
    with autocommit_connection(engine) as connection:
        try:
            return len(fetch_rows(connection, _reuse(table), bound))
        except (DeadlockDetected, LockNotAvailable):
            return len(fetch_rows(connection, _reuse(table, skip=" SKIP LOCKED"), bound))


def _reuse(table: str, skip: str = "") -> str:
    # The settings hold for the transaction, which this is all of, and are made before the first row is locked.
    return f"""
        WITH haste AS MATERIALIZED (
            SELECT set_config('lock_timeout', '{_LOCK_PATIENCE}', true), set_config('synchronous_commit', 'off', true)),
        returned AS MATERIALIZED (
            SELECT t.id FROM {TABLES[table]} t CROSS JOIN haste WHERE t.id = ANY(%(ids)s) ORDER BY t.id
            FOR NO KEY UPDATE OF t{skip})
        UPDATE {TABLES[table]} t SET {_COUNTERS[table]} = {_COUNTERS[table]} + used.times,
            last_accessed_at = greatest(last_accessed_at, now())
        FROM returned JOIN unnest(%(ids)s::uuid[], %(times)s::integer[]) used (id, times) ON used.id = returned.id
        WHERE t.id = returned.id RETURNING t.id
    """
