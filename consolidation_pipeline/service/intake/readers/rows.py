"""What a reader yields: a row, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a source, not yet validated; ``line`` counts from 1 and is where the row starts."""

    line: int
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be taken; ``reason`` is for people. ``fields`` is the row, as far as it could be read."""

    line: int
    reason: str
    fields: dict[str, object] | None = None
