"""Rows of tables that the mapping does not name, which Postgres would delete or empty together with a memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import Connection, sql

from consolidation_pipeline.connect.mapping import table_identifier
from consolidation_pipeline.connect.source_table import SourceTable
from consolidation_pipeline.errors import ConflictError

# Foreign keys that cascade, or set their columns to null or a default; the others refuse the deletion themselves.
_LIST_REFERENCES = """
    SELECT c.conrelid::regclass::text,
        (SELECT array_agg(a.attname::text ORDER BY k.at) FROM unnest(c.conkey) WITH ORDINALITY k(number, at)
            JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.number),
        (SELECT array_agg(a.attname::text ORDER BY k.at) FROM unnest(c.confkey) WITH ORDINALITY k(number, at)
            JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.number)
    FROM pg_constraint c
    WHERE c.contype = 'f' AND c.confdeltype IN ('c', 'n', 'd') AND c.confrelid = to_regclass(%s)
        AND c.conparentid = 0 AND c.conrelid <> ALL(SELECT to_regclass(name) FROM unnest(%s::text[]) name)
    ORDER BY 1, 2
"""


def find_references(connection: Connection[Any], table: SourceTable, keys: Sequence[str]) -> list[str]:
    """Return the other tables that refer to rows with ``keys`` so that Postgres changes them with these."""
    tables = {part.table: part.key for part in table.mapping.parts}
    quoted = [table_identifier(name).as_string(connection) for name in tables]
    referring = []
    for name, key in {table.mapping.table: table.mapping.key, **tables}.items():
        found = connection.execute(_LIST_REFERENCES, [table_identifier(name).as_string(connection), quoted])
        for other, theirs, ours in found.fetchall():
            same = sql.SQL(" AND ").join(
                sql.SQL("o.{} = t.{}").format(sql.Identifier(one), sql.Identifier(two))
                for one, two in zip(theirs, ours, strict=True)
            )
            query = sql.SQL("SELECT EXISTS (SELECT FROM {} o JOIN {} t ON {} WHERE {})").format(
                sql.SQL(other), table_identifier(name), same, table.among_keys(key)
            )
            if connection.execute(query, {"keys": list(keys)}).fetchone() == (True,):
                referring.append(other)
    return referring


def check_unreferenced(connection: Connection[Any], table: SourceTable, keys: Sequence[str]) -> None:
    """Raise ConflictError if other tables refer to rows with ``keys`` so that Postgres changes them with these."""
    referring = find_references(connection, table, keys)
    if referring:
        raise ConflictError(
            f"rows of {referring[0]} refer to its rows, and Postgres would delete or empty them with these"
        )
