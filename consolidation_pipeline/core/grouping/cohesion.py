"""How close the members of groups are to each other: of one group, or of all groups in one pass."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.labels import Labels
from consolidation_pipeline.core.vectors import as_matrix

# Numbers of one block of widened rows: 16 MB of float64.
_ELEMENTS = 1 << 21

# Rows of one strip of the cosines of a large group, which has all its members for columns.
_STRIP = 256

Wide = NDArray[np.float64]


class Cohesion(NamedTuple):
    """Mean and minimum cosine over all pairs of a group; None where there is no pair."""

    mean: float | None
    minimum: float | None


class GroupSummary(NamedTuple):
    """Per group (g,) the ``mean`` and ``minimum`` cosine over its pairs, per row (n,) the mean cosine to the other
    members of its group; all float64, NaN where there is no pair.
    """

    mean: Wide
    minimum: Wide
    mean_similarity: Wide


def summarize_groups(x: NDArray[np.floating], labels: Labels, *, minimum: bool = True) -> GroupSummary:
    """Cohesion of all groups of rows of ``x``, L2-normalised (n, d), at once; ``labels`` (n,) 0..g-1, -1 = alone.

    Groups of one size are done together. The means take one pass over the rows, as the cosines of a group add up to the
    square of its sum. The minimum looks at every pair: m^2 d / 2 multiplications for m members, a few seconds for
    20,000 of 256 dimensions, and as many minutes for 200,000; without ``minimum`` it is NaN and costs nothing.
    Memory besides the results: about 50 MB, or 8 m (d + 512) bytes for the largest group if that is more.
    ValueError: ``x`` is not a matrix, or ``labels`` do not fit it.
    """
    if labels.shape != (len(as_matrix(x)),):
        raise ValueError(f"labels have shape {labels.shape}; x has {len(x)} rows, and each needs one label")
    order = np.argsort(labels, kind="stable")[np.count_nonzero(labels < 0) :]
    sizes = np.bincount(labels[order])
    found = GroupSummary(*(np.full(length, np.nan) for length in (len(sizes), len(sizes), len(x))))
    starts = np.cumsum(sizes) - sizes
    for groups in _alike(sizes, x.shape[1]):
        members = order[starts[groups, None] + np.arange(sizes[groups[0]])]
        rows = x[members].astype(np.float64)
        found.mean_similarity[members] = _to_the_others(rows)
        found.mean[groups] = found.mean_similarity[members].mean(axis=1)
        if minimum:
            found.minimum[groups] = _minimum(rows)
    return GroupSummary(*(np.clip(part, -1.0, 1.0) for part in found))


def compute_cohesion(x: NDArray[np.floating], members: ArrayLike) -> Cohesion:
    """Mean and minimum cosine over all pairs of the rows ``members`` (positions) of ``x``, L2-normalised (n, d).

    None and None for fewer than two members. For many groups: ``summarize_groups``.
    """
    rows = x[np.asarray(members, dtype=np.int64)]
    if len(rows) < 2:
        return Cohesion(None, None)
    found = summarize_groups(rows, np.zeros(len(rows), dtype=np.int64))
    return Cohesion(float(found.mean[0]), float(found.minimum[0]))


def mean_similarities(x: NDArray[np.floating], members: ArrayLike) -> Wide:
    """Mean cosine (m,) of each of the rows ``members`` of ``x``, L2-normalised (n, d), to the other members.

    NaN for a single member, which has no other. For many groups: ``summarize_groups``.
    """
    rows = x[np.asarray(members, dtype=np.int64)].astype(np.float64)
    if len(rows) < 2:
        return np.full(len(rows), np.nan)
    return np.asarray(np.clip(_to_the_others(rows[None])[0], -1.0, 1.0))


def _alike(sizes: NDArray[np.int64], d: int) -> Iterator[NDArray[np.int64]]:
    """The groups with a pair, in portions of one size whose rows are about ``_ELEMENTS`` numbers."""
    for size in np.unique(sizes[sizes > 1]).tolist():
        groups = np.flatnonzero(sizes == size)
        step = max(1, _ELEMENTS // (size * max(1, d, size)))
        yield from (groups[at : at + step] for at in range(0, len(groups), step))


def _to_the_others(rows: Wide) -> Wide:
    """Mean scalar product (k, m) of each member of k groups, ``rows`` (k, m, d), with the others of its group."""
    with_all = np.matmul(rows, rows.sum(axis=1)[:, :, None])[:, :, 0]
    return np.asarray((with_all - np.einsum("kmd,kmd->km", rows, rows)) / (rows.shape[1] - 1))


def _minimum(rows: Wide) -> Wide:
    """Lowest scalar product (k,) within each of k groups, ``rows`` (k, m, d)."""
    # No row is closer to another than to itself, so the diagonal is the minimum only if all are equal.
    columns = rows.transpose(0, 2, 1)
    strips = (
        np.matmul(rows[:, top : top + _STRIP], columns[:, :, top:]).min(axis=(1, 2))
        for top in range(0, rows.shape[1], _STRIP)
    )
    return np.asarray(np.min(list(strips), axis=0))
