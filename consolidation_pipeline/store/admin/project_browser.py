"""What a project holds, page by page: its knowledge of one kind, a map of it, and what became of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.vector_copy import Vectors, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.ledger_reader import IS_UNDONE


@dataclass(frozen=True)
class Shelf:
    """Which memories are looked at: one kind (``raw`` too), and what else narrows them down; None = all.

    ``since`` is included, ``until`` is not; ``min_confidence`` (0 to 1) counts for derived memories only.
    """

    kind: str
    memory_type: str | None = None
    min_confidence: float | None = None
    since: datetime | None = None
    until: datetime | None = None

    def parameters(self) -> dict[str, Any]:
        """What the conditions bind."""
        return dict(vars(self))


_ALIKE = """
    project_id = :project AND (CAST(:memory_type AS text) IS NULL OR memory_type = :memory_type)
    AND (CAST(:since AS timestamptz) IS NULL OR learned_at >= :since)
    AND (CAST(:until AS timestamptz) IS NULL OR learned_at < :until)"""
_RAW = f"consolidation.task_memories WHERE NOT is_archived AND NOT is_consolidated AND {_ALIKE}"
_DERIVED = f"""consolidation.consolidated_memories WHERE kind = :kind AND retired_at IS NULL AND {_ALIKE}
    AND (CAST(:min_confidence AS float8) IS NULL OR confidence_score >= :min_confidence)"""


def list_shelf(
    connection: Connection, project_id: UUID, shelf: Shelf, *, limit: int, offset: int = 0
) -> Sequence[Row[Any]]:
    """Active memories of a shelf: raw ones newest first, derived ones the surest first, of equals the newest."""
    raw = f"""SELECT id, 'raw' AS kind, memory_type, NULL AS pattern_type, execution_summary AS content,
        NULL::float8 AS confidence, 1 AS memories, false AS needs_review, learned_at
        FROM {_RAW} ORDER BY learned_at DESC, id"""
    derived = f"""SELECT id, kind, memory_type, pattern_type, content, confidence_score AS confidence,
        source_count AS memories, needs_review, learned_at
        FROM {_DERIVED} ORDER BY confidence_score DESC, learned_at DESC, id"""
    query = f"{raw if shelf.kind == 'raw' else derived} LIMIT :limit OFFSET :offset"
    parameters = {"project": project_id, "limit": limit, "offset": offset, **shelf.parameters()}
    return connection.execute(text(query), parameters).all()


def count_shelf(connection: Connection, project_id: UUID, shelf: Shelf) -> int:
    """How many memories ``list_shelf`` has without a limit."""
    query = f"SELECT count(*) FROM {_RAW if shelf.kind == 'raw' else _DERIVED}"
    return int(connection.execute(text(query), {"project": project_id, **shelf.parameters()}).scalar_one())


# Raw memories that are active, and merged ones: what the groups of the newest run are made of.
_UNITS = """
    SELECT id, embedding_model, embedding_dim FROM consolidation.task_memories
    WHERE project_id = :project AND NOT is_archived AND NOT is_consolidated AND embedding_dim IS NOT NULL
    UNION ALL
    SELECT id, embedding_model, embedding_dim FROM consolidation.consolidated_memories
    WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL AND embedding_dim IS NOT NULL"""
_VECTORS = """
    SELECT id, embedding FROM consolidation.task_memories WHERE id = ANY(%(ids)s)
    UNION ALL
    SELECT id, embedding FROM consolidation.consolidated_memories WHERE id = ANY(%(ids)s) ORDER BY id"""


@dataclass(frozen=True)
class Places:
    """Vectors (n, d) of units and, for each, the key of its group on one topic, or None; ``total``: units in all."""

    vectors: Vectors
    groups: Sequence[str | None]
    total: int


def load_places(connection: Connection, project_id: UUID, *, limit: int) -> Places | None:
    """Up to ``limit`` units of the model that most of them have; None without any.

    Ids are hashes, so that the first ones by id are a fair sample.
    """
    query = f"""SELECT embedding_model, embedding_dim, count(*) FROM ({_UNITS}) u
        GROUP BY 1, 2 ORDER BY 3 DESC, 1 LIMIT 1"""
    found = connection.execute(text(query), {"project": project_id}).one_or_none()
    if found is None:
        return None
    model, dimension, total = found
    query = f"""SELECT id FROM ({_UNITS}) u
        WHERE embedding_model = :model AND embedding_dim = :dimension ORDER BY id LIMIT :limit"""
    named = {"project": project_id, "model": model, "dimension": dimension, "limit": limit}
    chosen = list(connection.scalars(text(query), named))
    ids, vectors = load_vectors(connection, _VECTORS, {"ids": chosen}, dimension=dimension)
    return Places(vectors, _load_topics(connection, project_id, to_uuids(ids)), total)


def _load_topics(connection: Connection, project_id: UUID, ids: Sequence[UUID]) -> list[str | None]:
    query = """SELECT member_id, cluster_key FROM consolidation.memory_clusters
        WHERE project_id = :project AND tier = 'pattern' AND member_id = ANY(:ids)"""
    keys = {row[0]: row[1] for row in connection.execute(text(query), {"project": project_id, "ids": ids})}
    return [keys.get(id_) for id_ in ids]


def load_fates(connection: Connection, job_ids: Sequence[UUID]) -> dict[UUID, bool]:
    """Of jobs that changed anything: whether all of it was undone since."""
    changes = "consolidation.consolidation_changes"
    query = f"""
        SELECT j.id, NOT EXISTS (SELECT FROM {changes} c WHERE c.job_id = j.id AND NOT {IS_UNDONE})
        FROM unnest(CAST(:jobs AS uuid[])) AS j(id) WHERE EXISTS (SELECT FROM {changes} c WHERE c.job_id = j.id)
    """
    return {row[0]: row[1] for row in connection.execute(text(query), {"jobs": list(job_ids)})}


def load_subjects(connection: Connection, group_ids: Sequence[UUID]) -> dict[UUID, Row[Any]]:
    """What groups of changes were about, by group: ``id`` and ``content`` of the memory or playbook entry they made.

    Where they made none, of one that they changed. What is gone, by an undoing, is left out.
    """
    query = """
        SELECT DISTINCT ON (c.group_id) c.group_id, c.entity_id AS id,
            coalesce(d.content, p.content, r.execution_summary) AS content
        FROM consolidation.consolidation_changes c
            LEFT JOIN consolidation.task_memories r ON r.id = c.entity_id
            LEFT JOIN consolidation.consolidated_memories d ON d.id = c.entity_id
            LEFT JOIN consolidation.playbook_entries p ON p.id = c.entity_id
        WHERE c.group_id = ANY(:groups) AND num_nonnulls(r.id, d.id, p.id) > 0
        ORDER BY c.group_id, r.id IS NOT NULL, c.seq
    """
    return {row.group_id: row for row in connection.execute(text(query), {"groups": list(group_ids)})}
