"""Counts of suggestions by kind of difference, and of groups that no suggestion proposes yet."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.review.suggestions import list_conditions

_LIST_PENDING_KINDS = """
    SELECT coalesce(s.difference_kinds, '{}') AS kinds FROM consolidation.consolidation_suggestions s
    WHERE true/* filters */
"""


def list_pending_kinds(
    connection: Connection,
    project_id: UUID | None,
    *,
    memory_type: str | None,
    min_similarity: float | None,
) -> list[list[str]]:
    """Return the kinds of differences of each suggestion that waits; None = in all projects, of any type and so on."""
    filters = list_conditions(project_id, "pending", memory_type, min_similarity, None)
    bound = {"project": project_id, "status": "pending", "type": memory_type, "min_similarity": min_similarity}
    found = connection.scalars(text(compose(_LIST_PENDING_KINDS, filters=filters)), bound)
    return [list(kinds) for kinds in found]


_COUNT_DECISIONS = """
    SELECT kind, count(*) FILTER (WHERE status = 'validated') AS approved, count(*) AS total
    FROM consolidation.consolidation_suggestions s,
        LATERAL (SELECT DISTINCT split_part(d, ':', 1) AS kind FROM unnest(s.difference_kinds) AS d) kinds
    WHERE project_id = :project AND status IN ('validated', 'rejected', 'kept') GROUP BY kind
"""


def count_decisions_by_kind(connection: Connection, project_id: UUID) -> dict[str, tuple[int, int]]:
    """Return the number of approvals and of all decisions by kind of difference."""
    rows = connection.execute(text(_COUNT_DECISIONS), {"project": project_id})
    return {row.kind: (row.approved, row.total) for row in rows}


# `fingerprint`: as the function of this name.
_COUNT_UNPROPOSED = """
    WITH members AS (
        SELECT c.project_id, c.cluster_key, c.member_id || ' ' || coalesce(t.content_hash, m.content_hash) AS part,
            o.memory_id IS NOT NULL AS waits
        FROM consolidation.memory_clusters c
            LEFT JOIN consolidation.task_memories t
                ON t.id = c.member_id AND NOT t.is_archived AND NOT t.is_consolidated
            LEFT JOIN consolidation.consolidated_memories m ON m.id = c.member_id AND m.retired_at IS NULL
            LEFT JOIN consolidation.suggestion_originals o ON o.memory_id = c.member_id
        WHERE c.tier = 'suggest' AND (CAST(:project AS uuid) IS NULL OR c.project_id = :project)),
    groups AS (
        SELECT project_id, encode(sha256(convert_to(
            string_agg(part, E'\\n' ORDER BY part COLLATE "C"), 'UTF8')), 'hex') AS fingerprint
        FROM members GROUP BY project_id, cluster_key HAVING count(part) = count(*) AND NOT bool_or(waits))
    SELECT p.slug, count(*) FROM groups g JOIN consolidation.projects p ON p.id = g.project_id
    WHERE NOT EXISTS (
        SELECT 1 FROM consolidation.consolidation_suggestions s
        WHERE s.fingerprint = g.fingerprint AND s.status <> 'superseded')
    GROUP BY 1 ORDER BY 1
"""


def count_unproposed_groups(connection: Connection, project_id: UUID | None) -> dict[str, int]:
    """Return the number of groups by project that a person should decide and that no suggestion proposes yet.

    They wait until there is room under ``review_limit``, or for the next run. Projects without any are left out.
    """
    rows = connection.execute(text(_COUNT_UNPROPOSED), {"project": project_id})
    return {row[0]: row[1] for row in rows}
