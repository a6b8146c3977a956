"""Checks of raw memories: their dates, vectors and relevance."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Connection

from consolidation_pipeline.core.memories.memories import MAX_TIME_AHEAD
from consolidation_pipeline.store.checks.check import Check, list_rows, select
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.similarity.similarity_graph import IS_MOVED

# Vectors are stored as float32: a norm is exact to about 1e-7.
_NORM_SLACK = 1e-3
# The newest run of a phase, and the raw memories that it had before it: those that came, or were changed by somebody
# else, since then wait for the next run.
_NEWEST_RUN = """
    SELECT id, started_at AS at FROM consolidation.consolidation_jobs
    WHERE project_id = :project AND :phase = ANY(phases_completed) ORDER BY started_at DESC LIMIT 1
"""
_AND_UNCHANGED = """
    AND NOT EXISTS (SELECT FROM consolidation.consolidation_changes c
        WHERE c.entity_id = m.id AND c.changed_at > run.at AND c.job_id IS DISTINCT FROM run.id)
"""

_FIND_FUTURE_MEMORIES = """
    SELECT id, learned_at FROM consolidation.task_memories
    WHERE project_id = :project AND learned_at > now() + :ahead
"""

NO_MEMORY_IS_FROM_THE_FUTURE = Check(
    "no_memory_is_from_the_future",
    select(_FIND_FUTURE_MEMORIES, ahead=MAX_TIME_AHEAD),
    "No memory has a date in the future: its age would count as zero and its relevance would not decay.",
    blocking=False,
)

# Memories that the newest run that made vectors had.
_FIND_UNEMBEDDED = compose(
    """
    SELECT m.id FROM consolidation.task_memories m, (/* newest_run */) run
    WHERE project_id = :project AND NOT is_archived AND embedding IS NULL AND created_at <= run.at /* and_unchanged */
    """,
    newest_run=_NEWEST_RUN,
    and_unchanged=_AND_UNCHANGED,
)

EVERY_MEMORY_IS_EMBEDDED = Check(
    "every_memory_is_embedded",
    select(_FIND_UNEMBEDDED, phase="embedding_matrix"),
    "Every memory that is not archived has a vector.",
)

# Models besides the most used one: vectors of different models are never compared.
_FIND_MIXED_MODELS = compose(
    """
    SELECT embedding_model, count(*) FROM consolidation.task_memories m, (/* newest_run */) run
    WHERE project_id = :project AND NOT is_archived AND embedding IS NOT NULL AND created_at <= run.at
    GROUP BY 1 ORDER BY 2 DESC OFFSET 1
    """,
    newest_run=_NEWEST_RUN,
)

ONE_EMBEDDING_MODEL = Check(
    "one_embedding_model",
    select(_FIND_MIXED_MODELS, phase="embedding_matrix"),
    "All vectors of the project come from one model.",
    blocking=False,
)

_FIND_UNNORMALIZED_VECTORS = """
    SELECT id FROM (
        SELECT id, embedding FROM consolidation.task_memories t WHERE project_id = :project/* changed */ OFFSET 0) t
    WHERE abs(vector_norm(embedding) - 1) > :slack
    UNION
    SELECT memory_id FROM consolidation.staged_embeddings
    WHERE project_id = :project AND abs(vector_norm(embedding) - 1) > :slack
"""


def find_unnormalized_vectors(
    connection: Connection, project_id: UUID, jobs: Sequence[UUID] | None = None
) -> list[str]:
    """Find raw memories whose vector is not of length 1, and rows with such a staged vector.

    ``jobs``: look at the memories that were not compared yet, as the vectors of the others were checked before. The
    ledger does not hold vectors.
    """
    statement = compose(_FIND_UNNORMALIZED_VECTORS, changed="" if jobs is None else conditions(IS_MOVED))
    return list_rows(connection, project_id, statement, slack=_NORM_SLACK)


VECTORS_ARE_NORMALIZED = Check(
    "vectors_are_normalized",
    find_unnormalized_vectors,
    "Every vector has length 1, so that the dot product of two is their cosine.",
    by_ledger=True,
)

# Memories that the newest run that scores memories had.
_FIND_WITHOUT_RELEVANCE = compose(
    """
    WITH run AS (/* newest_run */)
    SELECT m.id FROM consolidation.task_memories m LEFT JOIN consolidation.relevance_scores s
        ON s.project_id = m.project_id AND s.memory_id = m.id, run
    WHERE m.project_id = :project AND NOT is_archived AND NOT is_consolidated
        AND (coalesce(relevance_score, 0) <= 0 OR relevance_score = 'NaN' OR relevance_score = 'Infinity')
        AND created_at <= run.at /* and_unchanged */
    UNION ALL
    SELECT m.id FROM consolidation.consolidated_memories m LEFT JOIN consolidation.relevance_scores s
        ON s.project_id = m.project_id AND s.memory_id = m.id, run
    WHERE m.project_id = :project AND retired_at IS NULL
        AND (coalesce(relevance_score, 0) <= 0 OR relevance_score = 'NaN' OR relevance_score = 'Infinity')
        /* and_unchanged */
    """,
    newest_run=_NEWEST_RUN,
    and_unchanged=_AND_UNCHANGED,
)

RELEVANCE_IS_POSITIVE = Check(
    "relevance_is_positive",
    select(_FIND_WITHOUT_RELEVANCE, phase="decay_scores"),
    "Every active memory has a positive, finite relevance.",
)
