"""Where knowledge comes from and went: memories by the beginning of their id, and what was derived from one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.schema import SCHEMA, consolidated_memories, memory_lineage, task_memories


@dataclass(frozen=True)
class Found:
    """A raw (level 0) or consolidated memory; ``status`` active, merged, archived, retired, superseded."""

    id: UUID
    project: str
    kind: str
    level: int
    memory_type: str
    status: str
    content: str
    learned_at: datetime


def find_memories(connection: Connection, first: UUID, last: UUID, *, limit: int) -> list[Found]:
    """Up to ``limit`` memories, raw and consolidated, whose id lies between ``first`` and ``last``, by id."""
    rows = connection.execute(
        text(
            "SELECT m.id, p.slug, kind, level, memory_type, status, content, learned_at FROM ("
            "SELECT id, project_id, 'raw' AS kind, 0 AS level, memory_type, CASE WHEN is_archived THEN 'archived' "
            "WHEN is_consolidated THEN 'merged' ELSE 'active' END AS status, execution_summary AS content, learned_at "
            f"FROM {SCHEMA}.task_memories WHERE id BETWEEN :first AND :last UNION ALL "
            "SELECT id, project_id, kind, abstraction_level, memory_type, "
            "CASE WHEN superseded_by_id IS NOT NULL THEN 'superseded' WHEN archive_reason IS NOT NULL THEN 'archived' "
            "WHEN retired_at IS NOT NULL THEN 'retired' ELSE 'active' END, content, learned_at "
            f"FROM {SCHEMA}.consolidated_memories WHERE id BETWEEN :first AND :last) m "
            f"JOIN {SCHEMA}.projects p ON p.id = m.project_id ORDER BY m.id LIMIT :limit"
        ),
        {"first": first, "last": last, "limit": limit},
    )
    return [Found(*row) for row in rows]


def load_lineage(connection: Connection, root: UUID, *, depth: int) -> Sequence[Row[Any]]:
    """Edges below ``root`` with the parents' text: child_id, parent_id, parent_kind, similarity, level, content."""
    query = f"""
        WITH RECURSIVE tree AS (
            SELECT child_id, parent_id, parent_kind, similarity, 1 AS level
            FROM {memory_lineage} WHERE child_id = :root
            UNION
            SELECT l.child_id, l.parent_id, l.parent_kind, l.similarity, tree.level + 1
            FROM {memory_lineage} l JOIN tree ON l.child_id = tree.parent_id WHERE tree.level < :depth)
        SELECT tree.*, coalesce(raw.execution_summary, derived.content) AS content,
            coalesce(raw.memory_type, derived.memory_type) AS memory_type
        FROM tree LEFT JOIN {task_memories} raw ON raw.id = tree.parent_id
            LEFT JOIN {consolidated_memories} derived ON derived.id = tree.parent_id
        ORDER BY level, child_id, similarity DESC NULLS LAST, parent_id
    """
    return connection.execute(text(query), {"root": root, "depth": depth}).all()


def load_derived(connection: Connection, memory_id: UUID) -> Sequence[Row[Any]]:
    """What was made from a memory, nearest first: id, kind, similarity, steps up, content and whether it is active."""
    query = f"""
        WITH RECURSIVE up AS (
            SELECT child_id, similarity, 1 AS steps FROM {SCHEMA}.memory_lineage WHERE parent_id = :id
            UNION
            SELECT l.child_id, l.similarity, up.steps + 1
            FROM {SCHEMA}.memory_lineage l JOIN up ON l.parent_id = up.child_id)
        SELECT d.id, d.kind, d.memory_type, up.similarity, up.steps, d.content, d.retired_at IS NULL AS active
        FROM up JOIN {SCHEMA}.consolidated_memories d ON d.id = up.child_id ORDER BY up.steps, d.id
    """
    return connection.execute(text(query), {"id": memory_id}).all()
