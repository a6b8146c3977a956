"""Worker processes: much work that only computes is shared among the cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from multiprocessing import current_process
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Work on fewer memories takes no longer than the start of the processes.
FEWEST_MEMORIES = 5_000
# Each process has its own modules and caches in memory.
MOST_PROCESSES = 8
# Seconds after which processes without work end. The next phase uses them again.
_IDLE_SECONDS = 60


def compute_in_order(function: Callable[[T], R], items: Iterable[T], *, memories: int) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in order; the next ones are computed while the caller works on one.

    With ``FEWEST_MEMORIES`` or more, as many processes compute as there are cores. They end by themselves.

    Args:
        function: Pure. It and the items can be pickled.
        memories: Number of memories behind all items.
    """
    # A process of Celery or of a pool may start no others.
    count = 1 if memories < FEWEST_MEMORIES or current_process().daemon else _count_cores()
    if count == 1:
        yield from map(function, items)
        return
    from joblib import Parallel, delayed

    # Unlike multiprocessing, joblib does not import the main module again.
    parallel = Parallel(count, return_as="generator", max_nbytes=None, idle_worker_timeout=_IDLE_SECONDS)
    yield from parallel(delayed(function)(item) for item in items)


def _count_cores() -> int:
    """Return the number of cores that this process may use, also in a container; at most ``MOST_PROCESSES``."""
    from joblib import cpu_count

    return min(MOST_PROCESSES, int(cpu_count()))
