"""Check of the scope that a request of a run names: types and dates of memories."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.errors import InvalidScopeError

KEYS = ("unconsolidated_only", "memory_types", "date_range")


def check_scope(scope: Mapping[str, Any]) -> bool:
    """Check a scope; return True if a run covers more than it, as a run covers all memories of its project.

    ``unconsolidated_only`` narrows nothing: merged memories are never merged again by themselves.

    Args:
        scope: ``unconsolidated_only``: bool. ``memory_types``: list. ``date_range``: a pair of ISO 8601 times, or
            ``start`` and ``end``.

    Raises:
        InvalidScopeError: A key or memory type does not exist, or a value has the wrong form.
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
    for name in types:
        if name not in MEMORY_TYPES:
            known = ", ".join(MEMORY_TYPES)
            raise InvalidScopeError(f"Invalid scope: memory_type {name!r} not recognized; the types are {known}")
    return types


def _check_range(date_range: Any) -> None:
    """Check a pair, or ``start`` and ``end``, at least one of them: ISO 8601 times, UTC if they name no zone."""
    if date_range is None:
        return
    try:
        ends = date_range if isinstance(date_range, list) else {"start": None, "end": None} | date_range
        times = [_parse_time(end) for end in (ends if isinstance(ends, list) else ends.values()) if end is not None]
        is_valid = len(ends) == 2 and times != [] and times == sorted(times)
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise InvalidScopeError(
            "Invalid scope: date_range must have `start` and `end`, ISO 8601 times, the start first"
        )


def _parse_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
