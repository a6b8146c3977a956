"""Checks of the key of a table by its schema: columns that may be null, and rows that may share a key."""

from __future__ import annotations

from typing import Any

from psycopg import Connection

from consolidation_pipeline.connect.mapping import TableMapping

_LIST_NULLABLE = """
    SELECT attname FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attname = ANY(%s) AND NOT attnotnull ORDER BY attnum
"""
# An index on some of the columns is enough.
_IS_UNIQUE = """
    SELECT EXISTS (
        SELECT FROM pg_index i
        WHERE indrelid = to_regclass(%s) AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL
            AND (SELECT bool_and(a.attname = ANY(%s)) FROM generate_series(0, indnkeyatts - 1) at
                JOIN pg_attribute a ON a.attrelid = indrelid AND a.attnum = indkey[at]))
"""


def has_unique_key(connection: Connection[Any], mapping: TableMapping) -> bool:
    """Return True if an index of the table keeps two rows from having the same key."""
    bound = [mapping.identifier().as_string(connection), list(mapping.key)]
    return connection.execute(_IS_UNIQUE, bound).fetchone() == (True,)


def list_nullable(connection: Connection[Any], mapping: TableMapping) -> list[str]:
    """Return the columns of the key that may be null: those of a view may."""
    bound = [mapping.identifier().as_string(connection), list(mapping.key)]
    return [name for (name,) in connection.execute(_LIST_NULLABLE, bound)]


def find_key_warnings(connection: Connection[Any], mapping: TableMapping) -> list[str]:
    """Return sentences on a key that the table does not keep as one."""
    found = []
    if nullable := list_nullable(connection, mapping):
        found.append(f"{', '.join(nullable)} may be null: rows without a key are neither copied nor written")
    if not has_unique_key(connection, mapping):
        key = ", ".join(mapping.key)
        found.append(
            f"no unique index keeps two rows of {mapping.table} from having the same {key}: such rows are not copied"
        )
    return found
