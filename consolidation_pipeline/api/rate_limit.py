"""Rate limit of requests per caller: a token bucket each, in memory, so per process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Lock

from cachetools import LRUCache

# A caller that drops out of the cache starts again with a full bucket.
_MAX_CALLERS = 10_000


class RateLimiter:
    """Token buckets: ``burst`` tokens per caller, refilled with ``rate`` tokens a second; a request takes one."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: LRUCache[str, tuple[float, float]] = LRUCache(_MAX_CALLERS)
        self._lock = Lock()

    def take(self, caller: str) -> int:
        """Take a token. Return 0, or the whole seconds to wait (at least 1) if there is none."""
        with self._lock:
            now = self._clock()
            left, since = self._buckets.get(caller, (float(self._burst), now))
            left = min(float(self._burst), left + (now - since) * self._rate)
            granted = left >= 1
            self._buckets[caller] = (left - 1 if granted else left, now)
        return 0 if granted else max(1, math.ceil((1 - left) / self._rate))
