"""Counts over a project: what the report, the metrics command and the sensors read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.core.knowledge.summary_batches import SESSION_IDLE
from consolidation_pipeline.store.knowledge.summaries import IS_UNSUMMARIZED


@dataclass(frozen=True)
class ProjectCounts:
    """A project in numbers. Reduction = 1 - active units / raw memories that are not archived; None without any."""

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
        """Active raw memories and active merged memories."""
        return self.active + self.merged

    @property
    def reduction(self) -> float | None:
        """Share of the units that merging took away, not clamped."""
        before = self.active + self.consolidated
        return None if before == 0 else 1.0 - self.units / before


def count_project(connection: Connection, project_id: UUID) -> ProjectCounts:
    """Count everything there is to know about a project."""
    one = {"project": project_id}
    raw, derived = count_raw(connection, project_id), _count_derived(connection, one)
    return ProjectCounts(
        memories=raw.memories,
        active=raw.active,
        consolidated=raw.consolidated,
        archived=raw.archived,
        merged=derived.by_kind.get("merged", 0),
        by_type=_grouped(connection, "memory_type", "task_memories", "NOT is_archived AND NOT is_consolidated", one),
        by_level=derived.by_level,
        by_kind=derived.by_kind,
        playbook=_grouped(connection, "status", "playbook_entries", "true", one),
        needs_review=derived.needs_review
        + _count(connection, "playbook_entries", "status = 'review'", one)
        + _count(connection, "consolidation_suggestions", "status = 'pending'", one),
        suggest_groups=_count(connection, "memory_clusters", "tier = 'suggest' AND is_representative", one),
        pattern_groups=_count(connection, "memory_clusters", "tier = 'pattern' AND is_representative", one),
        **_spending(connection, one),
    )


def count_raw(connection: Connection, project_id: UUID) -> Row[Any]:
    """Raw memories of a project: ``memories`` in all, ``active``, ``consolidated`` and ``archived`` ones.

    The sources of an archived merged memory are archived with it.
    """
    query = """
        SELECT count(*) AS memories, count(*) FILTER (WHERE state = 'active') AS active,
            count(*) FILTER (WHERE state = 'consolidated') AS consolidated,
            count(*) FILTER (WHERE state = 'archived') AS archived
        FROM (SELECT CASE WHEN t.is_archived OR c.archive_reason IS NOT NULL THEN 'archived'
                WHEN t.is_consolidated THEN 'consolidated' ELSE 'active' END AS state
            FROM consolidation.task_memories t LEFT JOIN consolidation.consolidated_memories c ON c.id = t.consolidated_into_id
            WHERE t.project_id = :project) AS raw
    """
    return connection.execute(text(query), {"project": project_id}).one()


class _Derived(NamedTuple):
    by_level: dict[str, int]
    by_kind: dict[str, int]
    needs_review: int


def _count_derived(connection: Connection, parameters: Mapping[str, Any]) -> _Derived:
    """The active consolidated memories, in one pass: theirs is a wide table."""
    query = """
        SELECT abstraction_level::text AS level, kind, count(*) AS rows, count(*) FILTER (WHERE needs_review) AS waiting
        FROM consolidation.consolidated_memories WHERE project_id = :project AND retired_at IS NULL GROUP BY 1, 2
    """
    levels, kinds, waiting = Counter[str](), Counter[str](), 0
    for row in connection.execute(text(query), parameters):
        levels[row.level] += row.rows
        kinds[row.kind] += row.rows
        waiting += row.waiting
    return _Derived(_most_first(levels), _most_first(kinds), waiting)


def _most_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _count(connection: Connection, table: str, condition: str, parameters: Mapping[str, Any]) -> int:
    query = f"SELECT count(*) FROM consolidation.{table} WHERE project_id = :project AND {condition}"
    return int(connection.execute(text(query), parameters).scalar_one())


def _grouped(
    connection: Connection, column: str, table: str, condition: str, parameters: Mapping[str, Any]
) -> dict[str, int]:
    query = (
        f"SELECT {column}, count(*) FROM consolidation.{table} WHERE project_id = :project AND {condition} "
        "GROUP BY 1 ORDER BY 2 DESC, 1"
    )
    return {row[0]: row[1] for row in connection.execute(text(query), parameters)}


def _spending(connection: Connection, parameters: Mapping[str, Any]) -> dict[str, Any]:
    row = connection.execute(
        text(
            "SELECT coalesce(sum(coalesce(cost_usd, reserved_usd)), 0)::float8 AS cost_usd, "
            "coalesce(sum(prompt_tokens + completion_tokens), 0) AS tokens FROM consolidation.llm_calls "
            "WHERE project_id = :project AND status <> 'cached'"
        ),
        parameters,
    ).one()
    return {"cost_usd": row.cost_usd, "tokens": int(row.tokens)}


def fingerprint(connection: Connection, project_id: UUID) -> str:
    """A hash of everything a run reads: equal before and after means that a run would find nothing to do.

    Order-free sums of row hashes, so it takes one scan per table.
    """
    parts = {
        "task_memories": "id, version, content_hash, importance, reused_count, last_accessed_at, embedding_model, "
        "graph_version, consolidated_into_id, archived_at",
        "consolidated_memories": "id, version, content_hash, importance, reuse_count, last_accessed_at, "
        "embedding_model",
        "memory_relations": "id, version, status, confidence",
        "memory_clusters": "tier, cluster_key, member_id",
        "playbook_entries": "id, version, status, embedding_model",
    }
    union = " UNION ALL ".join(
        f"SELECT '{table}' AS part, count(*) AS rows, "
        f"sum(hashtextextended(concat_ws('|', {columns}), 0)::numeric) AS total "
        f"FROM consolidation.{table} WHERE project_id = :project"
        for table, columns in parts.items()
    )
    query = f"SELECT md5(string_agg(concat_ws(':', part, rows, total), ',' ORDER BY part)) FROM ({union}) s"
    return str(connection.execute(text(query), {"project": project_id}).scalar_one())


@dataclass(frozen=True)
class Backlog:
    """What the triggers look at. ``new``: active memories that no merging has seen; ``last_job_at``: its last start.

    ``unsummarized``: memories without a summary that came since one was last tried, whatever came of that;
    ``session_ended``: one ended in which some of them were written; both only for the job ``summarize``. ``live_job``:
    the pending or running one, with its status. ``asked_at``: when the job in question was last asked for, and
    ``cancelled_at``: when that was cancelled.
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


def list_backlogs(
    connection: Connection,
    *,
    job: str = "consolidate",
    as_of: Mapping[UUID, datetime] | None = None,
    project_id: UUID | None = None,
) -> list[Backlog]:
    """Every project, or one, with its active memories, those that came since its last job, its merged ones, what waits
    for a summary, and when ``job`` was asked for. Memories of a project that came after its ``as_of`` do not count.

    A memory without a vector is new whenever it was stored: its import may have begun before the job and ended after.
    """
    name, whole = "coalesce(j.scope ->> 'job', 'consolidate')", "NOT j.scope ?| ARRAY['phases', 'plan']"
    rows = connection.execute(
        text(
            f"""
            WITH chosen AS (
                SELECT p.*, coalesce((CAST(:as_of AS jsonb) ->> p.id::text)::timestamptz, 'infinity') AS as_of
                FROM consolidation.projects p WHERE CAST(:project AS uuid) IS NULL OR p.id = :project),
            last AS (
                SELECT p.id AS project_id, newest.started_at AS at FROM chosen p, LATERAL (
                    SELECT started_at FROM consolidation.consolidation_jobs j WHERE j.project_id = p.id
                        AND 'merged_memories' = ANY(phases_completed) ORDER BY j.created_at DESC LIMIT 1) newest),
            raw AS (
                SELECT m.project_id, count(*) AS active,
                    count(*) FILTER (WHERE last.at IS NULL OR m.created_at > last.at OR m.embedding IS NULL) AS new
                FROM consolidation.task_memories m JOIN chosen p ON p.id = m.project_id LEFT JOIN last USING (project_id)
                WHERE NOT m.is_archived AND NOT m.is_consolidated AND m.created_at <= p.as_of GROUP BY m.project_id),
            merged AS (
                SELECT project_id, count(*) AS merged FROM consolidation.consolidated_memories
                WHERE kind = 'merged' AND retired_at IS NULL GROUP BY project_id),
            unsummarized AS (
                SELECT p.id AS project_id, found.* FROM chosen p LEFT JOIN LATERAL (
                    SELECT started_at AS at FROM consolidation.consolidation_jobs j WHERE j.project_id = p.id
                        AND (metrics -> 'semantic_summaries' ->> 'due')::boolean ORDER BY j.created_at DESC LIMIT 1)
                    tried ON true, LATERAL (
                    SELECT sum(waiting)::integer AS waiting, bool_or(ended) AS ended FROM (
                        SELECT count(*) AS waiting,
                            t.session_id IS NOT NULL AND max(t.created_at) <= now() - CAST(:idle AS interval) AS ended
                        FROM consolidation.task_memories t
                        WHERE t.project_id = p.id AND {IS_UNSUMMARIZED} AND (tried.at IS NULL OR t.created_at > tried.at)
                        GROUP BY t.session_id) sessions) found
                WHERE CAST(:job AS text) = 'summarize')
            SELECT p.id, p.slug, p.consolidation_enabled, p.config, coalesce(raw.active, 0), coalesce(raw.new, 0),
                coalesce(merged.merged, 0), last.at, coalesce(u.waiting, 0), coalesce(u.ended, false),
                live.id, live.status, asked.created_at,
                CASE WHEN asked.status = 'cancelled' THEN asked.completed_at END
            FROM chosen p LEFT JOIN raw ON raw.project_id = p.id LEFT JOIN last ON last.project_id = p.id
                LEFT JOIN merged ON merged.project_id = p.id LEFT JOIN unsummarized u ON u.project_id = p.id
                LEFT JOIN consolidation.consolidation_jobs live
                    ON live.project_id = p.id AND live.status IN ('pending', 'running')
                LEFT JOIN LATERAL (
                    SELECT status, created_at, completed_at FROM consolidation.consolidation_jobs j
                    WHERE j.project_id = p.id AND {name} = :job AND {whole} ORDER BY j.created_at DESC LIMIT 1) asked
                    ON true
            ORDER BY p.slug
            """
        ),
        {
            "idle": SESSION_IDLE,
            "job": job,
            "as_of": json.dumps({str(id_): at.isoformat() for id_, at in (as_of or {}).items()}),
            "project": project_id,
        },
    )
    return [Backlog(*row) for row in rows]


def raw_versions(connection: Connection) -> dict[str, str]:
    """A hash of the raw memories of every project, by slug: it changes when a memory comes, is archived or restored."""
    rows = connection.execute(
        text(
            "SELECT p.slug, concat_ws('-', count(m.id), "
            "coalesce(sum(hashtextextended(m.content_hash, 0)::numeric), 0), count(m.archived_at)) "
            "FROM consolidation.projects p LEFT JOIN consolidation.task_memories m ON m.project_id = p.id GROUP BY p.slug"
        )
    )
    return {row[0]: row[1] for row in rows}
