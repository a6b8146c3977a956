"""Results of readers: rows, good and bad, and remarks on files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source, not validated. ``line``: its first line, from 1. ``file``: its file in a folder."""

    line: int
    fields: dict[str, object]
    file: str = ""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be imported. ``reason``: shown to people. ``fields``: the row as far as it could be read."""

    line: int
    reason: str
    fields: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Remark:
    """Remark on a file of a folder, for people. ``is_skipped``: it holds no memories, and ``text`` says why."""

    file: str
    text: str
    is_skipped: bool = True


Item = Row | BadRow | Remark
