"""What a search shows of the memories it found, and the count of their uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from consolidation_pipeline.core.memories import LEVELS, embedding_text
from consolidation_pipeline.store.memories import TEXT_COLUMNS
from consolidation_pipeline.store.schema import consolidated_memories, memory_lineage, task_memories

_TABLES = {"task_memories": task_memories, "consolidated_memories": consolidated_memories}
_COUNTERS = {"task_memories": "reused_count", "consolidated_memories": "reuse_count"}

# Longer than any search between two others, shorter than the second after which Postgres looks for deadlocks.
_LOCK_PATIENCE = "250ms"
# A count that a crash of the server takes back is no loss worth waiting for the disk.
_HASTE = f"SELECT set_config('lock_timeout', '{_LOCK_PATIENCE}', true), set_config('synchronous_commit', 'off', true)"


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


def load_hits(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Found]:
    """Raw and consolidated memories by id, with the whole text that is searched."""
    fields = ", ".join(TEXT_COLUMNS)
    rows = connection.execute(
        text(
            f"SELECT id, 'raw' AS kind, memory_type, NULL AS pattern_type, NULL AS confidence, tags, learned_at, "
            f"0 AS source_count, NULL AS content, {fields} FROM {task_memories} WHERE id = ANY(:ids) UNION ALL "
            "SELECT id, kind, memory_type, pattern_type, confidence_score, tags, learned_at, source_count, content, "
            f"{', '.join('NULL' for _ in TEXT_COLUMNS)} FROM {consolidated_memories} WHERE id = ANY(:ids)"
        ),
        {"ids": list(ids)},
    )
    return {row.id: _found(row) for row in rows}


def _found(row: Any) -> Found:
    body = embedding_text(**{name: getattr(row, name) for name in TEXT_COLUMNS})
    return Found(
        id=row.id,
        kind=row.kind,
        level=LEVELS[row.kind],
        memory_type=row.memory_type,
        pattern_type=row.pattern_type,
        content=body if row.content is None else row.content,
        confidence=row.confidence,
        tags=row.tags,
        learned_at=row.learned_at,
        source_count=row.source_count,
    )


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


def count_reuse(engine: Engine, table: str, ids: Sequence[UUID]) -> int:
    """Count one reuse of each row of ``table``, now, in a transaction of its own; returns how many were counted.

    Rows are locked in the order of their ids, as everyone does who changes many. A run that changes them for long is
    not waited for: the rows it holds go uncounted then, the others are counted.
    """
    for skip in ("", " SKIP LOCKED"):
        try:
            with engine.begin() as connection:
                connection.execute(text(_HASTE))
                return connection.execute(text(_reuse(table, skip)), {"ids": list(ids)}).rowcount
        except OperationalError as error:
            if skip or getattr(error.orig, "sqlstate", None) not in ("55P03", "40P01"):
                raise
    raise AssertionError("unreachable: rows that are skipped are not waited for")


def _reuse(table: str, skip: str) -> str:
    return (
        f"WITH returned AS MATERIALIZED (SELECT id FROM {_TABLES[table]} WHERE id = ANY(:ids) ORDER BY id "
        f"FOR NO KEY UPDATE{skip}) UPDATE {_TABLES[table]} t SET {_COUNTERS[table]} = {_COUNTERS[table]} + 1, "
        "last_accessed_at = greatest(last_accessed_at, now()) FROM returned WHERE t.id = returned.id"
    )
