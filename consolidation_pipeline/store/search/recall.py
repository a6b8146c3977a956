"""Inputs of the recall gate: words of memories and texts as search counts them, and queries of readers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from consolidation_pipeline.store.database.raw_connections import fetch_rows
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, load_columns, load_vectors, to_uuids
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, join_text_columns


class TextWords(NamedTuple):
    """Words of a text: its size in bytes, its lexemes, and how often each occurs."""

    size: int
    lexemes: list[str]
    counts: list[int]


# Bytes of the texts that search reads of a raw memory.
_RAW_SIZE = " + ".join(f"coalesce(octet_length({column}), 0)" for column in TEXT_COLUMNS)
_COUNT_WORDS = """
    CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(lexeme), '{}'), coalesce(array_agg(cardinality(positions)), '{}')
        FROM unnest(/* vector */)) words (lexemes, counts)
"""
_LOAD_WORDS = compose(
    """
    SELECT id, /* raw_size */, lexemes, counts
    FROM consolidation.task_memories /* words */ WHERE id = ANY(%(ids)s)
    UNION ALL
    SELECT id, octet_length(content), lexemes, counts
    FROM consolidation.consolidated_memories /* words */ WHERE id = ANY(%(ids)s)
    """,
    raw_size=_RAW_SIZE,
    words=compose(_COUNT_WORDS, vector="content_tsv"),
)


def load_words(connection: Connection, ids: Collection[UUID]) -> dict[UUID, TextWords]:
    """Return the words of raw and consolidated memories by id, as search counts them."""
    rows = fetch_rows(connection, _LOAD_WORDS, {"ids": list(ids)})
    return {id_: TextWords(*values) for id_, *values in rows}


_LOAD_FINGERPRINTS = compose(
    """
    SELECT id, hashtextextended(concat_ws('|', content_hash, language, /* raw_size */), 0)
    FROM consolidation.task_memories WHERE project_id = %(project)s AND NOT is_archived
    UNION ALL
    SELECT id, hashtextextended(concat_ws('|', content_hash, language, octet_length(content)), 0)
    FROM consolidation.consolidated_memories
    WHERE project_id = %(project)s AND kind = 'merged' AND retired_at IS NULL
    """,
    raw_size=_RAW_SIZE,
)


def load_text_fingerprints(connection: Connection, project_id: UUID) -> tuple[Ids, npt.NDArray[np.int64]]:
    """Return the active raw and merged memories of a project, ids S16 (n,) ascending, and a hash of the text of each.

    What ``load_words`` returns of a memory follows from its text, its language and its size.
    """
    kinds = {"id": "S16", "text": ">i8"}
    ids, hashes = load_columns(connection, _LOAD_FINGERPRINTS, {"project": project_id}, kinds)
    order = np.argsort(ids)
    return ids[order], hashes[order].astype(np.int64)


_HASH_INPUTS = """
    SELECT concat_ws('|',
        (SELECT md5(string_agg(concat_ws('|', id, content_hash, language, embedding_model, source_count, details), ','
            ORDER BY id))
        FROM consolidation.consolidated_memories
        WHERE project_id = %(project)s AND kind = 'merged' AND retired_at IS NULL),
        (SELECT md5(string_agg(concat_ws('|', day, query_hash, embedding_model), ',' ORDER BY day, query_hash))
        FROM consolidation.vote_queries WHERE project_id = %(project)s),
        (SELECT md5(string_agg(concat_ws('|', query_hash, memory_id), ',' ORDER BY query_hash, memory_id))
        FROM consolidation.memory_votes WHERE project_id = %(project)s AND verdict > 0 AND query_hash <> ''))
"""


def hash_recall_inputs(connection: Connection, project_id: UUID) -> str:
    """Return a hash of what the recall gate reads besides raw memories: merged memories, and queries of readers."""
    [(found,)] = fetch_rows(connection, _HASH_INPUTS, {"project": project_id})
    return str(found)


_PARSE_WORDS = compose(
    """
    SELECT octet_length(body), lexemes, counts
    FROM unnest(%(texts)s::text[], %(languages)s::text[]) WITH ORDINALITY given (body, language, number) /* words */
    ORDER BY number
    """,
    words=compose(_COUNT_WORDS, vector="to_tsvector(language::regconfig, consolidation.split_scripts(body))"),
)


def parse_words(connection: Connection, texts: Sequence[str], languages: Sequence[str]) -> list[TextWords]:
    """Return the words that search would count in each text, read in its language."""
    bound = {"texts": list(texts), "languages": list(languages)}
    return [TextWords(*row) for row in fetch_rows(connection, _PARSE_WORDS, bound)]


_LOAD_QUERIES = """
    SELECT left(query_hash, 32)::uuid AS id, embedding FROM consolidation.vote_queries
    WHERE project_id = %(project)s AND embedding_model = %(model)s ORDER BY day DESC, query_hash LIMIT %(limit)s
"""
_LOAD_QUERY_USES = """
    SELECT DISTINCT left(query_hash, 32)::uuid, memory_id FROM consolidation.memory_votes
    WHERE project_id = %(project)s AND memory_id = ANY(%(ids)s) AND verdict > 0 AND query_hash <> '' ORDER BY 1, 2
"""


class LoggedQueries(NamedTuple):
    """Queries for which memories helped: ids S16 and vectors (q, d), and the memories (query id, memory id)."""

    ids: Ids
    vectors: Vectors
    uses: list[tuple[UUID, UUID]]


def load_logged_queries(
    connection: Connection, project_id: UUID, ids: Collection[UUID], *, model: str, dimension: int, limit: int
) -> LoggedQueries:
    """Return the newest queries of a project, at most ``limit``, and for which of them the memories ``ids`` helped.

    Raises:
        EmbeddingError: A vector has another length than ``dimension``.
    """
    bound = {"project": project_id, "model": model, "limit": limit}
    found, vectors = load_vectors(connection, _LOAD_QUERIES, bound, dimension=dimension)
    known = set(to_uuids(found))
    uses = fetch_rows(connection, _LOAD_QUERY_USES, {"project": project_id, "ids": list(ids)}) if known else []
    return LoggedQueries(found, vectors, [(query, memory) for query, memory in uses if query in known])


_LOAD_BODIES = compose(
    "SELECT id, language::text, /* columns */ FROM consolidation.task_memories WHERE id = ANY(%(ids)s)",
    columns=", ".join(TEXT_COLUMNS),
)


def load_bodies(connection: Connection, ids: Collection[UUID]) -> dict[UUID, tuple[str, str]]:
    """Return the embedded text and the language of raw memories by id."""
    rows = fetch_rows(connection, _LOAD_BODIES, {"ids": list(ids)})
    return {id_: (join_text_columns(values), language) for id_, language, *values in rows}
