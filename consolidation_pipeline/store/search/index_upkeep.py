"""Upkeep of the indexes that a large project has of its own: on vectors, on words and on scopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

from psycopg.errors import DiskFull, LockNotAvailable, OutOfMemory
from sqlalchemy import Connection, Engine, text

from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.database.scope_keys import has_walls
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.search.scope_indexes import ScopeIndex
from consolidation_pipeline.store.search.vector_indexes import (
    MAX_DIMENSION,
    SEARCHABLE,
    AbstractIndex,
    StagedIndex,
    VectorIndex,
    list_complete_indexes,
)
from consolidation_pipeline.store.search.word_indexes import WordIndex, count_words

# From this number of rows in a project, an index answers sooner than a comparison of every row.
MIN_INDEXED_ROWS = 5_000
_LOCK_TIMEOUT = "60s"
# An index that does not fit into ``maintenance_work_mem``, 64 MB on most servers, is built several times slower. The
# size of the server is unknown, hence the upper bound.
_MAX_BUILD_MEMORY = 512 * 1024**2

Index = VectorIndex | WordIndex | ScopeIndex


def build_indexes(engine: Engine, project_id: UUID, model: str, dimension: int, *, scope: str = NO_WALLS) -> list[str]:
    """Build the indexes that a project of this size lacks, and return their names. Count its words again if need be.

    ``scope``: the project's option. Without walls, there is no index on scopes.

    Indexes are built without blocking writers, outside of a transaction. Incomplete indexes are replaced, and those of
    other models and of earlier versions are dropped once the new one is there. One process builds at a time; any other
    returns at once, and a later run builds what is missing. Building waits for older transactions, but no longer than
    ``_LOCK_TIMEOUT``.
    """
    indexes: list[Index] = []
    if 0 < dimension <= MAX_DIMENSION:
        indexes += [VectorIndex(table, project_id, model, dimension) for table in SEARCHABLE]
        indexes.append(AbstractIndex("consolidated_memories", project_id, model, dimension))
    indexes += [WordIndex(table, project_id) for table in SEARCHABLE]
    if has_walls(scope):
        indexes += [ScopeIndex(table, project_id, scope) for table in SEARCHABLE]
    with autocommit_connection(engine) as connection:
        names = [index.name for index in indexes]
        bound = {"project": project_id, "names": names, "before": max(MIN_INDEXED_ROWS - 1, 0)}
        if not connection.execute(text(_IS_LARGE), bound).scalar_one():
            return []
    return _build_missing(engine, indexes)


def build_staged_indexes(engine: Engine, project_id: UUID, model: str, dimension: int) -> list[str]:
    """Build the indexes on staged vectors that a project of this size lacks, as ``build_indexes`` does."""
    if not 0 < dimension <= MAX_DIMENSION:
        return []
    return _build_missing(engine, [StagedIndex(table, project_id, model, dimension) for table in SEARCHABLE])


def _build_missing(engine: Engine, indexes: Sequence[Index]) -> list[str]:
    with _maintenance_connection(engine) as connection:
        if not connection.execute(text(_TRY_LOCK)).scalar_one():
            return []
        try:
            built = []
            for index in indexes:
                if not _has_enough_rows(connection, index):
                    if isinstance(index, VectorIndex):  # one of an earlier version may hold more rows
                        with suppress(LockNotAvailable):
                            _drop(connection, index.stem, but=index.name)
                elif not _is_complete(connection, index) and _build(connection, index):
                    built.append(index.name)
            for index in indexes:
                if _is_complete(connection, index):
                    with suppress(LockNotAvailable):
                        _drop(connection, index.prefix, but=index.name)
                    if isinstance(index, WordIndex):
                        count_words(connection, index)
            return built
        finally:
            list_complete_indexes.cache_clear()


# True if a table has enough rows of the project, or an index of the project is there already.
_IS_LARGE = """
    SELECT EXISTS (SELECT FROM consolidation.task_memories WHERE project_id = :project OFFSET :before)
        OR EXISTS (SELECT FROM consolidation.consolidated_memories WHERE project_id = :project OFFSET :before)
        OR EXISTS (SELECT FROM pg_class
            WHERE relname = ANY(:names) AND relnamespace = to_regnamespace('consolidation'))
"""
_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('consolidation:indexes', 0))"
_IS_COMPLETE = "SELECT coalesce(bool_and(indisvalid), false) FROM pg_index WHERE indexrelid = to_regclass(:name)"
_COUNT_ROWS = """
    SELECT count(*) FROM (SELECT 1 FROM consolidation./* table */ WHERE /* condition */ LIMIT /* limit */) rows
"""


def _has_enough_rows(connection: Connection, index: Index) -> bool:
    """Return True if the project is large enough for the index."""
    parts = {"table": index.storage, "condition": index.rows, "limit": str(MIN_INDEXED_ROWS)}
    return bool(_execute(connection, compose(_COUNT_ROWS, **parts)).fetchone()[0] >= MIN_INDEXED_ROWS)


def _is_complete(connection: Connection, index: Index) -> bool:
    return bool(connection.execute(text(_IS_COMPLETE), {"name": f'consolidation."{index.name}"'}).scalar_one())


def _execute(connection: Connection, statement: str) -> Any:
    """Run a statement by the driver itself: SQLAlchemy would interpret a colon or a percent sign of a model's name."""
    cursor: Any = connection.connection.cursor()
    return cursor.execute(statement)


def _build(connection: Connection, index: Index) -> bool:
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


def _create(connection: Connection, index: Index) -> None:
    _drop(connection, index.name)  # incomplete, as a build of it failed
    _execute(
        connection,
        "SELECT set_config('maintenance_work_mem', greatest(setting::bigint, "
        f"least({_MAX_BUILD_MEMORY}, (SELECT count(*) FROM consolidation.{index.storage} WHERE {index.condition}) "
        f"* {index.row_bytes}) / 1024) || 'kB', false) "
        "FROM pg_settings WHERE name = 'maintenance_work_mem'",
    )
    _execute(
        connection,
        f'CREATE INDEX CONCURRENTLY "{index.name}" ON consolidation.{index.storage} '
        f"{index.definition} WHERE {index.condition}",
    )


def drop_indexes(engine: Engine, project_id: UUID) -> None:
    """Drop a project's indexes without blocking anybody. They stay if another transaction blocks this for too long."""
    with _maintenance_connection(engine) as connection, suppress(LockNotAvailable):
        for table in SEARCHABLE:
            for index in (
                VectorIndex(table, project_id, "", 0),
                AbstractIndex(table, project_id, "", 0),
                WordIndex(table, project_id),
                ScopeIndex(table, project_id),
            ):
                _drop(connection, index.prefix)
    drop_staged_indexes(engine, project_id)


def drop_staged_indexes(engine: Engine, project_id: UUID) -> None:
    """Drop a project's indexes on staged vectors, as ``drop_indexes`` does."""
    with _maintenance_connection(engine) as connection, suppress(LockNotAvailable):
        for table in SEARCHABLE:
            _drop(connection, StagedIndex(table, project_id, "", 0).prefix_of_project)
    list_complete_indexes.cache_clear()


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


def _drop(connection: Connection, prefix: str, *, but: str = "") -> None:
    """Drop the indexes whose names begin so, except the one named ``but``."""
    for name in connection.execute(text(_LIST_INDEXES), {"prefix": prefix}).scalars().all():
        if name != but:
            _execute(connection, f'DROP INDEX CONCURRENTLY consolidation."{name}"')
