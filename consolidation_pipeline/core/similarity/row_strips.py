"""Strips of rows, each compared with all rows below by one thread, handed on in order."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Positions i < j and cosines of pairs, sorted by (i, j).
Found = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]

# ``compare(top, bottom)``: the pairs (i, j) with top <= i < bottom, or None when they are more than a block may hold.
Compare = Callable[[int, int], Found | None]

# Pairs of one block (12 bytes each) unless a single row has more.
BLOCK_PAIRS = 1 << 21

# Rows of a strip: a multiple of the register tiles in both directions, unless so many have too many pairs.
STEP = 96
HEIGHT = 12 * STEP


def in_order(compare: Compare, n: int, *, height: int, threads: int) -> Iterator[Found]:
    """Yield the pairs of rows [0, n), strip after strip, while ``threads`` threads compute up to two strips each ahead.

    A strip that holds too many pairs is cut in half and computed again; the following ones are lower, too.
    Memory: 2 * ``threads`` blocks, each of at most max(``BLOCK_PAIRS``, n) pairs, whatever n^2 is.
    """
    pool, waiting, top = ThreadPoolExecutor(threads), deque[tuple[int, int, Future[Found | None]]](), 0

    def submitted(start: int, stop: int) -> tuple[int, int, Future[Found | None]]:
        return start, stop, pool.submit(compare, start, stop)

    try:
        while waiting or top < n:
            while top < n and len(waiting) < 2 * threads:
                waiting.append(submitted(top, min(top + height, n)))
                top += height
            start, stop, future = waiting.popleft()
            found = future.result()
            if found is None:
                height = (stop - start) // 2
                waiting.extendleft([submitted(start + height, stop), submitted(start, start + height)])
                continue
            yield found
            if len(found[0]) < BLOCK_PAIRS // 8:
                height = min(2 * height, HEIGHT)
    finally:
        pool.shutdown(cancel_futures=True)


class _OneBlasThread:
    """While anyone is inside, BLAS computes each product in the thread that asks for it.

    Two threads with a product each neither wait for each other nor for a third process, which on a busy machine costs
    BLAS's own threads most of their time. The setting belongs to the process, so nested and concurrent users share it:
    the first one in sets it, the last one out restores it. Entering returns the number of threads BLAS had.
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


one_blas_thread = _OneBlasThread()
