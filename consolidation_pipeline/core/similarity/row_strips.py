"""Strips of rows: one thread compares each strip with all rows below it. Results come in the order of the strips."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Positions i < j and cosines of pairs, sorted by (i, j).
PairArrays = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]

# ``compare(top, bottom)`` returns the pairs (i, j) with top <= i < bottom; None if they are more than a block may hold.
CompareStrip = Callable[[int, int], PairArrays | None]

# Most pairs of a block, 12 bytes each. A block of a single row may have more.
BLOCK_PAIRS = 1 << 21

# Most rows of a strip, a multiple of both sides of a register tile. A strip with too many pairs has fewer rows.
STRIP_STEP = 96
MAX_STRIP_ROWS = 12 * STRIP_STEP


def iter_strips(compare: CompareStrip, n: int, *, height: int, threads: int) -> Iterator[PairArrays]:
    """Yield the pairs of n rows strip by strip, while ``threads`` threads compute up to two further strips each.

    A strip with too many pairs is halved and computed again, and the following strips have fewer rows too. Memory:
    2 * ``threads`` blocks of at most max(``BLOCK_PAIRS``, n) pairs.
    """
    pool, waiting, top = ThreadPoolExecutor(threads), deque[tuple[int, int, Future[PairArrays | None]]](), 0

    def submit(start: int, stop: int) -> tuple[int, int, Future[PairArrays | None]]:
        return start, stop, pool.submit(compare, start, stop)

    try:
        while waiting or top < n:
            while top < n and len(waiting) < 2 * threads:
                waiting.append(submit(top, min(top + height, n)))
                top += height
            start, stop, future = waiting.popleft()
            found = future.result()
            if found is None:
                height = (stop - start) // 2
                waiting.extendleft([submit(start + height, stop), submit(start, start + height)])
                continue
            yield found
            if len(found[0]) < BLOCK_PAIRS // 8:
                height = min(2 * height, MAX_STRIP_ROWS)
    finally:
        pool.shutdown(cancel_futures=True)


class _SingleThreadedBlas:
    """Context in which BLAS computes each product in the calling thread; entering it returns BLAS's number of threads.

    BLAS's own threads wait for each other, which costs most of their time on a busy machine. The limit holds for the
    whole process: the first user sets it, the last one restores it.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._threads = Lock(), 0, 1
        self._limits: Any = None

    def __enter__(self) -> int:
        from threadpoolctl import ThreadpoolController

        with self._lock:
            if not self._users:
                blas = ThreadpoolController().select(user_api="blas")
                self._threads = max([library["num_threads"] for library in blas.info()], default=1)
                self._limits = blas.limit(limits=1)
            self._users += 1
            return self._threads

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limits.restore_original_limits()


single_threaded_blas = _SingleThreadedBlas()
