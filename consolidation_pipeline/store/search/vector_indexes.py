"""HNSW indexes on vectors, one for each table of a project that is too large to compare every row.

An index is of one project: a search through an index of several projects passes the rows of all on the way to its own,
which takes longer than to compare them. It holds the vectors of one model in half precision (``halfvec`` reaches 4,000
dimensions, ``vector`` 2,000), so every expression here casts as the query does. It holds only rows that a search may
find: merged and superseded rows leave it, so that writing such a row does not change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from threading import Lock
from typing import Any
from uuid import UUID

from cachetools import TTLCache, cached
from psycopg.errors import DiskFull, LockNotAvailable, OutOfMemory
from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.sql import compose

# From this number of rows in a project, an index answers sooner than a comparison of every row.
MIN_INDEXED_ROWS = 5_000
MAX_DIMENSION = 4_000
_LOCK_TIMEOUT = "60s"
# An index that does not fit into ``maintenance_work_mem``, 64 MB on most servers, is built several times slower. A row
# takes its vector in half precision and its links. The size of the server is unknown, hence the upper bound.
_BYTES_OF_LINKS = 1_024
_MAX_BUILD_MEMORY = 512 * 1024**2
# Seconds after which an index that another process built or dropped is noticed.
_CACHE_SECONDS = 10.0
# Conditions on the rows of each table that an index holds. The conditions of a search imply them, with or without
# archived memories.
_INDEXED_ROWS = {
    "task_memories": "NOT is_consolidated",
    "consolidated_memories": "(retired_at IS NULL OR archive_reason IS NOT NULL)",
}


@dataclass(frozen=True)
class VectorIndex:
    """Index on a project's vectors of one model and dimension in one table."""

    table: str
    project_id: UUID
    model: str
    dimension: int

    @property
    def name(self) -> str:
        """Name of the index in the schema."""
        model_digest = _digest(f"{self.model}\0{self.dimension}")
        return f"{_name_prefix(self.table, self.project_id)}{model_digest}_idx"

    def distance(self, operand: str) -> str:
        """Return the SQL of the cosine distance to ``operand``, in the form that this index can order by."""
        return f"(embedding::halfvec({self.dimension})) <=> CAST({operand} AS halfvec({self.dimension}))"


def _name_prefix(table: str, project_id: UUID) -> str:
    """Return the beginning of the names of a project's indexes on a table."""
    return f"{table}_embedding_{_digest(project_id.hex)}_"


def _digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:12]


def find_indexes(connection: Connection, project_id: UUID, model: str, dimension: int) -> Mapping[str, VectorIndex]:
    """Return the complete indexes on a project's vectors of a model and dimension, by table.

    The names of the indexes are cached for ``_CACHE_SECONDS``.
    """
    indexes = (VectorIndex(table, project_id, model, dimension) for table in _INDEXED_ROWS)
    return {index.table: index for index in indexes if index.name in _list_complete_indexes(connection)}


_LIST_COMPLETE_INDEXES = """
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
    WHERE a.amname = 'hnsw' AND i.indisvalid AND c.relnamespace = to_regnamespace('consolidation')
"""


@cached(TTLCache(maxsize=16, ttl=_CACHE_SECONDS), key=lambda connection: connection.engine, lock=Lock())
def _list_complete_indexes(connection: Connection) -> frozenset[str]:
    """Return the names of the complete HNSW indexes in the schema."""
    return frozenset(connection.execute(text(_LIST_COMPLETE_INDEXES)).scalars())


def build_indexes(engine: Engine, project_id: UUID, model: str, dimension: int) -> list[str]:
    """Build the indexes that a project of this size lacks, and return their names.

    Indexes are built without blocking writers, outside of a transaction. Incomplete indexes and those of other models
    are replaced. One process builds at a time; any other returns at once, and a later run builds what is missing.
    Building waits for older transactions, but no longer than ``_LOCK_TIMEOUT``.
    """
    if not 0 < dimension <= MAX_DIMENSION:
        return []
    with _maintenance_connection(engine) as connection:
        if not connection.execute(text(_TRY_LOCK)).scalar_one():
            return []
        try:
            indexes = (VectorIndex(table, project_id, model, dimension) for table in _INDEXED_ROWS)
            return [index.name for index in indexes if _is_missing(connection, index) and _build(connection, index)]
        finally:
            _list_complete_indexes.cache_clear()


_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('consolidation:indexes', 0))"
_IS_COMPLETE = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"
_COUNT_ROWS = """
    SELECT count(*) FROM (
        SELECT 1 FROM /* table */
        WHERE project_id = :project_id AND embedding_model = :model AND embedding_dim = :dimension LIMIT :limit) rows
"""


def _is_missing(connection: Connection, index: VectorIndex) -> bool:
    """Return True if the project is large enough for the index and has no complete one."""
    bound = asdict(index) | {"limit": MIN_INDEXED_ROWS}
    count_rows = compose(_COUNT_ROWS, table=f"consolidation.{index.table}")
    if connection.execute(text(count_rows), bound).scalar_one() < MIN_INDEXED_ROWS:
        return False
    return not connection.execute(text(_IS_COMPLETE), {"name": f'consolidation."{index.name}"'}).scalar()


def _build(connection: Connection, index: VectorIndex) -> bool:
    """Return True if the index was built, False if another transaction blocked it for too long."""
    try:
        try:
            _create(connection, index)
        except (DiskFull, OutOfMemory):
            # Parallel workers share memory, of which a container has 64 MB. A single process has its own.
            connection.execute(text("SET max_parallel_maintenance_workers = 0"))
            _create(connection, index)
    except LockNotAvailable:
        return False
    return True


def _create(connection: Connection, index: VectorIndex) -> None:
    # CREATE INDEX takes no bound values, so Postgres quotes the model's name.
    model = connection.execute(text("SELECT quote_literal(:model)"), {"model": index.model}).scalar_one()
    condition = (
        f"project_id = '{index.project_id}' AND embedding_model = {model} AND embedding_dim = {index.dimension} "
        f"AND {_INDEXED_ROWS[index.table]}"
    )
    _drop(connection, index.table, index.project_id)
    # By the driver itself: SQLAlchemy would interpret a colon or a percent sign of the name.
    cursor: Any = connection.connection.cursor()
    cursor.execute(
        "SELECT set_config('maintenance_work_mem', greatest(setting::bigint, "
        f"least({_MAX_BUILD_MEMORY}, (SELECT count(*) FROM consolidation.{index.table} WHERE {condition}) "
        f"* {2 * index.dimension + _BYTES_OF_LINKS}) / 1024) || 'kB', false) "
        "FROM pg_settings WHERE name = 'maintenance_work_mem'"
    )
    cursor.execute(
        f'CREATE INDEX CONCURRENTLY "{index.name}" ON consolidation.{index.table} '
        f"USING hnsw ((embedding::halfvec({index.dimension})) halfvec_cosine_ops) WHERE {condition}"
    )


def drop_indexes(engine: Engine, project_id: UUID) -> None:
    """Drop a project's indexes without blocking anybody. They stay if another transaction blocks this for too long."""
    with _maintenance_connection(engine) as connection, suppress(LockNotAvailable):
        for table in _INDEXED_ROWS:
            _drop(connection, table, project_id)


@contextmanager
def _maintenance_connection(engine: Engine) -> Iterator[Connection]:
    """Open an autocommit connection with ``_LOCK_TIMEOUT``, and reset its settings and locks on exit."""
    with autocommit_connection(engine) as connection:
        connection.execute(text(f"SET lock_timeout = '{_LOCK_TIMEOUT}'"))
        try:
            yield connection
        finally:
            if not connection.invalidated:  # otherwise the settings are gone with the connection
                for setting in ("lock_timeout", "maintenance_work_mem", "max_parallel_maintenance_workers"):
                    connection.execute(text(f"RESET {setting}"))
                connection.execute(text("SELECT pg_advisory_unlock_all()"))


_LIST_INDEXES = """
    SELECT relname FROM pg_class
    WHERE relkind = 'i' AND relnamespace = to_regnamespace('consolidation') AND starts_with(relname, :prefix)
    ORDER BY relname
"""


def _drop(connection: Connection, table: str, project_id: UUID) -> None:
    names = connection.execute(text(_LIST_INDEXES), {"prefix": _name_prefix(table, project_id)}).scalars().all()
    cursor: Any = connection.connection.cursor()
    for name in names:
        cursor.execute(f'DROP INDEX CONCURRENTLY consolidation."{name}"')
