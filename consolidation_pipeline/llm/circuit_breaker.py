"""Stops asking a model that keeps failing: what does not work five times in a row would cost the same again."""

import threading

from consolidation_pipeline.errors import ModelUnavailableError

MAX_FAILURES_IN_A_ROW = 5


class CircuitBreaker:
    """Counts prompts that got no usable reply in a row; at ``limit`` it opens for good. Safe to share by threads."""

    def __init__(self, model: str, limit: int = MAX_FAILURES_IN_A_ROW) -> None:
        self._model = model
        self._limit = limit
        self._failures = 0
        self._last = ""
        self._lock = threading.Lock()

    def check(self) -> None:
        """Raises ModelUnavailableError once ``limit`` prompts in a row have failed."""
        with self._lock:
            if self._failures >= self._limit:
                raise ModelUnavailableError(
                    f"{self._model} failed for {self._failures} prompts in a row and is not asked again in this phase; "
                    f"the last time: {self._last}"
                )

    def failed(self, error: Exception) -> None:
        """A prompt got no usable reply."""
        with self._lock:
            self._failures += 1
            self._last = str(error)

    def succeeded(self) -> None:
        """A prompt got one; the count starts anew unless the breaker is open."""
        with self._lock:
            if self._failures < self._limit:
                self._failures = 0
