"""Similarity graph: its nodes and pairs, a cache that can be rebuilt from the memories at any time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.core.arrays import Arrays
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.errors import TooManyPairsError
from consolidation_pipeline.store.database.raw_connections import fetch_rows
from consolidation_pipeline.store.database.scope_keys import raw_scope_key, scope_id
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.database.vector_copy import (
    Ids,
    Vectors,
    copy_columns,
    load_columns,
    load_columns_and_vectors,
    load_packed_columns,
    to_uuids,
)
from consolidation_pipeline.store.memories.pending_uses import count_with_pending

Integers = npt.NDArray[np.signedinteger[Any]]

# Verdict on a pair. TOPIC: on one topic at most. ASK: a person decides if it is the same. MERGE: it may merge.
TOPIC, ASK, MERGE = 0, 1, 2

# About 3 GB of table and index. A project with more is mostly one text in many wordings, or its t_pattern is too low.
MAX_PAIRS = 100_000_000


@dataclass(frozen=True)
class Nodes(Arrays):
    """Nodes of the graph, sorted by id: the raw memories that are active, or whose merged memory is.

    Memories that were merged stay nodes, so that a new memory is compared with each source of a merged memory. Merged
    memories are no nodes: their sources stand for them. Arrays of shape (n,): ``ids`` S16; ``memory_type``;
    ``repeats`` S16, hash of the normalised text; ``graph_version``, the calibration that the node was compared under,
    -1 = not compared yet; ``merged_into`` S16, empty = in no merged memory; ``reused``, number of times it was reused;
    ``scopes`` S16, equal for nodes of one scope, empty = the empty scope key.
    """

    ids: Ids
    memory_type: npt.NDArray[np.str_]
    repeats: Ids
    graph_version: npt.NDArray[np.int64]
    merged_into: Ids
    reused: npt.NDArray[np.int64]
    scopes: Ids


@dataclass(frozen=True, eq=False)
class ComparedVectors:
    """Grouping vectors (n, d) of the nodes ``ids`` that a run compared under calibration ``version`` of ``model``.

    ``centered``: the same array as ``vectors`` under a calibration without a mean vector. A vector is current as long
    as its node has that graph version: whatever changes a vector clears the version.
    """

    model: str
    version: int
    ids: Ids
    vectors: Vectors
    centered: Vectors


# SQL that is true if the raw memory `t` is a node. The sources of an archived merged memory are none. Merged memories
# are looked up by id: the planner expects few retired ones, and an anti-join compares each source with all of them.
IS_NODE = """NOT t.is_archived AND (t.consolidated_into_id IS NULL OR (
    SELECT into_.retired_at FROM consolidation.consolidated_memories into_ WHERE into_.id = t.consolidated_into_id
) IS NULL)"""

# Columns of the node queries. A UUID of zeros reads as an empty id, as NumPy drops trailing zero bytes. 32 digits of a
# hash tell texts apart.
_NODE_COLUMNS = {
    "id": "S16",
    "type": ">i4",
    "hash": "S16",
    "version": ">i4",
    "into": "S16",
    "reused": ">i4",
    "scope": "S16",
}
_NODE_VALUES = compose(
    """
    t.id, array_position(%(types)s::text[], t.memory_type) - 1, left(t.normalized_hash, 32)::uuid,
    coalesce(c.graph_version, -1), coalesce(t.consolidated_into_id, '00000000-0000-0000-0000-000000000000'),
    /* uses */, /* scope */
    """,
    uses=count_with_pending("t", "reused_count"),
)

_LOAD_NODES = compose(
    """
    SELECT /* columns */
    FROM consolidation.task_memories t LEFT JOIN consolidation.compared_memories c
        ON c.project_id = t.project_id AND c.memory_id = t.id
    WHERE t.project_id = %(project)s AND (%(model)s::text IS NULL OR t.embedding_model = %(model)s)/* is_node */
    ORDER BY t.id
    """,
    columns=_NODE_VALUES,
    is_node=conditions(IS_NODE),
)


def load_nodes(connection: Connection, project_id: UUID, model: str | None, *, scope: str) -> Nodes:
    """Return all nodes of a project that have a vector of ``model``; None = those without a vector too.

    ``scope``: the project's option, here and below.
    """
    bound = {"project": project_id, "model": model, "types": list(MEMORY_TYPES)}
    statement = compose(_LOAD_NODES, scope=scope_id(raw_scope_key(scope)))
    return _to_nodes(*load_columns(connection, statement, bound, _NODE_COLUMNS))


_LOAD_PLAIN_VECTORS = compose(
    """
    SELECT /* columns */, t.embedding
    FROM consolidation.task_memories t LEFT JOIN consolidation.compared_memories c
        ON c.project_id = t.project_id AND c.memory_id = t.id
    WHERE t.project_id = %(project)s AND t.embedding_model = %(model)s/* is_node *//* chosen */
    """,
    columns=_NODE_VALUES,
    is_node=conditions(IS_NODE),
)
_LOAD_GROUPING_VECTORS = compose(
    """
    SELECT /* columns */, coalesce(g.embedding, t.embedding)
    FROM consolidation.task_memories t
        LEFT JOIN consolidation.compared_memories c ON c.project_id = t.project_id AND c.memory_id = t.id
        LEFT JOIN consolidation.grouping_embeddings g
            ON g.project_id = t.project_id AND g.embedding_model = t.embedding_model AND g.memory_id = t.id
    WHERE t.project_id = %(project)s AND t.embedding_model = %(model)s/* is_node *//* chosen */
    """,
    columns=_NODE_VALUES,
    is_node=conditions(IS_NODE),
)


_LOAD_NODE_IDS = compose(
    """
    SELECT t.id FROM consolidation.task_memories t
    WHERE t.project_id = %(project)s AND t.embedding_model = %(model)s/* is_node */
    """,
    is_node=conditions(IS_NODE),
)


def load_nodes_with_vectors(
    connection: Connection,
    project_id: UUID,
    model: str,
    *,
    scope: str,
    plain: bool = False,
    only: Ids | None = None,
) -> tuple[Nodes, Vectors]:
    """Return all nodes of a project that have a vector of ``model``, and their vectors float32 (n, d).

    Args:
        plain: return the vectors of the whole texts; else memories with boilerplate have their grouping vector.
        only: ids S16 of the nodes to return; None = all.

    Raises:
        EmbeddingError: vectors differ in length.
    """
    bound = {"project": project_id, "model": model, "types": list(MEMORY_TYPES)}
    (ids,) = (only,) if only is not None else load_columns(connection, _LOAD_NODE_IDS, bound, {"id": "S16"})
    statement = compose(
        _LOAD_PLAIN_VECTORS if plain else _LOAD_GROUPING_VECTORS,
        scope=scope_id(raw_scope_key(scope)),
        chosen=conditions(None if only is None else "t.id = ANY(%(only)s)"),
    )
    columns, vectors = load_columns_and_vectors(
        connection,
        statement,
        bound if only is None else {**bound, "only": to_uuids(only)},
        _NODE_COLUMNS,
        dimension=load_dimension(connection, project_id, model),
        ids=np.sort(ids),
    )
    return _to_nodes(*columns), vectors


def _to_nodes(
    ids: Ids, types: Integers, repeats: Ids, versions: Integers, into: Ids, reused: Integers, scopes: Ids
) -> Nodes:
    names = np.array(MEMORY_TYPES)[types]
    return Nodes(ids, names, repeats, versions.astype(np.int64), into, reused.astype(np.int64), scopes)


_LOAD_UNCOMPARED_IDS = compose(
    """
    SELECT t.id FROM consolidation.task_memories t
    WHERE t.project_id = %(project)s AND t.embedding_model = %(model)s
        AND NOT EXISTS (
            SELECT 1 FROM consolidation.compared_memories c
            WHERE c.project_id = t.project_id AND c.memory_id = t.id AND c.graph_version = %(version)s)/* is_node */
    """,
    is_node=conditions(IS_NODE),
)


def load_uncompared_ids(connection: Connection, project_id: UUID, model: str, version: int) -> Ids:
    """Return the ids S16 (n,) of nodes with a vector of ``model`` that calibration ``version`` has not compared."""
    bound = {"project": project_id, "model": model, "version": version}
    (ids,) = load_columns(connection, _LOAD_UNCOMPARED_IDS, bound, {"id": "S16"})
    return ids


_COUNT_UNITS = compose(
    """
    SELECT count(*) FILTER (WHERE t.consolidated_into_id IS NULL) + count(DISTINCT t.consolidated_into_id)
    FROM consolidation.task_memories t
    WHERE t.project_id = :project AND t.embedding_model = :model/* is_node */
    """,
    is_node=conditions(IS_NODE),
)


def count_units(connection: Connection, project_id: UUID, model: str) -> int:
    """Return the number of units behind the nodes with a vector of ``model``.

    A unit is a raw memory that is in no merged memory, or a merged memory.
    """
    return int(connection.execute(text(_COUNT_UNITS), {"project": project_id, "model": model}).scalar_one())


_LOAD_DIMENSION = """
    SELECT embedding_dim FROM consolidation.task_memories
    WHERE project_id = :project AND embedding_model = :model AND NOT is_archived LIMIT 1
"""


def load_dimension(connection: Connection, project_id: UUID, model: str) -> int:
    """Return the length of the project's vectors of ``model``; 0 if there are none."""
    return int(connection.execute(text(_LOAD_DIMENSION), {"project": project_id, "model": model}).scalar() or 0)


_CLEAR_NEIGHBORS = """
    DELETE FROM consolidation.memory_neighbors WHERE project_id = :project AND embedding_model = :model
"""


def clear_neighbors(connection: Connection, project_id: UUID, model: str) -> None:
    """Delete all pairs of a project and model."""
    connection.execute(text(_CLEAR_NEIGHBORS), {"project": project_id, "model": model})


# SQL that is true if the raw memory `t` changed or left since it was compared, or is new.
IS_MOVED = """NOT EXISTS (
    SELECT 1 FROM consolidation.compared_memories c WHERE c.project_id = t.project_id AND c.memory_id = t.id)"""
_LIST_MOVED = compose(
    "SELECT id FROM consolidation.task_memories t WHERE project_id = :project/* is_moved */",
    is_moved=conditions(IS_MOVED),
)


def prune_neighbors(connection: Connection, project_id: UUID, model: str) -> int:
    """Delete the pairs of memories that changed or left since they were compared; return the number of pairs.

    Such memories are not in ``compared_memories``.
    """
    moved = connection.scalars(text(_LIST_MOVED), {"project": project_id}).all()
    return delete_neighbors(connection, project_id, moved, model=model)


# The rows of others that hold one of the memories are written again without it.
_TAKE_OUT = """
    WITH gone AS MATERIALIZED (SELECT id FROM unnest(CAST(:ids AS uuid[])) AS gone(id)),
    touched AS MATERIALIZED (
        SELECT DISTINCT n.embedding_model, n.memory_id
        FROM consolidation.memory_neighbors n CROSS JOIN unnest(n.neighbor_ids) AS p(id) JOIN gone ON gone.id = p.id
        WHERE n.project_id = :project AND (CAST(:model AS text) IS NULL OR n.embedding_model = :model)),
    kept AS (
        SELECT embedding_model, memory_id, count(gone.id) AS removed,
            coalesce(array_agg(p.id ORDER BY place) FILTER (WHERE gone.id IS NULL), '{}') AS neighbor_ids,
            coalesce(array_agg(p.similarity ORDER BY place) FILTER (WHERE gone.id IS NULL), '{}') AS similarities,
            coalesce(array_agg(p.verdict ORDER BY place) FILTER (WHERE gone.id IS NULL), '{}') AS verdicts
        FROM touched JOIN consolidation.memory_neighbors n USING (embedding_model, memory_id)
            CROSS JOIN unnest(n.neighbor_ids, n.similarities, n.verdicts)
                WITH ORDINALITY AS p(id, similarity, verdict, place)
            LEFT JOIN gone ON gone.id = p.id
        WHERE n.project_id = :project GROUP BY embedding_model, memory_id)
    UPDATE consolidation.memory_neighbors n
    SET neighbor_ids = kept.neighbor_ids, similarities = kept.similarities, verdicts = kept.verdicts
    FROM kept
    WHERE n.project_id = :project AND n.embedding_model = kept.embedding_model AND n.memory_id = kept.memory_id
    RETURNING kept.removed
"""
_DELETE_ROWS = """
    DELETE FROM consolidation.memory_neighbors
    WHERE project_id = :project AND (CAST(:model AS text) IS NULL OR embedding_model = :model)
        AND memory_id = ANY(CAST(:ids AS uuid[]))
    RETURNING cardinality(neighbor_ids)
"""


def delete_neighbors(connection: Connection, project_id: UUID, ids: Sequence[UUID], *, model: str | None = None) -> int:
    """Delete the pairs that memories are in, of one model or of all; return the number of pairs."""
    if not ids:
        return 0
    bound = {"project": project_id, "model": model, "ids": list(ids)}
    removed = [connection.scalars(text(statement), bound).all() for statement in (_DELETE_ROWS, _TAKE_OUT)]
    return sum(map(sum, removed))


@dataclass(frozen=True)
class Neighbors(Arrays):
    """Pairs of the graph, arrays of shape (m,).

    ``a`` < ``b``: ids S16. ``similarity``: float32. ``verdict``: int16, ``TOPIC``, ``ASK`` or ``MERGE``.
    """

    a: Ids
    b: Ids
    similarity: npt.NDArray[np.float32]
    verdict: npt.NDArray[np.int16]


NO_NEIGHBORS = Neighbors(*(np.empty(0, dtype=kind) for kind in ("S16", "S16", np.float32, np.int16)))

_CREATE_PAIRS = "CREATE TEMP TABLE pairs (a uuid, b uuid, similarity real, verdict smallint) ON COMMIT DROP"
# A memory with pairs in several blocks has a row already.
_INSERT_PAIRS = """
    INSERT INTO consolidation.memory_neighbors AS n (
        project_id, embedding_model, memory_id, neighbor_ids, similarities, verdicts)
    SELECT :project, :model, a, array_agg(b), array_agg(similarity), array_agg(verdict) FROM pairs GROUP BY a
    ON CONFLICT (project_id, embedding_model, memory_id) DO UPDATE SET
        neighbor_ids = n.neighbor_ids || excluded.neighbor_ids, similarities = n.similarities || excluded.similarities,
        verdicts = n.verdicts || excluded.verdicts
"""
_TRUNCATE_PAIRS = "TRUNCATE pairs"
_DROP_PAIRS = "DROP TABLE pairs"
_ESTIMATE_ROWS = "SELECT reltuples FROM pg_class WHERE oid = CAST('consolidation.memory_neighbors' AS regclass)"
_ANALYZE_NEIGHBORS = "ANALYZE consolidation.memory_neighbors"


def append_neighbors(
    connection: Connection, project_id: UUID, model: str, found: Iterable[Neighbors], *, new: Ids | None = None
) -> int:
    """Store pairs, block by block; return the number of pairs.

    Args:
        new: ids S16, sorted, of the nodes compared now. A pair of a new node with another one is stored with the new
            one, so that stored rows stay as they are. None = all are new.

    Raises:
        TooManyPairsError: there are more than ``MAX_PAIRS``. The caller's transaction undoes the blocks before.
    """
    connection.execute(text(_CREATE_PAIRS))
    added = rows = 0
    for block in found:
        added += len(block)
        if added > MAX_PAIRS:
            raise TooManyPairsError(
                f"more than {MAX_PAIRS:,} pairs of memories reach t_pattern: set a higher t_pattern, or look for one "
                "text that repeats in many wordings (exact repeats do not count)"
            )
        is_turned = np.zeros(len(block), dtype=bool) if new is None else find_positions(new, block.a) < 0
        holder, other = np.where(is_turned, block.b, block.a), np.where(is_turned, block.a, block.b)
        # Sorted, or each page of the index would be fetched once for every row that goes there.
        order = np.lexsort((other, holder))
        columns = {"a": holder, "b": other, "similarity": block.similarity, "verdict": block.verdict}
        copy_columns(connection, "pairs (a, b, similarity, verdict)", {k: v[order] for k, v in columns.items()})
        rows += connection.execute(text(_INSERT_PAIRS), {"project": project_id, "model": model}).rowcount
        connection.execute(text(_TRUNCATE_PAIRS))
    connection.execute(text(_DROP_PAIRS))
    # Later phases of the run read before autovacuum runs, and their queries would be planned for an empty table.
    if rows > connection.scalar(text(_ESTIMATE_ROWS)) / 10:
        connection.execute(text(_ANALYZE_NEIGHBORS))
    return added


_UPDATE_VERDICTS = """
    UPDATE consolidation.memory_neighbors n SET verdicts = (
        SELECT array_agg(CASE WHEN EXISTS (SELECT 1 FROM pairs
                WHERE a = least(n.memory_id, p.id) AND b = greatest(n.memory_id, p.id))
            THEN :verdict ELSE p.verdict END ORDER BY place)
        FROM unnest(n.neighbor_ids, n.verdicts) WITH ORDINALITY AS p(id, verdict, place))
    WHERE n.project_id = :project AND n.embedding_model = :model
        AND n.memory_id IN (SELECT a FROM pairs UNION ALL SELECT b FROM pairs)
"""


def set_verdict(connection: Connection, project_id: UUID, model: str, pairs: Neighbors, verdict: int) -> None:
    """Store another verdict on pairs of the graph."""
    connection.execute(text(_CREATE_PAIRS))
    copy_columns(connection, "pairs (a, b, similarity, verdict)", vars(pairs))
    connection.execute(text(_UPDATE_VERDICTS), {"project": project_id, "model": model, "verdict": verdict})
    connection.execute(text(_DROP_PAIRS))


_CREATE_COMPARED = "CREATE TEMP TABLE compared (id uuid, text_keys bytea) ON COMMIT DROP"
_COPY_COMPARED = "COPY compared (id, text_keys) FROM STDIN (FORMAT binary)"
_MARK_COMPARED = """
    INSERT INTO consolidation.compared_memories AS known (project_id, memory_id, graph_version, text_keys)
    SELECT t.project_id, t.id, :version, compared.text_keys
    FROM consolidation.task_memories t JOIN compared USING (id) ORDER BY t.id
    ON CONFLICT (project_id, memory_id) DO UPDATE
    SET graph_version = excluded.graph_version, text_keys = excluded.text_keys
    WHERE known.graph_version <> excluded.graph_version OR known.text_keys IS DISTINCT FROM excluded.text_keys
"""
_DROP_COMPARED = "DROP TABLE compared"


def mark_compared(
    connection: Connection, ids: Ids, version: int, text_keys: Mapping[UUID, bytes] = MappingProxyType({})
) -> None:
    """Record that the neighbours of the memories ``ids``, S16 (n,), are complete under calibration ``version``.

    ``text_keys``: keys of texts that were read, of these and of other memories that were compared under this version.
    """
    connection.execute(text(_CREATE_COMPARED))
    cursor = connection.connection.cursor()
    with cursor.copy(_COPY_COMPARED) as copy:
        copy.set_types(("uuid", "bytea"))
        for id_ in dict.fromkeys([*to_uuids(ids), *text_keys]):
            copy.write_row((id_, text_keys.get(id_)))
    connection.execute(text(_MARK_COMPARED), {"version": version})
    connection.execute(text(_DROP_COMPARED))


_LOAD_TEXT_KEYS = """
    SELECT memory_id, text_keys FROM consolidation.compared_memories
    WHERE project_id = %(project)s AND memory_id = ANY(%(ids)s) AND graph_version = %(version)s
        AND text_keys IS NOT NULL
"""


def load_text_keys(connection: Connection, project_id: UUID, ids: Sequence[UUID], version: int) -> dict[UUID, bytes]:
    """Return the keys of texts that ``mark_compared`` stored under calibration ``version``, by memory."""
    bound = {"project": project_id, "ids": list(ids), "version": version}
    return dict(fetch_rows(connection, _LOAD_TEXT_KEYS, bound, binary=True))


_LOAD_NEIGHBORS = """
    SELECT string_agg(uuid_send(a) || uuid_send(b) || float4send(similarity) || int2send(verdict), '')
    FROM consolidation.memory_pairs
    WHERE project_id = %(project)s AND embedding_model = %(model)s AND similarity >= %(threshold)s
    GROUP BY get_byte(uuid_send(a), 15)
"""


def load_neighbors(connection: Connection, project_id: UUID, model: str, threshold: float) -> Neighbors:
    """Return the pairs at or above ``threshold``, in no order."""
    bound = {"project": project_id, "model": model, "threshold": threshold}
    kinds = {"a": "S16", "b": "S16", "similarity": ">f4", "verdict": ">i2"}
    return Neighbors(*load_packed_columns(connection, _LOAD_NEIGHBORS, bound, kinds))
