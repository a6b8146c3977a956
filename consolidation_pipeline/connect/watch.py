"""Trigger that tells of changes of a store's table, and the outbox into which it writes.

The trigger never makes a statement of the store's program fail: what goes wrong in it becomes an entry without a key,
which says that all rows have to be compared, and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from psycopg import Connection, errors, sql

from consolidation_pipeline.connect.mapping import table_identifier
from consolidation_pipeline.connect.sidecar import change_locked

# Settings of a session that decide how a key is written as text. The function has those of the session that reads.
_SETTINGS = ("TimeZone", "DateStyle", "IntervalStyle", "extra_float_digits", "bytea_output")

# After so long all rows are compared again, for changes that no trigger sees.
COMPARE_HOURS = 24

# ``*<>`` compares the bytes of rows: types such as json have no other comparison.
_BODY = """
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        INSERT INTO consolidation_sidecar.outbox (table_name, reason) VALUES ({table}, 'the table was truncated');
    ELSIF TG_OP = 'INSERT' THEN
        INSERT INTO consolidation_sidecar.outbox (table_name, key)
        SELECT {table}, {key} FROM (SELECT NEW.*) t WHERE {key} IS NOT NULL;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO consolidation_sidecar.outbox (table_name, key)
        SELECT {table}, {key} FROM (SELECT OLD.*) t WHERE {key} IS NOT NULL;
    ELSIF OLD *<> NEW THEN
        INSERT INTO consolidation_sidecar.outbox (table_name, key)
        SELECT {table}, k.key
        FROM (SELECT {key} AS key FROM (SELECT OLD.*) t UNION SELECT {key} FROM (SELECT NEW.*) t) k
        WHERE k.key IS NOT NULL;
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    BEGIN
        INSERT INTO consolidation_sidecar.outbox (table_name, reason) VALUES ({table}, SQLERRM);
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING 'a change of table % cannot be told: %', {table}, SQLERRM;
    END;
    RETURN NULL;
END
"""
_CREATE = """
    DROP FUNCTION IF EXISTS consolidation_sidecar.{function}() CASCADE;
    CREATE FUNCTION consolidation_sidecar.{function}() RETURNS trigger LANGUAGE plpgsql
    SECURITY DEFINER SET search_path = pg_catalog {settings} AS {body};
    CREATE TRIGGER {function} AFTER INSERT OR UPDATE OR DELETE ON {table}
    FOR EACH ROW EXECUTE FUNCTION consolidation_sidecar.{function}();
    CREATE TRIGGER {truncate} AFTER TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION consolidation_sidecar.{function}();
"""
# The apply worker of a logical replication, and sessions in the role replica, fire no other triggers.
_ENABLE_ALWAYS = """
    ALTER TABLE {table} ENABLE ALWAYS TRIGGER {function};
    ALTER TABLE {table} ENABLE ALWAYS TRIGGER {truncate};
"""


@dataclass(frozen=True)
class Outbox:
    """Entries of a table. ``numbers``: those that can be dropped once they are stored, with their distinct ``keys``.

    ``pending``: keys of transactions that the next reading has. ``reason``: why all rows have to be compared.
    """

    numbers: list[int]
    keys: list[str]
    pending: list[str]
    reason: str | None


def watch(connection: Connection[Any], table: str, key_sql: sql.Composable) -> bool:
    """Write the key of each row that changes from now on into the outbox, by a trigger on the table.

    Args:
        key_sql: SQL of the key of row ``t`` as text.

    Returns:
        True if it was not so before, by the function of this version and with the settings of this session.

    Raises:
        LockNotAvailable: Other sessions held the table each time that we tried.
    """
    body = sql.SQL(_BODY).format(table=sql.Literal(table), key=key_sql)
    if is_watched(connection, table) and _is_current(connection, table, body.as_string(connection)):
        return False
    names = {
        "function": sql.Identifier(_trigger_name(table)),
        "truncate": sql.Identifier(f"{_trigger_name(table)}_truncate"),
        "table": table_identifier(table),
    }
    settings = sql.SQL(" ").join(sql.SQL("SET {} FROM CURRENT").format(sql.Identifier(name)) for name in _SETTINGS)
    text = sql.Literal(body.as_string(connection))
    change_locked(connection, sql.SQL(_CREATE).format(**names, settings=settings, body=text))
    with suppress(errors.InsufficientPrivilege):  # Only the owner of a table may; others may make triggers.
        change_locked(connection, sql.SQL(_ENABLE_ALWAYS).format(**names))
    connection.execute("DELETE FROM consolidation_sidecar.watched WHERE table_name = %s", [table])
    return True


def unwatch(connection: Connection[Any], table: str) -> None:
    """Remove the trigger of ``watch``, on whatever table it is by now. Raise LockNotAvailable as it does."""
    function = sql.Identifier(_trigger_name(table))
    change_locked(connection, sql.SQL("DROP FUNCTION IF EXISTS consolidation_sidecar.{}() CASCADE").format(function))


def unwatch_all(connection: Connection[Any]) -> None:
    """Remove the triggers of all tables. Raise LockNotAvailable as ``watch``."""
    found = connection.execute(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = to_regnamespace('consolidation_sidecar')"
    )
    for (function,) in found.fetchall():
        change_locked(connection, sql.SQL("DROP FUNCTION {} CASCADE").format(sql.SQL(function)))


def is_watched(connection: Connection[Any], table: str) -> bool:
    """Return True if the triggers of ``watch`` are on the table and fire."""
    found = connection.execute(
        """
        SELECT count(*) FROM pg_trigger JOIN pg_proc p ON p.oid = tgfoid
        WHERE p.proname = %s AND p.pronamespace = to_regnamespace('consolidation_sidecar')
            AND tgrelid = to_regclass(%s) AND tgenabled <> 'D'
        """,
        [_trigger_name(table), table_identifier(table).as_string(connection)],
    ).fetchone()
    return found == (2,)


def _is_current(connection: Connection[Any], table: str, body: str) -> bool:
    """Return True if the function has this body, and the settings of this session."""
    found = connection.execute(
        """
        SELECT p.prosrc = %s AND p.proconfig @> (
            SELECT array_agg(name || '=' || current_setting(name)) FROM unnest(%s::text[]) name)
        FROM pg_proc p WHERE p.proname = %s AND p.pronamespace = to_regnamespace('consolidation_sidecar')
        """,
        [body, list(_SETTINGS), _trigger_name(table)],
    ).fetchone()
    return found == (True,)


def _trigger_name(table: str) -> str:
    return f"watch_{sha256(table.encode()).hexdigest()[:16]}"


def read_outbox(connection: Connection[Any], table: str) -> Outbox:
    """Return the entries of a table, in the snapshot of the transaction.

    Those whose transactions, and all older ones, have ended can be dropped: none with a lower number comes later.
    """
    rows = connection.execute(
        """
        SELECT seq, key, reason, xid < pg_snapshot_xmin(pg_current_snapshot()) FROM consolidation_sidecar.outbox
        WHERE table_name = %s ORDER BY seq
        """,
        [table],
    ).fetchall()
    settled = [(seq, key, reason) for seq, key, reason, is_settled in rows if is_settled]
    keys = dict.fromkeys(key for _, key, _ in settled if key is not None)
    pending = dict.fromkeys(key for _, key, _, is_settled in rows if not is_settled and key is not None)
    reasons = (reason for _, key, reason in settled if key is None)
    return Outbox([seq for seq, _, _ in settled], list(keys), list(pending), next(reasons, None))


def drop_from_outbox(connection: Connection[Any], numbers: Sequence[int]) -> None:
    """Remove entries that were read and stored."""
    connection.execute("DELETE FROM consolidation_sidecar.outbox WHERE seq = ANY(%s)", [list(numbers)])


def find_partitions(connection: Connection[Any], table: str) -> list[int]:
    """Return the partitions of a table and of its partitions; none of a table that has none."""
    rows = connection.execute(
        "SELECT relid::oid FROM pg_partition_tree(to_regclass(%s)) ORDER BY 1",
        [table_identifier(table).as_string(connection)],
    )
    return [oid for (oid,) in rows]


def find_staleness(connection: Connection[Any], table: str, partitions: Sequence[int]) -> str | None:
    """Return why all rows have to be compared although the trigger told of none; None if they need not be."""
    found = connection.execute(
        """
        SELECT compared_at < now() - make_interval(hours => %s), partitions IS DISTINCT FROM %s::oid[]
        FROM consolidation_sidecar.watched WHERE table_name = %s
        """,
        [COMPARE_HOURS, list(partitions), table],
    ).fetchone()
    if found is None:
        return "the trigger that tells of changes is new"
    is_old, are_others = found
    return (
        "it has other partitions" if are_others else f"the last time is {COMPARE_HOURS} hours ago" if is_old else None
    )


def record_comparison(connection: Connection[Any], table: str, partitions: Sequence[int]) -> None:
    """Record that all rows were compared, of a table with these partitions."""
    connection.execute(
        """
        INSERT INTO consolidation_sidecar.watched (table_name, compared_at, partitions) VALUES (%s, now(), %s)
        ON CONFLICT (table_name) DO UPDATE SET compared_at = excluded.compared_at, partitions = excluded.partitions
        """,
        [table, list(partitions)],
    )
