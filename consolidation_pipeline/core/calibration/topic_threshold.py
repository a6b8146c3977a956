"""Pattern threshold of a project: the cosine at which average linkage separates its topics best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.calibration.threshold_estimates import CosineSpread
from consolidation_pipeline.core.grouping.average_linkage import GroupLinkage, LinkageLimits
from consolidation_pipeline.core.grouping.labels import Labels

# Thresholds that are tried, as positions between the median cosine of all pairs (0) and that of nearest neighbours (1).
POSITIONS = np.round(np.arange(0.90, 0.11, -0.03), 2)
# Position that is used if no threshold forms a group.
DEFAULT_POSITION = 0.45

# Contents that are linked. The best threshold hardly depends on their number: 0.40 to 0.46 for 300 to 4,000.
LINKED_ROWS = 3_000
# Fewest members of a group that counts.
_MIN_SIZE = 3

# A pattern of more than this share of the contents says nothing in particular. Small projects may have larger topics,
# and in large ones nobody reads a group of more than 400.
LARGEST_SHARE = 0.05
LEAST_LIMIT, MOST_LIMIT = 40, 400


@dataclass(frozen=True)
class TopicThreshold:
    """The pattern ``threshold``, and the mean ``silhouette`` at it, over the contents that were ``linked``."""

    threshold: float
    silhouette: float
    linked: int


def limit_topic_size(contents: int) -> int:
    """Return the highest number of contents of a pattern group in a project of this number of ``contents``."""
    return min(MOST_LIMIT, max(LEAST_LIMIT, int(LARGEST_SHARE * contents)))


def find_topic_threshold(x: NDArray[np.float32], order: NDArray[np.integer], spread: CosineSpread) -> TopicThreshold:
    """Return the threshold of average linkage with the highest mean silhouette, to three decimals.

    Simplified silhouette (Hruschka, de Castro, Campello, *Evolutionary algorithms for clustering gene-expression data*,
    2004): with a as the distance of a row to its own group and b that to the nearest other group, (b - a) / max(a, b).
    Distances are 1 minus the mean cosine with the other members. Rows in groups of fewer than three count 0, so that
    neither many small groups nor few large ones win.

    Args:
        x: Centred vectors (n, d) of distinct contents, L2-normalised.
        order: Rows (n,) in the order in which they are sampled, as for ``measure_spread``.
        spread: Spread of the cosines of ``x``.
    """
    rows = x[np.asarray(order)[:LINKED_ROWS]]
    ones = np.ones(len(rows), dtype=np.int64)
    linkage = GroupLinkage(rows, LinkageLimits(np.zeros_like(ones), ones, limit_topic_size(len(rows))))
    best = TopicThreshold(_at_position(spread, DEFAULT_POSITION), 0.0, len(rows))
    for position in POSITIONS.tolist():
        threshold = _at_position(spread, position)
        linkage.lower(threshold)
        # Two thresholds that form the same groups differ by rounding: the higher one is taken.
        found = round(_mean_silhouette(rows, linkage.group, linkage.sums), 4)
        if found > best.silhouette:
            best = TopicThreshold(threshold, found, len(rows))
    return best


def _at_position(spread: CosineSpread, position: float) -> float:
    return round(spread.median + position * (spread.nearest - spread.median), 3)


def _mean_silhouette(rows: NDArray[np.float32], group: Labels, sums: NDArray[np.float64]) -> float:
    """Return the mean silhouette of ``rows`` (n, d) in groups (n,) with these ``sums`` (g, d)."""
    sizes = np.bincount(group, minlength=len(sums))
    own = (np.einsum("ij,ij->i", rows, sums[group]) - 1.0) / np.maximum(1, sizes[group] - 1)
    candidates = np.flatnonzero(sizes > 1)
    means = (sums[candidates] / sizes[candidates, None]).astype(np.float32)
    cosines = np.concatenate([rows @ means.T, np.zeros((len(rows), 1), np.float32)], axis=1)
    column = np.full(len(sums), len(candidates))
    column[candidates] = np.arange(len(candidates))
    cosines[np.arange(len(rows)), column[group]] = 0.0
    # A cosine below that of unrelated texts means the same as 0.
    other = cosines.max(axis=1)
    silhouette = (own - other) / np.maximum(1e-6, 1.0 - np.minimum(own, other))
    return float(np.where(sizes[group] >= _MIN_SIZE, silhouette, 0.0).mean())
