"""Estimates of a project's thresholds from the spread of its cosines and from labelled pairs.

Nothing here is tuned to a data set. The spread sets the pattern threshold. Labelled pairs, synthetic ones and people's
decisions, set the merge and suggest thresholds. Every share comes with its 95 % interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, sqrt

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.calibration.model_thresholds import ThresholdProfile, are_near_duplicates

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Rows sampled to measure the spread; each is compared with all.
SAMPLE_ROWS = 2_000

# Position of the topic threshold between the median cosine of all pairs (0) and that of nearest neighbours (1), on
# centred vectors. Mean F1 over five labelled stores, untuned: 0.38: 0.68, 0.42: 0.687, 0.46: 0.69, 0.50: 0.68.
PATTERN_POSITION = 0.46
# Below this, cosines are noise: of 500 mixed memories, a third end in meaningless groups at 0.33.
MIN_PATTERN_THRESHOLD = 0.38
# Pairs of the graph for each memory: the pairs of 100,000 memories are written in half a minute.
MAX_PAIRS_PER_MEMORY = 30

# Largest share of near-misses, with its whole interval, that a threshold may merge although a higher one would not.
# Of the pairs merged in labelled stores 0 to 7 % are wrong. The few hundred near-misses of a small store cannot tell a
# smaller share from zero, and would push its threshold far above what it needs.
MAX_WRONG_SHARE = 0.08
# Share of paraphrases that a person should be asked about.
MIN_FOUND_SHARE = 0.9

# Thresholds that are tried: 0.50, 0.51 .. 0.99.
GRID = tuple(round(0.5 + 0.01 * step, 2) for step in range(50))

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


@dataclass(frozen=True)
class CurvePoint:
    """Effect of a merge threshold on labelled pairs: share of near-misses merged and of paraphrases found."""

    threshold: float
    wrong: Share
    found: Share


@dataclass(frozen=True, eq=False)
class LabelledPairs:
    """Pairs with a known truth, arrays of shape (n,).

    ``similarity``: cosine. ``words``: distinct words of the shorter text. ``shared``: share of its content words that
    the other text has. ``vetoed``: their literals conflict. ``same``: they mean the same. ``kind``: origin of the pair.
    ``min_shared``: smallest ``shared`` that merges.
    """

    similarity: Floats
    words: NDArray[np.int64]
    shared: Floats
    vetoed: Mask
    same: Mask
    kind: NDArray[np.str_]
    min_shared: float = 0.0

    def merged(self, threshold: float) -> Mask:
        """Return True (n,) for each pair that a merge threshold merges."""
        near = are_near_duplicates(
            self.similarity, threshold, words=self.words, shared=self.shared, min_shared=self.min_shared
        )
        return np.asarray(near & ~self.vetoed)


@dataclass(frozen=True)
class Recommendation:
    """Recommended thresholds for merging and for asking a person."""

    t_merge: float
    t_suggest: float


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


def recommend_pattern_threshold(spread: CosineSpread) -> float:
    """Return the cosine from which memories are on one topic, to three decimals.

    It lies between the median of all pairs and that of nearest neighbours (``PATTERN_POSITION``). It is high enough for
    the graph to stay sparse, and at least ``MIN_PATTERN_THRESHOLD``.
    """
    rule = spread.median + PATTERN_POSITION * (spread.nearest - spread.median)
    return round(max(rule, spread.bound, MIN_PATTERN_THRESHOLD), 3)


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


def recommend_thresholds(
    pairs: LabelledPairs, profile: ThresholdProfile, *, lowest: float = MIN_PATTERN_THRESHOLD
) -> Recommendation:
    """Recommend thresholds for merging and for asking a person, from labelled pairs.

    ``t_merge``: the smallest threshold of the grid, not below the profile's, that avoids enough wrong merges. A wrong
    merge counts if the highest threshold of the grid would have avoided it; their share must be below
    ``MAX_WRONG_SHARE`` with its whole interval. Wrong merges that no threshold can avoid (a swapped *not* that no veto
    saw) are reported by ``estimate_errors``. If no threshold qualifies, there are too few near-misses to tell, and the
    profile's is used.

    ``t_suggest``: the cosine that ``MIN_FOUND_SHARE`` of the paraphrases reach, but at least as far below ``t_merge``
    as in the profile, or there would be nothing between them to ask about. It is not below ``lowest``.

    Args:
        pairs: labelled pairs.
        profile: profile of the embedding model.
        lowest: pattern threshold.
    """
    t_merge = next((t for t in _candidates(profile) if _avoidable(pairs, t).high < MAX_WRONG_SHARE), profile.t_merge)
    gap = profile.t_merge - profile.t_suggest
    reached = float(np.quantile(pairs.similarity[pairs.same], 1 - MIN_FOUND_SHARE)) if pairs.same.any() else 1.0
    t_suggest = max(min(floor(reached * 100) / 100, round(t_merge - gap, 3)), min(lowest, t_merge))
    return Recommendation(t_merge, t_suggest)


def estimate_errors(pairs: LabelledPairs, t_merge: float) -> CurvePoint:
    """Return the shares of near-misses and of paraphrases that a merge threshold merges."""
    merged = pairs.merged(t_merge)
    return CurvePoint(t_merge, _share(merged, ~pairs.same), _share(merged, pairs.same))


def compute_curve(pairs: LabelledPairs) -> list[CurvePoint]:
    """Return ``estimate_errors`` for every threshold of the grid."""
    return [estimate_errors(pairs, threshold) for threshold in GRID]


def compute_merged_shares(pairs: LabelledPairs, t_merge: float) -> dict[str, Share]:
    """Return the share of merged pairs by kind of pair."""
    merged = pairs.merged(t_merge)
    return {str(kind): _share(merged, pairs.kind == kind) for kind in np.unique(pairs.kind)}


def _candidates(profile: ThresholdProfile) -> Sequence[float]:
    return [profile.t_merge, *(threshold for threshold in GRID if threshold > profile.t_merge)]


def _avoidable(pairs: LabelledPairs, threshold: float) -> Share:
    wrong = pairs.merged(threshold) & ~pairs.merged(GRID[-1]) & ~pairs.same
    return wilson_interval(int(wrong.sum()), int((~pairs.same).sum()))


def _share(merged: Mask, of: Mask) -> Share:
    return wilson_interval(int((merged & of).sum()), int(of.sum()))


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
