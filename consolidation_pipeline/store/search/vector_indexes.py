"""Indexes on vectors, one for each table of a project that is too large to compare every row, and one on abstract rows.

An index is of one project: a search through an index of several projects passes the rows of all on the way to its own,
which takes longer than to compare them. It holds the vectors of one model in half precision (``halfvec`` reaches 4,000
dimensions, ``vector`` 2,000), so every expression here casts as the query does. It holds only rows that a search reads
through it: merged and superseded rows leave it, so that writing such a row does not change it.

Raw and merged memories have HNSW indexes. Abstract memories have an inverted file, as most nights write hundreds of
them anew: a row enters it in a fraction of a millisecond, and an HNSW index in 5. A search still compares most of their
vectors, but in the pages of the index, where they lie in full.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from threading import Lock
from typing import TypeVar
from uuid import UUID

from cachetools import TTLCache, cached
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.sql import quote_literal

MAX_DIMENSION = 4_000
# Links of a vector, and candidates among which they are chosen. Measured: docs/performance.md.
_LINKS, _BUILD_CANDIDATES = 20, 128
# Conditions on the rows of each table that a search may find, with or without archived memories.
SEARCHABLE = {
    "task_memories": "NOT is_consolidated",
    "consolidated_memories": "(retired_at IS NULL OR archive_reason IS NOT NULL)",
}
# Kind of the memories in an index on the vectors of a table.
INDEXED_KINDS = {"task_memories": "raw", "consolidated_memories": "merged"}
# Ends of the names of indexes, by table: another way to build them or other rows is another end. Names have 63 bytes.
_BUILDS = {"task_memories": f"m{_LINKS}", "consolidated_memories": f"l1m{_LINKS}"}
# Seconds after which an index that another process built or dropped is noticed.
_CACHE_SECONDS = 10.0
_BYTES_OF_LINKS = 1_024
# Candidates of a search in an index of 1,000 rows. They grow with the cube root of the rows, so that recall stays.
# Fewer do if memories that share rare words with the query are compared as well. Measured: docs/performance.md.
_CANDIDATES_OF_1000, _CANDIDATES_BESIDE_WORDS = 54, 38
_MAX_CANDIDATES = 1_000
# Lists of an inverted file, and lists that a search reads. The centres of lists stay as they were when it was built. If
# ten times as many memories come, recall stays 99%, and falls to 97% if all of them are of other topics. Measured:
# docs/performance.md.
_LISTS, PROBES = 100, 72


@dataclass(frozen=True)
class ProjectIndex(ABC):
    """Index of one project on rows of one table."""

    table: str
    project_id: UUID

    @property
    def storage(self) -> str:
        """Table that is indexed."""
        return self.table

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the index in the schema."""

    @property
    def rows(self) -> str:
        """SQL of the condition on the rows that count for whether the index is needed."""
        return f"project_id = '{self.project_id}'"

    @property
    def condition(self) -> str:
        """SQL of the condition on the rows that the index holds; the conditions of a search imply it."""
        return f"{self.rows} AND {SEARCHABLE[self.table]}"

    def is_among(self, names: Collection[str]) -> bool:
        """Return True if one of the names is that of this index."""
        return self.name in names


@dataclass(frozen=True)
class VectorIndex(ProjectIndex):
    """Index on a project's vectors of one model and dimension in one table."""

    model: str
    dimension: int

    @property
    def prefix(self) -> str:
        """Beginning of the names of a project's vector indexes on a table."""
        return f"{self.table}_embedding_{digest(self.project_id.hex)}_"

    @property
    def stem(self) -> str:
        """Beginning of the names of the indexes on these vectors, also of those that an earlier version built."""
        model_digest = digest(f"{self.model}\0{self.dimension}")
        return f"{self.prefix}{model_digest}_"

    @property
    def name(self) -> str:
        """Name of the index in the schema. With another way to build it, the name is another."""
        return f"{self.stem}{_BUILDS[self.table]}"

    @property
    def rows_of_model(self) -> str:
        """SQL of the condition on the rows with these vectors."""
        model = quote_literal(self.model)
        return f"{super().rows} AND embedding_model = {model} AND embedding_dim = {self.dimension}"

    @property
    def rows(self) -> str:
        """SQL of the condition on the rows that count for whether the index is needed."""
        kind = INDEXED_KINDS[self.table]
        return self.rows_of_model if kind == "raw" else f"{self.rows_of_model} AND kind = {quote_literal(kind)}"

    @property
    def definition(self) -> str:
        """SQL of the method and key of the index."""
        return (
            f"USING hnsw ((embedding::halfvec({self.dimension})) halfvec_cosine_ops) "
            f"WITH (m = {_LINKS}, ef_construction = {_BUILD_CANDIDATES})"
        )

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes while the index is built: its vector in half precision, and its links."""
        return 2 * self.dimension + _BYTES_OF_LINKS

    def is_among(self, names: Collection[str]) -> bool:
        """Return True if one of the names is that of an index on these vectors, of any version."""
        return any(name.startswith(self.stem) for name in names)

    def distance(self, operand: str) -> str:
        """Return the SQL of the cosine distance to ``operand``, in the form that this index can order by."""
        return f"(embedding::halfvec({self.dimension})) <=> CAST({operand} AS halfvec({self.dimension}))"


class AbstractIndex(VectorIndex):
    """Index on the vectors of one model and dimension of a project's patterns, summaries, principles and profiles."""

    @property
    def prefix(self) -> str:
        """Beginning of the names of a project's indexes on vectors of abstract memories."""
        return f"{self.table}_abstract_{digest(self.project_id.hex)}_"

    @property
    def name(self) -> str:
        """Name of the index in the schema. With another way to build it, the name is another."""
        return f"{self.stem}l{_LISTS}"

    @property
    def rows(self) -> str:
        """SQL of the condition on the rows that count for whether the index is needed: those that it holds.

        Superseded ones do not count, as the centres of its lists would be of few rows.
        """
        return f"{self.rows_of_model} AND abstraction_level > 1 AND {SEARCHABLE[self.table]}"

    @property
    def condition(self) -> str:
        """SQL of the condition on the rows that the index holds."""
        return self.rows

    @property
    def definition(self) -> str:
        """SQL of the method and key of the index."""
        return f"USING ivfflat ((embedding::halfvec({self.dimension})) halfvec_cosine_ops) WITH (lists = {_LISTS})"

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes while the index is built: those of two sampled rows.

        pgvector refuses to build with less memory than 10,000 rows take, however few there are.
        """
        return 2 * super().row_bytes


class StagedIndex(VectorIndex):
    """Index on the staged vectors of one model and dimension of rows of ``table``. A project may have two models."""

    @property
    def storage(self) -> str:
        """Table that holds the vectors."""
        return "staged_embeddings"

    @property
    def prefix_of_project(self) -> str:
        """Beginning of the names of a project's indexes on staged vectors of a table, of all models."""
        return f"staged_{self.table}_{digest(self.project_id.hex)}_"

    @property
    def prefix(self) -> str:
        """Beginning of the names of the indexes on these vectors: those of the other model stay beside them."""
        model_digest = digest(f"{self.model}\0{self.dimension}")
        return f"{self.prefix_of_project}{model_digest}_"

    @property
    def stem(self) -> str:
        """Beginning of the names of the indexes on these vectors, also of those that an earlier version built."""
        return self.prefix

    @property
    def name(self) -> str:
        """Name of the index in the schema. It holds staged vectors of all kinds, which are there for a short time."""
        return f"{self.stem}m{_LINKS}"

    @property
    def rows(self) -> str:
        """SQL of the condition on the rows that count for whether the index is needed."""
        return f"{self.rows_of_model} AND entity_type = {quote_literal(self.table)}"

    @property
    def condition(self) -> str:
        """SQL of the condition on the rows that the index holds: all of them."""
        return self.rows


AnyIndex = TypeVar("AnyIndex", bound=ProjectIndex)


@lru_cache(maxsize=1_000)
def digest(name: str) -> str:
    """Return the digest of a name that stands for it in the name of an index."""
    return sha256(name.encode()).hexdigest()[:12]


def find_indexes(connection: Connection, project_id: UUID, model: str, dimension: int) -> Mapping[str, VectorIndex]:
    """Return the complete indexes on a project's vectors of a model and dimension, by table.

    One of an earlier version counts, until a run replaces it. The names are cached for ``_CACHE_SECONDS``.
    """
    return find_complete(connection, (VectorIndex(table, project_id, model, dimension) for table in SEARCHABLE))


def find_abstract_index(connection: Connection, project_id: UUID, model: str, dimension: int) -> AbstractIndex | None:
    """Return the complete index on the vectors of a project's abstract memories; None = there is none."""
    table = "consolidated_memories"
    return find_complete(connection, [AbstractIndex(table, project_id, model, dimension)]).get(table)


def count_candidates(
    connection: Connection, indexes: Iterable[VectorIndex], *, nearest: int, beside_words: bool = False
) -> int:
    """Return the candidates that a search for the ``nearest`` keeps (``hnsw.ef_search``), by the indexes' rows.

    ``beside_words``: memories that share rare words with the query are compared as well.
    """
    stems = tuple(index.stem for index in indexes)
    rows = max((rows for name, rows in list_complete_indexes(connection).items() if name.startswith(stems)), default=0)
    of_1000 = _CANDIDATES_BESIDE_WORDS if beside_words else _CANDIDATES_OF_1000
    return min(_MAX_CANDIDATES, max(nearest, round(of_1000 * math.cbrt(rows / 1_000))))


def find_staged_indexes(
    connection: Connection, project_id: UUID, model: str, dimension: int
) -> Mapping[str, StagedIndex]:
    """Return the complete indexes on a project's staged vectors of a model and dimension, by table of their rows."""
    return find_complete(connection, (StagedIndex(table, project_id, model, dimension) for table in SEARCHABLE))


def find_complete(connection: Connection, indexes: Iterable[AnyIndex]) -> dict[str, AnyIndex]:
    """Return those of ``indexes`` that are complete, by table."""
    complete = list_complete_indexes(connection)
    return {index.table: index for index in indexes if index.is_among(complete)}


_LIST_COMPLETE_INDEXES = """
    SELECT c.relname, greatest(c.reltuples, 0)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE (a.amname IN ('hnsw', 'ivfflat', 'gin') OR c.relname ~ '^[a-z]+_memories_scope_[0-9a-f]{12}_')
        AND i.indisvalid AND c.relnamespace = to_regnamespace('consolidation')
"""


@cached(TTLCache(maxsize=16, ttl=_CACHE_SECONDS), key=lambda connection: connection.engine, lock=Lock())
def list_complete_indexes(connection: Connection) -> Mapping[str, float]:
    """Return the complete indexes on vectors, words and scopes in the schema by name, cached for ``_CACHE_SECONDS``.

    Each has its number of rows as of the last time that Postgres counted them.
    """
    return {row[0]: row[1] for row in connection.execute(text(_LIST_COMPLETE_INDEXES))}
