"""Forms of row images: an image has the columns that its table had when it was written, which may have others now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from psycopg import Connection, sql

from consolidation_pipeline.connect.mapping import table_identifier
from consolidation_pipeline.connect.source_table import list_columns
from consolidation_pipeline.connect.store import Conflict

# Name and type of each column of a table, in order.
Columns = Sequence[Sequence[str]]


@dataclass(frozen=True)
class RowForm:
    """Form in which images of the rows of one table are read and compared.

    ``type``: SQL of the type that an image is cast to. ``text``: SQL of the image that row ``t`` would have. ``names``:
    columns that come back from an image. ``is_current``: the table has the columns of the images.
    """

    type: sql.Composable
    text: sql.Composable
    names: sql.Composable
    is_current: bool = True


def describe_columns(connection: Connection[Any], tables: Iterable[str]) -> dict[str, list[list[str]]]:
    """Return the columns of tables by name, to be kept with the images of their rows."""
    return {name: [[one.name, one.type] for one in list_columns(connection, name).values()] for name in tables}


def find_forms(
    connection: Connection[Any], tables: Iterable[str], written: Mapping[str, Columns]
) -> tuple[dict[str, RowForm], list[Conflict]]:
    """Return the form of the images of each table, and the tables that lack a column of theirs.

    A column that was added since keeps its values, and gets its default in rows that come back.

    Args:
        written: Columns that each table had when the images were written; without a table: those that it has now.
    """
    forms, conflicts = {}, []
    for name in tables:
        now = list_columns(connection, name)
        kept = [(column, type_) for column, type_ in written.get(name, [])]
        lost = [
            f"column {column} of type {type_} was dropped"
            if column not in now
            else f"column {column} was of type {type_}, and is of type {now[column].type}"
            for column, type_ in kept
            if column not in now or now[column].type != type_
        ]
        if lost:
            reason = f"{'; '.join(lost)}: its rows cannot come back until the table has these columns again"
            conflicts.append(Conflict(name, "", reason))
            continue
        columns = [column for column, _ in kept] or list(now)
        names = sql.SQL(", ").join(sql.Identifier(one) for one in columns if not now[one].generated)
        if not kept or kept == [(one.name, one.type) for one in now.values()]:
            forms[name] = RowForm(table_identifier(name), sql.SQL("t::text"), names)
            continue
        values = sql.SQL(", ").join(sql.Identifier("t", column) for column in columns)
        type_ = _create_type(connection, name, kept)
        forms[name] = RowForm(type_, sql.SQL("ROW({})::text").format(values), names, is_current=False)
    return forms, conflicts


def _create_type(connection: Connection[Any], table: str, columns: Iterable[tuple[str, str]]) -> sql.Composable:
    """Create a type of this session with these columns; return its name."""
    name = sql.Identifier("pg_temp", f"image_{sha256(table.encode()).hexdigest()[:16]}")
    parts = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(one), sql.SQL(type_)) for one, type_ in columns)
    connection.execute(
        sql.SQL("DROP TYPE IF EXISTS {name}; CREATE TYPE {name} AS ({parts})").format(name=name, parts=parts)
    )
    return name
