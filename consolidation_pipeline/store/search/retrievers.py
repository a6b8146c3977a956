"""Retrievers of a search: nearest vectors and keyword matches, over raw and consolidated memories.

A merged raw memory is not found, its merged memory is. Archived memories are found on request. The filters are part of
each query. Both retrievers return ids in a stable order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
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


class KeywordMatches(NamedTuple):
    """Memories found by their words, n of them, with the input of ``bm25``.

    ``lengths`` (n,): bytes of each text; ``counts`` (n, m): occurrences of each of the m query words, in the order of
    the alphabet.
    """

    ids: list[str]
    kinds: list[str]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]


# By default, Postgres compares the cost of the first searches of a connection with that of a generic plan. If those
# were in small projects, it plans every later search anew, which takes about as long as the search.
_BEGIN_SNAPSHOT = """
    BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL plan_cache_mode = force_generic_plan
"""


@contextmanager
def open_snapshot(engine: Engine) -> Iterator[Connection]:
    """Open a read-only connection on which all queries see the store at one moment.

    A memory that is merged meanwhile is found once, before or after. Prepared statements keep their plan.
    """
    with autocommit_connection(engine) as connection:
        driver: Any = connection.connection.driver_connection
        driver.execute(_BEGIN_SNAPSHOT)
        yield connection
        driver.execute("COMMIT")  # after an error the pool ends the transaction, as any unfinished one


# Makes the plans of this transaction depend on the bound values.
_PLAN_BY_VALUES = "SELECT set_config('plan_cache_mode', 'auto', true)"


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
    WHERE project_id = %(project)s AND embedding_dim = %(dimension)s /* filters */
    ORDER BY /* distance */ id LIMIT %(limit)s)""",
    "consolidated_memories": """
    (SELECT id, kind, 'consolidated_memories' AS table_name, embedding FROM consolidation.consolidated_memories
    WHERE project_id = %(project)s AND kind = ANY(%(kinds)s) AND embedding_dim = %(dimension)s /* filters */
    ORDER BY /* distance */ id LIMIT %(limit)s)""",
}


def build_nearest_query(filters: SearchFilters, indexed: Mapping[str, VectorIndex]) -> str:
    """Return the SQL of the nearest memories: id, kind, table and similarity, at most ``limit`` of each table.

    A table in ``indexed`` is read through that index, which holds half precision; the similarities are exact. In any
    other table every row is compared. Binds ``project``, ``vector``, ``model``, ``dimension``, ``limit`` and
    ``filters.parameters``.
    """
    # The parameter is cast to vector everywhere: it has one type, and half precision would lose digits.
    vector = "CAST(%(vector)s AS vector)"
    nearest = []
    for table in filters.tables:
        if table in indexed:
            distance, has_model = indexed[table].distance(vector), "embedding_model = %(model)s"
        else:
            # IS TRUE keeps the planner from the index on models, which it would read for all projects.
            distance, has_model = f"embedding <=> {vector}", "(embedding_model = %(model)s) IS TRUE"
        where = filters.where(table, has_model)
        nearest.append(compose(_NEAREST_OF_TABLE[table], filters=where, distance=f"{distance},"))
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
    bound = {"project": project_id, "model": model, "dimension": len(vector), "limit": limit}
    bound |= filters.parameters | {"vector": Vector(vector)}
    used = {table: index for table, index in indexed.items() if table in filters.tables}
    if used:
        size = str(max(40, min(1000, limit)))
        fetch_rows(connection, _PREPARE_INDEX_SCAN, {"size": size})
    # Through an index the best plan depends on the project. To compare every row, one plan is good for all.
    rows = fetch_rows(connection, build_nearest_query(filters, used), bound, prepare=False if used else None)
    if any(sum(table_name == table for _, _, table_name, _ in rows) < limit for table in used):
        rows = fetch_rows(connection, build_nearest_query(filters, {}), bound)
    return [SemanticMatch(id_, min(1.0, cosine), kind) for id_, kind, _, cosine in rows if cosine >= min_similarity][
        :limit
    ]


# For this transaction: plans depend on the bound values, and the scan goes on if filters remove its first rows.
_PREPARE_INDEX_SCAN = """
    SELECT set_config('plan_cache_mode', 'auto', true), set_config('hnsw.iterative_scan', 'strict_order', true),
        set_config('hnsw.ef_search', %(size)s, true)
"""


# --- keyword matches -----------------------------------------------------------------------------------------------


_LOAD_LEXEMES = """
    SELECT language::text, tsvector_to_array(to_tsvector(language, %(query)s))
    FROM (SELECT DISTINCT language FROM (/* languages */) found) languages ORDER BY 1
"""
# First and last language of a table.
_OUTER_LANGUAGES = """
    (SELECT language FROM /* table */ WHERE project_id = %(project)s ORDER BY language ASC LIMIT 1) UNION ALL
    (SELECT language FROM /* table */ WHERE project_id = %(project)s ORDER BY language DESC LIMIT 1)
"""
# All languages of a table, each read from the index as the next one after the last ("loose index scan").
_ALL_LANGUAGES = """
    SELECT language FROM (
        WITH RECURSIVE step AS (
            (SELECT language FROM /* table */ WHERE project_id = %(project)s ORDER BY language LIMIT 1)
            UNION ALL
            SELECT (SELECT language FROM /* table */
                WHERE project_id = %(project)s AND language > step.language ORDER BY language LIMIT 1)
            FROM step WHERE step.language IS NOT NULL)
        SELECT language FROM step WHERE language IS NOT NULL) found
"""
_LANGUAGE_TABLES = ("consolidation.task_memories", "consolidation.consolidated_memories")


def load_lexemes(connection: Connection, project_id: UUID, query: str) -> dict[str, list[str]]:
    """Return the lexemes of ``query`` for each language of the project's memories, without its stop words.

    A language without any lexeme is left out. Languages are read from an index, not from all rows.
    """
    bound, rows = {"project": project_id, "query": query}, list[tuple[Any, ...]]()
    for statement in (_OUTER_LANGUAGES, _ALL_LANGUAGES):
        languages = " UNION ALL ".join(compose(statement, table=table) for table in _LANGUAGE_TABLES)
        rows = fetch_rows(connection, compose(_LOAD_LEXEMES, languages=languages), bound)
        if len(rows) <= 1:  # Otherwise there may be more between the first language and the last.
            break
    return {language: lexemes for language, lexemes in rows if lexemes}


# ``size`` counts bytes: Postgres knows them without reading the text, and they measure its length as well as words do.
_KEYWORD_MATCHES = """
    WITH pool AS MATERIALIZED (
        SELECT * FROM (/* matches */) found ORDER BY rank DESC, id LIMIT %(pool)s)
    SELECT id::text, kind, size,
        ARRAY(SELECT ts_rank('{1,1,1,1}', content_tsv, word) FROM unnest(CAST(%(each)s AS tsquery[])) word)
    FROM pool
"""
_KEYWORD_MATCHES_OF_TABLE = {
    "task_memories": """
    (SELECT id, 'raw' AS kind, coalesce(octet_length(goal), 0) + coalesce(octet_length(execution_summary), 0)
        + coalesce(octet_length(result), 0) + coalesce(octet_length(lessons_learned), 0)
        + coalesce(octet_length(feedback), 0) AS size, content_tsv,
        ts_rank(content_tsv, CAST(%(words)s AS tsquery), 1) AS rank
    FROM consolidation.task_memories
    WHERE project_id = %(project)s AND language = CAST(%(language)s AS regconfig) /* filters */
    ORDER BY rank DESC, id LIMIT %(pool)s)""",
    "consolidated_memories": """
    (SELECT id, kind, octet_length(content) AS size, content_tsv,
        ts_rank(content_tsv, CAST(%(words)s AS tsquery), 1) AS rank
    FROM consolidation.consolidated_memories
    WHERE project_id = %(project)s AND kind = ANY(%(kinds)s) AND language = CAST(%(language)s AS regconfig)
        /* filters */
    ORDER BY rank DESC, id LIMIT %(pool)s)""",
}


def build_keyword_query(filters: SearchFilters, languages: int, *, indexed: bool) -> str:
    """Return the SQL of the memories that share a word with a query: id, kind, size in bytes, rank of each query word.

    It returns at most ``pool`` memories, by ``ts_rank`` normalised by length. Binds ``project``, ``pool``, ``each`` (a
    tsquery for each query word), ``filters.parameters`` and for each language by its number ``language0`` and
    ``words0`` (a tsquery).

    Unless ``indexed``, all rows of the project are read, so that one plan is good for any words. The index on words
    covers all projects and pays in a large one.
    """
    has_words = "content_tsv @@ CAST(%(words)s AS tsquery)"
    has_words = has_words if indexed else f"({has_words}) IS TRUE"
    found = [
        compose(_KEYWORD_MATCHES_OF_TABLE[table], filters=filters.where(table, has_words))
        .replace("%(words)s", f"%(words{number})s")
        .replace("%(language)s", f"%(language{number})s")
        for table in filters.tables
        for number in range(languages)
    ]
    return compose(_KEYWORD_MATCHES, matches=" UNION ALL ".join(found))


def find_keyword_matches(
    connection: Connection,
    project_id: UUID,
    filters: SearchFilters,
    *,
    lexemes: Mapping[str, Sequence[str]],
    pool: int,
    indexed: bool,
) -> KeywordMatches:
    """Return the ``pool`` memories that match the query best by ``ts_rank``; one common lexeme is enough.

    A memory is compared with the lexemes of its own language.

    Args:
        lexemes: Lexemes of the query by language, as ``load_lexemes`` returns them.
        pool: Maximum number of memories.
        indexed: See ``build_keyword_query``.
    """
    if not lexemes:
        return KeywordMatches([], [], np.zeros(0, np.int64), np.zeros((0, 0), np.int64))
    words = sorted({word for listed in lexemes.values() for word in listed})
    bound: dict[str, Any] = {"project": project_id, "pool": pool} | filters.parameters
    bound["each"] = [_to_tsquery([word]) for word in words]
    for number, (language, listed) in enumerate(lexemes.items()):
        bound |= {f"language{number}": language, f"words{number}": _to_tsquery(listed)}
    if indexed:  # the best plan depends on how rare the words are
        fetch_rows(connection, _PLAN_BY_VALUES, {})
    query = build_keyword_query(filters, len(lexemes), indexed=indexed)
    rows = fetch_rows(connection, query, bound, prepare=False if indexed else None)
    ranks = np.array([row[3] for row in rows]).reshape(len(rows), len(words))
    sizes = np.array([row[2] for row in rows], np.int64)
    counts = np.searchsorted(_RANK_LIMITS, ranks)
    return KeywordMatches([row[0] for row in rows], [row[1] for row in rows], sizes, counts)


# Postgres ranks a word that occurs n times, with weight 1, by (1 + 1/4 + 1/9 + .. + 1/n^2) / (pi^2 / 6), and keeps at
# most 256 positions. Reading n back from the rank is much faster than reading the positions from the tsvector.
_RANKS = 6 / np.pi**2 * np.cumsum([0.0, *(1 / n**2 for n in range(1, 257))])
_RANK_LIMITS = (_RANKS[:-1] + _RANKS[1:]) / 2


def _to_tsquery(lexemes: Iterable[str]) -> str:
    """Return a tsquery that any of the lexemes matches. Each is quoted, so that none is read as an operator."""
    return " | ".join("'{}'".format(word.replace("\\", "\\\\").replace("'", "''")) for word in lexemes)
