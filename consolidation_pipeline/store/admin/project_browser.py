"""Queries of the web pages: knowledge of one kind, points of the map, undo state of jobs, what changes were about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.database.vector_copy import Vectors, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.ledger_reader import IS_ENTRY_OF_RUN, IS_UNDONE
from consolidation_pipeline.store.similarity.clusters import load_group_keys


@dataclass(frozen=True)
class KnowledgeFilter:
    """Filters of a list of memories: one kind (``raw`` included), and others, of which None means no filter.

    ``since`` is inclusive, ``until`` exclusive. ``min_confidence`` (0 to 1) does not apply to raw memories.
    """

    kind: str
    memory_type: str | None = None
    min_confidence: float | None = None
    since: datetime | None = None
    until: datetime | None = None


_RAW_FILTERS = """
    project_id = :project AND NOT is_archived AND NOT is_consolidated
        AND (CAST(:memory_type AS text) IS NULL OR memory_type = :memory_type)
        AND (CAST(:since AS timestamptz) IS NULL OR learned_at >= :since)
        AND (CAST(:until AS timestamptz) IS NULL OR learned_at < :until)
"""
_CONSOLIDATED_FILTERS = """
    project_id = :project AND kind = :kind AND retired_at IS NULL
        AND (CAST(:memory_type AS text) IS NULL OR memory_type = :memory_type)
        AND (CAST(:since AS timestamptz) IS NULL OR learned_at >= :since)
        AND (CAST(:until AS timestamptz) IS NULL OR learned_at < :until)
        AND (CAST(:min_confidence AS float8) IS NULL OR confidence_score >= :min_confidence)
"""
_LIST_RAW = compose(
    """
    SELECT id, 'raw' AS kind, memory_type, NULL AS pattern_type, execution_summary AS content,
        NULL::float8 AS confidence, 1 AS memories, false AS needs_review, learned_at,
        user_id AS scope
    FROM consolidation.task_memories WHERE /* filters */ ORDER BY learned_at DESC, id LIMIT :limit OFFSET :offset
    """,
    filters=_RAW_FILTERS,
)
_LIST_CONSOLIDATED = compose(
    """
    SELECT id, kind, memory_type, pattern_type, content, confidence_score AS confidence,
        source_count AS memories, needs_review, learned_at, coalesce(user_id, nullif(scope_key, '')) AS scope
    FROM consolidation.consolidated_memories WHERE /* filters */
    ORDER BY confidence_score DESC, learned_at DESC, id LIMIT :limit OFFSET :offset
    """,
    filters=_CONSOLIDATED_FILTERS,
)
_COUNT_RAW = compose("SELECT count(*) FROM consolidation.task_memories WHERE /* filters */", filters=_RAW_FILTERS)
_COUNT_CONSOLIDATED = compose(
    "SELECT count(*) FROM consolidation.consolidated_memories WHERE /* filters */", filters=_CONSOLIDATED_FILTERS
)


def list_knowledge(
    connection: Connection, project_id: UUID, knowledge: KnowledgeFilter, *, limit: int, offset: int = 0
) -> Sequence[Row[Any]]:
    """Return the active memories that pass a filter: raw ones newest first, others by confidence, then newest first."""
    statement = _LIST_RAW if knowledge.kind == "raw" else _LIST_CONSOLIDATED
    bound = {"project": project_id, "limit": limit, "offset": offset, **vars(knowledge)}
    return connection.execute(text(statement), bound).all()


def count_knowledge(connection: Connection, project_id: UUID, knowledge: KnowledgeFilter) -> int:
    """Return the number of active memories that pass a filter."""
    statement = _COUNT_RAW if knowledge.kind == "raw" else _COUNT_CONSOLIDATED
    return int(connection.execute(text(statement), {"project": project_id, **vars(knowledge)}).scalar_one())


@dataclass(frozen=True)
class MapPoints:
    """Vectors (n, d) of a sample of the ``total`` units, and for each the key of its pattern group, or None."""

    vectors: Vectors
    groups: Sequence[str | None]
    total: int


# Units: active raw memories and active merged ones, of which the groups of the last run are made.
_FIND_MAIN_MODEL = """
    SELECT embedding_model, embedding_dim, count(*) FROM (
        SELECT embedding_model, embedding_dim FROM consolidation.task_memories
        WHERE project_id = :project AND NOT is_archived AND NOT is_consolidated AND embedding_dim IS NOT NULL
        UNION ALL
        SELECT embedding_model, embedding_dim FROM consolidation.consolidated_memories
        WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL AND embedding_dim IS NOT NULL) units
    GROUP BY 1, 2 ORDER BY 3 DESC, 1 LIMIT 1
"""
# Ids are hashes, so the first ones are a fair sample.
_SAMPLE_UNITS = """
    SELECT id FROM consolidation.task_memories
    WHERE project_id = :project AND NOT is_archived AND NOT is_consolidated
        AND embedding_model = :model AND embedding_dim = :dimension
    UNION ALL
    SELECT id FROM consolidation.consolidated_memories
    WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL
        AND embedding_model = :model AND embedding_dim = :dimension
    ORDER BY id LIMIT :limit
"""
_LOAD_UNIT_VECTORS = """
    SELECT id, embedding FROM consolidation.task_memories WHERE id = ANY(%(ids)s)
    UNION ALL
    SELECT id, embedding FROM consolidation.consolidated_memories WHERE id = ANY(%(ids)s) ORDER BY id
"""


def load_map_points(connection: Connection, project_id: UUID, *, limit: int) -> MapPoints | None:
    """Return up to ``limit`` units with a vector of the project's most common model; None without any."""
    found = connection.execute(text(_FIND_MAIN_MODEL), {"project": project_id}).one_or_none()
    if found is None:
        return None
    model, dimension, total = found
    bound = {"project": project_id, "model": model, "dimension": dimension, "limit": limit}
    sample = list(connection.scalars(text(_SAMPLE_UNITS), bound))
    ids, vectors = load_vectors(connection, _LOAD_UNIT_VECTORS, {"ids": sample}, dimension=dimension)
    groups = load_group_keys(connection, project_id, "pattern", to_uuids(ids))
    return MapPoints(vectors, [groups.get(id_) for id_ in to_uuids(ids)], total)


_LOAD_UNDO_STATES = compose(
    """
    SELECT j.id, NOT EXISTS (
        SELECT FROM consolidation.consolidation_changes c WHERE c.job_id = j.id /* in_effect */)
    FROM unnest(CAST(:jobs AS uuid[])) AS j(id)
    WHERE EXISTS (SELECT FROM consolidation.consolidation_changes c WHERE c.job_id = j.id)
    """,
    in_effect=conditions(f"NOT {IS_UNDONE}"),
)


def load_undo_states(connection: Connection, job_ids: Sequence[UUID]) -> dict[UUID, bool]:
    """Return for each job that changed anything whether all of its changes were undone."""
    return {row[0]: row[1] for row in connection.execute(text(_LOAD_UNDO_STATES), {"jobs": list(job_ids)})}


# Texts of different directions stay apart, each between FIRST STRONG ISOLATE and POP DIRECTIONAL ISOLATE.
_LOAD_CHANGE_SUBJECTS = """
    SELECT DISTINCT ON (c.group_id) c.group_id, coalesce(l.a_id, c.entity_id) AS id, s.id IS NOT NULL AS is_suggestion,
        coalesce(d.content, p.content, r.execution_summary, s.suggested_content, (
            SELECT string_agg(U&'\\2068' || left(t.content, 75) || U&'\\2069', ' ↔ ' ORDER BY t.id = l.b_id) FROM (
                SELECT id, execution_summary AS content FROM consolidation.task_memories
                UNION ALL SELECT id, content FROM consolidation.consolidated_memories
            ) t WHERE t.id IN (l.a_id, l.b_id)
        )) AS content
    FROM consolidation.consolidation_changes c
        LEFT JOIN consolidation.task_memories r ON r.id = c.entity_id
        LEFT JOIN consolidation.consolidated_memories d ON d.id = c.entity_id
        LEFT JOIN consolidation.playbook_entries p ON p.id = c.entity_id
        LEFT JOIN consolidation.consolidation_suggestions s ON s.id = c.entity_id
        LEFT JOIN consolidation.memory_relations l ON l.id = c.entity_id
    WHERE c.group_id = ANY(:groups) AND num_nonnulls(r.id, d.id, p.id, s.id, l.id) > 0
    ORDER BY c.group_id, s.id IS NOT NULL OR l.id IS NOT NULL, r.id IS NOT NULL, c.seq
"""


def load_change_subjects(connection: Connection, group_ids: Sequence[UUID]) -> dict[UUID, Row[Any]]:
    """Return the subject of each change group: ``id`` and ``content`` of a memory or playbook entry.

    The subject is the first one that the group created, or else changed. If there is none, it is a suggestion
    (``is_suggestion``), or a relation: the id of one of its memories and the text of both. Deleted ones are left out.
    """
    rows = connection.execute(text(_LOAD_CHANGE_SUBJECTS), {"groups": list(group_ids)})
    return {row.group_id: row for row in rows}


# A change of a proposal's text has no status.
_LOAD_OUTCOMES = compose(
    """
    SELECT DISTINCT ON (c.group_id) c.group_id, CASE
        WHEN c.operation = 'edit' AND c.previous_state IS NULL THEN 'proposed entry'
        WHEN c.operation = 'edit' THEN 'changed entry'
        WHEN c.entity_type = 'consolidation_suggestions' AND c.previous_state IS NULL THEN 'proposed'
        WHEN c.new_state ? 'status' THEN c.new_state ->> 'status'
        WHEN c.new_state ? 'retired_at' THEN 'retired'
        WHEN c.new_state ? 'needs_review' THEN 'active'
        ELSE 'rewritten' END
    FROM consolidation.consolidation_changes c
    WHERE c.group_id = ANY(:groups) AND (c.operation = 'review' OR /* is_entry */) ORDER BY c.group_id, c.seq
    """,
    is_entry=IS_ENTRY_OF_RUN,
)


def load_review_outcomes(connection: Connection, group_ids: Sequence[UUID]) -> dict[UUID, str]:
    """Return what became of the reviewed row by change group: its new status, ``proposed`` or ``rewritten``.

    Of a playbook entry that a run wrote: ``proposed entry`` or ``changed entry``.
    """
    return dict(connection.execute(text(_LOAD_OUTCOMES), {"groups": list(group_ids)}).tuples().all())


_LOAD_REVERTED = """
    SELECT r.group_id, count(DISTINCT c.group_id) AS groups, (array_agg(c.group_id))[1] AS one_group,
        CASE WHEN count(DISTINCT c.job_id) = 1 AND count(c.job_id) = count(*) THEN (array_agg(c.job_id))[1] END AS job,
        bool_and(c.operation = 'rollback') AS is_redo
    FROM consolidation.consolidation_changes r JOIN consolidation.consolidation_changes c ON c.id = r.reverts_change_id
    WHERE r.group_id = ANY(:groups) GROUP BY 1
"""


def load_reverted(connection: Connection, group_ids: Sequence[UUID]) -> dict[UUID, Row[Any]]:
    """Return what each rollback among the change groups undid.

    Returns:
        Rows of ``groups``, their number, ``one_group`` of them, ``job`` if they are of one, and ``is_redo``.
    """
    rows = connection.execute(text(_LOAD_REVERTED), {"groups": list(group_ids)})
    return {row.group_id: row for row in rows}
