"""Number of examples that a property test tries: a fifth of them in ``make test``, all in ``make test-all``."""

from __future__ import annotations

import os

ALL_TESTS = os.environ.get("CONSOLIDATION_TESTS") == "all"
# Fewer find little: a test with at most this many keeps them.
FEWEST = 10


def examples(count: int) -> int:
    """Return how many of ``count`` examples this run tries."""
    return count if ALL_TESTS else min(count, max(FEWEST, count // 5))
