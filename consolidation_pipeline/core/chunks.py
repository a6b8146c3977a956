"""Chunks of a sequence, and functions that are applied to each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")

# Applies a function to each chunk, in order, as ``map`` does.
Apply = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def split_chunks(items: Sequence[_T], *, size: int) -> list[Sequence[_T]]:
    """Split ``items`` into chunks of ``size`` in their order; the last may be shorter."""
    if size < 1:
        raise ValueError(f"size is {size}; a chunk needs at least 1 item")
    return [items[at : at + size] for at in range(0, len(items), size)]
