"""Prefetch: make the next batch in a thread while Postgres stores the current one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Yield the items in order, each made in a thread while the caller works on the one before.

    At most one item is made ahead. An exception of ``items`` is raised when its item is requested, after all earlier
    items were yielded. ``items`` is never advanced by two threads at once.
    """
    end = object()
    with ThreadPoolExecutor(max_workers=1) as thread:
        future = thread.submit(next, items, end)
        while (item := future.result()) is not end:
            future = thread.submit(next, items, end)
            yield item  # type: ignore[misc]  # `end` is excluded above.
