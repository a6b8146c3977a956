"""SQLAlchemy engine, database URLs and migrations: the embedded server or ``CONSOLIDATION_DATABASE_URL``."""

from __future__ import annotations

import os
import re
import time
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sqlalchemy import URL, create_engine, event, make_url, text
from sqlalchemy import Connection as Connection
from sqlalchemy import Engine as Engine
from sqlalchemy import Row as Row
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

if TYPE_CHECKING:
    from alembic.config import Config

_OLDEST_POSTGRES = 150000
_OLDEST_VECTOR = (0, 8)

# Most connections of one process, which it keeps open; the server has 100 for all.
POOL_SIZE = 15
# No statement here is worth the compilation, which takes longer than most of them. Tables of memories are read by
# scattered ids, from memory or an SSD. Options in the URL win over these.
_PLANNER_OPTIONS = "-c jit=off -c random_page_cost=1.1"
# Schema of Dagster's own storage if it is beside the memories in a database of the user's.
DAGSTER_SCHEMA = "dagster"
_URL_VARIABLE = "CONSOLIDATION_DATABASE_URL"
_SESSION_MARK = "consolidation.session"
_POOLER_ADVICE = (
    "a pooler such as PgBouncer seems to be in between; runs hold locks of a session, so set "
    "CONSOLIDATION_DATABASE_URL to Postgres itself"
)
# Idle seconds after which a connection is pinged before it is used. A ping before every use was a fifth of the
# statements of a small run. If the database drops connections that were just used, the next statement fails, and the
# pool is renewed.
_PING_AFTER_SECONDS = 0.1
_IDLE_SINCE = "idle_since"


def with_driver(url: str, driver: str) -> str:
    """Return a Postgres URL with the driver named, as SQLAlchemy's default driver depends on its version.

    Raises:
        StoreError: ``url`` is not a Postgres URL.
    """
    rest = re.sub(r"^postgres(ql)?(\+\w+)?://", "", url)
    if rest == url:
        raise StoreError("the database URL must start with postgresql:// and name a Postgres with pgvector")
    address, mark, query = rest.partition("?")
    server, slash, name = address.rpartition("/")
    # SQLAlchemy decodes all parts of a URL but the name of the database.
    return f"postgresql+{driver}://{server}{slash}{unquote(name)}{mark}{query}"


def database_url(settings: Settings) -> str:
    """Return the URL of the database of memories; start the embedded server if no URL is set.

    Raises:
        StoreError: The variable is set and empty, or the embedded server does not start.
    """
    if os.environ.get(_URL_VARIABLE) == "":
        raise StoreError(f"{_URL_VARIABLE} is empty: unset it to use the embedded Postgres, or set it to a URL")
    if settings.database_url is not None:
        return with_driver(settings.database_url.get_secret_value(), "psycopg")
    return with_driver(server_url(settings.data_dir, "consolidation"), "psycopg")


def dagster_url(settings: Settings) -> str:
    """Return the URL of Dagster's own storage.

    Without ``DAGSTER_POSTGRES_URL``: the schema ``dagster`` beside the memories, or a database of the embedded server.
    """
    if settings.dagster_postgres_url is not None:
        return with_driver(settings.dagster_postgres_url.get_secret_value(), "psycopg2")
    if settings.database_url is not None:
        url = make_url(with_driver(settings.database_url.get_secret_value(), "psycopg2"))
        options = f"{_read_session_options(url)} -c search_path={DAGSTER_SCHEMA}".strip()
        return url.update_query_dict({"options": options}).render_as_string(hide_password=False)
    return with_driver(server_url(settings.data_dir, "dagster"), "psycopg2")


def create_dagster_schema(settings: Settings) -> None:
    """Create the schema of Dagster's own storage in the database of memories, if it belongs there.

    Raises:
        StoreError: The database cannot be reached, or this user may not create the schema.
    """
    if settings.dagster_postgres_url is not None or settings.database_url is None:
        return
    with connect(connect_engine(database_url(settings))) as connection:
        if connection.execute(text("SELECT to_regnamespace(:name) IS NULL"), {"name": DAGSTER_SCHEMA}).scalar():
            try:
                connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {DAGSTER_SCHEMA}"))
                connection.commit()
            except ProgrammingError as error:
                reason = str(error.orig).strip()
                raise StoreError(
                    f"this user may not create the schema `{DAGSTER_SCHEMA}` for Dagster's records ({reason}): grant "
                    "it, or set DAGSTER_POSTGRES_URL to another database"
                ) from error


def _read_session_options(url: URL) -> str:
    given = url.query.get("options", "")
    return given if isinstance(given, str) else " ".join(given)


def open_engine(settings: Settings) -> Engine:
    """Return an engine on a database that is ready: reachable, with pgvector, schema at its newest revision.

    The embedded database is migrated here, an external one only by ``consolidation init``.

    Raises:
        StoreError: The database cannot be reached.
        SchemaOutOfDateError: Migrations are missing.
    """
    engine = connect_engine(database_url(settings))
    if settings.database_url is None:
        upgrade(engine)
    else:
        check_schema(engine)
    return engine


@cache
def connect_engine(url: str) -> Engine:
    """Return the engine for ``url``, one per process: sessions run in UTC, dead idle connections are replaced.

    Raises:
        StoreError: ``url`` cannot be parsed.
    """
    import psycopg
    from pgvector.psycopg.vector import Vector, VectorBinaryDumper

    # Bound vectors travel as bytes and take their type from the cast around them. As text, a vector of 256 numbers
    # costs more to write and parse than its comparison with a hundred memories.
    psycopg.adapters.register_dumper(Vector, VectorBinaryDumper)
    try:
        options = f"{_PLANNER_OPTIONS} {_read_session_options(make_url(url))} -c timezone=UTC -c {_SESSION_MARK}=on"
        arguments = {"options": options, "connect_timeout": 10}
        engine = create_engine(url, pool_size=POOL_SIZE, max_overflow=0, pool_use_lifo=True, connect_args=arguments)
    except (ArgumentError, ValueError):  # Their messages may hold the password.
        raise StoreError("the database URL cannot be read: write postgresql://user:password@host:port/name") from None
    event.listen(engine, "checkin", _note_idle)
    event.listen(engine, "checkout", partial(_check_alive, engine))
    return engine


def _note_idle(connection: Any, record: ConnectionPoolEntry) -> None:
    del connection
    record.info[_IDLE_SINCE] = time.monotonic()


def _check_alive(engine: Engine, connection: Any, record: ConnectionPoolEntry, handle: Any) -> None:
    """Make the pool replace a connection that died while it was idle; new connections are not pinged."""
    del handle
    since = record.info.get(_IDLE_SINCE)
    if since is None or time.monotonic() - since < _PING_AFTER_SECONDS:
        return
    try:
        engine.dialect.do_ping(connection)
    except Exception as error:
        raise InvalidatePoolError from error


_LOCK_UNTIL_COMMIT = "SELECT pg_advisory_xact_lock(hashtextextended('consolidation:' || :name, 0))"


def lock_until_commit(connection: Connection, name: str) -> None:
    """Hold the lock ``name`` until the transaction ends, waiting while another transaction holds it."""
    connection.execute(text(_LOCK_UNTIL_COMMIT), {"name": name})


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Migrate the schema to ``revision``, if it is not there yet. Safe for several processes at once.

    Raises:
        StoreError: The database cannot be reached, is too old, or has no pgvector that this user may create.
        SchemaOutOfDateError: The schema is newer than this program.
    """
    with connect(engine) as connection:
        _check_session(connection)
        current = _revision(connection)
        if current == _head() and revision == "head":
            return
        _refuse_newer(current)
        _check_server(connection)
        lock_until_commit(connection, "migrate")
        _migrate(connection, revision)


_CREATE_EXTENSION = "`CREATE EXTENSION vector`"


def _migrate(connection: Connection, revision: str) -> None:
    from alembic import command  # Slow to import, and most processes find the schema at its newest revision.
    from psycopg.errors import InsufficientPrivilege

    try:
        command.upgrade(_config(connection), revision)
    except ProgrammingError as error:
        if not isinstance(error.orig, InsufficientPrivilege):
            raise
        reason = str(error.orig).strip()
        # pgvector is no trusted extension: the owner of the database cannot create it.
        advice = f"; let a superuser run {_CREATE_EXTENSION} in this database once" if "extension" in reason else ""
        raise StoreError(
            f"this user may not create schema `consolidation` and extension `vector`: {reason}{advice}"
        ) from error
    connection.commit()


def downgrade(engine: Engine, revision: str) -> None:
    """Migrate the schema back to ``revision``; ``base`` removes it with all data."""
    from alembic import command

    with connect(engine) as connection:
        command.downgrade(_config(connection), revision)
        connection.commit()


def check_schema(engine: Engine) -> None:
    """Check that the schema is at the newest revision that this program knows.

    Raises:
        StoreError: The database cannot be reached, or a pooler is in between that keeps no session.
        SchemaOutOfDateError: The schema is at another revision.
    """
    with connect(engine) as connection:
        _check_session(connection)
        current = _revision(connection)
    if current != _head():
        _refuse_newer(current)
        raise SchemaOutOfDateError(
            f"the schema is at revision {current or 'none'}, this version needs {_head()}: run `consolidation init`"
        )


def connect(engine: Engine) -> Connection:
    """Return a connection; raise StoreError, without the password, if the database does not answer."""
    try:
        return engine.connect()
    except DBAPIError as error:
        where = engine.url.difference_update_query(["password", "sslpassword"]).render_as_string(hide_password=True)
        reason = str(error.orig).strip()
        hint = f"; {_POOLER_ADVICE}" if "startup parameter" in reason else ""
        raise StoreError(f"the database {where} cannot be reached: {reason}{hint}") from error


def _check_session(connection: Connection) -> None:
    """Raise StoreError if the settings of the session did not arrive.

    A pooler in transaction mode either refuses them or is told to drop them, and would lose the locks of runs.
    """
    mark = f"SELECT current_setting('{_SESSION_MARK}', true)"
    if connection.execute(text(mark)).scalar() != "on":
        raise StoreError(f"the database does not keep the settings of a session: {_POOLER_ADVICE}")


_PGVECTOR_VERSION = """
    SELECT coalesce(installed_version, default_version) FROM pg_available_extensions WHERE name = 'vector'
"""


def _check_server(connection: Connection) -> None:
    number = int(connection.execute(text("SHOW server_version_num")).scalar_one())
    if number < _OLDEST_POSTGRES:
        raise StoreError(f"Postgres {number // 10000} is too old: 15 to 18 are supported")
    version = connection.execute(text(_PGVECTOR_VERSION)).scalar()
    if version is None:
        raise StoreError("this Postgres has no pgvector: install the extension `vector` (0.8 or newer)")
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_VECTOR:
        raise StoreError(f"pgvector {version} is too old: 0.8 or newer is needed (ALTER EXTENSION vector UPDATE)")


def is_unavailable(error: BaseException) -> bool:
    """Return True if the database went away or was too busy, so that trying again may help."""
    import psycopg

    kinds = (OperationalError, InterfaceError, PoolTimeoutError, psycopg.OperationalError, psycopg.InterfaceError)
    return isinstance(error, kinds)


_HAS_REVISION = f"SELECT to_regclass('{SCHEMA}.alembic_version') IS NOT NULL"
_READ_REVISION = f"SELECT version_num FROM {SCHEMA}.alembic_version"


def _revision(connection: Connection) -> str | None:
    if not connection.execute(text(_HAS_REVISION)).scalar():
        return None
    return connection.execute(text(_READ_REVISION)).scalar()


@cache
def _revisions() -> tuple[str, ...]:
    """Return the revisions that this program knows, oldest first: the names of the migrations begin with them."""
    folder = Path(__file__).resolve().parents[1] / "migrations" / "versions"
    return tuple(sorted(path.name.partition("_")[0] for path in folder.glob("[0-9]*.py")))


def _head() -> str:
    return _revisions()[-1]


def knows_revision(revision: str) -> bool:
    """Return True if this program has the migration that makes this revision of the schema."""
    return revision in _revisions()


def _refuse_newer(revision: str | None) -> None:
    """Raise SchemaOutOfDateError for a revision that this program does not know."""
    if revision is not None and not knows_revision(revision):
        raise SchemaOutOfDateError(
            f"the database is newer than this program: its schema is at revision {revision}, the program knows them "
            f"to {_head()}; upgrade the program"
        )


def _config(connection: Connection) -> Config:
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "consolidation_pipeline:store/migrations")
    config.set_main_option("path_separator", "os")
    return config
