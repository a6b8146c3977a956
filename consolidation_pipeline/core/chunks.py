"""Chunks of a sequence, and functions that are applied to each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")

# Applies a function to each chunk, in order, as ``map`` does.
Apply = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


def split_chunks(items: Sequence[_T], *, size: int) -> list[Sequence[_T]]:
    """Split ``items`` into chunks of ``size`` in their order; the last may be shorter."""
    if size < 1:
        raise ValueError(f"size is {size}; a chunk needs at least 1 item")
    return [items[at : at + size] for at in range(0, len(items), size)]


def split_by_scope(scopes: Sequence[str], sizes: Sequence[int], *, most: int, max_size: int) -> Iterator[list[int]]:
    """Yield the positions of items in parts that have one scope each, in the order of the items' first ones.

    Args:
        scopes: Scope of each item (n,).
        sizes: Its size (n,); one that is larger than ``max_size`` is a part of its own.
        most: Most items of a part.
        max_size: Largest size of a part.
    """
    positions_of: defaultdict[str, list[int]] = defaultdict(list)
    for at, scope in enumerate(scopes):
        positions_of[scope].append(at)
    for positions in positions_of.values():
        part, total = list[int](), 0
        for at in positions:
            if part and (len(part) == most or total + sizes[at] > max_size):
                yield part
                part, total = [], 0
            part.append(at)
            total += sizes[at]
        yield part
