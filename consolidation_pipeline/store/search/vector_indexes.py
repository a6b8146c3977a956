"""Indexes on vectors, one for each table of a project that has grown too large to compare all.

Each is of one project: through an index on several the rows of all are passed on the way to those of one, which takes
longer than to compare them. It holds half precision (``halfvec`` reaches 4,000 dimensions, ``vector`` 2,000) of the
vectors of one model, which is why every expression here casts as the query does; and the rows that a search may find
and no others: what is merged or superseded leaves it, so that writing such a row puts nothing into it.
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

from consolidation_pipeline.store.database.schema import SCHEMA

# Rows of a project from which on an index answers sooner than comparing each of them.
MIN_INDEXED_ROWS = 5_000
MAX_DIMENSION = 4_000
_PATIENCE = "60s"
# A graph that does not fit into ``maintenance_work_mem``, 64 MB on most servers, is built several times slower. A row
# takes its vector in half precision and its links. How large the server is we do not know, hence the bound.
_BYTES_OF_LINKS = 1_024
_MOST_MEMORY = 512 * 1024**2
_LOCK = "hashtextextended('consolidation:indexes', 0)"
# Rows of each table that an index holds: implied by what searches ask, archived memories included or not.
_HELD = {
    "task_memories": "NOT is_consolidated",
    "consolidated_memories": "(retired_at IS NULL OR archive_reason IS NOT NULL)",
}


@dataclass(frozen=True)
class VectorIndex:
    """The index on a project's vectors of one model and length in one table."""

    table: str
    project_id: UUID
    model: str
    dimension: int

    @property
    def name(self) -> str:
        """Its name in the schema."""
        of_model = _digest(f"{self.model}\0{self.dimension}")
        return f"{_stem(self.table, self.project_id)}{of_model}_idx"

    def distance(self, operand: str) -> str:
        """SQL of the cosine distance to ``operand`` (SQL too) that this index can order by."""
        return f"(embedding::halfvec({self.dimension})) <=> CAST({operand} AS halfvec({self.dimension}))"


def _stem(table: str, project_id: UUID) -> str:
    """What the names of a project's indexes begin with."""
    return f"{table}_embedding_{_digest(project_id.hex)}_"


def _digest(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:12]


def find_indexes(connection: Connection, project_id: UUID, model: str, dimension: int) -> Mapping[str, VectorIndex]:
    """The complete indexes of a project on such vectors, by table.

    An index that another process made, or dropped, is noticed within ``_NOTICED_AFTER`` seconds.
    """
    indexes = (VectorIndex(table, project_id, model, dimension) for table in _HELD)
    return {index.table: index for index in indexes if index.name in _complete_indexes(connection)}


_NOTICED_AFTER = 10.0


@cached(TTLCache(maxsize=16, ttl=_NOTICED_AFTER), key=lambda connection: connection.engine, lock=Lock())
def _complete_indexes(connection: Connection) -> frozenset[str]:
    """Names of the complete indexes on vectors; most searches are spared the question."""
    query = """
        SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
        WHERE a.amname = 'hnsw' AND i.indisvalid AND c.relnamespace = to_regnamespace(:schema)
    """
    return frozenset(connection.execute(text(query), {"schema": SCHEMA}).scalars())


def _is_ready(connection: Connection, index: VectorIndex) -> bool:
    query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"
    return bool(connection.execute(text(query), {"name": f'consolidation."{index.name}"'}).scalar())


def _is_large(connection: Connection, index: VectorIndex) -> bool:
    rows = (
        f"SELECT 1 FROM consolidation.{index.table} WHERE project_id = :project_id AND embedding_model = :model "
        "AND embedding_dim = :dimension LIMIT :enough"
    )
    bound = asdict(index) | {"enough": MIN_INDEXED_ROWS}
    return int(connection.execute(text(f"SELECT count(*) FROM ({rows}) few"), bound).scalar_one()) >= MIN_INDEXED_ROWS


def build_indexes(engine: Engine, project_id: UUID, model: str, dimension: int) -> list[str]:
    """Make the indexes that a project of this size should have and that are missing; returns their names.

    They are built without blocking writers, outside of a transaction. What an earlier attempt left incomplete is made
    anew, what is of another model goes. One process builds at a time; another that comes meanwhile leaves it to a
    later run. Building waits for older transactions, though not for long: what is not built now is another time.
    """
    if not 0 < dimension <= MAX_DIMENSION:
        return []
    with _patient_connection(engine) as connection:
        if not connection.execute(text(f"SELECT pg_try_advisory_lock({_LOCK})")).scalar_one():
            return []
        try:
            indexes = (VectorIndex(table, project_id, model, dimension) for table in _HELD)
            return [index.name for index in indexes if _is_missing(connection, index) and _build(connection, index)]
        finally:
            _complete_indexes.cache_clear()


def _is_missing(connection: Connection, index: VectorIndex) -> bool:
    return _is_large(connection, index) and not _is_ready(connection, index)


def _build(connection: Connection, index: VectorIndex) -> bool:
    """Whether the index was built; False: another transaction stood in the way for too long."""
    try:
        try:
            _create(connection, index)
        except (DiskFull, OutOfMemory):
            # Processes that build together share memory, of which a container has 64 MB; one alone has its own.
            connection.execute(text("SET max_parallel_maintenance_workers = 0"))
            _create(connection, index)
    except LockNotAvailable:
        return False
    return True


def _create(connection: Connection, index: VectorIndex) -> None:
    # Nothing can be bound in a statement that makes an index: Postgres itself quotes the model's name.
    quoted = connection.execute(text("SELECT quote_literal(:model)"), {"model": index.model}).scalar_one()
    held = (
        f"project_id = '{index.project_id}' AND embedding_model = {quoted} AND embedding_dim = {index.dimension} "
        f"AND {_HELD[index.table]}"
    )
    _drop(connection, index.table, index.project_id)
    # Past SQLAlchemy, which would read a colon or a percent sign of the name.
    cursor: Any = connection.connection.cursor()
    cursor.execute(
        "SELECT set_config('maintenance_work_mem', greatest(setting::bigint, "
        f"least({_MOST_MEMORY}, (SELECT count(*) FROM consolidation.{index.table} WHERE {held}) "
        f"* {2 * index.dimension + _BYTES_OF_LINKS}) / 1024) || 'kB', false) "
        "FROM pg_settings WHERE name = 'maintenance_work_mem'"
    )
    cursor.execute(
        f'CREATE INDEX CONCURRENTLY "{index.name}" ON consolidation.{index.table} '
        f"USING hnsw ((embedding::halfvec({index.dimension})) halfvec_cosine_ops) WHERE {held}"
    )


def drop_indexes(engine: Engine, project_id: UUID) -> None:
    """Remove a project's indexes without blocking anybody; where another transaction stands in the way, they stay."""
    with _patient_connection(engine) as connection, suppress(LockNotAvailable):
        for table in _HELD:
            _drop(connection, table, project_id)


@contextmanager
def _patient_connection(engine: Engine) -> Iterator[Connection]:
    """A connection outside of transactions that waits for others a while; it is given back as it was."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"SET lock_timeout = '{_PATIENCE}'"))
        try:
            yield connection
        finally:
            if not connection.invalidated:  # else all of it went with the connection
                for setting in ("lock_timeout", "maintenance_work_mem", "max_parallel_maintenance_workers"):
                    connection.execute(text(f"RESET {setting}"))
                connection.execute(text("SELECT pg_advisory_unlock_all()"))


def _drop(connection: Connection, table: str, project_id: UUID) -> None:
    query = (
        "SELECT relname FROM pg_class WHERE relkind = 'i' AND relnamespace = to_regnamespace(:schema) "
        "AND starts_with(relname, :stem) ORDER BY 1"
    )
    bound = {"schema": SCHEMA, "stem": _stem(table, project_id)}
    cursor: Any = connection.connection.cursor()
    for name in connection.execute(text(query), bound).scalars().all():
        cursor.execute(f'DROP INDEX CONCURRENTLY consolidation."{name}"')
