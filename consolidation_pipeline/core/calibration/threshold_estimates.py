"""Spread of a project's cosines, and shares with their 95 % intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, sqrt

import numpy as np
from numpy.typing import NDArray

# Rows sampled to measure the spread; each is compared with all.
SAMPLE_ROWS = 2_000

# Pairs of the graph for each memory: the pairs of 100,000 memories are written in half a minute.
MAX_PAIRS_PER_MEMORY = 30

_Z = 1.959963984540054  # normal quantile of 0.975
_BINS = 20_000
_BLOCK = 1 << 22


@dataclass(frozen=True)
class CosineSpread:
    """Spread of a project's cosines.

    ``median``: median over all pairs. ``nearest``: median over nearest neighbours. Both are rounded down to 1e-4.
    ``bound``: lowest threshold that keeps the graph within ``MAX_PAIRS_PER_MEMORY``. ``sampled``: number of rows
    measured.
    """

    median: float
    nearest: float
    bound: float
    sampled: int


@dataclass(frozen=True)
class Share:
    """Part ``count`` of ``total`` with its 95 % interval (Wilson)."""

    count: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """The share itself; None if ``total`` is 0."""
        return self.count / self.total if self.total else None


def measure_spread(x: NDArray[np.float32], order: NDArray[np.integer]) -> CosineSpread | None:
    """Measure the spread of the cosines between distinct contents; None for fewer than two rows.

    Takes ``SAMPLE_ROWS`` n d multiplications and 16 MB.

    Args:
        x: vectors (n, d) of distinct contents, L2-normalised.
        order: rows (n,) in the order in which they are sampled: the first ``SAMPLE_ROWS`` are compared with all. If it
            follows from the contents, the result does not depend on the order of the rows.
    """
    sample = np.asarray(order)[:SAMPLE_ROWS]
    if len(x) < 2 or not len(sample):
        return None
    counts = np.zeros(_BINS + 1, dtype=np.int64)
    nearest = np.empty(len(sample))
    step = max(1, _BLOCK // len(x))
    for start in range(0, len(sample), step):
        rows = sample[start : start + step]
        cosines = np.clip(x[rows] @ x.T, -1.0, 1.0)
        cosines[np.arange(len(rows)), rows] = -1.0
        nearest[start : start + len(rows)] = cosines.max(axis=1)
        counts += np.bincount(((cosines + 1.0) * (_BINS / 2)).astype(np.int64).ravel(), minlength=_BINS + 1)
    counts[0] -= len(sample)  # the rows themselves
    return CosineSpread(
        _quantile(counts, 0.5), _floored(float(np.median(nearest))), _bound(counts, len(x)), len(sample)
    )


def wilson_interval(count: int, total: int) -> Share:
    """Return the share with its 95 % score interval (Wilson 1927); [0, 1] if ``total`` is 0.

    Raises:
        ValueError: ``count`` is not between 0 and ``total``.
    """
    if not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is no share: the count must be between 0 and the total")
    if total == 0:
        return Share(0, 0, 0.0, 1.0)
    share, square = count / total, _Z * _Z / total
    middle = (share + square / 2) / (1 + square)
    reach = _Z / (1 + square) * sqrt(share * (1 - share) / total + square / (4 * total))
    low = 0.0 if count == 0 else middle - reach
    high = 1.0 if count == total else middle + reach
    return Share(count, total, low, high)


def _bound(counts: NDArray[np.int64], n: int) -> float:
    """Return the lowest threshold above which at most the allowed share of the sampled pairs lies."""
    allowed = 2 * MAX_PAIRS_PER_MEMORY / (n - 1)
    return -1.0 if allowed >= 1.0 else _quantile(counts, 1.0 - allowed, up=1)


def _quantile(counts: NDArray[np.int64], share: float, *, up: int = 0) -> float:
    """Return the lower edge (``up`` = 1: the upper edge) of the bin that holds the quantile."""
    at = int(np.searchsorted(np.cumsum(counts), share * counts.sum()))
    return round((at + up) * 2 / _BINS - 1.0, 4)


def _floored(value: float) -> float:
    return floor(value * 1e4) / 1e4
