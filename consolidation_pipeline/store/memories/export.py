"""Rows of a project for export, streamed by a server-side cursor, so memory does not grow with the project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.memories.pending_uses import count_with_pending, last_use_with_pending

_ROWS_AT_ONCE = 2000

_RAW = compose(
    """
    SELECT m.source, m.external_id AS id, m.memory_type, m.execution_summary AS content, m.goal, m.result, m.feedback,
        m.lessons_learned, m.tags,
        ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = m.id ORDER BY path) AS files,
        m.tool_usage, m.error_patterns, m.metadata, m.success, m.importance, m.pinned, /* uses */ AS reused_count,
        /* last_use */ AS last_accessed_at, m.learned_at, m.language::text, m.task_id, m.user_id, m.agent_id,
        m.session_id, m.writer
    FROM consolidation.task_memories m WHERE m.project_id = :project ORDER BY m.learned_at, m.id
    """,
    uses=count_with_pending("m", "reused_count"),
    last_use=last_use_with_pending("m"),
)

_DERIVED = compose(
    """
    SELECT m.kind, m.id, m.abstraction_level, m.memory_type, m.pattern_type, m.content AS text, m.confidence_score,
        m.consolidation_method, m.needs_review, m.details, m.tags,
        ARRAY(SELECT path FROM consolidation.memory_files f WHERE f.owner_id = m.id ORDER BY path) AS files,
        m.success, m.importance, m.pinned, /* uses */ AS reuse_count, /* last_use */ AS last_accessed_at,
        m.learned_at, m.created_at, m.updated_at,
        m.language::text, m.user_id,
        (SELECT coalesce(jsonb_agg(jsonb_build_object('id', l.parent_id, 'kind', l.parent_kind, 'source', raw.source,
            'external_id', raw.external_id, 'similarity', l.similarity) ORDER BY l.parent_id), '[]')
            FROM consolidation.memory_lineage l LEFT JOIN consolidation.task_memories raw ON raw.id = l.parent_id
            WHERE l.child_id = m.id) AS sources
    FROM consolidation.consolidated_memories m WHERE m.project_id = :project AND m.retired_at IS NULL
    ORDER BY m.abstraction_level, m.id
    """,
    uses=count_with_pending("m", "reuse_count"),
    last_use=last_use_with_pending("m"),
)


@contextmanager
def open_snapshot(engine: Engine) -> Iterator[Connection]:
    """Open a connection with one snapshot of the database, unaffected by writes of others."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        yield connection


def stream_memories(connection: Connection, project_id: UUID) -> Iterator[dict[str, Any]]:
    """Yield all raw memories, oldest first, under the names that an import reads."""
    return _stream(connection, _RAW, project_id)


def stream_derived(connection: Connection, project_id: UUID) -> Iterator[dict[str, Any]]:
    """Yield all active consolidated memories with their sources, lowest level first."""
    return _stream(connection, _DERIVED, project_id)


def _stream(connection: Connection, query: str, project_id: UUID) -> Iterator[dict[str, Any]]:
    options = {"yield_per": _ROWS_AT_ONCE}
    rows = connection.execute(text(query), {"project": project_id}, execution_options=options)
    return (row._asdict() for row in rows)
