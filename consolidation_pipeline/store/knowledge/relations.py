"""Relations between memories: what associations read, and how relations are written and decided on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Row, text

from consolidation_pipeline.core.lifecycle.associations import RELATION_TYPES, Association
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.store.database.schema import memory_relations
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, load_columns, load_vectors, to_uuids
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows, update_rows
from consolidation_pipeline.store.memories.linked_units import ACTIVE, carriers

# What may be related: active raw memories and active merged memories, each with its table's name.
_UNITS = {
    "task_memories": ACTIVE["task_memories"],
    "consolidated_memories": f"t.kind = 'merged' AND {ACTIVE['consolidated_memories']}",
}


@dataclass(frozen=True)
class AssociationInputs:
    """Units that may be related, arrays of shape (n,), sorted by id: ids ``S16``; memory_type; learned_at in whole
    microseconds since 1970, int64; dimension of the vector of the run's model (0 = it has none).
    """

    ids: Ids
    memory_type: npt.NDArray[np.str_]
    learned_at: npt.NDArray[np.int64]
    dimension: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: npt.NDArray[Any]) -> AssociationInputs:
        """The ends at ``rows`` (indices or mask)."""
        return AssociationInputs(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    def united(self, other: AssociationInputs) -> AssociationInputs:
        """These ends and those of ``other``, sorted by id."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = AssociationInputs(*(np.concatenate(columns) for columns in pairs))
        return both.select(np.argsort(both.ids))


def load_association_inputs(
    connection: Connection, project_id: UUID, model: str, *, newest: int | None = None
) -> AssociationInputs:
    """The active raw and merged memories of a project; with ``newest`` so many, by learned_at, ties by id."""
    types = "array_position(ARRAY[{}], t.memory_type)".format(", ".join(f"'{name}'" for name in MEMORY_TYPES))
    units = _units(
        f"t.id, {types} - 1 AS type, (extract(epoch FROM t.learned_at) * 1000000)::bigint AS learned, "
        "CASE WHEN t.embedding_model = %(model)s THEN t.embedding_dim ELSE 0 END AS dimension"
    )
    query = f"SELECT * FROM (SELECT * FROM ({units}) u ORDER BY learned DESC, id LIMIT %(newest)s) u ORDER BY id"
    parameters = {"project": project_id, "model": model, "newest": newest}
    kinds = {"id": "S16", "type": ">i4", "learned": ">i8", "dimension": ">i4"}
    ids, types_at, learned, dimension = load_columns(connection, query, parameters, kinds)
    return AssociationInputs(ids, np.array(MEMORY_TYPES)[types_at], learned, dimension.astype(np.int64))


def load_association_vectors(
    connection: Connection, project_id: UUID, model: str, dimension: int, *, ids: Ids | None = None
) -> tuple[Ids, Vectors]:
    """Ids and plain vectors float32 (n, dimension) of the units that have one of ``model``, or of those of ``ids``.

    Raises:
        EmbeddingError: a vector has another length than ``dimension``.
    """
    units = _units("t.id, t.embedding", "t.embedding_model = %(model)s AND (%(ids)s IS NULL OR t.id = ANY(%(ids)s))")
    chosen = None if ids is None else to_uuids(ids)
    parameters = {"project": project_id, "model": model, "ids": chosen}
    return load_vectors(connection, f"SELECT * FROM ({units}) u ORDER BY id", parameters, dimension=dimension)


def _units(columns: str, condition: str = "true") -> str:
    return " UNION ALL ".join(
        f"SELECT {columns} FROM consolidation.{name} t WHERE t.project_id = %(project)s AND {active} AND {condition}"
        for name, active in _UNITS.items()
    )


@dataclass(frozen=True)
class RelatedPairs:
    """Pairs that have a relation, whatever its status, (m,) each: ids ``S16`` of the units that stand for the ends, and
    the relation's type as its position in ``RELATION_TYPES``, int32.
    """

    a: Ids
    b: Ids
    relation_type: npt.NDArray[np.int32]


def load_related_pairs(connection: Connection, project_id: UUID) -> RelatedPairs:
    """Every pair of active units that a relation links, in the relation's direction; a pair may stand there twice."""
    types = "array_position(ARRAY[{}], r.relation_type)".format(", ".join(f"'{name}'" for name in RELATION_TYPES))
    query = f"""
        WITH RECURSIVE {carriers("r.project_id = %(project)s")}
        SELECT a.id, b.id, {types} - 1
        FROM chosen r JOIN carriers a ON a.origin = r.a_id JOIN carriers b ON b.origin = r.b_id
    """
    return RelatedPairs(
        *load_columns(connection, query, {"project": project_id}, {"a": "S16", "b": "S16", "type": ">i4"})
    )


@dataclass(frozen=True)
class NewRelation:
    """A relation ready to be written; ``status`` candidate or confirmed."""

    id: UUID
    a_id: UUID
    b_id: UUID
    found: Association
    similarity: float
    status: str


def append_relations(connection: Connection, author: Author, relations: Sequence[NewRelation], *, now: datetime) -> int:
    """Write new relations, each a group of its own in the ledger; returns how many.

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


def load_relations(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Row[Any]]:
    """Of the relations with ``ids``, those that exist, by id: id, project_id, status and version."""
    query = f"SELECT id, project_id, status, version FROM {memory_relations} WHERE id = ANY(:ids)"
    return {row.id: row for row in connection.execute(text(query), {"ids": list(ids)})}


def decide_relations(
    connection: Connection, author: Author, relations: Sequence[Row[Any]], status: str, *, reason: str
) -> dict[UUID, UUID]:
    """Set the status of relations of one project as ``load_relations`` gave them; relation -> its group in the ledger.

    Raises:
        ConflictError: a relation changed since it was read.
    """
    groups = {row.id: uuid4() for row in relations}
    changes = [Change(row.id, groups[row.id], {"status": status}, row.version, reason) for row in relations]
    update_rows(connection, author, memory_relations, changes, operation="review")
    return groups


_TEXTS = """
    SELECT concat_ws(E'\\n', goal, execution_summary, result, lessons_learned, feedback) AS body,
        memory_type FROM consolidation.task_memories WHERE id = {end}
    UNION ALL SELECT content, memory_type FROM consolidation.consolidated_memories WHERE id = {end}
"""


def list_relations(
    connection: Connection, project_id: UUID, *, limit: int, status: str | None = None
) -> Sequence[Row[Any]]:
    """Relations newest first, of one ``status`` if given, with the type and text of both ends (null = it is gone)."""
    query = f"""
        SELECT r.id, r.relation_type, r.status, r.confidence, r.similarity, r.reason, r.created_at,
            r.a_id, a.memory_type AS a_type, a.body AS a_text, r.b_id, b.memory_type AS b_type, b.body AS b_text
        FROM (SELECT * FROM {memory_relations} WHERE project_id = :project
                AND (CAST(:status AS text) IS NULL OR status = :status)
            ORDER BY created_at DESC, confidence DESC, id LIMIT :limit) r
            LEFT JOIN LATERAL ({_TEXTS.format(end="r.a_id")}) a ON true
            LEFT JOIN LATERAL ({_TEXTS.format(end="r.b_id")}) b ON true
        ORDER BY r.created_at DESC, r.confidence DESC, r.id
    """
    return connection.execute(text(query), {"project": project_id, "status": status, "limit": limit}).all()


def count_relations(connection: Connection, project_id: UUID) -> dict[str, int]:
    """How many relations of each status a project has."""
    query = f"SELECT status, count(*) FROM {memory_relations} WHERE project_id = :project GROUP BY status ORDER BY 1"
    return {row[0]: row[1] for row in connection.execute(text(query), {"project": project_id})}
