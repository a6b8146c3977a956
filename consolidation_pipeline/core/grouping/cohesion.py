"""Cohesion of groups: how similar their members are to each other."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.labels import Labels
from consolidation_pipeline.core.vectors import CACHED, as_matrix

# Rows of the cosine matrix of a large group that are computed at a time.
_STRIP = 256

Wide = NDArray[np.float64]


class Cohesion(NamedTuple):
    """Mean and minimum cosine over all pairs of a group; None if there is no pair."""

    mean: float | None
    minimum: float | None


class GroupSummary(NamedTuple):
    """Cohesion of many groups, float64; NaN if a group has no pair.

    ``mean`` and ``minimum`` (g,): mean and lowest cosine over the pairs of each group. ``mean_similarity`` (n,): mean
    cosine of each row to the other members of its group.
    """

    mean: Wide
    minimum: Wide
    mean_similarity: Wide


def summarize_groups(x: NDArray[np.floating], labels: Labels, *, minimum: bool = True) -> GroupSummary:
    """Compute the cohesion of all groups of rows of ``x``, those of one size at once.

    The means take one pass over the rows, because the cosines of a group add up to the square of its sum. The minimum
    takes m^2 d / 2 multiplications for m members: a few seconds for 20,000 members of 256 dimensions, and minutes for
    200,000. Memory besides the results: a few MB, or 8 m (d + 512) bytes for the largest group if that is more.

    Args:
        x: Vectors (n, d), L2-normalised.
        labels: Group of each row (n,), 0..g-1, -1 = alone.
        minimum: False: do not compute the lowest cosines, return NaN for them.

    Raises:
        ValueError: ``x`` is not a matrix, or ``labels`` do not fit it.
    """
    if labels.shape != (len(as_matrix(x)),):
        raise ValueError(f"labels have shape {labels.shape}; x has {len(x)} rows, and each needs one label")
    order = np.argsort(labels, kind="stable")[np.count_nonzero(labels < 0) :]
    sizes = np.bincount(labels[order])
    found = GroupSummary(*(np.full(length, np.nan) for length in (len(sizes), len(sizes), len(x))))
    starts = np.cumsum(sizes) - sizes
    for groups in _blocks_of_one_size(sizes, x.shape[1]):
        members = order[starts[groups, None] + np.arange(sizes[groups[0]])]
        rows = x[members].astype(np.float64)
        found.mean_similarity[members] = _mean_to_others(rows)
        found.mean[groups] = found.mean_similarity[members].mean(axis=1)
        if minimum:
            found.minimum[groups] = _minimum(rows)
    return GroupSummary(*(np.clip(part, -1.0, 1.0) for part in found))


def compute_cohesion(x: NDArray[np.floating], members: ArrayLike) -> Cohesion:
    """Return the cohesion of the rows ``members`` (m,), positions in ``x`` (n, d), L2-normalised."""
    rows = x[np.asarray(members, dtype=np.int64)]
    if len(rows) < 2:
        return Cohesion(None, None)
    found = summarize_groups(rows, np.zeros(len(rows), dtype=np.int64))
    return Cohesion(float(found.mean[0]), float(found.minimum[0]))


def _blocks_of_one_size(sizes: NDArray[np.int64], d: int) -> Iterator[NDArray[np.int64]]:
    """Yield the groups of two or more members, in blocks of one size whose rows are about ``CACHED`` numbers."""
    for size in np.unique(sizes[sizes > 1]).tolist():
        groups = np.flatnonzero(sizes == size)
        step = max(1, CACHED // (size * max(1, d, size)))
        yield from (groups[at : at + step] for at in range(0, len(groups), step))


def _mean_to_others(rows: Wide) -> Wide:
    """Return the mean scalar product (k, m) of each member of k groups, ``rows`` (k, m, d), with the other members."""
    with_all = np.matmul(rows, rows.sum(axis=1)[:, :, None])[:, :, 0]
    return np.asarray((with_all - np.einsum("kmd,kmd->km", rows, rows)) / (rows.shape[1] - 1))


def _minimum(rows: Wide) -> Wide:
    """Return the lowest scalar product (k,) within each of k groups, ``rows`` (k, m, d)."""
    # The diagonal may stay: no row is closer to another than to itself.
    columns = rows.transpose(0, 2, 1)
    strips = (
        np.matmul(rows[:, top : top + _STRIP], columns[:, :, top:]).min(axis=(1, 2))
        for top in range(0, rows.shape[1], _STRIP)
    )
    return np.asarray(np.min(list(strips), axis=0))
