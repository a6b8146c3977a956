"""Progress of the phase that runs: what it commits, and the portions of work that it computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TypeVar

T = TypeVar("T")


class Progress:
    """Time since the last progress. ``longest``: most seconds without any so far."""

    def __init__(self) -> None:
        self.at = monotonic()
        self.longest = 0.0

    def mark(self) -> None:
        """Take note of progress."""
        now = monotonic()
        self.longest, self.at = max(self.longest, now - self.at), now


_progress: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def watching_progress() -> Iterator[Progress]:
    """Yield the progress that ``mark_progress`` takes note of in the block."""
    progress = Progress()
    token = _progress.set(progress)
    try:
        yield progress
    finally:
        progress.mark()
        _progress.reset(token)


def find_progress() -> Progress | None:
    """Return the progress of the phase that runs; None if none does."""
    return _progress.get()


def mark_progress() -> None:
    """Take note of progress in the phase that runs, if one does."""
    progress = find_progress()
    if progress is not None:
        progress.mark()


def each_is_progress(results: Iterable[T]) -> Iterator[T]:
    """Yield the results, each of which is progress."""
    for result in results:
        mark_progress()
        yield result
