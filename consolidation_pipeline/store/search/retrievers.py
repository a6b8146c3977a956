"""Retrievers of a search: nearest vectors and keyword matches, over raw and consolidated memories.

A merged raw memory is not found, its merged memory is. Archived memories are found on request. The filters are part of
each query. Both retrievers return ids in a stable order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pgvector import Vector
from sqlalchemy import Connection, Engine

from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.raw_connections import autocommit_connection, fetch_rows
from consolidation_pipeline.store.database.schema import KINDS
from consolidation_pipeline.store.database.scope_keys import has_walls, is_out_of_use, raw_scope_key
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.search.vector_indexes import VectorIndex


@dataclass(frozen=True)
class SearchFilters:
    """Conditions on the memories of a search; None or empty: no such condition.

    ``kinds`` is never empty. ``tags``: at least one of them. ``since`` and ``until`` are inclusive bounds of
    ``learned_at``. ``pattern_types`` excludes all kinds but patterns and principles. ``scope``: key of a scope, for
    memories of it and of the empty scope. ``scope_option``: the project's option; without walls, there is one scope.
    ``as_of``: memories that were learned and active at that time, as far as the rows tell.
    """

    kinds: Collection[str]
    types: Collection[str] | None = None
    tags: Collection[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    include_archived: bool = False
    pattern_types: Collection[str] | None = None
    scope: str | None = None
    scope_option: str = NO_WALLS
    as_of: datetime | None = None

    @property
    def tables(self) -> list[str]:
        """Names of the tables that hold such memories."""
        raw = ["task_memories"] if "raw" in self.kinds else []
        return raw + (["consolidated_memories"] if set(self.kinds) & set(KINDS) else [])

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of the parameters of ``where``, and ``kinds``."""
        given = {"types": self.types, "tags": self.tags, "since": self.since, "until": self.until}
        given |= {"pattern_types": self.pattern_types, "scope": self.scope, "as_of": self.as_of}
        lists = {name: v if isinstance(v, (str, datetime)) else list(v) for name, v in given.items() if v is not None}
        return lists | {"kinds": [kind for kind in self.kinds if kind != "raw"]}

    def where(self, table: str, *more: str) -> str:
        """Return the SQL conditions on rows of ``table``, with ``more`` of them, each to follow another one."""
        if table == "task_memories":
            own: list[str | None] = list(self._raw_conditions())
            key = raw_scope_key(self.scope_option, table)
        else:
            own = [*self._derived_conditions(), "pattern_type = ANY(%(pattern_types)s)" if self.pattern_types else None]
            key = "scope_key"
        is_scoped = self.scope is not None and has_walls(self.scope_option)
        hides_archived = self.as_of is None and not self.include_archived
        return conditions(
            *own,
            None if hides_archived else f"NOT {is_out_of_use()}",
            "memory_type = ANY(%(types)s)" if self.types else None,
            "tags && CAST(%(tags)s AS text[])" if self.tags else None,
            "learned_at >= %(since)s" if self.since else None,
            "learned_at <= %(until)s" if self.until else None,
            f"{key} IN (%(scope)s, '')" if is_scoped else None,
            *more,
        )

    def _raw_conditions(self) -> Iterator[str]:
        """Yield what makes a raw memory one that stands for itself, and is not archived."""
        if self.as_of is None:
            yield "NOT is_consolidated"
            if not self.include_archived:
                yield "NOT is_archived"
            return
        yield "learned_at <= %(as_of)s"
        yield _IS_UNMERGED_AS_OF
        if not self.include_archived:
            yield "archived_at IS NULL OR archived_at > %(as_of)s"

    def _derived_conditions(self) -> Iterator[str]:
        """Yield what makes a consolidated memory an active one."""
        active = "retired_at IS NULL"
        if self.as_of is not None:
            yield "created_at <= %(as_of)s"
            active += " OR retired_at > %(as_of)s"
        yield f"{active} OR archive_reason IS NOT NULL" if self.include_archived else active


# Of a raw memory: no merged memory of that time was made from it.
_IS_UNMERGED_AS_OF = """
    NOT EXISTS (
        SELECT 1 FROM consolidation.memory_lineage l JOIN consolidation.consolidated_memories m ON m.id = l.child_id
        WHERE l.parent_id = task_memories.id AND m.kind = 'merged' AND m.created_at <= %(as_of)s
            AND (m.retired_at IS NULL OR m.retired_at > %(as_of)s OR m.archive_reason IS NOT NULL))
"""


# Ids are text here: a retriever lists hundreds of them and a search shows a few. They sort as UUIDs do, and faster.
class SemanticMatch(NamedTuple):
    """Memory found by its vector, with the cosine similarity to the query."""

    id: str
    similarity: float
    kind: str


# By default, Postgres compares the cost of the first searches of a connection with that of a generic plan. If those
# were in small projects, it plans every later search anew, which takes about as long as the search. The scan of an
# index on vectors goes on if filters remove its first rows.
_BEGIN_SNAPSHOT = """
    BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL plan_cache_mode = force_generic_plan;
    SET LOCAL hnsw.iterative_scan = strict_order; SET LOCAL hnsw.ef_search = {}
"""
_MIN_EF, _MAX_EF = 40, 1_000


@contextmanager
def open_snapshot(engine: Engine, *, nearest: int = _MIN_EF) -> Iterator[Connection]:
    """Open a read-only connection on which all queries see the store at one moment.

    A memory that is merged meanwhile is found once, before or after. Prepared statements keep their plan. ``nearest``:
    number of memories that ``find_nearest`` is asked for; the more, the more of an index it reads.
    """
    with autocommit_connection(engine) as connection:
        driver: Any = connection.connection.driver_connection
        driver.execute(_BEGIN_SNAPSHOT.format(max(_MIN_EF, min(_MAX_EF, nearest))))
        yield connection
        driver.execute("COMMIT")  # after an error the pool ends the transaction, as any unfinished one


# --- nearest vectors -----------------------------------------------------------------------------------------------


_LOAD_VECTOR_LENGTH = """
    SELECT coalesce(
        (SELECT embedding_dim FROM consolidation.task_memories
            WHERE project_id = %(project)s AND embedding_model = %(model)s LIMIT 1),
        (SELECT embedding_dim FROM consolidation.consolidated_memories
            WHERE project_id = %(project)s AND embedding_model = %(model)s LIMIT 1),
        0)
"""


def load_vector_length(connection: Connection, project_id: UUID, model: str) -> int:
    """Return the length of the project's vectors of ``model``, archived memories included; 0 if it has none."""
    ((length,),) = fetch_rows(connection, _LOAD_VECTOR_LENGTH, {"project": project_id, "model": model})
    return int(length)


_NEAREST = """
    SELECT id::text, kind, table_name, 1 - (embedding <=> CAST(%(vector)s AS vector)) AS similarity
    FROM (/* nearest_of_tables */) nearest ORDER BY similarity DESC, id
"""
_NEAREST_OF_TABLE = {
    "task_memories": """
    (SELECT id, 'raw' AS kind, 'task_memories' AS table_name, embedding FROM consolidation.task_memories
    WHERE /* rows */ /* filters */ ORDER BY /* distance */ id LIMIT /* limit */)""",
    "consolidated_memories": """
    (SELECT id, kind, 'consolidated_memories' AS table_name, embedding FROM consolidation.consolidated_memories
    WHERE /* rows */ AND kind = ANY(%(kinds)s) /* filters */ ORDER BY /* distance */ id LIMIT /* limit */)""",
}


def build_nearest_query(filters: SearchFilters, indexed: Mapping[str, VectorIndex], limit: int) -> str:
    """Return the SQL of the nearest memories: id, kind, table and similarity, at most ``limit`` of each table.

    A table in ``indexed`` is read through that index, which holds half precision; the similarities are exact. What the
    index is of, and the limit, are part of the SQL, so that one plan is good for all values and can be kept. In any
    other table every row is compared. Binds ``project``, ``vector``, ``model``, ``dimension`` and
    ``filters.parameters``.
    """
    # The parameter is cast to vector everywhere: it has one type, and half precision would lose digits.
    vector = "CAST(%(vector)s AS vector)"
    nearest = []
    for table in filters.tables:
        if table in indexed:
            distance = f"{indexed[table].distance(vector)}, "
            rows = indexed[table].condition.replace("%", "%%")
        else:
            # IS TRUE keeps the planner from the index on models, which it would read for all projects.
            distance = f"embedding <=> {vector}, "
            rows = (
                "project_id = %(project)s AND embedding_dim = %(dimension)s AND (embedding_model = %(model)s) IS TRUE"
            )
        parts = {"rows": rows, "filters": filters.where(table), "distance": distance, "limit": str(limit)}
        nearest.append(compose(_NEAREST_OF_TABLE[table], **parts))
    return compose(_NEAREST, nearest_of_tables=" UNION ALL ".join(nearest))


def find_nearest(
    connection: Connection,
    project_id: UUID,
    filters: SearchFilters,
    *,
    model: str,
    vector: Vectors,
    min_similarity: float,
    limit: int,
    indexed: Mapping[str, VectorIndex],
) -> list[SemanticMatch]:
    """Return the memories nearest to a vector, best first, ties by id.

    If an index gives fewer rows than asked for, because of the filters or because it gave up, every row is compared
    instead.

    Args:
        filters: Conditions on the memories.
        model: Name of the embedding model of ``vector``.
        vector: Vector (d,) of the query.
        min_similarity: Cosine similarity below which nothing is returned.
        limit: Maximum number of memories.
        indexed: Indexes to read, by table.
    """
    bound = {"project": project_id, "model": model, "dimension": len(vector), "vector": Vector(vector)}
    bound |= filters.parameters
    # Indexes lack rows that were merged since ``as_of``.
    used = {table: index for table, index in indexed.items() if table in filters.tables and filters.as_of is None}
    rows = fetch_rows(connection, build_nearest_query(filters, used, limit), bound, binary=True)
    if any(sum(table_name == table for _, _, table_name, _ in rows) < limit for table in used):
        rows = fetch_rows(connection, build_nearest_query(filters, {}, limit), bound, binary=True)
    return [SemanticMatch(id_, min(1.0, cosine), kind) for id_, kind, _, cosine in rows if cosine >= min_similarity][
        :limit
    ]
