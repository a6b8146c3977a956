"""Worker processes: much work that only computes is shared among the cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import date
from itertools import takewhile
from multiprocessing import current_process
from threading import Event, Thread
from time import monotonic
from traceback import format_exc
from typing import TypeVar

from consolidation_pipeline.service.runs.garbage_collection import collect_rarely
from consolidation_pipeline.service.runs.progress import each_is_progress

T = TypeVar("T")
R = TypeVar("R")

# Work on fewer memories takes no longer than the start of the processes.
FEWEST_MEMORIES = 5_000
# Work on fewer memories takes no longer than to send it to processes that run.
_FEWEST_TO_SEND = 500
# After fewer new memories, little is read anew.
_FEWEST_NEW = 200
# Each process has its own modules and caches in memory.
MOST_PROCESSES = 8
# Seconds after which processes without work end. The next phase uses them again.
_IDLE_SECONDS = 60
# Texts that are summarized once in each process: to load the modules and word lists takes longer than a summary.
_SAMPLE = ("The build failed because the cache was full. Clear it before each build.", "Clear the cache first.")


class _Processes:
    """State of the processes. ``used_at``: time of their last use by ``monotonic``, None = never."""

    used_at: float | None = None

    def are_running(self) -> bool:
        """Return True if they have not ended for want of work."""
        return self.used_at is not None and monotonic() - self.used_at < _IDLE_SECONDS - 1


_processes = _Processes()


def start_processes(*, memories: int, new: int) -> None:
    """Start the processes for work that is to come, and let them load what texts are read with, in the background.

    Without it they start with the first work. Then less work than ``FEWEST_MEMORIES`` is shared, too. Nothing starts if
    there are few ``memories``, or few of them are ``new``.
    """
    if memories < FEWEST_MEMORIES or new < _FEWEST_NEW:
        return
    if _count_processes() > 1 and not _processes.are_running():
        _processes.used_at = monotonic()
        Thread(target=_prepare_all, name="start-worker-processes", daemon=True).start()


def _prepare_all() -> None:
    count = _count_processes()
    # Other work that fails meanwhile ends the processes. The next work starts them again.
    with suppress(Exception):
        list(_share(_prepare, range(count), count))


def _prepare(_: int) -> None:
    from consolidation_pipeline.core.knowledge.topic_summaries import summarize_topics

    summarize_topics(_SAMPLE, [date(2026, 1, 1)] * len(_SAMPLE))


def compute_in_order(function: Callable[[T], R], items: Iterable[T], *, memories: int) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in order; the next ones are computed while the caller works on one.

    With ``FEWEST_MEMORIES`` or more, as many processes compute as there are cores. They end by themselves. Each result
    is progress of the phase that runs.

    Args:
        function: Pure. It and the items can be pickled.
        memories: Number of memories behind all items.
    """
    fewest = _FEWEST_TO_SEND if _processes.are_running() else FEWEST_MEMORIES
    count = _count_processes() if memories >= fewest else 1
    if count == 1:
        yield from each_is_progress(map(function, items))
        return
    try:
        yield from each_is_progress(_share(function, items, count))
    finally:
        _processes.used_at = monotonic()


def _share(function: Callable[[T], R], items: Iterable[T], count: int) -> Iterator[R]:
    from joblib import Parallel, delayed

    # Unlike multiprocessing, joblib does not import the main module again.
    parallel = Parallel(count, return_as="generator", max_nbytes=None, idle_worker_timeout=_IDLE_SECONDS)
    stopped = Event()
    wanted = takewhile(lambda _: not stopped.is_set(), items)
    results = parallel(delayed(_attempt)(function, item) for item in wanted)
    try:
        for result, error in results:
            if error is not None:
                raise error
            yield result
    finally:
        # Work under way is awaited: joblib would kill the processes, and a thread of it may fail meanwhile.
        stopped.set()
        with suppress(Exception):
            deque(results, maxlen=0)


def _attempt(function: Callable[[T], R], item: T) -> tuple[R, None] | tuple[None, Exception]:
    collect_rarely()
    try:
        return function(item), None
    except Exception as error:
        error.add_note(f"In a worker process:\n{format_exc()}")
        return None, error


def _count_processes() -> int:
    """Return how many processes may compute: the cores of this process, also in a container, up to a limit."""
    if current_process().daemon:  # A process of Celery or of a pool may start no others.
        return 1
    from joblib import cpu_count

    return min(MOST_PROCESSES, int(cpu_count()))
