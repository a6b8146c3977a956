"""Where knowledge comes from and went: memories and playbook entries by the beginning of their id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.schema import (
    consolidated_memories,
    memory_lineage,
    playbook_entries,
    task_memories,
)

# A playbook entry stands above principles, which are level 3.
_ENTRY_LEVEL = 4


@dataclass(frozen=True)
class Found:
    """A raw (level 0) or consolidated memory, or a playbook entry (level 4), whose category stands as its type.

    ``status`` active, merged, archived, retired, superseded; of an entry active, review, retired.
    """

    id: UUID
    project: str
    kind: str
    level: int
    memory_type: str
    status: str
    content: str
    learned_at: datetime


def find_memories(connection: Connection, first: UUID, last: UUID, *, limit: int) -> list[Found]:
    """Up to ``limit`` memories and playbook entries whose id lies between ``first`` and ``last``, by id."""
    rows = connection.execute(
        text(
            "SELECT m.id, p.slug, kind, level, memory_type, status, content, learned_at FROM ("
            "SELECT id, project_id, 'raw' AS kind, 0 AS level, memory_type, CASE WHEN is_archived THEN 'archived' "
            "WHEN is_consolidated THEN 'merged' ELSE 'active' END AS status, execution_summary AS content, learned_at "
            "FROM consolidation.task_memories WHERE id BETWEEN :first AND :last UNION ALL "
            "SELECT id, project_id, kind, abstraction_level, memory_type, "
            "CASE WHEN superseded_by_id IS NOT NULL THEN 'superseded' WHEN archive_reason IS NOT NULL THEN 'archived' "
            "WHEN retired_at IS NOT NULL THEN 'retired' ELSE 'active' END, content, learned_at "
            "FROM consolidation.consolidated_memories WHERE id BETWEEN :first AND :last UNION ALL "
            f"SELECT id, project_id, 'playbook', {_ENTRY_LEVEL}, category, status, content, created_at "
            f"FROM {playbook_entries} WHERE id BETWEEN :first AND :last) m "
            "JOIN consolidation.projects p ON p.id = m.project_id ORDER BY m.id LIMIT :limit"
        ),
        {"first": first, "last": last, "limit": limit},
    )
    return [Found(*row) for row in rows]


# SQL of how similar entry e is to the row m of a memory: equal texts are, and models are not compared with each other.
_TO_ENTRY = """
    CASE WHEN m.content_hash = e.content_hash THEN 1
        WHEN m.embedding_model = e.embedding_model THEN (1 - (m.embedding <=> e.embedding))::real END"""
# Edges from the entry :root: to what it was made from, and to the evidence that is not below that already. It came from
# what bore the entry out later, which no edge remembers.
_ENTRY_EDGES = f"""
    below AS (
        SELECT source_id AS id FROM {playbook_entries} WHERE id = :root AND source_id IS NOT NULL
        UNION
        SELECT l.parent_id FROM {memory_lineage} l JOIN below b ON l.child_id = b.id),
    entry_edges AS (
        SELECT e.id AS child_id, m.id AS parent_id, m.kind AS parent_kind, {_TO_ENTRY} AS similarity
        FROM {playbook_entries} e JOIN {consolidated_memories} m ON m.id = e.source_id
            OR m.id = ANY(e.supporting_memory_ids) AND m.id NOT IN (SELECT id FROM below)
        WHERE e.id = :root
        UNION ALL
        SELECT e.id, m.id, 'raw', {_TO_ENTRY}
        FROM {playbook_entries} e JOIN {task_memories} m ON m.id = ANY(e.supporting_memory_ids)
        WHERE e.id = :root AND m.id NOT IN (SELECT id FROM below))
"""


def load_lineage(connection: Connection, root: UUID, *, depth: int) -> Sequence[Row[Any]]:
    """Edges below ``root`` with the parents' text: child_id, parent_id, parent_kind, similarity, level, content.

    Below a playbook entry stand what it was made from and, beside that, evidence that is not to be found below it.
    """
    query = f"""
        WITH RECURSIVE {_ENTRY_EDGES},
        tree AS (
            (SELECT child_id, parent_id, parent_kind, similarity, 1 AS level FROM {memory_lineage}
                WHERE child_id = :root UNION ALL SELECT *, 1 FROM entry_edges)
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
    """What was made from a memory, nearest first: id, kind, similarity, steps up, content and whether it is active.

    Playbook entries are among it, those too that it only bears out.
    """
    query = f"""
        WITH RECURSIVE up AS (
            SELECT child_id, similarity, 1 AS steps FROM {memory_lineage} WHERE parent_id = :id
            UNION
            SELECT l.child_id, l.similarity, up.steps + 1 FROM {memory_lineage} l JOIN up ON l.parent_id = up.child_id),
        stands AS (
            SELECT e.id, min(up.steps) + 1 AS steps FROM {playbook_entries} e
                JOIN (SELECT child_id AS id, steps FROM up UNION ALL SELECT :id, 0) up ON up.id = e.source_id
            GROUP BY e.id),
        entries AS (
            SELECT e.*, s.steps FROM {playbook_entries} e JOIN stands s USING (id) UNION ALL
            SELECT e.*, 1 FROM {playbook_entries} e
            WHERE e.supporting_memory_ids @> ARRAY[CAST(:id AS uuid)] AND e.id NOT IN (SELECT id FROM stands))
        SELECT d.id, d.kind, d.memory_type, up.similarity, up.steps, d.content, d.retired_at IS NULL AS active
        FROM up JOIN {consolidated_memories} d ON d.id = up.child_id
        UNION ALL
        SELECT e.id, 'playbook', e.category, {_TO_ENTRY}, e.steps, e.content, e.status = 'active'
        FROM entries e LEFT JOIN (
            SELECT id, content_hash, embedding_model, embedding FROM {task_memories} WHERE id = :id UNION ALL
            SELECT id, content_hash, embedding_model, embedding FROM {consolidated_memories} WHERE id = :id) m ON true
        ORDER BY steps, id
    """
    return connection.execute(text(query), {"id": memory_id}).all()
