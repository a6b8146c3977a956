"""Number of examples that a property test tries: a fifth of them in ``make test``, all in ``make test-all``."""

from __future__ import annotations

import os

ALL_TESTS = os.environ.get("CONSOLIDATION_TESTS") == "all"
# Lower bound: tests with at most this many examples keep them all.
MIN_EXAMPLES = 10


def examples(count: int) -> int:
    """Return how many of ``count`` examples this run tries."""
    return count if ALL_TESTS else min(count, max(MIN_EXAMPLES, count // 5))
