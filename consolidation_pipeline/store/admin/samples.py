"""A few rows worth looking at, chosen the same way every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text


@dataclass(frozen=True)
class MergedSample:
    """A merged memory and the texts of its sources."""

    id: UUID
    content: str
    sources: Sequence[str]


def sample_merged(connection: Connection, project_id: UUID, *, limit: int) -> list[MergedSample]:
    """Merged memories of the most wordings first: repeats of one wording show little."""
    rows = connection.execute(
        text(
            "SELECT c.id, c.content, array_agg(m.execution_summary ORDER BY m.learned_at, m.id) AS sources "
            "FROM consolidation.consolidated_memories c JOIN consolidation.task_memories m ON m.consolidated_into_id = c.id "
            "WHERE c.project_id = :project AND c.kind = 'merged' AND c.retired_at IS NULL "
            "GROUP BY c.id ORDER BY count(DISTINCT m.normalized_hash) DESC, c.id LIMIT :limit"
        ),
        {"project": project_id, "limit": limit},
    )
    return [MergedSample(*row) for row in rows]


@dataclass(frozen=True)
class Learned:
    """How much knowledge of a kind a project has, and the best supported piece. ``method``: llm, heuristic or hybrid.

    ``sources``: raw memories behind that piece; ``waiting``: how many of the kind wait for a person.
    """

    kind: str
    count: int
    waiting: int
    content: str
    method: str
    sources: int


def sample_learned(connection: Connection, project_id: UUID) -> list[Learned]:
    """Patterns, principles, playbook entries, summaries and profiles, in this order; kinds without any are left out."""
    rows = connection.execute(
        text(
            """
            WITH learned AS (
                SELECT kind, id, content, consolidation_method AS method, source_count AS sources,
                    needs_review AS waits, confidence_score AS sure
                FROM consolidation.consolidated_memories
                WHERE project_id = :project AND kind <> 'merged' AND retired_at IS NULL
                UNION ALL
                SELECT 'playbook', e.id, e.content, coalesce(c.consolidation_method, 'llm'),
                    cardinality(e.supporting_memory_ids), e.status = 'review', e.confidence
                FROM consolidation.playbook_entries e LEFT JOIN consolidation.consolidated_memories c ON c.id = e.source_id
                WHERE e.project_id = :project AND e.status <> 'retired'),
            counted AS (
                SELECT *, count(*) OVER one AS count, count(*) FILTER (WHERE waits) OVER one AS waiting
                FROM learned WINDOW one AS (PARTITION BY kind))
            SELECT DISTINCT ON (array_position(:kinds, kind)) kind, count, waiting, content, method, sources
            FROM counted ORDER BY array_position(:kinds, kind), sources DESC, sure DESC NULLS LAST, id
            """
        ),
        {"project": project_id, "kinds": ["pattern", "principle", "playbook", "summary", "procedural"]},
    )
    return [Learned(*row) for row in rows]


def load_unit_texts(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    """Main text by id, of raw and consolidated memories alike."""
    query = (
        "SELECT id, execution_summary FROM consolidation.task_memories WHERE id = ANY(:ids) UNION ALL "
        "SELECT id, content FROM consolidation.consolidated_memories WHERE id = ANY(:ids)"
    )
    return {row[0]: row[1] for row in connection.execute(text(query), {"ids": list(ids)})}


def relevance_spread(connection: Connection, project_id: UUID) -> tuple[float, float, float] | None:
    """Minimum, median and maximum relevance of the active memories; None where none was scored yet."""
    row = connection.execute(
        text(
            "SELECT min(score), percentile_cont(0.5) WITHIN GROUP (ORDER BY score), max(score) FROM ("
            "SELECT relevance_score AS score FROM consolidation.task_memories WHERE project_id = :project "
            "AND NOT is_archived AND NOT is_consolidated UNION ALL "
            "SELECT relevance_score FROM consolidation.consolidated_memories WHERE project_id = :project "
            "AND retired_at IS NULL) s WHERE score IS NOT NULL"
        ),
        {"project": project_id},
    ).one()
    return None if row[0] is None else (float(row[0]), float(row[1]), float(row[2]))
