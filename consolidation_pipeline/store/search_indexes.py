"""Indexes on vectors, one for each table, model and length: made for projects that have grown too large to compare all.

An index holds half precision (``halfvec`` reaches 4,000 dimensions, ``vector`` 2,000) of the rows of one model, which
is why every expression here casts as the query does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.store.driver import fetch
from consolidation_pipeline.store.schema import SCHEMA

# Rows of a project from which on an index answers sooner than comparing each of them.
INDEXED_FROM = 5_000
LONGEST_VECTOR = 4_000
_PATIENCE = "60s"
_LOCK = "hashtextextended('consolidation:indexes', 0)"
_TABLES = ("task_memories", "consolidated_memories")


@dataclass(frozen=True)
class Index:
    """The index on the vectors of one model and length in one table."""

    table: str
    model: str
    dimension: int

    @property
    def name(self) -> str:
        """Its name in the schema."""
        digest = sha256(f"{self.model}\0{self.dimension}".encode()).hexdigest()[:12]
        return f"{self.table}_embedding_{digest}_idx"

    def distance(self, operand: str) -> str:
        """SQL of the cosine distance to ``operand`` (SQL too) that this index can order by."""
        return f"(embedding::halfvec({self.dimension})) <=> CAST({operand} AS halfvec({self.dimension}))"


def find_indexes(connection: Connection, project_id: UUID, model: str, dimension: int) -> Mapping[str, Index]:
    """Tables that have a complete index on such vectors and in which the project has ``INDEXED_FROM`` rows or more.

    An index that another process made, or dropped, is noticed within ``_NOTICED_AFTER`` seconds.
    """
    indexes = (Index(table, model, dimension) for table in _TABLES)
    ready = [index for index in indexes if index.name in _complete_indexes(connection)]
    return {index.table: index for index in ready if _has_many(connection, project_id, index.table)}


_NOTICED_AFTER = 10.0
_COMPLETE: WeakKeyDictionary[Engine, tuple[float, frozenset[str]]] = WeakKeyDictionary()


def _complete_indexes(connection: Connection) -> frozenset[str]:
    """Names of the complete indexes on vectors; most searches are spared the question."""
    until, names = _COMPLETE.get(connection.engine, (0.0, frozenset()))
    if time.monotonic() >= until:
        query = """
            SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
            WHERE a.amname = 'hnsw' AND i.indisvalid AND c.relnamespace = to_regnamespace(:schema)
        """
        names = frozenset(connection.execute(text(query), {"schema": SCHEMA}).scalars())
        _COMPLETE[connection.engine] = (time.monotonic() + _NOTICED_AFTER, names)
    return names


def _has_many(connection: Connection, project_id: UUID, table: str) -> bool:
    """Whether the project has ``INDEXED_FROM`` rows, counted in an index and no further."""
    rows = f"SELECT 1 FROM {SCHEMA}.{table} WHERE project_id = %(project)s LIMIT %(enough)s"
    bound = {"project": project_id, "enough": INDEXED_FROM}
    ((count,),) = fetch(connection, f"SELECT count(*) FROM ({rows}) few", bound)
    return int(count) >= INDEXED_FROM


def _is_ready(connection: Connection, index: Index) -> bool:
    query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"
    return bool(connection.execute(text(query), {"name": f'{SCHEMA}."{index.name}"'}).scalar())


def _is_large(connection: Connection, project_id: UUID, index: Index) -> bool:
    rows = (
        f"SELECT 1 FROM {SCHEMA}.{index.table} WHERE project_id = :project AND embedding_model = :model "
        "AND embedding_dim = :dimension LIMIT :enough"
    )
    bound = {"project": project_id, "model": index.model, "dimension": index.dimension, "enough": INDEXED_FROM}
    return int(connection.execute(text(f"SELECT count(*) FROM ({rows}) few"), bound).scalar_one()) >= INDEXED_FROM


def build_indexes(engine: Engine, project_id: UUID, model: str, dimension: int) -> list[str]:
    """Make the indexes that ``find_indexes`` would use and that are missing; returns their names.

    They are built without blocking writers, outside of a transaction. One that an earlier attempt left incomplete is
    made anew. One process builds at a time; another that comes meanwhile leaves it to the first. Building waits for
    older transactions, though not for long: what is not built now is another time.
    """
    if not 0 < dimension <= LONGEST_VECTOR:
        return []
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if not connection.execute(text(f"SELECT pg_try_advisory_lock({_LOCK})")).scalar_one():
            return []
        connection.execute(text(f"SET lock_timeout = '{_PATIENCE}'"))
        try:
            indexes = (Index(table, model, dimension) for table in _TABLES)
            return [
                index.name
                for index in indexes
                if _is_missing(connection, project_id, index) and _build(connection, index)
            ]
        finally:
            _COMPLETE.pop(engine, None)
            connection.execute(text("RESET lock_timeout"))
            connection.execute(text(f"SELECT pg_advisory_unlock({_LOCK})"))


def _is_missing(connection: Connection, project_id: UUID, index: Index) -> bool:
    return _is_large(connection, project_id, index) and not _is_ready(connection, index)


def _build(connection: Connection, index: Index) -> bool:
    """Whether the index was built; False: another transaction stood in the way for too long."""
    # Nothing can be bound in a statement that makes an index: Postgres itself quotes the model's name.
    quoted = connection.execute(text("SELECT quote_literal(:model)"), {"model": index.model}).scalar_one()
    # Past SQLAlchemy, which would read a colon or a percent sign of the name.
    cursor: Any = connection.connection.cursor()
    try:
        cursor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS {SCHEMA}."{index.name}"')
        cursor.execute(
            f'CREATE INDEX CONCURRENTLY "{index.name}" ON {SCHEMA}.{index.table} '
            f"USING hnsw ((embedding::halfvec({index.dimension})) halfvec_cosine_ops) "
            f"WHERE embedding_model = {quoted} AND embedding_dim = {index.dimension}"
        )
    except LockNotAvailable:
        return False
    return True
