"""Queries of ``frames``: one statement per frame, streamed as batches of columns. Times are UTC without a zone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import load_labelled_columns, to_uuids
from consolidation_pipeline.store.jobs.llm_calls import COST_SUMS
from consolidation_pipeline.store.knowledge.summaries import COVERS
from consolidation_pipeline.store.ledger.lineage import CONSOLIDATED_STATUS, RAW_STATUS
from consolidation_pipeline.store.memories.pending_uses import count_with_pending, last_use_with_pending

# Rows per batch: no more are in memory as Python objects.
BATCH_ROWS = 5_000

Columns = dict[str, Sequence[Any]]

_MEMORIES = compose(
    """
    SELECT id::text, 'raw' AS kind, 0 AS level, /* raw_status */ AS status,
        memory_type, NULL AS pattern_type, execution_summary AS content, goal, result, lessons_learned, feedback, tags,
        source, external_id, task_id, user_id, agent_id, session_id,
        success, importance, pinned, relevance_score, NULL::float8 AS confidence_score,
        NULL AS consolidation_method, false AS needs_review, /* raw_uses */ AS reuse_count,
        NULL::integer AS source_count, NULL::text[] AS source_ids,
        consolidated_into_id::text AS successor_id, summary_id, archive_reason,
        learned_at AT TIME ZONE 'UTC' AS learned_at, created_at AT TIME ZONE 'UTC' AS created_at,
        /* raw_last_use */ AT TIME ZONE 'UTC' AS last_accessed_at, archived_at AT TIME ZONE 'UTC' AS retired_at,
        language::text, embedding_model, version, NULL::bytea AS vector
    FROM consolidation.task_memories t LEFT JOIN consolidation.relevance_scores r
        ON r.project_id = t.project_id AND r.memory_id = t.id LEFT JOIN (
        SELECT l.parent_id AS member_id, min(s.id::text) AS summary_id
        FROM consolidation.consolidated_memories s JOIN consolidation.memory_lineage l ON l.child_id = s.id
        WHERE s.project_id = :project AND /* covers */ GROUP BY 1) summaries ON member_id = id
    WHERE t.project_id = :project
    UNION ALL
    SELECT id::text, kind, abstraction_level, /* consolidated_status */, memory_type, pattern_type,
        content, NULL, NULL, NULL, NULL, tags,
        NULL, NULL, NULL, user_id, NULL, NULL,
        success, importance, pinned, relevance_score, confidence_score,
        consolidation_method, needs_review, /* derived_uses */,
        source_count, source_memory_ids::text[],
        superseded_by_id::text, NULL, archive_reason,
        learned_at AT TIME ZONE 'UTC', created_at AT TIME ZONE 'UTC',
        /* derived_last_use */ AT TIME ZONE 'UTC', retired_at AT TIME ZONE 'UTC',
        language::text, embedding_model, version, NULL::bytea
    FROM consolidation.consolidated_memories c LEFT JOIN consolidation.relevance_scores r
        ON r.project_id = c.project_id AND r.memory_id = c.id
    WHERE c.project_id = :project
    ORDER BY level, learned_at, id
    """,
    raw_status=RAW_STATUS,
    consolidated_status=CONSOLIDATED_STATUS,
    covers=COVERS,
    raw_uses=count_with_pending("t", "reused_count"),
    raw_last_use=last_use_with_pending("t"),
    derived_uses=count_with_pending("c", "reuse_count"),
    derived_last_use=last_use_with_pending("c"),
)


def stream_memories(connection: Connection, project_id: UUID, *, vectors: bool) -> Iterator[Columns]:
    """Yield raw and consolidated memories by level, then oldest first.

    ``vector`` is a float32 array (d,), or None for a memory without one and without ``vectors``.
    """
    query = _MEMORIES.replace("NULL::bytea", "vector_send(embedding)") if vectors else _MEMORIES
    for columns in _stream(connection, query, project=project_id):
        columns["vector"] = [None if sent is None else _vector(sent) for sent in columns["vector"]]
        yield columns


def _vector(sent: bytes) -> npt.NDArray[np.float32]:
    # Binary format of pgvector: two int16 (dimension, unused), then the numbers.
    return np.frombuffer(sent, dtype=">f4", offset=4).astype(np.float32)


@dataclass(frozen=True)
class Pairs:
    """Pairs of the similarity graph as arrays (m,), the most similar first.

    ``ids`` (n,): ids of the memories of all pairs, sorted; ``a`` and ``b`` are positions in it. ``model``: name of the
    embedding model. ``verdict``: code of ``store.similarity.similarity_graph``.
    """

    ids: Sequence[str]
    a: npt.NDArray[np.intp]
    b: npt.NDArray[np.intp]
    model: npt.NDArray[np.object_]
    similarity: npt.NDArray[np.float32]
    verdict: npt.NDArray[np.int16]


# Each packet holds the pairs of one model whose first id ends in the same byte.
_PAIRS = """
    SELECT embedding_model, string_agg(uuid_send(a) || uuid_send(b) || float4send(similarity) || int2send(verdict), '')
    FROM consolidation.memory_pairs WHERE project_id = %(project)s AND similarity >= %(at_least)s::real
    GROUP BY embedding_model, get_byte(uuid_send(a), 15)
"""
_PAIR_KINDS = {"a": "S16", "b": "S16", "similarity": ">f4", "verdict": ">i2"}


def load_pairs(connection: Connection, project_id: UUID, *, at_least: float) -> Pairs:
    """Return the pairs of the similarity graph at or above ``at_least``, of all models."""
    bound = {"project": project_id, "at_least": at_least}
    model, (a, b, similarity, verdict) = load_labelled_columns(connection, _PAIRS, bound, _PAIR_KINDS)
    ids, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
    a_at, b_at = ends[: len(a)], ends[len(a) :]
    at = np.lexsort((b_at, a_at, -similarity))
    texts = [str(id_) for id_ in to_uuids(ids)]
    return Pairs(texts, a_at[at], b_at[at], model[at], similarity[at], verdict[at])


_GROUPS = """
    SELECT tier, cluster_key AS key, count(*) AS size, count(*) FILTER (WHERE member_kind = 'merged') AS merged_members,
        max(member_id::text) FILTER (WHERE is_representative) AS representative_id,
        array_agg(member_id::text ORDER BY is_representative DESC, member_id) AS member_ids,
        max((details ->> 'cohesion_mean')::float8) AS cohesion_mean,
        max((details ->> 'cohesion_min')::float8) AS cohesion_min,
        jsonb_agg(details -> 'asked_pairs') FILTER (WHERE is_representative) -> 0 AS asked_pairs,
        max(job_id::text) FILTER (WHERE is_representative) AS job_id
    FROM consolidation.memory_clusters WHERE project_id = :project
    GROUP BY tier, cluster_key ORDER BY tier, size DESC, key
"""


def stream_groups(connection: Connection, project_id: UUID) -> Iterator[Columns]:
    """Yield the groups of the last run by tier, largest first. The first member is the representative."""
    return _stream(connection, _GROUPS, project=project_id)


_SUGGESTIONS = """
    SELECT id::text, group_id AS key, status, original_memory_ids::text[] AS memory_ids, similarity::float8,
        suggested_content AS content, rationale, reviewed_by, review_note, result_memory_id::text AS result_id,
        created_at AT TIME ZONE 'UTC' AS created_at, reviewed_at AT TIME ZONE 'UTC' AS reviewed_at
    FROM consolidation.consolidation_suggestions s WHERE project_id = :project ORDER BY s.created_at, s.id
"""


def stream_suggestions(connection: Connection, project_id: UUID) -> Iterator[Columns]:
    """Yield the suggested merges, oldest first."""
    return _stream(connection, _SUGGESTIONS, project=project_id)


# A change is undone if the chain of changes that revert it is of odd length: undoing an undoing redoes.
_CHANGES = """
    WITH RECURSIVE reverting AS (
        SELECT reverts_change_id AS id, id AS by FROM consolidation.consolidation_changes
        WHERE project_id = :project AND reverts_change_id IS NOT NULL
        UNION ALL
        SELECT r.id, c.id FROM reverting r JOIN consolidation.consolidation_changes c ON c.reverts_change_id = r.by),
    undone AS (SELECT id FROM reverting GROUP BY id HAVING count(*) % 2 = 1)
    SELECT c.seq, c.id::text, c.group_id::text, c.job_id::text, c.operation, c.entity_type, c.entity_id::text,
        c.version_before, c.version_after, c.reason, c.confidence, c.changed_by,
        c.changed_at AT TIME ZONE 'UTC' AS changed_at, c.reverts_change_id::text, u.id IS NOT NULL AS undone,
        CASE WHEN :images THEN c.previous_state - 'embedding' END AS previous_state,
        CASE WHEN :images THEN c.new_state - 'embedding' END AS new_state
    FROM consolidation.consolidation_changes c LEFT JOIN undone u ON u.id = c.id
    WHERE c.project_id = :project AND (CAST(:since AS timestamptz) IS NULL OR c.changed_at >= :since)
    ORDER BY c.seq
"""


def stream_changes(
    connection: Connection, project_id: UUID, *, since: datetime | None, images: bool
) -> Iterator[Columns]:
    """Yield the ledger from ``since`` on, oldest change first.

    With ``images``, a change has the states before and after it, without their vectors.
    """
    return _stream(connection, _CHANGES, project=project_id, since=since, images=images)


_COSTS = compose(
    """
    SELECT (created_at AT TIME ZONE 'UTC')::date::timestamp AS day, model, purpose, /* cost_sums */
    FROM consolidation.llm_calls
    WHERE project_id = :project
        AND (CAST(:since AS date) IS NULL OR created_at >= CAST(:since AS timestamp) AT TIME ZONE 'UTC')
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    """,
    cost_sums=COST_SUMS,
)


def stream_costs(connection: Connection, project_id: UUID, *, since: date | None) -> Iterator[Columns]:
    """Yield the costs from the day ``since`` on (UTC), by day, model and purpose."""
    return _stream(connection, _COSTS, project=project_id, since=since)


def _stream(connection: Connection, query: str, **bound: Any) -> Iterator[Columns]:
    # With a server-side cursor, only one batch of rows is in memory.
    result = connection.execute(text(query), bound, execution_options={"stream_results": True})
    names = tuple(result.keys())
    for rows in result.partitions(BATCH_ROWS):
        yield dict(zip(names, zip(*rows, strict=True), strict=True))
