"""Lineage: memories and playbook entries, what they were derived from, and what was derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.scope_keys import DELETED
from consolidation_pipeline.store.database.sql import compose

# SQL of the status of a raw and of a consolidated memory.
# Status of a memory, raw or consolidated, and its SQL.
MEMORY_STATUSES = ("active", "merged", "archived", "deleted", "superseded", "retired")
RAW_STATUS = f"""CASE
            WHEN starts_with(archive_reason, '{DELETED}') THEN 'deleted' WHEN is_archived THEN 'archived'
            WHEN is_consolidated THEN 'merged' ELSE 'active' END"""
CONSOLIDATED_STATUS = """CASE
            WHEN superseded_by_id IS NOT NULL THEN 'superseded' WHEN archive_reason IS NOT NULL THEN 'archived'
            WHEN retired_at IS NOT NULL THEN 'retired' ELSE 'active' END"""


@dataclass(frozen=True)
class TracedMemory:
    """A raw memory (level 0), a consolidated memory, or a playbook entry (level 4, above principles).

    ``memory_type``: of an entry, its category. ``status``: active, merged, archived, deleted, retired or superseded; of
    an entry, active, review or retired.
    """

    id: UUID
    project: str
    kind: str
    level: int
    memory_type: str
    status: str
    content: str
    learned_at: datetime


_FIND_MEMORIES = compose(
    """
    SELECT m.id, p.slug, m.kind, m.level, m.memory_type, m.status, m.content, m.learned_at
    FROM (
        SELECT id, project_id, 'raw' AS kind, 0 AS level, memory_type, /* raw_status */ AS status,
            execution_summary AS content, learned_at
        FROM consolidation.task_memories WHERE id BETWEEN :first AND :last
        UNION ALL
        SELECT id, project_id, kind, abstraction_level, memory_type, /* consolidated_status */, content, learned_at
        FROM consolidation.consolidated_memories WHERE id BETWEEN :first AND :last
        UNION ALL
        SELECT id, project_id, 'playbook', 4, category, status, content, created_at
        FROM consolidation.playbook_entries WHERE id BETWEEN :first AND :last) m
        JOIN consolidation.projects p ON p.id = m.project_id
    WHERE CAST(:project AS uuid) IS NULL OR m.project_id = :project
    ORDER BY m.id LIMIT :limit
    """,
    raw_status=RAW_STATUS,
    consolidated_status=CONSOLIDATED_STATUS,
)


def find_memories(
    connection: Connection, first: UUID, last: UUID, *, project_id: UUID | None = None, limit: int
) -> list[TracedMemory]:
    """Return up to ``limit`` memories and playbook entries with ids from ``first`` to ``last``, by id.

    ``project_id``: only of this project; None = of all.
    """
    bound = {"first": first, "last": last, "project": project_id, "limit": limit}
    rows = connection.execute(text(_FIND_MEMORIES), bound)
    return [TracedMemory(*row) for row in rows]


# Edges of a playbook entry lead to its source, and to its evidence that is not below the source already: evidence that
# was added later is in no stored edge. Equal texts have similarity 1; vectors of different models are not compared.
_LOAD_LINEAGE = """
    WITH RECURSIVE entry AS (SELECT * FROM consolidation.playbook_entries WHERE id = :root),
    below AS (
        SELECT source_id AS id FROM entry WHERE source_id IS NOT NULL
        UNION
        SELECT l.parent_id FROM consolidation.memory_lineage l JOIN below b ON l.child_id = b.id),
    entry_edges AS (
        SELECT e.id AS child_id, m.id AS parent_id, m.kind AS parent_kind, CASE
            WHEN m.content_hash = e.content_hash THEN 1
            WHEN m.embedding_model = e.embedding_model THEN (1 - (m.embedding <=> e.embedding))::real END AS similarity
        FROM entry e, LATERAL (
            SELECT id, kind, content_hash, embedding_model, embedding FROM consolidation.consolidated_memories
            WHERE id = e.source_id
                OR id = ANY(e.supporting_memory_ids) AND id NOT IN (SELECT id FROM below)
            UNION ALL
            SELECT id, 'raw', content_hash, embedding_model, embedding FROM consolidation.task_memories
            WHERE id = ANY(e.supporting_memory_ids) AND id NOT IN (SELECT id FROM below)) m),
    tree AS (
        (SELECT child_id, parent_id, parent_kind, similarity, 1 AS level FROM consolidation.memory_lineage
            WHERE child_id = :root
        UNION ALL
        SELECT *, 1 FROM entry_edges)
        UNION
        SELECT l.child_id, l.parent_id, l.parent_kind, l.similarity, tree.level + 1
        FROM consolidation.memory_lineage l JOIN tree ON l.child_id = tree.parent_id WHERE tree.level < :depth)
    SELECT tree.*, coalesce(raw.execution_summary, derived.content) AS content,
        coalesce(raw.memory_type, derived.memory_type) AS memory_type,
        coalesce(raw.learned_at, derived.learned_at) AS learned_at,
        coalesce(nullif(raw.agent_id, ''), nullif(raw.user_id, ''), raw.source) AS author
    FROM tree
        LEFT JOIN consolidation.task_memories raw ON raw.id = tree.parent_id
        LEFT JOIN consolidation.consolidated_memories derived ON derived.id = tree.parent_id
    ORDER BY level, child_id, similarity DESC NULLS LAST, parent_id
"""


def load_lineage(connection: Connection, root: UUID, *, depth: int) -> Sequence[Row[Any]]:
    """Return the edges below a memory or playbook entry, with the text of the parents, by level.

    Below a playbook entry are its source and, beside it, evidence that is not below the source.

    Returns:
        Rows of ``child_id``, ``parent_id``, ``parent_kind``, ``similarity``, ``level``, ``content``, ``memory_type``,
        ``learned_at``, ``author``.
    """
    return connection.execute(text(_LOAD_LINEAGE), {"root": root, "depth": depth}).all()


_LOAD_DERIVED = compose(
    """
    WITH RECURSIVE up AS (
        SELECT child_id, similarity, 1 AS steps FROM consolidation.memory_lineage WHERE parent_id = :id
        UNION
        SELECT l.child_id, l.similarity, up.steps + 1
        FROM consolidation.memory_lineage l JOIN up ON l.parent_id = up.child_id),
    promoted AS (
        SELECT e.id, min(up.steps) + 1 AS steps
        FROM consolidation.playbook_entries e
            JOIN (SELECT child_id AS id, steps FROM up UNION ALL SELECT :id, 0) up ON up.id = e.source_id
        GROUP BY e.id),
    entries AS (
        SELECT e.*, p.steps FROM consolidation.playbook_entries e JOIN promoted p USING (id)
        UNION ALL
        SELECT e.*, 1 FROM consolidation.playbook_entries e
        WHERE e.supporting_memory_ids @> ARRAY[CAST(:id AS uuid)] AND e.id NOT IN (SELECT id FROM promoted))
    SELECT d.id, d.kind, d.memory_type, up.similarity, up.steps, d.content, d.retired_at IS NULL AS active,
        /* status */ AS status
    FROM up JOIN consolidation.consolidated_memories d ON d.id = up.child_id
    UNION ALL
    SELECT e.id, 'playbook', e.category, CASE
            WHEN m.content_hash = e.content_hash THEN 1
            WHEN m.embedding_model = e.embedding_model THEN (1 - (m.embedding <=> e.embedding))::real END,
        e.steps, e.content, e.status = 'active', e.status
    FROM entries e LEFT JOIN (
        SELECT id, content_hash, embedding_model, embedding FROM consolidation.task_memories WHERE id = :id
        UNION ALL
        SELECT id, content_hash, embedding_model, embedding FROM consolidation.consolidated_memories WHERE id = :id
        ) m ON true
    ORDER BY steps, id
    """,
    status=CONSOLIDATED_STATUS,
)


def load_derived(connection: Connection, memory_id: UUID) -> Sequence[Row[Any]]:
    """Return what was derived from a memory, nearest first, playbook entries that only cite it as evidence included.

    Returns:
        Rows of ``id``, ``kind``, ``memory_type``, ``similarity``, ``steps`` up, ``content``, ``active``, ``status``.
    """
    return connection.execute(text(_LOAD_DERIVED), {"id": memory_id}).all()
