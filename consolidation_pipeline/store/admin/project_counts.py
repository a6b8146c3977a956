"""Counts over projects, for reports, status and triggers; fingerprints of their rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.core.knowledge.summary_batches import SESSION_IDLE
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.jobs.llm_calls import COST_SUMS
from consolidation_pipeline.store.knowledge.playbook import count_entries
from consolidation_pipeline.store.knowledge.summaries import IS_UNSUMMARIZED


@dataclass(frozen=True)
class ProjectCounts:
    """Counts of a project, as the glossary defines them. Mappings are by name, the largest count first.

    ``memories``: raw memories, each ``active``, ``consolidated`` (in an active merged memory) or ``archived``.
    ``merged``: active merged memories.
    ``needs_review``: items that wait for a person. ``suggest_groups``, ``pattern_groups``: groups of these tiers.
    ``cost_usd`` and ``tokens``: of all model calls.
    """

    memories: int
    active: int
    consolidated: int
    archived: int
    merged: int
    by_type: Mapping[str, int]
    by_level: Mapping[str, int]
    by_kind: Mapping[str, int]
    playbook: Mapping[str, int]
    needs_review: int
    suggest_groups: int
    pattern_groups: int
    cost_usd: float
    tokens: int

    @property
    def units(self) -> int:
        """Number of active raw and active merged memories."""
        return self.active + self.merged

    @property
    def reduction(self) -> float | None:
        """1 - units / raw memories that are not archived, with six digits, not clamped; None without any."""
        before = self.active + self.consolidated
        return None if before == 0 else round(1.0 - self.units / before, 6)


_COUNT_ACTIVE_BY_TYPE = """
    SELECT memory_type, count(*) FROM consolidation.task_memories
    WHERE project_id = :project AND NOT is_archived AND NOT is_consolidated GROUP BY 1 ORDER BY 2 DESC, 1
"""
_COUNT_SUGGESTIONS_AND_GROUPS = """
    SELECT
        (SELECT count(*) FROM consolidation.consolidation_suggestions
            WHERE project_id = :project AND status = 'pending') AS suggestions,
        (SELECT count(*) FROM consolidation.memory_clusters
            WHERE project_id = :project AND tier = 'suggest' AND is_representative) AS suggest_groups,
        (SELECT count(*) FROM consolidation.memory_clusters
            WHERE project_id = :project AND tier = 'pattern' AND is_representative) AS pattern_groups
"""
_SUM_SPENDING = compose(
    "SELECT /* cost_sums */ FROM consolidation.llm_calls WHERE project_id = :project", cost_sums=COST_SUMS
)


def count_project(connection: Connection, project_id: UUID) -> ProjectCounts:
    """Return all counts of a project."""
    bound = {"project": project_id}
    raw = count_raw_memories(connection, project_id)
    by_level, by_kind, for_review = _count_consolidated(connection, project_id)
    playbook = _sort_by_count(count_entries(connection, project_id))
    waiting = connection.execute(text(_COUNT_SUGGESTIONS_AND_GROUPS), bound).one()
    spending = connection.execute(text(_SUM_SPENDING), bound).one()
    return ProjectCounts(
        memories=raw.memories,
        active=raw.active,
        consolidated=raw.consolidated,
        archived=raw.archived,
        merged=by_kind.get("merged", 0),
        by_type=dict(connection.execute(text(_COUNT_ACTIVE_BY_TYPE), bound).tuples().all()),
        by_level=by_level,
        by_kind=by_kind,
        playbook=playbook,
        needs_review=for_review + playbook.get("review", 0) + waiting.suggestions,
        suggest_groups=waiting.suggest_groups,
        pattern_groups=waiting.pattern_groups,
        cost_usd=float(spending.cost_usd),
        tokens=spending.tokens,
    )


_COUNT_RAW_MEMORIES = """
    SELECT count(*) AS memories, count(*) FILTER (WHERE state = 'active') AS active,
        count(*) FILTER (WHERE state = 'consolidated') AS consolidated,
        count(*) FILTER (WHERE state = 'archived') AS archived
    FROM (
        SELECT CASE WHEN t.is_archived OR c.archive_reason IS NOT NULL THEN 'archived'
            WHEN t.is_consolidated THEN 'consolidated' ELSE 'active' END AS state
        FROM consolidation.task_memories t
            LEFT JOIN consolidation.consolidated_memories c ON c.id = t.consolidated_into_id
        WHERE t.project_id = :project) raw
"""


def count_raw_memories(connection: Connection, project_id: UUID) -> Row[Any]:
    """Return the number of a project's raw ``memories``, and of ``active``, ``consolidated`` and ``archived`` ones.

    The sources of an archived merged memory count as archived.
    """
    return connection.execute(text(_COUNT_RAW_MEMORIES), {"project": project_id}).one()


_COUNT_CONSOLIDATED = """
    SELECT abstraction_level::text AS level, kind, count(*) AS rows, count(*) FILTER (WHERE needs_review) AS waiting
    FROM consolidation.consolidated_memories WHERE project_id = :project AND retired_at IS NULL GROUP BY 1, 2
"""


def _count_consolidated(connection: Connection, project_id: UUID) -> tuple[dict[str, int], dict[str, int], int]:
    """Count the active consolidated memories by level, by kind and for review, in one pass: their table is wide."""
    levels, kinds, waiting = Counter[str](), Counter[str](), 0
    for row in connection.execute(text(_COUNT_CONSOLIDATED), {"project": project_id}):
        levels[row.level] += row.rows
        kinds[row.kind] += row.rows
        waiting += row.waiting
    return _sort_by_count(levels), _sort_by_count(kinds), waiting


def _sort_by_count(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


_HASH_PROJECT_ROWS = """
    SELECT md5(string_agg(concat_ws(':', part, rows, total), ',' ORDER BY part)) FROM (
        SELECT 'task_memories' AS part, count(*) AS rows, sum(hashtextextended(concat_ws('|',
            id, version, content_hash, importance, reused_count, last_accessed_at, embedding_model,
            consolidated_into_id, archived_at), 0)::numeric) AS total
        FROM consolidation.task_memories WHERE project_id = :project
        UNION ALL
        SELECT 'compared_memories', count(*), sum(hashtextextended(concat_ws('|',
            memory_id, graph_version), 0)::numeric)
        FROM consolidation.compared_memories WHERE project_id = :project
        UNION ALL
        SELECT 'consolidated_memories', count(*), sum(hashtextextended(concat_ws('|',
            id, version, content_hash, importance, reuse_count, last_accessed_at, embedding_model), 0)::numeric)
        FROM consolidation.consolidated_memories WHERE project_id = :project
        UNION ALL
        SELECT 'memory_relations', count(*), sum(hashtextextended(concat_ws('|',
            id, version, status, confidence), 0)::numeric)
        FROM consolidation.memory_relations WHERE project_id = :project
        UNION ALL
        SELECT 'memory_clusters', count(*), sum(hashtextextended(concat_ws('|',
            tier, cluster_key, member_id), 0)::numeric)
        FROM consolidation.memory_clusters WHERE project_id = :project
        UNION ALL
        SELECT 'playbook_entries', count(*), sum(hashtextextended(concat_ws('|',
            id, version, status, embedding_model), 0)::numeric)
        FROM consolidation.playbook_entries WHERE project_id = :project
        UNION ALL
        SELECT 'memory_tests', count(*), sum(hashtextextended(concat_ws('|', name, kind, body, enabled), 0)::numeric)
        FROM consolidation.memory_tests WHERE project_id = :project HAVING count(*) > 0) parts
"""


def hash_project_rows(connection: Connection, project_id: UUID) -> str:
    """Return a hash of all rows that a run reads: if it is that of the last run, a run would find nothing to do.

    It is made of sums of row hashes, which have no order, so it takes one scan of each table.
    """
    return str(connection.execute(text(_HASH_PROJECT_ROWS), {"project": project_id}).scalar_one())


@dataclass(frozen=True)
class Backlog:
    """Work that a project has for a job, as the triggers see it.

    ``active``, ``merged``: number of active raw and merged memories. ``new``: active raw memories since the last job
    that merged, which started at ``last_job_at``. ``unsummarized``: memories without a summary since the last attempt.
    ``session_ended``: a session of theirs has ended. Both are 0 and False unless the job is ``summarize``.
    ``live_job``, ``live_status``: the running job, or else the next pending one. ``asked_at``: newest request of the
    job. ``cancelled_at``: end of that request if it was cancelled.
    """

    project_id: UUID
    slug: str
    consolidation_enabled: bool
    config: Mapping[str, Any]
    active: int
    new: int
    merged: int
    last_job_at: datetime | None
    unsummarized: int
    session_ended: bool
    live_job: UUID | None
    live_status: str | None
    asked_at: datetime | None
    cancelled_at: datetime | None

    @property
    def units(self) -> int:
        """Number of active raw and active merged memories, as ``ProjectCounts.units``."""
        return self.active + self.merged


_LIST_BACKLOGS = compose(
    """
    WITH selected AS (
        SELECT p.*, coalesce((CAST(:as_of AS jsonb) ->> p.id::text)::timestamptz, 'infinity') AS as_of
        FROM consolidation.projects p WHERE CAST(:project AS uuid) IS NULL OR p.id = :project),
    last AS (
        SELECT p.id AS project_id, newest.started_at AS at FROM selected p, LATERAL (
            SELECT started_at FROM consolidation.consolidation_jobs j WHERE j.project_id = p.id
                AND 'merged_memories' = ANY(phases_completed) ORDER BY j.created_at DESC LIMIT 1) newest),
    raw AS (
        SELECT m.project_id, count(*) AS active,
            count(*) FILTER (WHERE last.at IS NULL OR m.created_at > last.at OR m.embedding IS NULL) AS new
        FROM consolidation.task_memories m JOIN selected p ON p.id = m.project_id LEFT JOIN last USING (project_id)
        WHERE NOT m.is_archived AND NOT m.is_consolidated AND m.created_at <= p.as_of GROUP BY m.project_id),
    merged AS (
        SELECT project_id, count(*) AS merged FROM consolidation.consolidated_memories
        WHERE kind = 'merged' AND retired_at IS NULL GROUP BY project_id),
    unsummarized AS (
        SELECT p.id AS project_id, found.* FROM selected p LEFT JOIN LATERAL (
            SELECT started_at AS at FROM consolidation.consolidation_jobs j WHERE j.project_id = p.id
                AND (metrics -> 'semantic_summaries' ->> 'due')::boolean ORDER BY j.created_at DESC LIMIT 1)
            tried ON true, LATERAL (
            SELECT sum(waiting)::integer AS waiting, bool_or(ended) AS ended FROM (
                SELECT count(*) AS waiting,
                    t.session_id IS NOT NULL AND max(t.created_at) <= now() - CAST(:idle AS interval) AS ended
                FROM consolidation.task_memories t
                WHERE t.project_id = p.id AND (tried.at IS NULL OR t.created_at > tried.at) /* is_unsummarized */
                GROUP BY t.session_id) sessions) found
        WHERE CAST(:job AS text) = 'summarize')
    SELECT p.id, p.slug, p.consolidation_enabled, p.config, coalesce(raw.active, 0), coalesce(raw.new, 0),
        coalesce(merged.merged, 0), last.at, coalesce(u.waiting, 0), coalesce(u.ended, false),
        live.id, live.status, asked.created_at,
        CASE WHEN asked.status = 'cancelled' THEN asked.completed_at END
    FROM selected p LEFT JOIN raw ON raw.project_id = p.id LEFT JOIN last ON last.project_id = p.id
        LEFT JOIN merged ON merged.project_id = p.id LEFT JOIN unsummarized u ON u.project_id = p.id
        LEFT JOIN LATERAL (
            SELECT id, status FROM consolidation.consolidation_jobs j
            WHERE j.project_id = p.id AND j.status IN ('pending', 'running')
            ORDER BY j.status = 'running' DESC, j.created_at, j.id LIMIT 1) live ON true
        LEFT JOIN LATERAL (
            SELECT status, created_at, completed_at FROM consolidation.consolidation_jobs j
            WHERE j.project_id = p.id AND coalesce(j.scope ->> 'job', 'consolidate') = :job
                AND NOT j.scope ?| ARRAY['phases', 'plan']
            ORDER BY j.created_at DESC LIMIT 1) asked ON true
    ORDER BY p.slug
    """,
    is_unsummarized=conditions(IS_UNSUMMARIZED),
)


def list_backlogs(
    connection: Connection,
    *,
    job: str = "consolidate",
    as_of: Mapping[UUID, datetime] | None = None,
    project_id: UUID | None = None,
) -> list[Backlog]:
    """Return the backlogs of all projects, or of one, by slug.

    A memory without a vector is new whenever it was stored: its import may have begun before the last job and ended
    after it.

    Args:
        job: Name of the job.
        as_of: Time by project after which its memories do not count.
        project_id: Id of a single project; None for all.
    """
    bound = {
        "idle": SESSION_IDLE,
        "job": job,
        "as_of": json.dumps({str(id_): at.isoformat() for id_, at in (as_of or {}).items()}),
        "project": project_id,
    }
    return [Backlog(*row) for row in connection.execute(text(_LIST_BACKLOGS), bound)]


@dataclass(frozen=True)
class RawVersion:
    """Number and version of the raw memories of a project.

    ``version`` changes if a memory is added, edited, archived, restored or removed.
    """

    slug: str
    memories: int
    version: str


_LIST_RAW_VERSIONS = """
    SELECT p.slug, count(m.id), concat_ws('-', count(m.id),
        coalesce(sum(hashtextextended(m.content_hash, 0)::numeric), 0), count(m.archived_at))
    FROM consolidation.projects p LEFT JOIN consolidation.task_memories m ON m.project_id = p.id
    GROUP BY p.slug ORDER BY p.slug
"""


def list_raw_versions(connection: Connection) -> list[RawVersion]:
    """Return the version of the raw memories of all projects, by slug."""
    return [RawVersion(*row) for row in connection.execute(text(_LIST_RAW_VERSIONS))]
