"""Rows that readers yield, good and bad."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source, not validated. ``line``: its first line, from 1."""

    line: int
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be imported. ``reason``: shown to people. ``fields``: the row as far as it could be read."""

    line: int
    reason: str
    fields: dict[str, object] | None = None
