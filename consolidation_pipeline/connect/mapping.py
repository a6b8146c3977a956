"""Mapping of a store's table: which columns hold the key, the text, the vector and the scope of a memory.

One mapping describes every store that keeps a memory in a row. ``presets.py`` has those that are known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from psycopg import sql

from consolidation_pipeline.errors import UsageError

_FIELD = re.compile(r"[^.\x00]{1,63}(\.[^.\x00]{1,200})*")


@dataclass(frozen=True)
class Field:
    """A column, or a value inside of a JSON column: ``payload.data`` is path ``data`` of column ``payload``."""

    column: str
    path: tuple[str, ...] = ()

    @classmethod
    def parse(cls, name: str) -> Field:
        """Return the field that is written as ``column`` or ``column.key.key``.

        Raises:
            UsageError: The name is empty or has an empty part.
        """
        if not _FIELD.fullmatch(name):
            raise UsageError(f"the field {name!r} cannot be read: write a column, or column.key for a value in JSON")
        column, *path = name.split(".")
        return cls(column, tuple(path))

    def __str__(self) -> str:
        return ".".join((self.column, *self.path))

    def as_text(self) -> sql.Composable:
        """Return SQL of the value of row ``t`` as text; null if it is missing. Times come in ISO format."""
        column = sql.Identifier("t", self.column)
        return sql.SQL("(to_jsonb({}) #>> {})").format(column, sql.Literal(list(self.path)))

    def as_json(self) -> sql.Composable:
        """Return SQL of the value of row ``t`` as jsonb."""
        column = sql.Identifier("t", self.column)
        return sql.SQL("(to_jsonb({}) #> {})").format(column, sql.Literal(list(self.path)))


@dataclass(frozen=True)
class Part:
    """A table whose rows belong to one memory and go and come back with it, as the vectors of a LangGraph store.

    ``key``: its columns that hold the key of the memory, in the order of the mapping's key. ``bookkeeping``: as in
    ``TableMapping``.
    """

    table: str
    key: tuple[str, ...]
    bookkeeping: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Links:
    """A table with JSON arrays of memory keys, as mem0's entities: hidden keys are replaced by the successor's."""

    table: str
    key: tuple[str, ...]
    keys: Field


@dataclass(frozen=True)
class Vector:
    """The column with the vector of a memory: in the table itself, or in the part ``part``, which may have several.

    ``operator``: the store's distance. ``field``: column of the part that names the field which a vector is of, and the
    name of the text; None = all are of the text.
    """

    column: str
    part: str | None = None
    operator: str = "<=>"
    field: tuple[str, str] | None = None


@dataclass(frozen=True)
class Fill:
    """A value that the store's own library computes when it adds a memory.

    ``rule``: ``md5`` of the text; ``now`` in ISO format or ``now_seconds`` since 1970; ``words``: the distinct words
    that the sources have in this field.
    """

    field: Field
    rule: str


@dataclass(frozen=True)
class Lifetime:
    """Columns of a row that its program deletes after a time without reads or writes.

    ``length``: that time, null = it is never deleted. ``end``: when it will be.
    """

    length: str
    end: str


@dataclass(frozen=True, kw_only=True)
class TableMapping:
    """Places where a store keeps what belongs to a memory.

    Args:
        kind: Name of the preset; ``table`` for a mapping of the user's.
        table: ``name`` or ``schema.name``.
        key: Columns of the primary key.
        text: The memory's text.
        scope: Field of a memory -> where its value is: memories that differ in one are never merged.
        created, updated: Times, if the store has them.
        metadata: A JSON field with further metadata; the keys ``metadata_without`` are left out.
        vector: None = the store has no vectors.
        where: SQL condition for rows of ``t`` that are memories; of the preset, never of a user.
        parts, links: Other tables with rows of a memory, or with its key.
        fills: Values to compute for a new row.
        bookkeeping: Further fields, beside those of ``fills``, that the store's library sets by itself when it reads or
            writes a memory: a row in which only these changed says what it said.
        lifetime: None = rows stay until they are deleted.
        can_insert: False = a successor is always one of the sources.
    """

    kind: str
    table: str
    key: tuple[str, ...]
    text: Field
    scope: Mapping[str, Field] = field(default_factory=dict)
    created: Field | None = None
    updated: Field | None = None
    metadata: Field | None = None
    metadata_without: tuple[str, ...] = ()
    vector: Vector | None = None
    parts: tuple[Part, ...] = ()
    links: tuple[Links, ...] = ()
    where: str = "true"
    fills: tuple[Fill, ...] = ()
    bookkeeping: tuple[Field, ...] = ()
    lifetime: Lifetime | None = None
    can_insert: bool = True

    @property
    def other_tables(self) -> dict[str, tuple[str, ...]]:
        """Key columns of the parts and links by table."""
        return {part.table: part.key for part in self.parts} | {links.table: links.key for links in self.links}

    def find_bookkeeping(self, table: str) -> list[Field]:
        """Return the fields of the table, or of a part by its name, that the store's library sets by itself."""
        if table == self.table:
            return [*(fill.field for fill in self.fills), *self.bookkeeping]
        return [field for part in self.parts if part.table == table for field in part.bookkeeping]

    def identifier(self) -> sql.Identifier:
        """Return the quoted name of the table."""
        return table_identifier(self.table)


def table_identifier(name: str) -> sql.Identifier:
    """Return the quoted identifier of ``name`` or ``schema.name``."""
    return sql.Identifier(*name.split(".", 1))
