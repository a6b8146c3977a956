"""Rewind of a copy of a project: back to the moment at which a job began, with what the job could know then."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Vectors, pass_vectors
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED
from consolidation_pipeline.store.ledger.revert import rewind_changes
from consolidation_pipeline.store.ledger.row_images import HAS_VECTOR_BYTES, VECTOR_BYTES
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns
from consolidation_pipeline.store.memories.pending_uses import last_use_with_pending

# The ledger has no images of rows that an erasure removed, and none at all of what audit retention removed. Rows that
# came after the job ended are not needed; earlier versions did not record since when there were the erased ones.
_LIST_GAPS = """
    SELECT 'erase' AS kind, count(DISTINCT entity_id) AS rows, max(changed_at) AS at
    FROM consolidation.consolidation_changes
    WHERE project_id = :project AND (changed_at >= :start OR job_id = :job) AND (
        operation = 'erase' OR coalesce(previous_state ? 'erased', false) OR coalesce(new_state ? 'erased', false))
        AND EXISTS (
            SELECT FROM consolidation.consolidation_changes e
            WHERE e.project_id = :project AND e.operation = 'erase' AND e.entity_type = 'erasure'
                AND e.changed_at >= :start
                AND coalesce((e.previous_state ->> 'existed_since')::timestamptz <= :end, true))
    HAVING count(*) > 0
    UNION ALL
    SELECT 'retention', (previous_state ->> 'changes')::bigint, changed_at
    FROM consolidation.consolidation_changes
    WHERE project_id = :project AND operation = 'retention' AND (previous_state ->> 'until')::timestamptz >= :start
"""


def list_ledger_gaps(
    connection: Connection, project_id: UUID, job_id: UUID, *, start: datetime, end: datetime
) -> Sequence[Row[Any]]:
    """Return why the ledger does not lead back to ``start``: ``kind`` erase or retention, ``rows`` and ``at``.

    ``end``: end of the job.
    """
    parameters = {"project": project_id, "job": job_id, "start": start, "end": end}
    return connection.execute(text(_LIST_GAPS), parameters).all()


# Vectors of a paid model, by the hash of their text: from the rows, and from the images of rows that are gone.
_KEEP_VECTORS = compose(
    """
    CREATE TABLE public.kept_vectors AS
    SELECT DISTINCT ON (hash) hash, embedding FROM (
        SELECT content_hash AS hash, embedding FROM consolidation.task_memories WHERE embedding_model = :model
        UNION ALL
        SELECT content_hash, embedding FROM consolidation.consolidated_memories WHERE embedding_model = :model
        UNION ALL
        SELECT content_hash, embedding FROM consolidation.playbook_entries WHERE embedding_model = :model
        UNION ALL
        SELECT text_hash, embedding FROM consolidation.grouping_embeddings WHERE embedding_model = :model
        UNION ALL
        SELECT image ->> 'content_hash', CASE WHEN NOT /* has_bytes */ THEN (image ->> 'embedding')::vector END
        FROM consolidation.consolidation_changes, unnest(ARRAY[previous_state, new_state]) AS image
        WHERE image ->> 'embedding_model' = :model AND image ? 'content_hash'
    ) known WHERE embedding IS NOT NULL ORDER BY hash
    """,
    has_bytes=f"({HAS_VECTOR_BYTES})",
)
_LIST_VECTORS_OF_IMAGES = f"""
    SELECT DISTINCT ON (1) image ->> 'content_hash', {VECTOR_BYTES}
    FROM consolidation.consolidation_changes, unnest(ARRAY[previous_state, new_state]) AS image
    WHERE image ->> 'embedding_model' = %(model)s AND image ? 'content_hash' AND {HAS_VECTOR_BYTES}
        AND NOT EXISTS (SELECT 1 FROM public.kept_vectors k WHERE k.hash = image ->> 'content_hash')
"""
_LOAD_VECTORS = "SELECT hash, embedding::text AS embedding FROM public.kept_vectors WHERE hash = ANY(:hashes)"


def keep_vectors(connection: Connection, model: str) -> None:
    """Keep the vectors of a model in the copy, by the hash of their text, beyond the rewind."""
    connection.execute(text(_KEEP_VECTORS), {"model": model})
    pass_vectors(connection, _LIST_VECTORS_OF_IMAGES, {"model": model}, "public.kept_vectors (hash, embedding)")
    connection.execute(text("CREATE INDEX ON public.kept_vectors (hash)"))


def load_kept_vectors(connection: Connection, hashes: Sequence[str]) -> dict[str, Vectors]:
    """Return the kept vectors float32 (d,) by the hash of their text; texts without one are left out."""
    rows = connection.execute(text(_LOAD_VECTORS), {"hashes": list(hashes)})
    return {row.hash: np.array(json.loads(row.embedding), dtype=np.float32) for row in rows}


# The ledger is cut where the job began: what was undone later must not keep anything apart in the replay. Erased rows
# came after it, and are gone already.
_FIND_CUT = """
    SELECT min(seq) FROM consolidation.consolidation_changes
    WHERE project_id = :project AND (job_id = :job OR changed_at >= :start)
"""
_LIST_LATER = """
    SELECT seq FROM consolidation.consolidation_changes
    WHERE project_id = :project AND seq >= :cut AND entity_type = ANY(:tables)
        AND NOT coalesce(previous_state ? 'erased', false) AND NOT coalesce(new_state ? 'erased', false)
"""
_CUT_LEDGER = "DELETE FROM consolidation.consolidation_changes WHERE seq >= :cut"
_LEDGER_TRIGGER = "ALTER TABLE consolidation.consolidation_changes {} TRIGGER append_only"

# What came later, and what the next run computes again: its caches, and the calibration if the job made one.
_REMOVE_LATER = (
    "DELETE FROM consolidation.task_memories WHERE created_at >= :start",
    """
    DELETE FROM consolidation.memory_files f WHERE NOT EXISTS (
        SELECT FROM consolidation.task_memories t WHERE t.id = f.owner_id
        UNION ALL SELECT FROM consolidation.consolidated_memories c WHERE c.id = f.owner_id)
    """,
    """
    DELETE FROM consolidation.memory_votes
    WHERE day > CAST(:start AS date) OR group_id = ANY(CAST(:groups AS uuid[]))
    """,
    "DELETE FROM consolidation.vote_queries WHERE day > CAST(:start AS date)",
    "DELETE FROM consolidation.pending_uses",
    "DELETE FROM consolidation.memory_tests WHERE created_at >= :start",
    "DELETE FROM consolidation.labelled_pairs WHERE labelled_at >= :start",
    "DELETE FROM consolidation.similarity_calibrations WHERE created_at >= :start",
    "DELETE FROM consolidation.llm_calls WHERE created_at > :end",
    "DELETE FROM consolidation.pair_judgements WHERE created_at > :end",
    "DELETE FROM consolidation.supersession_answers WHERE created_at > :end",
    "DELETE FROM consolidation.memory_neighbors",
    "DELETE FROM consolidation.memory_clusters",
    "DELETE FROM consolidation.grouping_embeddings",
    "DELETE FROM consolidation.compared_scopes",
    "DELETE FROM consolidation.grouped_scopes",
    "DELETE FROM consolidation.recall_answers",
    "DELETE FROM consolidation.compared_sentences",
    "DELETE FROM consolidation.compared_memories",
    "DELETE FROM consolidation.relevance_scores",
    """
    DELETE FROM consolidation.consolidation_jobs WHERE id <> :job AND created_at >= (
        SELECT created_at FROM consolidation.consolidation_jobs WHERE id = :job)
    """,
)
_LIST_LATER_GROUPS = "SELECT DISTINCT group_id FROM consolidation.consolidation_changes WHERE seq >= :cut"

_RESET_JOB = """
    UPDATE consolidation.consolidation_jobs
    SET status = 'pending', phases_completed = '{}', phases_failed = '{}', progress = 0, metrics = '{}',
        memories_merged = 0, clusters_merged = 0, memories_archived = 0, memories_promoted = 0, summaries_created = 0,
        error_message = NULL, dagster_run_id = NULL, started_at = NULL, completed_at = NULL, duration_seconds = NULL
    WHERE id = :job
"""
_SET_OPTIONS = """
    UPDATE consolidation.projects SET config = CAST(:options AS jsonb), consolidation_enabled = true
    WHERE id = :project
"""


def rewind_project(
    connection: Connection, project_id: UUID, job: Row[Any], *, start: datetime, options: Mapping[str, Any]
) -> None:
    """Bring a copy of a project back to the moment before a job, which is pending then.

    Args:
        job: The row of the job.
        start: When it began. Changes from then on are taken back, and memories that came since are removed.
        options: Options that the project gets.

    Raises:
        ConflictError: A row is not as the ledger left it.
    """
    named = {"project": project_id, "job": job.id, "start": start, "end": job.completed_at}
    cut = connection.execute(text(_FIND_CUT), named).scalar_one()
    groups: Sequence[UUID] = []
    if cut is not None:
        tables = list(LEDGERED)
        later = connection.scalars(text(_LIST_LATER), {"project": project_id, "cut": cut, "tables": tables}).all()
        rewind_changes(connection, later)
        groups = connection.scalars(text(_LIST_LATER_GROUPS), {"cut": cut}).all()
        connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))  # no check may wait when the table is altered
        connection.execute(text(_LEDGER_TRIGGER.format("DISABLE")))
        connection.execute(text(_CUT_LEDGER), {"cut": cut})
        connection.execute(text(_LEDGER_TRIGGER.format("ENABLE")))
    for statement in _REMOVE_LATER:
        connection.execute(text(statement), {**named, "groups": list(groups)})
    connection.execute(text(_RESET_JOB), named)
    connection.execute(text(_SET_OPTIONS), {"project": project_id, "options": json.dumps(dict(options))})


_LIST_TEXTS = compose(
    "SELECT id, content_hash, /* columns */ FROM consolidation.task_memories WHERE project_id = :project ORDER BY id",
    columns=", ".join(TEXT_COLUMNS),
)


def load_hashed_texts(connection: Connection, project_id: UUID) -> dict[UUID, tuple[str, str]]:
    """Return the embedded text of each raw memory and the hash that is stored with it, by id."""
    rows = connection.execute(text(_LIST_TEXTS), {"project": project_id})
    return {row[0]: (join_text_columns(row[2:]), row[1]) for row in rows}


_COUNT_LATER = compose(
    """
    SELECT count(*) FILTER (WHERE /* last_use */ >= :start) AS used,
        count(*) FILTER (WHERE created_at BETWEEN :start AND :end) AS arrived
    FROM consolidation.task_memories t WHERE project_id = :project
    """,
    last_use=last_use_with_pending("t"),
)


def count_later(connection: Connection, project_id: UUID, *, start: datetime, end: datetime) -> Row[Any]:
    """Return how many memories were ``used`` since a job began, and how many ``arrived`` while it ran."""
    return connection.execute(text(_COUNT_LATER), {"project": project_id, "start": start, "end": end}).one()
