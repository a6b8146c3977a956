"""The similarity graph, its nodes and pairs: a cache that can be rebuilt from the memories at any time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.errors import TooManyPairsError
from consolidation_pipeline.store.database.vector_copy import (
    Ids,
    Vectors,
    copy_columns,
    load_columns,
    load_columns_and_vectors,
    load_packed_columns,
    to_uuids,
)
from consolidation_pipeline.store.memories.memories import lock_rows

Integers = npt.NDArray[np.signedinteger[Any]]

# What may become of a pair: nothing, as its ends are of different types and groups are not (no one judged it); it is on
# one topic at most; a person decides whether it is the same; or it may merge.
CROSS_TYPE, TOPIC, ASK, MERGE = -1, 0, 1, 2

# About 10 GB of table and index. A project with more is mostly one text in many wordings, or has too low a t_pattern.
MAX_PAIRS = 100_000_000


@dataclass(frozen=True)
class Nodes:
    """What the graph compares: every raw memory that is not archived, itself or with the merged memory it is in.

    Memories that were merged stay nodes, so that a newcomer can be held against each source of a merged memory; merged
    memories are none, for their sources stand for them. Arrays of shape (n,), sorted by id: ids ``S16``; memory_type;
    repeats ``S16`` = hash of the normalised text; graph_version (-1 = not compared yet); merged_into ``S16`` (empty =
    in no merged memory); reused counts.
    """

    ids: Ids
    memory_type: npt.NDArray[np.str_]
    repeats: Ids
    graph_version: npt.NDArray[np.int64]
    merged_into: Ids
    reused: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: npt.NDArray[Any]) -> Nodes:
        """The nodes at ``rows`` (indices or mask)."""
        return Nodes(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


@dataclass(frozen=True, eq=False)
class ComparedVectors:
    """Vectors ``x`` float32 (n, d) that a run compared under calibration ``version`` of ``model``, of nodes ``ids``.

    One is as it was as long as its node has that graph version: whatever changes a vector takes the version away.
    """

    model: str
    version: int
    ids: Ids
    x: Vectors


# Raw memories ``t`` that are nodes. The sources of an archived merged memory rest with it.
IS_NODE = """NOT t.is_archived AND NOT EXISTS (SELECT 1 FROM consolidation.consolidated_memories archived
    WHERE archived.id = t.consolidated_into_id AND archived.retired_at IS NOT NULL)"""


# What ``Nodes`` holds of a row ``t``. An id of zeros reads as empty, as numpy drops closing zero bytes; 32 digits of a
# hash tell texts apart.
_NODE = """t.id, array_position(ARRAY[{}], t.memory_type) - 1, left(t.normalized_hash, 32)::uuid,
    coalesce(t.graph_version, -1), coalesce(t.consolidated_into_id, '{}'), t.reused_count""".format(
    ", ".join(f"'{name}'" for name in MEMORY_TYPES), UUID(int=0)
)
_NODE_KINDS = {"id": "S16", "type": ">i4", "hash": "S16", "version": ">i4", "into": "S16", "reused": ">i4"}


def load_nodes(connection: Connection, project_id: UUID, model: str | None) -> Nodes:
    """All nodes of a project that have a vector of ``model``; None: those without a vector too."""
    query = f"""
        SELECT {_NODE} FROM consolidation.task_memories t WHERE t.project_id = %(project)s AND {IS_NODE}
            AND (%(model)s::text IS NULL OR t.embedding_model = %(model)s) ORDER BY t.id
    """
    return _nodes(*load_columns(connection, query, {"project": project_id, "model": model}, _NODE_KINDS))


def load_nodes_with_vectors(
    connection: Connection, project_id: UUID, model: str, *, plain: bool = False, only: Ids | None = None
) -> tuple[Nodes, Vectors]:
    """All nodes of a project that have a vector of ``model``, and these: float32 (n, d).

    Memories that hold boilerplate come with their vector for grouping, unless ``plain``. ``only``: of these ids.

    Raises:
        EmbeddingError: vectors differ in length.
    """
    embedding, own = "t.embedding", ""
    if not plain:
        embedding = "coalesce(g.embedding, t.embedding)"
        own = (
            " LEFT JOIN consolidation.grouping_embeddings g ON g.project_id = t.project_id "
            "AND g.embedding_model = t.embedding_model AND g.memory_id = t.id"
        )
    rows, vectors = load_columns_and_vectors(
        connection,
        f"SELECT {_NODE}, {embedding} FROM consolidation.task_memories t{own} WHERE t.project_id = %(project)s "
        f"AND t.embedding_model = %(model)s AND {IS_NODE}{'' if only is None else ' AND t.id = ANY(%(only)s)'}",
        {"project": project_id, "model": model, **({} if only is None else {"only": to_uuids(only)})},
        _NODE_KINDS,
        dimension=load_dimension(connection, project_id, model),
        by_id=True,
    )
    return _nodes(*rows), vectors


def _nodes(ids: Ids, types: Integers, repeats: Ids, versions: Integers, into: Ids, reused: Integers) -> Nodes:
    names = np.array(MEMORY_TYPES)[types]
    return Nodes(ids, names, repeats, versions.astype(np.int64), into, reused.astype(np.int64))


def load_uncompared_ids(connection: Connection, project_id: UUID, model: str, version: int) -> Ids:
    """Ids ``S16`` (n,) of the nodes with a vector of ``model`` that were not compared under calibration ``version``."""
    query = f"""
        SELECT t.id FROM consolidation.task_memories t WHERE t.project_id = %(project)s AND t.embedding_model = %(model)s
            AND t.graph_version IS DISTINCT FROM %(version)s AND {IS_NODE}
    """
    bound = {"project": project_id, "model": model, "version": version}
    (ids,) = load_columns(connection, query, bound, {"id": "S16"})
    return ids


def count_units(connection: Connection, project_id: UUID, model: str) -> int:
    """How many memories of the nodes with a vector of ``model`` stand for themselves: raw ones that are in no merged
    memory, and the merged memories.
    """
    query = f"""
        SELECT count(*) FILTER (WHERE t.consolidated_into_id IS NULL) + count(DISTINCT t.consolidated_into_id)
        FROM consolidation.task_memories t
        WHERE t.project_id = :project AND t.embedding_model = :model AND {IS_NODE}
    """
    return int(connection.execute(text(query), {"project": project_id, "model": model}).scalar_one())


def load_dimension(connection: Connection, project_id: UUID, model: str) -> int:
    """Length of the project's vectors of ``model``; 0 when there are none."""
    query = """
        SELECT embedding_dim FROM consolidation.task_memories
        WHERE project_id = :project AND embedding_model = :model AND NOT is_archived LIMIT 1
    """
    return int(connection.execute(text(query), {"project": project_id, "model": model}).scalar() or 0)


def clear_neighbors(connection: Connection, project_id: UUID, model: str) -> None:
    """Forget the whole graph of a project and model."""
    connection.execute(
        text("DELETE FROM consolidation.memory_neighbors WHERE project_id = :project AND embedding_model = :model"),
        {"project": project_id, "model": model},
    )


def prune_neighbors(connection: Connection, project_id: UUID, model: str) -> int:
    """Forget pairs of memories that moved or left since they were compared (their graph version is null)."""
    query = "SELECT id FROM consolidation.task_memories WHERE project_id = :project AND graph_version IS NULL"
    moved = connection.scalars(text(query), {"project": project_id}).all()
    # One pass over the pairs, whose two ends one index cannot serve.
    pairs = (
        "FROM consolidation.memory_neighbors WHERE project_id = :project AND embedding_model = :model "
        "AND (a = ANY(:moved) OR b = ANY(:moved))"
    )
    where = {"project": project_id, "model": model, "moved": moved}
    # Most moved ones are new and in no pair. Several processors may count the others, but only one may delete.
    if not moved or not connection.scalar(text(f"SELECT count(*) {pairs}"), where):
        return 0
    return connection.execute(text(f"DELETE {pairs}"), where).rowcount


@dataclass(frozen=True)
class Neighbors:
    """Pairs of the graph, (m,) each: ids a < b ``S16``, similarity float32, and a verdict int16: ``CROSS_TYPE``, ``TOPIC``,
    ``ASK`` or ``MERGE``.
    """

    a: Ids
    b: Ids
    similarity: npt.NDArray[np.float32]
    verdict: npt.NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.a)

    def select(self, rows: npt.NDArray[Any]) -> Neighbors:
        """The pairs at ``rows`` (indices or mask)."""
        return Neighbors(self.a[rows], self.b[rows], self.similarity[rows], self.verdict[rows])


def concatenate_neighbors(parts: Sequence[Neighbors]) -> Neighbors:
    """All pairs, in the order of the parts."""
    empty = Neighbors(*(np.empty(0, dtype=kind) for kind in ("S16", "S16", np.float32, np.int16)))
    every = (empty, *parts)
    return Neighbors(*(np.concatenate([getattr(p, name) for p in every]) for name in Neighbors.__dataclass_fields__))


def append_neighbors(connection: Connection, project_id: UUID, model: str, found: Iterable[Neighbors]) -> int:
    """Store pairs, block by block; returns how many.

    Raises:
        TooManyPairsError: there are more than ``MAX_PAIRS`` at once; the caller's transaction undoes those before.
    """
    connection.execute(
        text("CREATE TEMP TABLE pairs (a uuid, b uuid, similarity real, verdict smallint) ON COMMIT DROP")
    )
    added = 0
    for block in found:
        added += len(block)
        if added > MAX_PAIRS:
            raise TooManyPairsError(
                f"more than {MAX_PAIRS:,} pairs of memories reach t_pattern: set a higher t_pattern, or look for one "
                "text that repeats in many wordings (exact repeats do not count)"
            )
        # In order, or each page of the index would be fetched once for every pair that goes there.
        ordered = block.select(np.argsort(block.a, kind="stable"))
        copy_columns(connection, "pairs (a, b, similarity, verdict)", vars(ordered))
        connection.execute(
            text(
                "INSERT INTO consolidation.memory_neighbors (project_id, embedding_model, a, b, similarity, verdict) "
                "SELECT :project, :model, a, b, similarity, verdict FROM pairs"
            ),
            {"project": project_id, "model": model},
        )
        connection.execute(text("TRUNCATE pairs"))
    connection.execute(text("DROP TABLE pairs"))
    # Readers in the same run come before autovacuum, and would be planned for an empty table.
    known = "SELECT reltuples FROM pg_class WHERE oid = CAST(:name AS regclass)"
    if added > connection.scalar(text(known), {"name": "consolidation.memory_neighbors"}) / 10:
        connection.execute(text("ANALYZE consolidation.memory_neighbors"))
    return added


def mark_compared(connection: Connection, ids: Ids, version: int) -> None:
    """Remember that the neighbours of these memories, ``S16`` (n,), are complete under calibration ``version``."""
    connection.execute(text("CREATE TEMP TABLE compared (id uuid) ON COMMIT DROP"))
    copy_columns(connection, "compared (id)", {"id": ids})
    lock_rows(connection, "task_memories", "id IN (SELECT id FROM compared)")
    connection.execute(
        text(
            "UPDATE consolidation.task_memories t SET graph_version = :version FROM compared c WHERE t.id = c.id "
            "AND graph_version IS DISTINCT FROM :version"
        ),
        {"version": version},
    )
    connection.execute(text("DROP TABLE compared"))


def load_neighbors(connection: Connection, project_id: UUID, model: str, threshold: float) -> Neighbors:
    """The pairs at or above ``threshold``, in no order, but for those across types that nobody judged."""
    return Neighbors(
        *load_packed_columns(
            connection,
            "SELECT string_agg(uuid_send(a) || uuid_send(b) || float4send(similarity) || int2send(verdict), '') "
            "FROM consolidation.memory_neighbors WHERE project_id = %(project)s AND embedding_model = %(model)s "
            "AND similarity >= %(threshold)s AND verdict <> %(across)s GROUP BY get_byte(uuid_send(a), 15)",
            {"project": project_id, "model": model, "threshold": threshold, "across": CROSS_TYPE},
            {"a": "S16", "b": "S16", "similarity": ">f4", "verdict": ">i2"},
        )
    )
