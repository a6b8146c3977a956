"""Columns that a derived memory takes over from its sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol


class SourceColumns(Protocol):
    """The columns of a source that ``inherit_columns`` reads."""

    @property
    def tags(self) -> Sequence[str]: ...
    @property
    def files(self) -> Sequence[str]: ...
    @property
    def importance(self) -> float: ...
    @property
    def success(self) -> bool | None: ...
    @property
    def learned_at(self) -> datetime: ...


def inherit_columns(sources: Sequence[SourceColumns]) -> dict[str, Any]:
    """Return tags and files united and sorted, the highest importance, success of any and the earliest learned_at."""
    return {
        "tags": sorted({tag for source in sources for tag in source.tags}),
        "importance": max(source.importance for source in sources),
        "success": any_success(source.success for source in sources),
        "learned_at": min(source.learned_at for source in sources),
        "files": sorted({path for source in sources for path in source.files}),
    }


def any_success(values: Iterable[bool | None]) -> bool | None:
    """Return True if any source succeeded, False if all known ones failed, None if none is known."""
    known = [value for value in values if value is not None]
    return any(known) if known else None


def most_frequent(names: Iterable[str]) -> str:
    """Return the most frequent of at least one name; ties: the first in alphabetical order."""
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name))
