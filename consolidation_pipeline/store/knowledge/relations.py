"""Relations between memories: the inputs of associations, and how relations are written, decided and listed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Row, text

from consolidation_pipeline.core.arrays import Arrays
from consolidation_pipeline.core.lifecycle.associations import Association
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.relation_types import RELATION_TYPES
from consolidation_pipeline.store.database.schema import memory_relations
from consolidation_pipeline.store.database.scope_keys import derived_scope_key, raw_scope_key, scope_id
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, load_columns, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows, update_rows
from consolidation_pipeline.store.memories.linked_units import active_units


@dataclass(frozen=True)
class AssociationInputs(Arrays):
    """Units that may be related, as arrays of shape (n,), sorted by id.

    ``ids``: ``S16``. ``learned_at``: int64, microseconds since 1970. ``dimension``: int64, length of the vector of the
    run's model, 0 for a unit without one. ``scopes``: ``S16``, equal for units of one scope.
    """

    ids: Ids
    memory_type: npt.NDArray[np.str_]
    learned_at: npt.NDArray[np.int64]
    dimension: npt.NDArray[np.int64]
    scopes: Ids

    def union(self, other: AssociationInputs) -> AssociationInputs:
        """Return these units and those of ``other``, sorted by id."""
        both = self.concatenate([self, other])
        return both.select(np.argsort(both.ids))


_LOAD_ASSOCIATION_INPUTS = """
    SELECT * FROM (
        SELECT * FROM (
            SELECT t.id, array_position(%(memory_types)s::text[], t.memory_type) - 1 AS type,
                (extract(epoch FROM t.learned_at) * 1000000)::bigint AS learned,
                CASE WHEN t.embedding_model = %(model)s THEN t.embedding_dim ELSE 0 END AS dimension,
                /* raw_scope */
            FROM consolidation.task_memories t
            WHERE t.project_id = %(project)s AND NOT t.is_archived AND NOT t.is_consolidated
            UNION ALL
            SELECT t.id, array_position(%(memory_types)s::text[], t.memory_type) - 1,
                (extract(epoch FROM t.learned_at) * 1000000)::bigint,
                CASE WHEN t.embedding_model = %(model)s THEN t.embedding_dim ELSE 0 END,
                /* derived_scope */
            FROM consolidation.consolidated_memories t
            WHERE t.project_id = %(project)s AND t.kind = 'merged' AND t.retired_at IS NULL) units
        ORDER BY learned DESC, id LIMIT %(newest)s) newest
    ORDER BY id
"""


def load_association_inputs(
    connection: Connection, project_id: UUID, model: str, *, scope: str, newest: int | None = None
) -> AssociationInputs:
    """Return the active raw and merged memories of a project, or the ``newest`` of them by learned_at, then by id.

    ``scope``: the project's option.
    """
    parameters = {"project": project_id, "model": model, "newest": newest, "memory_types": list(MEMORY_TYPES)}
    kinds = {"id": "S16", "type": ">i4", "learned": ">i8", "dimension": ">i4", "scope": "S16"}
    statement = compose(
        _LOAD_ASSOCIATION_INPUTS,
        raw_scope=scope_id(raw_scope_key(scope)),
        derived_scope=scope_id(derived_scope_key(scope)),
    )
    ids, types, learned, dimension, scopes = load_columns(connection, statement, parameters, kinds)
    return AssociationInputs(ids, np.array(MEMORY_TYPES)[types], learned, dimension.astype(np.int64), scopes)


_LOAD_ASSOCIATION_VECTORS = """
    SELECT * FROM (
        SELECT t.id, t.embedding FROM consolidation.task_memories t
        WHERE t.project_id = %(project)s AND NOT t.is_archived AND NOT t.is_consolidated
            AND t.embedding_model = %(model)s AND (%(ids)s::uuid[] IS NULL OR t.id = ANY(%(ids)s))
        UNION ALL
        SELECT t.id, t.embedding FROM consolidation.consolidated_memories t
        WHERE t.project_id = %(project)s AND t.kind = 'merged' AND t.retired_at IS NULL
            AND t.embedding_model = %(model)s AND (%(ids)s::uuid[] IS NULL OR t.id = ANY(%(ids)s))) units
    ORDER BY id
"""


def load_association_vectors(
    connection: Connection, project_id: UUID, model: str, dimension: int, *, ids: Ids | None = None
) -> tuple[Ids, Vectors]:
    """Return ids and plain vectors float32 (n, dimension) of the units with a vector of ``model``, sorted by id.

    With ``ids``, only of these units.

    Raises:
        EmbeddingError: a vector has another length than ``dimension``.
    """
    chosen = None if ids is None else to_uuids(ids)
    parameters = {"project": project_id, "model": model, "ids": chosen}
    return load_vectors(connection, _LOAD_ASSOCIATION_VECTORS, parameters, dimension=dimension)


@dataclass(frozen=True)
class RelatedPairs:
    """Pairs that have a relation of any status, as arrays of shape (m,).

    ``a``, ``b``: ids ``S16`` of the units that represent the two ends now. ``relation_type``: int32, position in
    ``RELATION_TYPES``.
    """

    a: Ids
    b: Ids
    relation_type: npt.NDArray[np.int32]


_LOAD_RELATED_PAIRS = compose(
    """
    WITH RECURSIVE /* active_units */
    SELECT a.id, b.id, array_position(%(relation_types)s::text[], r.relation_type) - 1
    FROM chosen r JOIN active_units a ON a.origin = r.a_id JOIN active_units b ON b.origin = r.b_id
    """,
    active_units=active_units("r.project_id = %(project)s"),
)


def load_related_pairs(connection: Connection, project_id: UUID) -> RelatedPairs:
    """Return every pair of active units that a relation links, in its direction; a pair may occur twice."""
    parameters = {"project": project_id, "relation_types": list(RELATION_TYPES)}
    kinds = {"a": "S16", "b": "S16", "type": ">i4"}
    return RelatedPairs(*load_columns(connection, _LOAD_RELATED_PAIRS, parameters, kinds))


@dataclass(frozen=True)
class NewRelation:
    """A relation to write. ``status``: candidate or confirmed."""

    id: UUID
    a_id: UUID
    b_id: UUID
    found: Association
    similarity: float
    status: str


def append_relations(connection: Connection, author: Author, relations: Sequence[NewRelation], *, now: datetime) -> int:
    """Write new relations, each as a group of its own in the ledger; return how many.

    Raises:
        ConflictError: one of them exists.
    """
    changes = [
        Change(
            relation.id,
            uuid4(),
            {
                "a_id": relation.a_id,
                "b_id": relation.b_id,
                "relation_type": relation.found.relation_type,
                "confidence": relation.found.confidence,
                "similarity": relation.similarity,
                "reason": relation.found.reason,
                "status": relation.status,
                "created_at": now,
            },
            reason=f"{relation.found.relation_type}: {relation.found.reason}",
            confidence=relation.found.confidence,
        )
        for relation in relations
    ]
    return insert_rows(connection, author, memory_relations, changes, operation="associate")


_LOAD_RELATIONS = "SELECT id, project_id, status, version FROM consolidation.memory_relations WHERE id = ANY(:ids)"


def load_relations(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Row[Any]]:
    """Return id, project_id, status and version of the relations that exist, by id."""
    return {row.id: row for row in connection.execute(text(_LOAD_RELATIONS), {"ids": list(ids)})}


def decide_relations(
    connection: Connection, author: Author, relations: Sequence[Row[Any]], status: str, *, reason: str
) -> dict[UUID, UUID]:
    """Set the status of rows of ``load_relations`` of one project; return the ledger group of each, by relation id.

    Raises:
        ConflictError: A relation changed since it was read.
    """
    groups = {row.id: uuid4() for row in relations}
    changes = [Change(row.id, groups[row.id], {"status": status}, row.version, reason) for row in relations]
    update_rows(connection, author, memory_relations, changes, operation="review")
    return groups


_LIST_RELATIONS = r"""
    SELECT r.id, r.relation_type, r.status, r.confidence, r.similarity, r.reason, r.created_at,
        r.a_id, a.memory_type AS a_type, a.body AS a_text, r.b_id, b.memory_type AS b_type, b.body AS b_text
    FROM (
        SELECT * FROM consolidation.memory_relations
        WHERE project_id = :project AND (CAST(:status AS text) IS NULL OR status = :status)
            AND (CAST(:type AS text) IS NULL OR relation_type = :type)
        ORDER BY created_at DESC, confidence DESC, id LIMIT :limit) r
        LEFT JOIN LATERAL (
            SELECT concat_ws(E'\n', goal, execution_summary, result, lessons_learned, feedback) AS body, memory_type
            FROM consolidation.task_memories WHERE id = r.a_id
            UNION ALL
            SELECT content, memory_type FROM consolidation.consolidated_memories WHERE id = r.a_id) a ON true
        LEFT JOIN LATERAL (
            SELECT concat_ws(E'\n', goal, execution_summary, result, lessons_learned, feedback) AS body, memory_type
            FROM consolidation.task_memories WHERE id = r.b_id
            UNION ALL
            SELECT content, memory_type FROM consolidation.consolidated_memories WHERE id = r.b_id) b ON true
    ORDER BY r.created_at DESC, r.confidence DESC, r.id
"""


def list_relations(
    connection: Connection,
    project_id: UUID,
    *,
    limit: int,
    status: str | None = None,
    relation_type: str | None = None,
) -> Sequence[Row[Any]]:
    """Return the relations with type and text of both ends, newest first, of one ``status`` or type if given.

    Type and text are None for an end that was deleted.
    """
    parameters = {"project": project_id, "status": status, "type": relation_type, "limit": limit}
    return connection.execute(text(_LIST_RELATIONS), parameters).all()


_COUNT_RELATIONS = """
    SELECT status, count(*) FROM consolidation.memory_relations
    WHERE project_id = :project AND (CAST(:type AS text) IS NULL OR relation_type = :type)
    GROUP BY status ORDER BY 1
"""


def count_relations(connection: Connection, project_id: UUID, *, relation_type: str | None = None) -> dict[str, int]:
    """Return the number of a project's relations by status, of one type if given."""
    parameters = {"project": project_id, "type": relation_type}
    return {row[0]: row[1] for row in connection.execute(text(_COUNT_RELATIONS), parameters)}
