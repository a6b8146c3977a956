"""Samples of a project's memories and knowledge for the demo, selected in a stable order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text


@dataclass(frozen=True)
class MergedSample:
    """Merged memory with the texts of its sources."""

    id: UUID
    content: str
    sources: Sequence[str]


_LOAD_MERGED_SAMPLES = """
    SELECT c.id, c.content, array_agg(m.execution_summary ORDER BY m.learned_at, m.id) AS sources
    FROM consolidation.consolidated_memories c
        JOIN consolidation.task_memories m ON m.consolidated_into_id = c.id
    WHERE c.project_id = :project AND c.kind = 'merged' AND c.retired_at IS NULL
    GROUP BY c.id ORDER BY count(DISTINCT m.normalized_hash) DESC, c.id LIMIT :limit
"""


def load_merged_samples(connection: Connection, project_id: UUID, *, limit: int) -> list[MergedSample]:
    """Return the merged memories whose sources have the most wordings: repeats of one wording show little."""
    rows = connection.execute(text(_LOAD_MERGED_SAMPLES), {"project": project_id, "limit": limit})
    return [MergedSample(*row) for row in rows]


@dataclass(frozen=True)
class KnowledgeSample:
    """Count of the knowledge of one kind, and the piece with the most sources.

    ``waiting``: how many wait for review. ``method``: llm, heuristic or hybrid. ``sources``: raw memories behind the
    piece.
    """

    kind: str
    count: int
    waiting: int
    content: str
    method: str
    sources: int


_LOAD_KNOWLEDGE_SAMPLES = """
    WITH knowledge AS (
        SELECT kind, id, content, consolidation_method AS method, source_count AS sources,
            needs_review AS waits, confidence_score AS confidence
        FROM consolidation.consolidated_memories
        WHERE project_id = :project AND kind <> 'merged' AND retired_at IS NULL
        UNION ALL
        SELECT 'playbook', e.id, e.content, coalesce(c.consolidation_method, 'llm'),
            cardinality(e.supporting_memory_ids), e.status = 'review', e.confidence
        FROM consolidation.playbook_entries e
            LEFT JOIN consolidation.consolidated_memories c ON c.id = e.source_id
        WHERE e.project_id = :project AND e.status <> 'retired'),
    counted AS (
        SELECT *, count(*) OVER one AS count, count(*) FILTER (WHERE waits) OVER one AS waiting
        FROM knowledge WINDOW one AS (PARTITION BY kind))
    SELECT DISTINCT ON (array_position(:kinds, kind)) kind, count, waiting, content, method, sources
    FROM counted ORDER BY array_position(:kinds, kind), sources DESC, confidence DESC NULLS LAST, id
"""


def load_knowledge_samples(connection: Connection, project_id: UUID) -> list[KnowledgeSample]:
    """Return samples of patterns, principles, playbook entries, summaries and profiles, in this order.

    Kinds without any piece are left out.
    """
    bound = {"project": project_id, "kinds": ["pattern", "principle", "playbook", "summary", "procedural"]}
    return [KnowledgeSample(*row) for row in connection.execute(text(_LOAD_KNOWLEDGE_SAMPLES), bound)]


_LOAD_UNIT_TEXTS = """
    SELECT id, execution_summary FROM consolidation.task_memories WHERE id = ANY(:ids)
    UNION ALL
    SELECT id, content FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
"""


def load_unit_texts(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return the main text of raw and consolidated memories by id."""
    return {row[0]: row[1] for row in connection.execute(text(_LOAD_UNIT_TEXTS), {"ids": list(ids)})}


_LOAD_RELEVANCE_SPREAD = """
    SELECT min(score), percentile_cont(0.5) WITHIN GROUP (ORDER BY score), max(score) FROM (
        SELECT r.relevance_score AS score FROM consolidation.relevance_scores r
            LEFT JOIN consolidation.task_memories t ON t.id = r.memory_id
            LEFT JOIN consolidation.consolidated_memories m ON m.id = r.memory_id
        WHERE r.project_id = :project
            AND (NOT t.is_archived AND NOT t.is_consolidated OR m.id IS NOT NULL AND m.retired_at IS NULL)) scores
"""


def load_relevance_spread(connection: Connection, project_id: UUID) -> tuple[float, float, float] | None:
    """Return minimum, median and maximum relevance of the active memories; None if none has a score."""
    row = connection.execute(text(_LOAD_RELEVANCE_SPREAD), {"project": project_id}).one()
    return None if row[0] is None else (float(row[0]), float(row[1]), float(row[2]))
