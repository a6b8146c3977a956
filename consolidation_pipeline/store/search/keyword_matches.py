"""Keyword matches of a search: memories that share words with a query, and how often each word is in them.

In a project without an index on words, all rows are read. With one, only the rows that its rare words lead to are: see
``choose_groups``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from pgvector import Vector
from sqlalchemy import Connection

from consolidation_pipeline.core.search.words import WordFrequencies, choose_groups
from consolidation_pipeline.store.database.raw_connections import fetch_rows
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.search.retrievers import Reads, SearchFilters, split_by_table
from consolidation_pipeline.store.search.word_indexes import WordIndex

# Memories that are scored in a project without an index.
POOL = 400
# Rows that the groups of words lead to, about: at first, and if too few of these pass the filters.
_FEW_ROWS, _MORE_ROWS = 300, 4_000
# Share of these that words lead to alone: combinations of frequent words find more of the known answers.
_SHARE_ALONE = 0.5


class KeywordMatches(NamedTuple):
    """Memories found by their words, n of them, with the input of ``bm25``.

    ``lengths`` (n,): bytes of each text; ``counts`` (n, m): occurrences of each of the m query words, in the order of
    the alphabet; ``similarities`` (n): cosine similarities to the query, None if they were not read.
    """

    ids: list[str]
    kinds: list[str]
    lengths: NDArray[np.int64]
    counts: NDArray[np.int64]
    similarities: list[float | None]


class QueryFacts(NamedTuple):
    """Lexemes of a query by language, without stop words, and facts of the project that is searched.

    ``lexemes`` leaves out a language without any. ``has_votes``, ``has_versions``, ``has_staged``: if a memory of the
    project may have votes, versions, or a staged vector.
    """

    lexemes: dict[str, list[str]]
    has_votes: bool
    has_versions: bool
    has_staged: bool


_LOAD_FACTS = """
    SELECT language::text, tsvector_to_array(to_tsvector(language, consolidation.split_scripts(
            CASE WHEN language = CAST(%(own)s AS regconfig) THEN %(query)s ELSE content END))),
        EXISTS (SELECT 1 FROM consolidation.memory_votes WHERE project_id = %(project)s),
        EXISTS (SELECT 1 FROM consolidation.memory_relations
            WHERE project_id = %(project)s AND relation_type = 'supersedes'),
        EXISTS (SELECT 1 FROM consolidation.staged_embeddings WHERE project_id = %(project)s)
    FROM (SELECT DISTINCT language FROM (/* languages */) found) languages, (
        SELECT coalesce(string_agg(word, ' '), '') AS content FROM unnest(string_to_array(%(query)s, ' ')) word
        WHERE length(to_tsvector(CAST(%(own)s AS regconfig), word)) > 0) others
    ORDER BY 1
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


def load_query_facts(connection: Connection, project_id: UUID, query: str, own: str) -> QueryFacts:
    """Return what a search for ``query`` has to know. Languages are read from an index, not from all rows.

    ``own``: text search configuration of the query. Its stop words count in no other language either.
    """
    bound, rows = {"project": project_id, "query": query, "own": own}, list[tuple[Any, ...]]()
    for statement in (_OUTER_LANGUAGES, _ALL_LANGUAGES):
        languages = " UNION ALL ".join(compose(statement, table=table) for table in _LANGUAGE_TABLES)
        rows = fetch_rows(connection, compose(_LOAD_FACTS, languages=languages), bound)
        if len(rows) <= 1:  # Otherwise there may be more between the first language and the last.
            break
    lexemes = {language: found for language, found, *_ in rows if found}
    return QueryFacts(lexemes, *(any(row[at] for row in rows) for at in (2, 3, 4)))


# ``size`` counts bytes: Postgres knows them without reading the text, and they measure its length as well as words do.
# OFFSET keeps the copy of the words, of which each function would unpack its own.
_KEYWORD_MATCHES = """
    SELECT id::text, similarity, kind, size, /* ranks */ FROM (/* matches */ OFFSET 0) found
"""
_POOL = """
    (SELECT id, kind, NULL::float8 AS similarity, size, words
    FROM (/* matches */) found ORDER BY rank DESC, id LIMIT %(pool)s)"""
_WORDS_OF_TABLE = {
    "task_memories": """
    (SELECT id, 'raw' AS kind, coalesce(octet_length(goal), 0) + coalesce(octet_length(execution_summary), 0)
        + coalesce(octet_length(result), 0) + coalesce(octet_length(lessons_learned), 0)
        + coalesce(octet_length(feedback), 0) AS size, /* words */
    FROM consolidation.task_memories
    WHERE project_id = /* project */ AND language = CAST(%(language/* number */)s AS regconfig) /* filters */)""",
    "consolidated_memories": """
    (SELECT id, kind, octet_length(content) AS size, /* words */
    FROM consolidation.consolidated_memories
    WHERE project_id = /* project */ AND language = CAST(%(language/* number */)s AS regconfig) /* filters */)""",
}


# Up to this number, each word of a query is named in the SQL, which is several times faster than a list of words.
_NAMED_WORDS = 32


def _rank_words(words: int) -> str:
    """Return the SQL of the ranks of query words in the column ``words``, packed: ``word0`` and so on, or ``each``."""
    if words > _NAMED_WORDS:
        return "array_send(ARRAY(SELECT ts_rank(words, word) FROM unnest(%(each)s::tsquery[]) word))"
    ranks = (f"ts_rank(words, %(word{number})s::tsquery)" for number in range(words))
    return f"array_send(ARRAY[{', '.join(ranks)}])"


def _bind_words(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of the parameters of ``_rank_words``."""
    queries = [_quote(word) for word in words]
    return {"each": queries} if len(words) > _NAMED_WORDS else {f"word{at}": query for at, query in enumerate(queries)}


def build_keyword_query(filters: SearchFilters, languages: int, words: int) -> str:
    """Return the SQL of the memories that share a word with a query: id, kind, size in bytes, rank of each query word.

    It reads all rows of the project and returns the ``pool`` best of each part of the filters, by ``ts_rank``
    normalised by length. Binds ``project``, ``pool``, ``filters.parameters``, for each language by its number
    ``language0`` and ``words0`` (a tsquery), and what ``_bind_words`` returns.
    """
    pools = []
    for kinds in filters.parts:
        found = [
            compose(
                _WORDS_OF_TABLE[table],
                # IS TRUE keeps the planner from indexes on words, so that one plan is good for any words.
                filters=filters.where(table, of_kinds, f"(content_tsv @@ CAST(%(words{number})s AS tsquery)) IS TRUE"),
                words=f"content_tsv AS words, ts_rank(content_tsv, CAST(%(words{number})s AS tsquery), 1) AS rank",
                project="%(project)s",
                number=str(number),
            )
            for table, of_kinds in split_by_table(kinds).items()
            for number in range(languages)
        ]
        pools.append(compose(_POOL, matches=" UNION ALL ".join(found)))
    return compose(_KEYWORD_MATCHES, matches=" UNION ALL ".join(pools), ranks=_rank_words(words))


_SIMILARITY = """
        CASE WHEN embedding_model = %(model)s AND embedding_dim = %(dimension)s
            THEN 1 - (embedding <=> CAST(%(vector)s AS vector)) END"""


def build_group_query(
    filters: SearchFilters, languages: int, words: int, indexes: Mapping[str, WordIndex], *, vector: bool = False
) -> str:
    """Return the SQL of the memories that match ``groups0``, a tsquery for each language: columns as above.

    With ``vector``, it also computes similarities, and binds ``vector``, ``model`` and ``dimension``. A table in
    ``indexes`` is read through that index, which lacks rows that were merged since ``as_of``. The project is part of
    the SQL, so that the plan is the same for all words and can be kept.
    """
    found = []
    for table, of_kinds in split_by_table(filters.kinds).items():
        project = f"'{indexes[table].project_id}'" if table in indexes else "%(project)s"
        for number in range(languages):
            has_words = f"content_tsv @@ CAST(%(groups{number})s AS tsquery)"
            has_words = has_words if table in indexes else f"({has_words}) IS TRUE"
            similarity = _SIMILARITY if vector else "NULL::float8"
            parts = {"words": f"{similarity} AS similarity, content_tsv || '' AS words"}
            parts |= {"project": project, "number": str(number)}
            own = filters.where(table, of_kinds, has_words)
            found.append(compose(_WORDS_OF_TABLE[table], filters=own, **parts))
    return compose(_KEYWORD_MATCHES, matches=" UNION ALL ".join(found), ranks=_rank_words(words))


def read_keyword_matches(
    project_id: UUID,
    filters: SearchFilters,
    *,
    lexemes: Mapping[str, Sequence[str]],
    indexes: Mapping[str, WordIndex],
    frequencies: WordFrequencies | None,
    least: int,
    vector: tuple[str, Vectors] | None = None,
) -> Reads[list[KeywordMatches]]:
    """Return the memories that match the query best, of each part of the filters.

    A memory is compared with the lexemes of its own language.

    Args:
        lexemes: Lexemes of the query by language, as ``load_query_facts`` returns them.
        indexes: Indexes on words to read, by table. All rows of another table are read.
        frequencies: Frequencies of words in the project; None: all rows with any word are ranked by ``ts_rank``, and
            the ``POOL`` best of each part are returned.
        least: With frequencies, more rows of the first part are read if these are fewer, as far as there are more.
        vector: Model and vector (d,) of the query, for similarities; only with frequencies.
    """
    words = sorted({word for listed in lexemes.values() for word in listed})
    first, *others = filters.parts
    if not words:
        return [_unpack([], 0) for _ in filters.parts]
    bound: dict[str, Any] = {"project": project_id, "pool": POOL} | filters.parameters | _bind_words(words)
    for number, (language, listed) in enumerate(lexemes.items()):
        bound |= {f"language{number}": language, f"words{number}": _to_tsquery([word] for word in listed)}
    found: list[tuple[Any, ...]] | None = None
    rest: list[tuple[Any, ...]] = []
    if frequencies is not None:
        used = {} if filters.as_of else indexes
        if vector is not None:
            bound |= {"model": vector[0], "dimension": len(vector[1]), "vector": Vector(vector[1])}
        for most, own in ((_FEW_ROWS, filters), (_MORE_ROWS, replace(filters, kinds=first))):
            alone = round(_SHARE_ALONE * most)
            chosen = [choose_groups(listed, frequencies, most=most, alone=alone) for listed in lexemes.values()]
            groups = {f"groups{number}": _to_tsquery(each) for number, each in enumerate(chosen)}
            query = build_group_query(own, len(lexemes), len(words), used, vector=vector is not None)
            rows = yield query, bound | groups
            if own is filters:
                rest = [row for row in rows if row[2] not in first]
            found = [row for row in rows if row[2] in first] if rest else rows
            if len(found) >= least or _is_complete(lexemes.values(), chosen):
                break
            found = None
    if found is None:
        own = filters if frequencies is None else replace(filters, kinds=first)
        rows = yield build_keyword_query(own, len(lexemes), len(words)), bound
        found = [row for row in rows if row[2] in first]
        rest = rest or [row for row in rows if row[2] not in first]
    return [_unpack(rows, len(words)) for rows in ([found, rest] if others else [found])]


def _is_complete(lexemes: Iterable[Sequence[str]], chosen: Iterable[Collection[Sequence[str]]]) -> bool:
    """Return True if the groups are the words themselves, so that no row with any word is left out."""
    return all({(word,) for word in listed} == set(each) for listed, each in zip(lexemes, chosen, strict=True))


def _unpack(rows: Sequence[tuple[Any, ...]], words: int) -> KeywordMatches:
    """Return the rows of a query for ``words`` words."""
    columns = (list(column) for column in zip(*rows, strict=True)) if rows else ([] for _ in range(5))
    ids, similarities, kinds, sizes, ranks = columns
    # An array as bytes: five integers, then the length and the value of each number.
    packed = np.frombuffer(b"".join(ranks), ">f4").reshape(len(rows), 5 + 2 * words)
    return KeywordMatches(
        ids, kinds, np.array(sizes, np.int64), np.searchsorted(_RANK_LIMITS, packed[:, 6::2]), similarities
    )


# Postgres ranks a word that occurs n times, with weight 0.1, by (1 + 1/4 + 1/9 + .. + 1/n^2) / (pi^2 / 6) * 0.1, and
# keeps at most 256 positions. Reading n back from the rank is much faster than reading the positions from the tsvector.
_RANKS = 0.6 / np.pi**2 * np.cumsum([0.0, *(1 / n**2 for n in range(1, 257))])
_RANK_LIMITS = (_RANKS[:-1] + _RANKS[1:]) / 2


def _to_tsquery(groups: Iterable[Collection[str]]) -> str:
    """Return a tsquery that matches all lexemes of any group. Each is quoted, so that none is read as an operator."""
    return " | ".join(" & ".join(map(_quote, group)) for group in groups)


def _quote(lexeme: str) -> str:
    return "'{}'".format(lexeme.replace("\\", "\\\\").replace("'", "''"))
