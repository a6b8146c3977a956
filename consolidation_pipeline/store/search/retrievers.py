"""The two legs of search, by meaning and by words, over raw and consolidated memories; filters are part of each query.

Raw memories that were merged are not found: their merged memory is. What is archived is found on request. Each leg
gives ids in an order that is the same every time.
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

from consolidation_pipeline.store.database.raw_connections import autocommit_connection, fetch_rows
from consolidation_pipeline.store.database.schema import KINDS, consolidated_memories, task_memories
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS
from consolidation_pipeline.store.search.vector_indexes import Index

TABLES = {"task_memories": task_memories, "consolidated_memories": consolidated_memories}
# Bytes of a text: Postgres knows them without reading it, and they measure its length as well as words do.
_SIZE = {
    "task_memories": " + ".join(f"coalesce(octet_length({column}), 0)" for column in TEXT_COLUMNS),
    "consolidated_memories": "octet_length(content)",
}
_KIND = {"task_memories": "'raw'", "consolidated_memories": "kind"}


@dataclass(frozen=True)
class Filters:
    """What may be found: kinds (never empty), and where given types, tags (any of them) and times of learning.

    ``pattern_types``: patterns and principles of these only; raw memories have none.
    """

    kinds: Collection[str]
    types: Collection[str] | None = None
    tags: Collection[str] | None = None
    since: datetime | None = None
    until: datetime | None = None
    include_archived: bool = False
    pattern_types: Collection[str] | None = None

    @property
    def tables(self) -> list[str]:
        """Tables in which such memories are."""
        raw = ["task_memories"] if "raw" in self.kinds else []
        return raw + (["consolidated_memories"] if set(self.kinds) & set(KINDS) else [])

    @property
    def parameters(self) -> dict[str, Any]:
        """What the conditions of ``where`` bind."""
        given = {"types": self.types, "tags": self.tags, "since": self.since, "until": self.until}
        given |= {"pattern_types": self.pattern_types}
        lists = {name: list(v) if isinstance(v, Collection) else v for name, v in given.items() if v is not None}
        return lists | {"kinds": [kind for kind in self.kinds if kind != "raw"]}

    def where(self, table: str) -> str:
        """SQL of the condition on rows of ``table``; binds ``project`` and ``parameters``."""
        if table == "task_memories":
            states = ["NOT is_consolidated"] + ([] if self.include_archived else ["NOT is_archived"])
        else:
            archived = " OR archive_reason IS NOT NULL" if self.include_archived else ""
            states = ["kind = ANY(%(kinds)s)", f"(retired_at IS NULL{archived})"]
            states += ["pattern_type = ANY(%(pattern_types)s)"] if self.pattern_types else []
        given = {
            "memory_type = ANY(%(types)s)": self.types,
            "tags && CAST(%(tags)s AS text[])": self.tags,
            "learned_at >= %(since)s": self.since,
            "learned_at <= %(until)s": self.until,
        }
        return " AND ".join(["project_id = %(project)s", *states, *(sql for sql, value in given.items() if value)])


# Ids are text here, of which a leg lists hundreds and a search shows a few: they sort as UUIDs do, and faster.
class Near(NamedTuple):
    """A memory found by meaning, with its cosine."""

    id: str
    similarity: float
    kind: str


class Matching(NamedTuple):
    """The n memories found by words, with what ``bm25`` takes: ``lengths`` (n,) and ``counts`` (n, m) of m words."""

    ids: list[str]
    kinds: list[str]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]


@contextmanager
def open_snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection on which all queries see one moment: what is merged meanwhile is found once, before or after.

    Nothing can be written on it. Statements that were prepared are not planned again for other values.
    """
    with autocommit_connection(engine) as connection:
        driver: Any = connection.connection.driver_connection
        driver.execute(_BEGIN)
        yield connection
        driver.execute("COMMIT")  # after an error the pool ends it, as with whatever comes back unfinished


# Left to itself, Postgres compares the first few searches of a connection with the average one, and where those were
# in small projects plans every later one anew, which takes it about as long as to answer.
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL plan_cache_mode = force_generic_plan"


# --- by meaning ----------------------------------------------------------------------------------------------------


def load_vector_length(connection: Connection, project_id: UUID, model: str) -> int:
    """Length of the project's vectors of ``model``; 0 when it has none, archived memories among them."""
    for table in TABLES.values():
        query = (
            f"SELECT embedding_dim FROM {table} WHERE project_id = %(project)s AND embedding_model = %(model)s LIMIT 1"
        )
        for (length,) in fetch_rows(connection, query, {"project": project_id, "model": model}):
            return int(length)
    return 0


def nearest_query(filters: Filters, indexed: Mapping[str, Index]) -> str:
    """SQL of the nearest memories: id, kind, table and cosine, at most ``limit`` of each table.

    A table that is in ``indexed`` is read through that index, which holds half precision; the cosines are exact. Of the
    others every row is compared. Binds ``vector``, ``model``, ``dimension`` and what ``Filters.where`` does.
    """
    nearest = []
    for table in filters.tables:
        # Cast to vector first wherever it stands: a parameter has one type, and that of half precision would lose some.
        wanted = "CAST(%(vector)s AS vector)"
        if table in indexed:
            distance, of_model = indexed[table].distance(wanted), "embedding_model = %(model)s"
        else:
            # Not as a condition that an index on models has: it would be read for all projects, to the end.
            distance, of_model = f"embedding <=> {wanted}", "(embedding_model = %(model)s) IS TRUE"
        nearest.append(
            f"(SELECT id, {_KIND[table]} AS kind, '{table}' AS held_in, embedding "
            f"FROM {TABLES[table]} WHERE {filters.where(table)} AND {of_model} AND embedding_dim = %(dimension)s "
            f"ORDER BY {distance}, id LIMIT %(limit)s)"
        )
    return (
        "SELECT id::text, kind, held_in, 1 - (embedding <=> CAST(%(vector)s AS vector)) AS similarity "
        f"FROM ({' UNION ALL '.join(nearest)}) nearest ORDER BY similarity DESC, id"
    )


def find_nearest(
    connection: Connection,
    project_id: UUID,
    filters: Filters,
    *,
    model: str,
    vector: Vectors,
    floor: float,
    limit: int,
    indexed: Mapping[str, Index],
) -> list[Near]:
    """The ``limit`` memories nearest to ``vector`` (d,), best first, ties by id; none below floor.

    ``indexed``: tables that are read through an index. Where one gives fewer rows than asked for, because the filters
    leave few or the index gave up, every row is compared instead: a filter never starves the result.
    """
    bound = {"project": project_id, "model": model, "dimension": len(vector), "limit": limit}
    bound |= filters.parameters | {"vector": Vector(vector)}
    used = {table: index for table, index in indexed.items() if table in filters.tables}
    if used:
        _prepare_scan(connection, limit)
    # Through an index the best plan depends on the project; to compare every row, the same is good for all.
    rows = fetch_rows(connection, nearest_query(filters, used), bound, prepare=False if used else None)
    if any(sum(held_in == table for _, _, held_in, _ in rows) < limit for table in used):
        rows = fetch_rows(connection, nearest_query(filters, {}), bound)
    return [Near(id_, min(1.0, cosine), kind) for id_, kind, _, cosine in rows if cosine >= floor][:limit]


def _prepare_scan(connection: Connection, limit: int) -> None:
    """For this transaction: plans go by what is bound, and the index goes on where filters took its first rows."""
    size = str(max(40, min(1000, limit)))
    strict = "set_config('hnsw.iterative_scan', 'strict_order', true)"
    fetch_rows(
        connection, f"SELECT {_BY_VALUES}, {strict}, set_config('hnsw.ef_search', %(size)s, true)", {"size": size}
    )


_BY_VALUES = "set_config('plan_cache_mode', 'auto', true)"


# --- by words ------------------------------------------------------------------------------------------------------


def load_words(connection: Connection, project_id: UUID, query: str) -> dict[str, list[str]]:
    """The words of ``query`` as each language of the project's memories has them, without its stop words.

    A language without any of them is left out. Languages are stepped through in an index, not read off all rows.
    """
    bound = {"project": project_id, "query": query}
    rows = fetch_rows(connection, _LEXEMES.format(_ENDS), bound)
    if len(rows) > 1:  # there may be more between the first language and the last
        rows = fetch_rows(connection, _LEXEMES.format(_STEPS), bound)
    return {language: lexemes for language, lexemes in rows if lexemes}


_LEXEMES = """
    SELECT language::text, tsvector_to_array(to_tsvector(language, %(query)s))
    FROM (SELECT DISTINCT language FROM ({}) found) languages ORDER BY 1
"""
_ENDS = " UNION ALL ".join(
    f"(SELECT language FROM {table} WHERE project_id = %(project)s ORDER BY language {way} LIMIT 1)"
    for table in TABLES.values()
    for way in ("ASC", "DESC")
)
_STEPS = " UNION ALL ".join(
    f"""SELECT language FROM (WITH RECURSIVE step AS (
        (SELECT language FROM {table} WHERE project_id = %(project)s ORDER BY language LIMIT 1)
        UNION ALL
        SELECT (SELECT language FROM {table} WHERE project_id = %(project)s AND language > step.language
            ORDER BY language LIMIT 1) FROM step WHERE step.language IS NOT NULL)
        SELECT language FROM step WHERE language IS NOT NULL) steps"""
    for table in TABLES.values()
)


def matching_query(filters: Filters, languages: int, *, indexed: bool) -> str:
    """SQL of the memories that share a word with a question: id, kind, length in bytes, and a rank for each word asked.

    At most ``pool`` of them, by ``ts_rank`` for their length. For each language, by its number, ``language0`` and
    ``words0`` (a tsquery) are bound; ``each`` is a tsquery for each word, besides what ``Filters.where`` binds. Unless
    ``indexed`` all rows of the project are looked through, so that one plan is good for any words; the index on words
    is that of all projects, and pays in a large one.
    """
    has_words = "(content_tsv @@ CAST(%(words{})s AS tsquery))" + ("" if indexed else " IS TRUE")
    found = [
        f"(SELECT id, {_KIND[table]} AS kind, {_SIZE[table]} AS size, content_tsv, "
        f"ts_rank(content_tsv, CAST(%(words{at})s AS tsquery), 1) AS rank FROM {TABLES[table]} "
        f"WHERE {filters.where(table)} AND language = CAST(%(language{at})s AS regconfig) "
        f"AND {has_words.format(at)} ORDER BY rank DESC, id LIMIT %(pool)s)"
        for table in filters.tables
        for at in range(languages)
    ]
    return (
        f"WITH pool AS MATERIALIZED (SELECT * FROM ({' UNION ALL '.join(found)}) found "
        "ORDER BY rank DESC, id LIMIT %(pool)s) "
        "SELECT id::text, kind, size, ARRAY(SELECT ts_rank('{1,1,1,1}', content_tsv, word) "
        "FROM unnest(CAST(%(each)s AS tsquery[])) word) FROM pool"
    )


def find_matching(
    connection: Connection,
    project_id: UUID,
    filters: Filters,
    *,
    words: Mapping[str, Sequence[str]],
    pool: int,
    indexed: bool,
) -> Matching:
    """The ``pool`` memories that share most words with a question: one is enough, of a row's own language.

    ``words``: those of each language; ``indexed``: see ``matching_query``.
    """
    if not words:
        return Matching([], [], np.zeros(0, np.int64), np.zeros((0, 0), np.int64))
    asked = sorted({word for listed in words.values() for word in listed})
    bound: dict[str, Any] = {"project": project_id, "pool": pool} | filters.parameters
    bound["each"] = [_any_of([word]) for word in asked]
    for at, (language, listed) in enumerate(words.items()):
        bound |= {f"language{at}": language, f"words{at}": _any_of(listed)}
    if indexed:  # the best plan depends on how rare the words are
        fetch_rows(connection, f"SELECT {_BY_VALUES}", {})
    rows = fetch_rows(
        connection, matching_query(filters, len(words), indexed=indexed), bound, prepare=False if indexed else None
    )
    ranks = np.array([row[3] for row in rows]).reshape(len(rows), len(asked))
    lengths = np.array([row[2] for row in rows], np.int64)
    return Matching([row[0] for row in rows], [row[1] for row in rows], lengths, np.searchsorted(_BETWEEN, ranks))


# Postgres ranks a word that stands in n places, all of weight 1, with (1 + 1/4 + 1/9 + .. + 1/n^2) / (pi^2 / 6), and
# keeps at most 256 places. That is read back much sooner than the places, which a tsvector gives word by word only.
_RANKS = 6 / np.pi**2 * np.cumsum([0.0, *(1 / n**2 for n in range(1, 257))])
_BETWEEN = (_RANKS[:-1] + _RANKS[1:]) / 2


def _any_of(lexemes: Iterable[str]) -> str:
    """A tsquery that any of the lexemes satisfies; each is quoted, so that none is read as an operator."""
    return " | ".join("'{}'".format(word.replace("\\", "\\\\").replace("'", "''")) for word in lexemes)
