"""The scope that a run is asked for over: checked, so that a mistake in it is told and not run over."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.errors import InvalidScopeError

KEYS = ("unconsolidated_only", "memory_types", "date_range")


def check_scope(scope: Mapping[str, Any]) -> bool:
    """Whether a run looks at more than ``scope`` asks for, as it looks at all memories of its project.

    ``unconsolidated_only`` holds for every run: what was merged is never merged again by itself.

    Raises:
        InvalidScopeError: an unknown key or memory type, or a value of the wrong form; the message says what is right.
    """
    unknown = sorted(set(scope) - set(KEYS))
    if unknown:
        raise InvalidScopeError(f"Invalid scope: {unknown[0]!r} not recognized; a scope has {', '.join(KEYS)}")
    if not isinstance(scope.get("unconsolidated_only", True), bool):
        raise InvalidScopeError("Invalid scope: unconsolidated_only must be true or false")
    types = _check_types(scope.get("memory_types"))
    _check_range(scope.get("date_range"))
    return bool(types and set(types) != set(MEMORY_TYPES)) or scope.get("date_range") is not None


def _check_types(types: Any) -> list[str] | None:
    if types is None:
        return None
    if not isinstance(types, list) or not types:
        raise InvalidScopeError("Invalid scope: memory_types must be a list of memory types")
    for one in types:
        if one not in MEMORY_TYPES:
            legal = ", ".join(MEMORY_TYPES)
            raise InvalidScopeError(f"Invalid scope: memory_type {one!r} not recognized; the types are {legal}")
    return types


def _check_range(given: Any) -> None:
    """A range is a pair, or has ``start`` and ``end``, one of them at least: ISO 8601 times, UTC without a zone."""
    if given is None:
        return
    try:
        ends = given if isinstance(given, list) else {"start": None, "end": None} | given
        times = [_read(end) for end in (ends if isinstance(ends, list) else ends.values()) if end is not None]
        right = len(ends) == 2 and times != [] and times == sorted(times)
    except (TypeError, ValueError):
        right = False
    if not right:
        raise InvalidScopeError(
            "Invalid scope: date_range must have `start` and `end`, ISO 8601 times, the start first"
        )


def _read(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
