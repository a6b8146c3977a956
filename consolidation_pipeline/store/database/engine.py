"""Where memories live: the embedded server, or the Postgres that ``CONSOLIDATION_DATABASE_URL`` names."""

from __future__ import annotations

import re
import time
from functools import cache, partial
from typing import Any
from weakref import WeakSet

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, Row, create_engine, event, text
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    InvalidatePoolError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import ConnectionPoolEntry

from consolidation_pipeline.errors import SchemaOutOfDateError, StoreError
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.embedded_server import server_url
from consolidation_pipeline.store.database.schema import SCHEMA

__all__ = [
    "CONNECTIONS",
    "Connection",
    "Engine",
    "Row",
    "ask_seldom",
    "check_schema",
    "connect_engine",
    "dagster_url",
    "database_url",
    "downgrade",
    "is_unavailable",
    "open_engine",
    "reach",
    "upgrade",
    "with_driver",
]

_OLDEST_POSTGRES = 150000
_OLDEST_VECTOR = (0, 8)

# Most that one process opens, and keeps; the server has 100 for all.
CONNECTIONS = 15
# Seconds of rest after which `ask_seldom` has a connection asked whether it is alive.
_ASKED_AFTER = 1.0
_RESTS_SINCE = "rests_since"
_ASKED_SELDOM: WeakSet[Engine] = WeakSet()


def with_driver(url: str, driver: str) -> str:
    """A Postgres URL with the driver written out: SQLAlchemy's default driver differs between its versions.

    Raises:
        StoreError: ``url`` is not a Postgres URL.
    """
    rest = re.sub(r"^postgres(ql)?(\+\w+)?://", "", url)
    if rest == url:
        raise StoreError("the database URL must start with postgresql:// and name a Postgres with pgvector")
    return f"postgresql+{driver}://{rest}"


def database_url(settings: Settings) -> str:
    """URL of the memories' database; starts the embedded server where no URL is set."""
    if settings.database_url is not None:
        return with_driver(settings.database_url.get_secret_value(), "psycopg")
    return with_driver(server_url(settings.data_dir, "consolidation"), "psycopg")


def dagster_url(settings: Settings) -> str:
    """URL of Dagster's own storage; a database of the embedded server where no URL is set."""
    if settings.dagster_postgres_url is not None:
        return with_driver(settings.dagster_postgres_url.get_secret_value(), "psycopg2")
    return with_driver(server_url(settings.data_dir, "dagster"), "psycopg2")


def open_engine(settings: Settings) -> Engine:
    """Engine on a database that is ready: reachable, pgvector present, schema at its newest revision.

    The embedded database is migrated here; an external one only by ``consolidation init``.

    Raises:
        StoreError: the database is not reachable. SchemaOutOfDateError: migrations are missing.
    """
    engine = connect_engine(database_url(settings))
    if settings.database_url is None:
        upgrade(engine)
    else:
        check_schema(engine)
    return engine


@cache
def connect_engine(url: str) -> Engine:
    """Engine for ``url``, one per process: sessions run in UTC; connections that died at rest are replaced.

    Raises:
        StoreError: ``url`` cannot be read.
    """
    import psycopg
    from pgvector.psycopg.vector import Vector, VectorBinaryDumper

    # A vector that is bound goes as its bytes and takes its type from the cast around it: as text, one of 256 numbers
    # costs more to write and to read than the comparison with a hundred memories.
    psycopg.adapters.register_dumper(Vector, VectorBinaryDumper)
    arguments = {"options": "-c timezone=UTC", "connect_timeout": 10}
    try:
        engine = create_engine(url, pool_size=CONNECTIONS, max_overflow=0, pool_use_lifo=True, connect_args=arguments)
    except (ArgumentError, ValueError):  # their messages may hold the password
        raise StoreError("the database URL cannot be read: write postgresql://user:password@host:port/name") from None
    event.listen(engine, "checkin", _note_rest)
    event.listen(engine, "checkout", partial(_check_alive, engine))
    return engine


def _note_rest(connection: Any, record: ConnectionPoolEntry) -> None:
    del connection
    record.info[_RESTS_SINCE] = time.monotonic()


def _check_alive(engine: Engine, connection: Any, record: ConnectionPoolEntry, handle: Any) -> None:
    """Have the pool replace a connection that died at rest; a new one is not asked."""
    del handle
    since = record.info.get(_RESTS_SINCE)
    if since is None or (engine in _ASKED_SELDOM and time.monotonic() - since < _ASKED_AFTER):
        return
    try:
        engine.dialect.do_ping(connection)
    except Exception as error:
        raise InvalidatePoolError from error


def ask_seldom(engine: Engine) -> None:
    """For a server of many short requests: a connection that was in use within the last second is not asked.

    Where the database dropped all connections, the first request may fail then, and the pool is made anew.
    """
    _ASKED_SELDOM.add(engine)


def hold_until_commit(connection: Connection, name: str) -> None:
    """Hold the lock ``name`` until the transaction ends; waits while another transaction does."""
    lock = text("SELECT pg_advisory_xact_lock(hashtextextended('consolidation:' || :name, 0))")
    connection.execute(lock, {"name": name})


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring the schema to ``revision``; nothing happens when it is there. Two processes at once are safe.

    Raises:
        StoreError: not reachable, too old, or without pgvector and the right to create it.
    """
    with reach(engine) as connection:
        if _revision(connection) == _head() and revision == "head":
            return
        _check_server(connection)
        hold_until_commit(connection, "migrate")
        _migrate(connection, revision)


def _migrate(connection: Connection, revision: str) -> None:
    from psycopg.errors import InsufficientPrivilege

    try:
        command.upgrade(_config(connection), revision)
    except ProgrammingError as error:
        if not isinstance(error.orig, InsufficientPrivilege):
            raise
        reason = str(error.orig).strip()
        raise StoreError(f"this user may not create schema `consolidation` and extension `vector`: {reason}") from error
    connection.commit()


def downgrade(engine: Engine, revision: str = "base") -> None:
    """Take the schema back to ``revision``; ``base`` removes it with everything in it."""
    with reach(engine) as connection:
        command.downgrade(_config(connection), revision)
        connection.commit()


def check_schema(engine: Engine) -> None:
    """Raises SchemaOutOfDateError unless the schema is at its newest revision."""
    with reach(engine) as connection:
        current = _revision(connection)
    if current != _head():
        raise SchemaOutOfDateError(
            f"the schema is at revision {current or 'none'}, this version needs {_head()}: run `consolidation init`"
        )


def reach(engine: Engine) -> Connection:
    """A connection. Raises StoreError: the database does not answer; the message hides the password."""
    try:
        return engine.connect()
    except DBAPIError as error:
        where = engine.url.difference_update_query(["password", "sslpassword"]).render_as_string(hide_password=True)
        raise StoreError(f"the database {where} cannot be reached: {str(error.orig).strip()}") from error


def _check_server(connection: Connection) -> None:
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < _OLDEST_POSTGRES:
        raise StoreError(f"Postgres {number // 10000} is too old: 15 to 18 are supported")
    query = "SELECT coalesce(installed_version, default_version) FROM pg_available_extensions WHERE name = 'vector'"
    version = connection.execute(text(query)).scalar()
    if version is None:
        raise StoreError("this Postgres has no pgvector: install the extension `vector` (0.8 or newer)")
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_VECTOR:
        raise StoreError(f"pgvector {version} is too old: 0.8 or newer is needed (ALTER EXTENSION vector UPDATE)")


def is_unavailable(error: BaseException) -> bool:
    """Whether an error says that the database went away, or had no time, so that trying again may help."""
    import psycopg

    told = (OperationalError, InterfaceError, PoolTimeoutError, psycopg.OperationalError, psycopg.InterfaceError)
    return isinstance(error, told)


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table_schema": SCHEMA}).get_current_revision()


@cache
def _head() -> str | None:
    return ScriptDirectory.from_config(_config(None)).get_current_head()


def _config(connection: Connection | None) -> Config:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "consolidation_pipeline:store/migrations")
    config.set_main_option("path_separator", "os")
    return config
