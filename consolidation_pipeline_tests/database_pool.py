"""Databases of the tests: copied from a template, emptied after a test, used again while their schema is unchanged."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from sqlalchemy.exc import OperationalError

from consolidation_pipeline.store.database.engine import Engine, connect_engine, upgrade, with_driver

# Server of connected stores; ours is the embedded one. With it, the tests run against other versions of Postgres.
STORE_SERVER_ENV = "CONSOLIDATION_TESTS_STORE_SERVER"

# Everything that a test could have changed besides rows: objects of the schema and settings of the database.
_SCHEMA_FINGERPRINT = """
WITH relations AS (
  SELECT oid, relname, reloptions, relacl FROM pg_class
  WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema')
)
SELECT md5(concat(
  (SELECT string_agg(r::text, ',' ORDER BY r.oid) FROM relations r),
  (SELECT string_agg(concat(attrelid, attnum, xmin), ',' ORDER BY attrelid, attnum)
   FROM pg_attribute WHERE attrelid IN (SELECT oid FROM relations)),
  (SELECT string_agg(concat(oid, xmin), ',' ORDER BY oid) FROM pg_constraint),
  (SELECT string_agg(concat(oid, xmin), ',' ORDER BY oid) FROM pg_trigger),
  (SELECT string_agg(concat(oid, xmin), ',' ORDER BY oid) FROM pg_proc WHERE oid >= 16384),
  (SELECT string_agg(concat(oid, xmin), ',' ORDER BY oid) FROM pg_namespace WHERE nspname !~ '^pg_'),
  (SELECT string_agg(concat(oid, xmin), ',' ORDER BY oid) FROM pg_extension),
  (SELECT string_agg(s::text, ',') FROM pg_db_role_setting s
   JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database())
))
"""
_LIST_TABLES = """
SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
WHERE schemaname !~ '^pg_' AND schemaname <> 'information_schema' ORDER BY 1
"""
# Deleting the rows of a test takes 2 ms and leaves dead rows, truncating its tables 50 ms and leaves none.
_LIST_LARGE_TABLES = """
SELECT oid::regclass::text FROM pg_class WHERE oid = ANY(%s::regclass[]) AND pg_table_size(oid) > 1000000
"""
_RESET_COUNTERS = """
SELECT pg_stat_reset(), (SELECT count(setval(oid::regclass, 1, false)) FROM pg_class WHERE relkind = 'S')
"""
# The timeout of pg_terminate_backend is not used: it looks every 100 ms, and most processes end within one.
_DISCONNECT_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> ALL(%s)"
# What a test can leave in a session. Its counters are written now, before they are reset.
_RESET_SESSION = """
UNLISTEN *; RESET ALL; SET SESSION AUTHORIZATION DEFAULT; DISCARD TEMP;
SELECT pg_advisory_unlock_all(), pg_stat_force_next_flush()
"""
_DISCONNECT_SECONDS = 5.0
# Length of a binary file of COPY without rows: its head and its end.
_EMPTY_COPY_BYTES = 21
# Connections of clients to the database but for the one that asks; autovacuum has connections too, at any time.
LIST_OTHER_CLIENTS = """
SELECT pid, state, left(query, 100) AS query FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class DatabasePool:
    """Migrated databases on one server, each given out again when it is empty.

    Creating and dropping one takes 100 to 300 ms of checkpoints, and new connections read the catalog: a small run
    takes 0.5 s of CPU in a new database, 0.3 s in one that is used again. So the engine of the next test takes over the
    connections of the last one. Each test has another URL, as processes cache by URL and by engine.
    """

    def __init__(self, server: str, template: str) -> None:
        self.server = server
        self.template = template
        # One connection to the server for all tests: a new one costs more than what it is used for.
        self._admin = psycopg.connect(server, autocommit=True)
        self._free: list[tuple[str, Engine]] = []
        drop_database(server, template)
        create_database(server, template)
        engine = connect_engine(replace_database(server, template))
        upgrade(engine)
        engine.dispose()
        with psycopg.connect(plain_url(server, template), autocommit=True) as connection:
            self._fingerprint = _read_fingerprint(connection)
            tables = [row[0] for row in connection.execute(_LIST_TABLES)]
            is_empty = "SELECT NOT EXISTS (SELECT FROM {})"
            self._tables = [
                table for table in tables if connection.execute(is_empty.format(table)).fetchone() == (True,)
            ]

    def __enter__(self) -> DatabasePool:
        return self

    def __exit__(self, *error: object) -> None:
        for _, engine in self._free:
            engine.dispose()
        self._admin.close()

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL (no driver) of an empty, migrated database; take it back at the end."""
        mark = uuid.uuid4().hex[:12]
        name, last = self._free.pop() if self._free else (f"test_{mark}", None)
        url = add_parameter(plain_url(self.server, name), f"application_name=test_{mark}")
        engine = connect_engine(with_driver(url, "psycopg"))
        if last is None:
            create_database(self.server, name, self.template)
        else:
            # A compiled statement holds for a dialect.
            engine.pool, engine.dialect, engine._compiled_cache = last.pool, last.dialect, last._compiled_cache
        yield url
        if self._clear(name, engine):
            self._free.append((name, engine))
        else:
            engine.dispose()
            drop_database(self.server, name)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Yield an engine on such a database."""
        with self.database() as url:
            yield connect_engine(with_driver(url, "psycopg"))

    def _clear(self, name: str, engine: Engine) -> bool:
        """Empty a database and reset its sessions; return False if its schema is not the template's any more."""
        if engine.pool.checkedout():  # type: ignore[attr-defined]
            engine.dispose()
        try:
            with _idle_connections(engine) as connections:
                return self._clear_by(name, connections)
        except (psycopg.OperationalError, OperationalError):  # A test has cut them off.
            engine.dispose()
            with _idle_connections(engine) as connections:
                return self._clear_by(name, connections)

    def _clear_by(self, name: str, connections: list[psycopg.Connection]) -> bool:
        self._disconnect(name, [one.info.backend_pid for one in connections])
        for one in connections:
            one.execute(_RESET_SESSION)
        first = connections[0]
        if _read_fingerprint(first) != self._fingerprint:
            return False
        first.execute("SET session_replication_role = replica")  # the ledger refuses deletion by a trigger
        first.execute("; ".join(f"DELETE FROM {table}" for table in self._tables))
        if large := [row[0] for row in first.execute(_LIST_LARGE_TABLES, (self._tables,))]:
            first.execute(f"TRUNCATE {', '.join(large)} CASCADE")
        first.execute("RESET session_replication_role")
        first.execute(_RESET_COUNTERS)
        return True

    def _disconnect(self, name: str, kept: list[int]) -> None:
        """End all connections to a database but the ``kept`` ones, and wait until their processes have ended."""
        deadline = time.monotonic() + _DISCONNECT_SECONDS
        while self._admin.execute(_DISCONNECT_OTHERS, (name, kept)).fetchall() and time.monotonic() < deadline:
            time.sleep(0.001)


@contextmanager
def _idle_connections(engine: Engine) -> Iterator[list[psycopg.Connection]]:
    """Yield all connections that an engine keeps, or a new one, each statement a transaction of its own."""
    taken = [engine.raw_connection() for _ in range(max(1, engine.pool.checkedin()))]  # type: ignore[attr-defined]
    connections: list[Any] = [one.driver_connection for one in taken]
    try:
        for connection in connections:
            connection.autocommit = True
        yield connections
        for connection in connections:
            connection.autocommit = False
    except BaseException:
        for one in taken:
            one.invalidate()
        raise
    finally:
        for one in taken:
            one.close()


T = TypeVar("T")
# Rows by table, as files of COPY, the last numbers of sequences, and the result of the function that wrote them.
_FILLED: dict[Hashable, tuple[dict[str, bytes], dict[str, int], Any]] = {}
_LIST_NUMBERS = "SELECT format('%I.%I', schemaname, sequencename), last_value FROM pg_sequences WHERE last_value > 0"


def fill(engine: Engine, build: Callable[[], T], key: Hashable) -> T:
    """Fill an empty database as ``build`` does and return its result; for each ``key`` it is called once in a process.

    Later calls write the rows that it has left, which takes 20 to 40 ms. So tests that begin with the same
    consolidated project share its run.

    Args:
        build: Function that writes rows. Nothing else that it does is repeated, such as requests to a provider.
        key: What the rows depend on.
    """
    if key not in _FILLED:
        result = build()
        with _driver_connection(engine) as connection:
            tables = {name: _copy_out(connection, name) for (name,) in connection.execute(_LIST_TABLES).fetchall()}
            _FILLED[key] = tables, dict(connection.execute(_LIST_NUMBERS).fetchall()), result
    else:
        tables, numbers, result = _FILLED[key]
        with _driver_connection(engine) as connection:
            connection.execute("SET LOCAL session_replication_role = replica")  # no trigger, no foreign key
            for name, rows in tables.items():
                if len(rows) > _EMPTY_COPY_BYTES:
                    connection.execute(f"DELETE FROM {name}")
                    with connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT binary)") as copy:
                        copy.write(rows)
            for name, number in numbers.items():
                connection.execute("SELECT setval(%s::regclass, %s)", (name, number))
            connection.commit()
    return result


@contextmanager
def _driver_connection(engine: Engine) -> Iterator[Any]:
    taken = engine.raw_connection()
    try:
        yield taken.driver_connection
    finally:
        taken.close()


def _copy_out(driver: psycopg.Connection, table: str) -> bytes:
    with driver.cursor().copy(f"COPY {table} TO STDOUT (FORMAT binary)") as copy:
        return b"".join(bytes(block) for block in copy)


@contextmanager
def temporary_database(server: str, template: str | None = None) -> Iterator[str]:
    """Yield the URL (no driver) of a new database, empty or a copy of a template; drop it at the end."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    create_database(server, name, template)
    yield plain_url(server, name)
    drop_database(server, name)


def create_database(server: str, name: str, template: str | None = None) -> None:
    """Create a database. Copying the template's files, as before Postgres 15, is faster than logging them."""
    create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    with psycopg.connect(server, autocommit=True) as connection:
        if template is not None:
            create += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
            if connection.info.server_version >= 150000:
                create += sql.SQL(" STRATEGY FILE_COPY")
        connection.execute(create)


def drop_database(server: str, name: str) -> None:
    """Drop a database and end its connections."""
    connect_engine(replace_database(server, name)).dispose()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def replace_database(server: str, database: str) -> str:
    """Return the URL (driver psycopg) of another database on the same server."""
    head, _, query = server.partition("?")
    return with_driver(f"{head.rpartition('/')[0]}/{database}" + (f"?{query}" if query else ""), "psycopg")


def plain_url(server: str, database: str) -> str:
    """As ``replace_database``, without a driver."""
    return replace_database(server, database).replace("postgresql+psycopg://", "postgresql://")


def add_parameter(url: str, parameter: str) -> str:
    """Return a URL with one more parameter of its query."""
    return f"{url}{'&' if '?' in url else '?'}{parameter}"


def _read_fingerprint(connection: psycopg.Connection) -> str:
    row = connection.execute(_SCHEMA_FINGERPRINT).fetchone()
    assert row is not None
    return str(row[0])
