"""Two things at once: the next batch is made here while Postgres stores the last one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """The same items in the same order, each made in a thread while the caller works on the one before.

    At most one item is ahead. What an item's making raises is raised when that item is asked for, so everything before
    it was handed out. ``items`` is never run by two threads at once.
    """
    end = object()
    with ThreadPoolExecutor(max_workers=1) as thread:
        coming = thread.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = thread.submit(next, items, end)
            yield item  # type: ignore[misc]  # `end` is told apart above
