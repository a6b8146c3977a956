"""Schema ``consolidation_sidecar`` in the database of a store: images of changed rows, and an outbox of changes.

It holds all that undo needs, so that a store can be put back without our database and even without this program: an
image is a whole row as Postgres writes it, and ``INSERT INTO t SELECT (image::t).*`` brings it back. The receipt of a
write has the columns of the tables then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, LiteralString

from psycopg import Connection, errors, sql
from psycopg.types.json import Jsonb

from consolidation_pipeline.errors import UsageError

SCHEMA = "consolidation_sidecar"
# Version of the tables below; older ones are brought up to it, newer ones refused.
VERSION = 2
# For 20 seconds the lock of a table is tried.
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 50, 0.3

_CREATE = """
    CREATE SCHEMA IF NOT EXISTS consolidation_sidecar;
    CREATE TABLE IF NOT EXISTS consolidation_sidecar.sidecar (version int NOT NULL);
    INSERT INTO consolidation_sidecar.sidecar
    SELECT {version} WHERE NOT EXISTS (SELECT FROM consolidation_sidecar.sidecar);
    CREATE TABLE IF NOT EXISTS consolidation_sidecar.sources (name text PRIMARY KEY, config jsonb NOT NULL);
    CREATE TABLE IF NOT EXISTS consolidation_sidecar.writes (
        id uuid PRIMARY KEY,
        number bigint GENERATED ALWAYS AS IDENTITY,
        source text NOT NULL,
        group_id text NOT NULL,
        receipt jsonb NOT NULL,
        written_at timestamptz NOT NULL DEFAULT now(),
        undone_at timestamptz);
    CREATE TABLE IF NOT EXISTS consolidation_sidecar.images (
        write_id uuid NOT NULL REFERENCES consolidation_sidecar.writes ON DELETE CASCADE,
        position int NOT NULL,
        action text NOT NULL CHECK (action IN ('deleted', 'inserted', 'updated')),
        table_name text NOT NULL,
        key text NOT NULL,
        before text,
        after text,
        PRIMARY KEY (write_id, position));
    CREATE TABLE IF NOT EXISTS consolidation_sidecar.outbox (
        seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        table_name text NOT NULL,
        key text,
        reason text);
    CREATE TABLE IF NOT EXISTS consolidation_sidecar.watched (
        table_name text PRIMARY KEY,
        compared_at timestamptz NOT NULL,
        partitions oid[] NOT NULL);
"""

# Statements that bring a sidecar of this version to the next one; two sessions may execute them one after the other.
_UPGRADES: dict[int, LiteralString] = {
    1: """
    ALTER TABLE consolidation_sidecar.outbox ALTER COLUMN key DROP NOT NULL, ADD COLUMN IF NOT EXISTS reason text;
    CREATE TABLE IF NOT EXISTS consolidation_sidecar.watched (
        table_name text PRIMARY KEY,
        compared_at timestamptz NOT NULL,
        partitions oid[] NOT NULL);
    UPDATE consolidation_sidecar.sidecar SET version = 2;
    """,
}


def find_version(connection: Connection[Any]) -> int | None:
    """Return the version of the sidecar of this database; None if there is none, or this user may not read it."""
    # to_regclass() fails for a schema that this user may not use.
    readable = connection.execute(
        """
        SELECT CASE WHEN has_schema_privilege(oid, 'USAGE')
            THEN has_table_privilege(to_regclass('consolidation_sidecar.sidecar')::oid, 'SELECT') END
        FROM pg_namespace WHERE nspname = %s
        """,
        [SCHEMA],
    ).fetchone()
    if readable != (True,):
        return None
    found = connection.execute("SELECT version FROM consolidation_sidecar.sidecar").fetchone()
    return None if found is None else int(found[0])


def check_version(connection: Connection[Any]) -> int | None:
    """Return the version of the sidecar as ``find_version``. Raise UsageError if it is newer than this program."""
    version = find_version(connection)
    if version is not None and version > VERSION:
        raise UsageError(
            f"schema {SCHEMA} is of version {version}, this program writes {VERSION}: use the other program"
        )
    return version


def install(connection: Connection[Any]) -> None:
    """Create the sidecar if it is missing, or bring it up to this version.

    Raises:
        UsageError: This user may not create a schema, or the sidecar is of a newer version.
        LockNotAvailable: The sidecar is older, and other sessions held its outbox each time that we tried.
    """
    version = check_version(connection)
    if version is None:
        _check_usable(connection)
        try:
            connection.execute(sql.SQL(_CREATE).format(version=sql.Literal(VERSION)))
        except errors.InsufficientPrivilege as error:
            raise UsageError(
                f"this user may not create schema {SCHEMA} ({error.diag.message_primary}): grant CREATE on the "
                "database, or connect with mode mirror, which writes nothing"
            ) from error
        return
    for step in range(version, VERSION):
        change_locked(connection, sql.SQL(_UPGRADES[step]))


def _check_usable(connection: Connection[Any]) -> None:
    """Raise UsageError if another role has made the schema, and this user may not use it."""
    found = connection.execute(
        """
        SELECT nspowner::regrole::text, has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE')
        FROM pg_namespace WHERE nspname = %s
        """,
        [SCHEMA],
    ).fetchone()
    if found is not None and not found[1]:
        raise UsageError(
            f"schema {SCHEMA} belongs to the role {found[0]}, and this user may not write to it: connect as {found[0]}"
        )


def change_locked(connection: Connection[Any], statement: sql.SQL | sql.Composed) -> None:
    """Execute a statement that locks a whole table, again and again while other sessions hold it.

    Each time it waits for the lock timeout of the session only, as whoever writes to the table has to wait behind it.

    Raises:
        LockNotAvailable: Other sessions held the table each time.
    """
    for attempt in range(_LOCK_ATTEMPTS):
        try:
            with connection.transaction():
                connection.execute(statement)
            return
        except errors.LockNotAvailable:
            if attempt == _LOCK_ATTEMPTS - 1:
                raise
        time.sleep(_LOCK_PAUSE_SECONDS)


def save_source(connection: Connection[Any], name: str, config: Mapping[str, Any]) -> None:
    """Store the configuration of a source, from which its writes can be undone without our database."""
    connection.execute(
        "INSERT INTO consolidation_sidecar.sources (name, config) VALUES (%s, %s) "
        "ON CONFLICT (name) DO UPDATE SET config = excluded.config",
        [name, Jsonb(dict(config))],
    )


def list_sources(connection: Connection[Any]) -> dict[str, dict[str, Any]]:
    """Return the configuration of the sources of this sidecar by name."""
    return dict(connection.execute("SELECT name, config FROM consolidation_sidecar.sources ORDER BY name").fetchall())


def forget_source(connection: Connection[Any], name: str) -> None:
    """Remove the configuration of a source, unless a write of it is not undone."""
    connection.execute(
        """
        DELETE FROM consolidation_sidecar.sources WHERE name = %(name)s AND NOT EXISTS (
            SELECT FROM consolidation_sidecar.writes WHERE source = %(name)s AND undone_at IS NULL)
        """,
        {"name": name},
    )


def remove_if_unused(connection: Connection[Any]) -> None:
    """Remove the sidecar if no source uses it and no write is left to be undone."""
    used = connection.execute(
        """
        SELECT EXISTS (SELECT FROM consolidation_sidecar.sources)
            OR EXISTS (SELECT FROM consolidation_sidecar.writes WHERE undone_at IS NULL)
        """
    ).fetchone()
    if used == (False,):
        remove(connection)


def remove(connection: Connection[Any]) -> None:
    """Remove the sidecar with the images of all rows."""
    connection.execute("DROP SCHEMA consolidation_sidecar CASCADE")
