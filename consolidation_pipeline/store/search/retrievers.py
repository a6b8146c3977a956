"""Retrievers of a search: nearest vectors and keyword matches, over raw and consolidated memories.

A merged raw memory is not found, its merged memory is. Archived memories are found on request. The filters are part of
each query. Both retrievers return ids in a stable order, and list abstract memories beside the others: so they keep no
other one off the list.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from pgvector import Vector
from sqlalchemy import Connection, Engine

from consolidation_pipeline.core.memories.memories import LEVELS
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.raw_connections import autocommit_connection, execute_plain, fetch_rows
from consolidation_pipeline.store.database.schema import KINDS
from consolidation_pipeline.store.database.scope_keys import has_walls, is_out_of_use, raw_scope_key
from consolidation_pipeline.store.database.sql import compose, conditions, quote_literal
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.search.scope_indexes import ScopeIndex
from consolidation_pipeline.store.search.vector_indexes import (
    INDEXED_KINDS,
    PROBES,
    AbstractIndex,
    StagedIndex,
    VectorIndex,
)

# Kinds that are made from several others and say less than these: levels 2 and 3.
ABSTRACT_KINDS = frozenset(kind for kind, level in LEVELS.items() if level > 1)


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
    def parts(self) -> list[list[str]]:
        """Kinds that are listed separately: raw and merged ones, then abstract ones; without empty parts."""
        concrete = [kind for kind in self.kinds if kind not in ABSTRACT_KINDS]
        abstract = [kind for kind in self.kinds if kind in ABSTRACT_KINDS]
        return [part for part in (concrete, abstract) if part]

    @property
    def is_narrow(self) -> bool:
        """True if few of the memories that an index holds may pass."""
        return bool(self.parameters)

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of the parameters of ``where``."""
        given = {"types": self.types, "tags": self.tags, "since": self.since, "until": self.until}
        given |= {"pattern_types": self.pattern_types, "scope": self.scope, "as_of": self.as_of}
        return {name: v if isinstance(v, (str, datetime)) else list(v) for name, v in given.items() if v is not None}

    def where(self, table: str, *more: str | None) -> str:
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


def split_by_table(kinds: Collection[str]) -> dict[str, str | None]:
    """Return the tables that hold memories of these kinds, each with the SQL of the condition on the kind, if any."""
    derived = [kind for kind in kinds if kind in KINDS]
    found: dict[str, str | None] = {"task_memories": None} if "raw" in kinds else {}
    if derived:
        found["consolidated_memories"] = f"kind IN ({', '.join(map(quote_literal, derived))})"
    return found


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
# were in small projects, it plans every later search anew, which takes about as long as the search.
_BEGIN_SNAPSHOT = """
    BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL plan_cache_mode = force_generic_plan
"""


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Let all queries see the store at one moment, read-only, on a connection in autocommit.

    A memory that is merged meanwhile is found once, before or after. Prepared statements keep their plan.
    """
    execute_plain(connection, _BEGIN_SNAPSHOT)
    yield
    execute_plain(connection, "COMMIT")  # after an error the pool ends the transaction, as any unfinished one


@contextmanager
def open_snapshot(engine: Engine) -> Iterator[Connection]:
    """Open a connection on which all queries see the store at one moment, see ``snapshot``."""
    with autocommit_connection(engine) as connection, snapshot(connection):
        yield connection


# --- reads ---------------------------------------------------------------------------------------------------------

T = TypeVar("T")
# Yields statements with the values that they bind, is sent their rows, and returns what they tell.
Reads = Generator[tuple[str, Mapping[str, Any]], list[tuple[Any, ...]], T]

_BOTH = """
    SELECT id, similarity, kind, NULL::integer, NULL::bytea FROM (/* nearest */) nearest
    UNION ALL /* matches */
"""


def run_reads(connection: Connection, reads: Reads[T], *, first: list[tuple[Any, ...]] | None = None) -> T:
    """Return what ``reads`` finds. ``first``: rows of its first statement, which it yielded already; None = none."""
    try:
        query, bound = next(reads) if first is None else reads.send(first)
        while True:
            query, bound = reads.send(fetch_rows(connection, query, bound, binary=True))
    except StopIteration as end:
        found: T = end.value
        return found


def run_both(connection: Connection, nearest: Reads[T], matches: Reads[Any]) -> tuple[T, Any]:
    """Return what ``read_nearest`` and ``read_keyword_matches`` find: their first statements are one round trip."""
    near_query, bound = next(nearest)
    try:
        query, more = next(matches)
    except StopIteration as end:
        return run_reads(connection, nearest, first=fetch_rows(connection, near_query, bound, binary=True)), end.value
    both = compose(_BOTH, nearest=near_query, matches=query)
    rows = fetch_rows(connection, both, {**more, **bound}, binary=True)
    near = [row for row in rows if row[4] is None]
    found = [row for row in rows if row[4] is not None]
    return run_reads(connection, nearest, first=near), run_reads(connection, matches, first=found)


# --- nearest vectors -----------------------------------------------------------------------------------------------


_LOAD_VECTOR_LENGTH = """
    SELECT coalesce(
        (SELECT embedding_dim FROM consolidation.task_memories
            WHERE project_id = %(project)s AND embedding_model = %(model)s LIMIT 1),
        (SELECT embedding_dim FROM consolidation.consolidated_memories
            WHERE project_id = %(project)s AND embedding_model = %(model)s LIMIT 1),
        (SELECT embedding_dim FROM consolidation.staged_embeddings
            WHERE project_id = %(project)s AND embedding_model = %(model)s LIMIT 1),
        0)
"""


def load_vector_length(connection: Connection, project_id: UUID, model: str) -> int:
    """Return the length of the project's vectors of ``model``, staged and archived ones included; 0 if it has none."""
    ((length,),) = fetch_rows(connection, _LOAD_VECTOR_LENGTH, {"project": project_id, "model": model})
    return int(length)


# The settings are made before the index is read, as each part depends on them, and end with the transaction. A search
# of an inverted file goes on to its other lists if too few rows of the first ones pass: no row is left out for that.
_INDEX_READS = """
    FROM (SELECT set_config('hnsw.ef_search', '/* candidates */', true),
        set_config('ivfflat.probes', '/* probes */', true),
        set_config('ivfflat.iterative_scan', 'relaxed_order', true),
        set_config('hnsw.iterative_scan', '/* scan */', true) AS scan OFFSET 0) settings,
        LATERAL"""
_NEAREST = """
    SELECT id::text, least(1 - distance, 1) AS similarity, kind /* reads */ (/* nearest_of_tables */) nearest
    ORDER BY similarity DESC, id
"""
_NEAREST_OF_TABLE = """
    (SELECT id, /* kind */ AS kind, embedding <=> CAST(%(vector)s AS vector) AS distance
    FROM consolidation./* table */ WHERE /* rows */ /* filters */ /* settings */
    ORDER BY /* order */ LIMIT /* limit */)"""
# Of a row with a vector of the same model, the staged one is the same, and listed twice.
_NEAREST_STAGED = """
    (SELECT id, /* kind */ AS kind, staged_embedding <=> CAST(%(vector)s AS vector) AS distance
    FROM (
        SELECT memory_id, content_hash AS staged_hash, embedding AS staged_embedding
        FROM consolidation.staged_embeddings WHERE /* rows */) staged
        JOIN consolidation./* table */ ON id = memory_id AND content_hash = staged_hash
    WHERE true /* filters */ /* settings */ ORDER BY /* order */ LIMIT /* limit */)"""
_STAGED_ROWS = "project_id = %(project)s AND embedding_model = %(model)s AND embedding_dim = %(dimension)s"
# IS TRUE keeps the planner from the index on models, which it would read for all projects.
_ROWS_OF_MODEL = "project_id = %(project)s AND embedding_dim = %(dimension)s AND (embedding_model = %(model)s) IS TRUE"


def build_nearest_query(
    filters: SearchFilters,
    indexed: Mapping[str, VectorIndex],
    limit: int,
    *,
    staged: Mapping[str, StagedIndex] | None = None,
    candidates: int = 0,
    goes_on: bool = False,
    scoped: Mapping[str, ScopeIndex] | None = None,
    abstract_index: AbstractIndex | None = None,
) -> str:
    """Return the SQL of the nearest memories: id, kind and similarity, at most ``limit`` of each table and part.

    Raw and merged memories of a table in ``indexed`` are read through that index, which holds half precision; the
    similarities are exact. What the index is of, and the limit, are part of the SQL, so that one plan is good for all
    values and can be kept. Of any other table, every row is compared. ``staged``: indexes on staged vectors, which are
    compared too; None = there are none. ``candidates``: those that the search of an index keeps. ``goes_on``: the
    search of an index goes on if filters remove its first rows. ``scoped``: indexes on scope keys, by which the rows to
    compare are found. ``abstract_index``: index on abstract memories; None = every one is compared. Binds
    ``project``, ``vector``, ``model``, ``dimension`` and ``filters.parameters``.
    """
    nearest = []
    for kinds in filters.parts:
        for table, of_kinds in split_by_table(kinds).items():
            rows, order = _ROWS_OF_MODEL, "distance, id"
            if scoped and table in scoped:
                rows = f"{scoped[table].condition} AND {rows}"
            if index := abstract_index if ABSTRACT_KINDS.intersection(kinds) else indexed.get(table):
                rows = index.condition.replace("%", "%%")
                # Not by the id too: sorting whole rows takes as long as finding them.
                order = index.distance("CAST(%(vector)s AS vector)")
            kind = "'raw'" if table == "task_memories" else "kind"
            parts = {"table": table, "kind": kind, "rows": rows, "order": order, "limit": str(limit)}
            parts["settings"] = "AND settings.scan IS NOT NULL" if candidates else ""
            conditions_of_rows = filters.where(table, of_kinds)
            nearest.append(compose(_NEAREST_OF_TABLE, filters=conditions_of_rows, **parts))
            if staged is not None:
                parts |= {"rows": _STAGED_ROWS, "order": "distance, id"}
                if table in staged and not ABSTRACT_KINDS.intersection(kinds):
                    parts["rows"] = staged[table].condition.replace("%", "%%")
                    distance = staged[table].distance("CAST(%(vector)s AS vector)")
                    parts["order"] = distance.replace("embedding::", "staged_embedding::")
                nearest.append(compose(_NEAREST_STAGED, filters=conditions_of_rows, **parts))
    reads = "FROM"
    if candidates:
        scan = "strict_order" if goes_on else "off"
        reads = compose(_INDEX_READS, candidates=str(candidates), probes=str(PROBES), scan=scan)
    return compose(_NEAREST, reads=reads, nearest_of_tables=" UNION ALL ".join(nearest))


def read_nearest(
    project_id: UUID,
    filters: SearchFilters,
    *,
    model: str,
    vector: Vectors,
    min_similarity: float,
    limit: int,
    indexed: Mapping[str, VectorIndex],
    staged: Mapping[str, StagedIndex] | None = None,
    candidates: int = 0,
    scoped: Mapping[str, ScopeIndex] | None = None,
    abstract_index: AbstractIndex | None = None,
) -> Reads[list[SemanticMatch]]:
    """Return the memories nearest to a vector, best first, ties by id.

    If an index gives fewer rows than asked for, because of the filters, its search goes on; if it gives up, every row
    is compared instead.

    Args:
        filters: Conditions on the memories.
        model: Name of the embedding model of ``vector``.
        vector: Vector (d,) of the query.
        min_similarity: Cosine similarity below which nothing is returned.
        limit: Maximum number of memories of each part of the filters.
        indexed: Indexes to read, by table.
        staged: Indexes on staged vectors to read, by table; None = the project has no staged vectors.
        candidates: Candidates that the search of an index keeps (``count_candidates``); 0 = without indexes.
        scoped: Indexes on scope keys, by which all rows of the filters' scope are found and compared; without the
            other indexes.
        abstract_index: Index on abstract memories, which is read if all of them are searched: a filter may leave few.
    """
    bound = {"project": project_id, "model": model, "dimension": len(vector), "vector": Vector(vector)}
    bound |= filters.parameters
    # Indexes lack rows that were merged since ``as_of``.
    used = {} if filters.as_of else indexed
    used_staged = {} if filters.as_of and staged else staged
    is_whole = staged is None and not filters.is_narrow and ABSTRACT_KINDS.issubset(filters.kinds)
    through_index = {INDEXED_KINDS[table] for table in {*used, *(used_staged or {})}}.intersection(filters.kinds)
    # A search that can go on takes a tenth longer. An index on staged vectors holds abstract memories too.
    for goes_on in (True,) if filters.is_narrow or "consolidated_memories" in (used_staged or {}) else (False, True):
        query = build_nearest_query(
            filters,
            used,
            limit,
            staged=used_staged,
            candidates=candidates,
            goes_on=goes_on,
            scoped=scoped,
            abstract_index=abstract_index if is_whole else None,
        )
        rows = _drop_repeated((yield query, bound))
        kinds = [row[2] for row in rows]
        if all(kinds.count(kind) >= limit for kind in through_index):
            break
    else:
        exact = build_nearest_query(filters, {}, limit, staged=None if staged is None else {})
        rows = _drop_repeated((yield exact, bound))
    near = [SemanticMatch._make(row[:3]) for row in rows if row[1] >= min_similarity]
    if len(near) <= limit and ABSTRACT_KINDS.isdisjoint(match.kind for match in near):
        return near
    concrete = [match for match in near if match.kind not in ABSTRACT_KINDS][:limit]
    abstract = [match for match in near if match.kind in ABSTRACT_KINDS][:limit]
    return sorted(concrete + abstract, key=lambda match: (-match.similarity, match.id))


def _drop_repeated(rows: Iterable[tuple[Any, ...]]) -> Collection[tuple[Any, ...]]:
    """Return the row of each memory once, best first."""
    found: dict[str, tuple[Any, ...]] = {}
    for row in rows:
        found.setdefault(row[0], row)
    return found.values()
