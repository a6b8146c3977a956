"""Databases of the tests: copied from a template, emptied after a test, used again while their schema is unchanged."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

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
_DISCONNECT_OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
_DISCONNECT_SECONDS = 5.0
# Connections of clients to the database but for the one that asks; autovacuum has connections too, at any time.
LIST_OTHER_CLIENTS = """
SELECT pid, state, left(query, 100) AS query FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


class DatabasePool:
    """Migrated databases on one server. Each is given out under a new name, as processes cache by URL.

    Emptying a database takes a few ms; creating and dropping one takes 100 to 300 ms of checkpoints.
    """

    def __init__(self, server: str, template: str) -> None:
        self.server = server
        self.template = template
        # One connection to the server for all tests: a new one costs more than what it is used for.
        self._admin = psycopg.connect(server, autocommit=True)
        self._free: list[str] = []
        drop_database(server, template)
        create_database(server, template)
        engine = connect_engine(replace_database(server, template))
        upgrade(engine)
        engine.dispose()
        with self._connect(template) as connection:
            self._fingerprint = _read_fingerprint(connection)
            tables = [row[0] for row in connection.execute(_LIST_TABLES)]
            is_empty = "SELECT NOT EXISTS (SELECT FROM {})"
            self._tables = [
                table for table in tables if connection.execute(is_empty.format(table)).fetchone() == (True,)
            ]

    def __enter__(self) -> DatabasePool:
        return self

    def __exit__(self, *error: object) -> None:
        self._admin.close()

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL (no driver) of an empty, migrated database; take it back at the end."""
        name = self._take()
        yield plain_url(self.server, name)
        connect_engine(replace_database(self.server, name)).dispose()
        if self._clear(name):
            self._free.append(name)
        else:
            drop_database(self.server, name)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Yield an engine on such a database."""
        with self.database() as url:
            yield connect_engine(with_driver(url, "psycopg"))

    def _take(self) -> str:
        name = f"test_{uuid.uuid4().hex[:12]}"
        if not self._free:
            create_database(self.server, name, self.template)
            return name
        rename = sql.SQL("ALTER DATABASE {} RENAME TO {}").format(
            sql.Identifier(self._free.pop()), sql.Identifier(name)
        )
        self._admin.execute(rename)
        return name

    def _clear(self, name: str) -> bool:
        """Empty a database; return False if its schema is not the template's any more."""
        self._disconnect_others(name)
        with self._connect(name) as connection:
            if _read_fingerprint(connection) != self._fingerprint:
                return False
            connection.execute("SET session_replication_role = replica")  # the ledger refuses deletion by a trigger
            connection.execute("; ".join(f"DELETE FROM {table}" for table in self._tables))
            if large := [row[0] for row in connection.execute(_LIST_LARGE_TABLES, (self._tables,))]:
                connection.execute(f"TRUNCATE {', '.join(large)} CASCADE")
            connection.execute(_RESET_COUNTERS)
        return True

    def _disconnect_others(self, name: str) -> None:
        """End all connections to a database and wait until their processes have ended."""
        deadline = time.monotonic() + _DISCONNECT_SECONDS
        while self._admin.execute(_DISCONNECT_OTHERS, (name,)).fetchall() and time.monotonic() < deadline:
            time.sleep(0.001)

    def _connect(self, name: str) -> psycopg.Connection:
        return psycopg.connect(plain_url(self.server, name), autocommit=True)


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


def _read_fingerprint(connection: psycopg.Connection) -> str:
    row = connection.execute(_SCHEMA_FINGERPRINT).fetchone()
    assert row is not None
    return str(row[0])
