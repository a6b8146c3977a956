"""Comparison of rows that came back with their images: triggers and generated columns may give them other values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import Connection, sql

from consolidation_pipeline.connect.mapping import table_identifier
from consolidation_pipeline.connect.row_forms import RowForm
from consolidation_pipeline.connect.source_table import SourceTable, key_sql
from consolidation_pipeline.connect.store import Conflict
from consolidation_pipeline.core.text.counted_nouns import counted

# Number of rows that came back with another value, by table and column.
Differences = dict[str, dict[str, int]]


def load_rows(
    connection: Connection[Any], table: SourceTable, name: str, key: Sequence[str], keys: set[str], form: RowForm
) -> dict[str, list[str]]:
    """Return the present rows with ``keys`` as images, by key, locked."""
    rows = connection.execute(
        sql.SQL("SELECT {key}, {text} FROM {table} t WHERE {chosen} FOR UPDATE").format(
            key=key_sql(key),
            text=form.text,
            table=table_identifier(name),
            chosen=table.among_keys(key, table=name),
        ),
        {"keys": sorted(keys)},
    )
    found: dict[str, list[str]] = {}
    for row_key, row in rows:
        found.setdefault(row_key, []).append(row)
    return found


def compare_restored(
    connection: Connection[Any],
    table: SourceTable,
    name: str,
    key: Sequence[str],
    form: RowForm,
    images: Mapping[str, Sequence[str]],
    removed: set[str],
) -> tuple[list[Conflict], dict[str, int]]:
    """Compare the rows of table ``name`` after an undo with what they have to be.

    A value that differs is written once more, as a trigger may act on new rows only.

    Args:
        images: Images of the rows that came back, by key.
        removed: Keys of rows that the undo removed.

    Returns:
        Rows that did not come back or go, and the number of rows that differ by column.
    """
    now = load_rows(connection, table, name, key, {*images, *removed}, form)
    kept = "a trigger, rule or policy of the table keeps the new row there"
    conflicts = [Conflict(name, each, kept) for each in sorted(removed & now.keys())]
    lost = "a trigger, rule or policy of the table keeps the row from coming back"
    conflicts += [Conflict(name, each, lost) for each, rows in images.items() if len(now.get(each, [])) < len(rows)]
    if conflicts:
        return conflicts, {}
    differing = list(_list_differing(images, now))
    if not differing:
        return [], {}
    for row_key, image, row in differing:
        columns = _find_columns(connection, form, image, row)
        _overwrite(connection, table, name, key, form, row_key, image, row, columns)
    now = load_rows(connection, table, name, key, set(images), form)
    left = Counter(
        column
        for _, image, row in _list_differing(images, now)
        for column in _find_columns(connection, form, image, row)
    )
    return [], dict(left)


def _list_differing(
    images: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]
) -> Iterator[tuple[str, str, str]]:
    """Yield key, image and present row of each row that is not as its image."""
    for key, wanted in images.items():
        left, found = Counter(wanted), Counter(now[key])
        for image, row in zip(sorted((left - found).elements()), sorted((found - left).elements()), strict=False):
            yield key, image, row


def _find_columns(connection: Connection[Any], form: RowForm, image: str, row: str) -> list[str]:
    """Return the columns in which two rows differ."""
    found = connection.execute(
        sql.SQL(
            "SELECT i.key FROM json_each_text(to_json(%s::{type})) i JOIN json_each_text(to_json(%s::{type})) r "
            "USING (key) WHERE i.value IS DISTINCT FROM r.value"
        ).format(type=form.type),
        [image, row],
    )
    return [column for (column,) in found]


def _overwrite(
    connection: Connection[Any],
    table: SourceTable,
    name: str,
    key: Sequence[str],
    form: RowForm,
    row_key: str,
    image: str,
    row: str,
    columns: Sequence[str],
) -> None:
    """Give a row the values of its image in ``columns``, if the table lets them be written."""
    writable = table.writable_columns(name)
    names = sql.SQL(", ").join(sql.Identifier(each) for each in columns if each in writable)
    if not names.as_string(connection):
        return
    with suppress(psycopg.DatabaseError), connection.transaction():
        connection.execute(
            sql.SQL(
                "UPDATE {table} t SET ({names}) = (SELECT {names} FROM (SELECT (%(image)s::{type}).*) r) "
                "WHERE {chosen} AND {text} = %(row)s"
            ).format(
                table=table_identifier(name),
                names=names,
                type=form.type,
                chosen=table.among_keys(key, table=name),
                text=form.text,
            ),
            {"image": image, "keys": [row_key], "row": row},
        )


def describe_differences(receipts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return in words what came back with other values, from the receipts of writes that are undone."""
    found: dict[str, Counter[str]] = {}
    for receipt in receipts:
        for table, columns in receipt.get("differences", {}).items():
            found.setdefault(table, Counter()).update(columns)
    return [
        f"{table}: {counted(number, 'row')} came back with another value in {column}, which the table or a trigger sets"
        for table, columns in found.items()
        for column, number in sorted(columns.items())
    ]
