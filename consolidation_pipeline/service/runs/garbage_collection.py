"""Garbage collection of processes that do much work and end, or do nothing else."""

from __future__ import annotations

import gc
from functools import cache

# New objects after which the youngest are looked through (700 in Python itself), and collections of one generation
# after which the next is: texts that were read and rows are kept, are in no cycles, and are hundreds of thousands.
_THRESHOLDS = 50_000, 20, 20


@cache
def collect_rarely() -> None:
    """Exclude the objects of this process from garbage collection, and look for new garbage rarely, once in a process.

    What is imported lives as long as the process. Each full collection would scan it again, and a run causes many.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
