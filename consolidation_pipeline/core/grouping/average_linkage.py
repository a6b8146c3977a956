"""Average linkage: two groups merge if the mean cosine between them reaches a threshold.

Exact, without a matrix of all distances. If the mean cosine of two groups reaches the threshold, so does a pair between
them: only groups that such a pair connects are compared. Their mean cosine is the scalar product of their sums, divided
by the number of pairs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.grouping.agglomeration import agglomerate
from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.grouping.linkage import connected_components, select_strong_pairs
from consolidation_pipeline.core.grouping.nearest_neighbor_chain import Rows
from consolidation_pipeline.core.similarity.similarity_join import SLACK, SimilarPairs
from consolidation_pipeline.core.vectors import CACHED

# Numbers in the float64 rows of the components that are linked at a time, and in a block of products: 32 MB.
_ELEMENTS = 1 << 22

# Pairs of groups that are linked in one round: 30 for each group, or 100 MB if that is more.
_ROUND_PAIRS = 1 << 20
_ROUND_PAIRS_PER_GROUP = 30

# Groups whose products are measured before a round, and the least by which a round lowers the threshold.
_SAMPLED = 1_000
_STEP = 0.01

# Highest weight of a group if there is no limit.
NO_LIMIT = 1 << 62


class LinkageLimits(NamedTuple):
    """Limits of the groups of average linkage, besides the threshold.

    ``walls`` (n,): only rows with equal numbers are grouped, and ``pairs`` connect only such rows. ``weights`` (n,):
    weight of each row, an integer. ``most``: highest weight of a group; a row may weigh more.
    """

    walls: NDArray[np.int64]
    weights: NDArray[np.int64]
    most: int = NO_LIMIT


def average_linkage(
    x: NDArray[np.floating],
    pairs: SimilarPairs,
    threshold: float,
    *,
    order: NDArray[np.integer],
    complete_from: float | None = None,
    limits: LinkageLimits | None = None,
) -> Labels:
    """Return labels (n,) by average linkage: two groups merge if the mean cosine between them reaches ``threshold``.

    The most similar groups merge first; ties, to 1.5e-11: those with the smallest first members. Takes about e d steps
    and 100 e bytes for e pairs, and 8 d bytes for each row of a connected component. Below ``complete_from``, groups
    are compared with all others, which takes g^2 d / 2 multiplications for g groups, a few times, and 20 d g bytes.

    Args:
        x: Vectors (n, d), L2-normalised.
        pairs: Pairs of positions in ``order``: all pairs of rows, or of rows of one kind, with a cosine of at least
            ``complete_from``.
        threshold: Lowest mean cosine.
        order: Rows of ``x`` (n,) in the order in which ``pairs`` number them.
        complete_from: Lowest cosine of ``pairs``; None = ``threshold``.
        limits: Limits of the groups, by row of ``x``; None = none.

    Returns:
        Labels of the rows ``x[order]``: 0..g-1, -1 for a row that is alone.

    Raises:
        ValueError: ``pairs`` do not fit ``x``.
    """
    n = len(x)
    walls, weights, most = limits or unlimited(n)
    ordered = LinkageLimits(walls[order], weights[order], most)
    start = threshold if complete_from is None else max(threshold, complete_from)
    into = np.arange(n, dtype=np.int64)
    for rows, inside in _by_components(n, x.shape[1], pairs, start):
        i, j = np.searchsorted(rows, inside.i), np.searchsorted(rows, inside.j)
        sizes = np.ones(len(rows), dtype=np.int64)
        merging = Rows(_unit_rows(x[order[rows]]), sizes, ordered.weights[rows], start - SLACK, most)
        into[rows] = rows[agglomerate(len(rows), i, j, inside.similarity, rows=merging)]
    if threshold < start:
        for rows in _by_walls(ordered.walls, x.shape[1]):
            limits = LinkageLimits(ordered.walls[rows], ordered.weights[rows], most)
            linking = GroupLinkage(x[order[rows]], limits, into=np.searchsorted(rows, into[rows]), start=start)
            linking.lower(threshold)
            into[rows] = rows[linking.into]
    return renumber_labels(into, 2)


def unlimited(n: int) -> LinkageLimits:
    """Return limits for n rows that limit nothing: no walls, and the weight 1."""
    return LinkageLimits(np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64))


def _by_components(
    n: int, d: int, pairs: SimilarPairs, threshold: float
) -> Iterator[tuple[NDArray[np.int64], SimilarPairs]]:
    """Yield rows and pairs, both ascending, of a few connected components at a time; each pair once."""
    strong = select_strong_pairs(n, pairs, threshold)
    strong = strong.select(np.unique(strong.i.astype(np.int64) * n + strong.j, return_index=True)[1])
    component = connected_components(n, strong, threshold)
    portion = np.cumsum(np.bincount(component[component >= 0])) * d // _ELEMENTS
    of_row = np.full(n, -1, dtype=np.int64)
    of_row[component >= 0] = portion[component[component >= 0]]
    for number in np.unique(portion):
        yield np.flatnonzero(of_row == number), strong.select(of_row[strong.i] == number)


def _by_walls(walls: NDArray[np.int64], d: int) -> Iterator[NDArray[np.int64]]:
    """Yield the rows, ascending, of one or a few walls at a time."""
    wall = np.unique(walls, return_inverse=True)[1].reshape(-1)
    portion = (np.cumsum(np.bincount(wall)) * d // _ELEMENTS)[wall]
    order = np.argsort(portion, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(portion[order])) + 1)


def _unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``rows`` (m, d) as float64, normalised again to length 1; zero rows stay zero."""
    wide = np.ascontiguousarray(rows, dtype=np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return np.asarray(wide / np.where(lengths == 0.0, 1.0, lengths)[:, None])


class GroupLinkage:
    """Average linkage of groups at falling thresholds, without given pairs.

    The result is the same as if all pairs were linked at once: average linkage has no inversions, so the groups at a
    high threshold are parts of those at a lower one. Each round lowers the threshold as far as the number of pairs
    allows; the groups that it forms are then compared as wholes.

    ``group`` (n,): group of each row, 0..g-1; ``sums`` (g, d): sums of their rows of length 1.

    Args:
        x: Vectors (n, d), L2-normalised.
        limits: Limits of the groups, by row.
        into: First member of the group of each row (n,); None = each row is alone.
        start: Threshold at which the groups are complete.
    """

    def __init__(
        self, x: NDArray[np.floating], limits: LinkageLimits, *, into: Labels | None = None, start: float = 2.0
    ) -> None:
        of_row = np.arange(len(x), dtype=np.int64) if into is None else into
        # Numbered by wall, then by first member: ties are between groups within a wall.
        first = np.unique(of_row)
        self._first = first[np.argsort(limits.walls[first], kind="stable")]
        number = np.empty(len(x), dtype=np.int64)
        number[self._first] = np.arange(len(first))
        self.group, self._limits, self._lowest = number[of_row], limits, start
        self.sums = _sum_rows(x, self.group, len(first))

    @property
    def into(self) -> Labels:
        """First member of the group of each row (n,)."""
        return self._first[self.group]

    def lower(self, threshold: float) -> None:
        """Merge the groups whose mean cosine reaches ``threshold``."""
        while self._lowest > threshold:
            count, limits = len(self._first), self._limits
            sizes = np.bincount(self.group, minlength=count)
            weights = np.zeros(count, dtype=np.int64)
            np.add.at(weights, self.group, limits.weights)
            means = (self.sums / sizes[:, None]).astype(np.float32)
            close = _CloseGroups(means, limits.walls[self._first], weights=weights, most=limits.most)
            self._lowest = close.choose_threshold(self._lowest, threshold)
            i, j = close.find_pairs(self._lowest)
            rows = Rows(self.sums, sizes, weights, self._lowest - SLACK, limits.most)
            kept, renumbered = np.unique(agglomerate(count, i, j, np.zeros(len(i)), rows=rows), return_inverse=True)
            self._first, self.sums = self._first[kept], self.sums[kept]
            self.group = renumbered.reshape(-1)[self.group]


def _sum_rows(x: NDArray[np.floating], group: Labels, count: int) -> NDArray[np.float64]:
    """Return the sums (count, d) of the rows of each group, as rows of length 1."""
    sums = np.zeros((count, x.shape[1]))
    is_first = np.zeros(len(x), dtype=np.bool_)
    is_first[np.unique(group, return_index=True)[1]] = True
    step = max(1, CACHED // max(1, x.shape[1]))
    for at in range(0, len(x), step):
        rows, groups, first = _unit_rows(x[at : at + step]), group[at : at + step], is_first[at : at + step]
        # Nearly all groups are one row, and ``np.add.at`` takes longer than a copy.
        sums[groups[first]] = rows[first]
        np.add.at(sums, groups[~first], rows[~first])
    return sums


class _CloseGroups:
    """Pairs of groups by the scalar product of their mean vectors, which is the mean cosine between them.

    Args:
        means: Mean vectors float32 (g, d).
        walls: Wall of each group (g,), ascending.
        weights: Weight of each group (g,).
        most: Highest weight of two groups that merge.
    """

    def __init__(
        self, means: NDArray[np.float32], walls: NDArray[np.int64], *, weights: NDArray[np.int64], most: int
    ) -> None:
        self.means, self.weights, self.most = means, weights, most
        starts = np.flatnonzero(np.diff(walls, prepend=walls[:1] - 1))
        ends = np.append(starts[1:], len(walls))
        inhabited = ends - starts > 1
        self.walls = list(zip(starts[inhabited].tolist(), ends[inhabited].tolist(), strict=True))

    def choose_threshold(self, last: float, threshold: float) -> float:
        """Return ``threshold``, or a higher one below ``last`` if a round would have too many pairs."""
        allowed = max(_ROUND_PAIRS, _ROUND_PAIRS_PER_GROUP * len(self.means))
        if sum((end - start) * (end - start - 1) // 2 for start, end in self.walls) <= allowed:
            return threshold
        stride = max(1, len(self.means) // _SAMPLED)
        parts = []
        for start, end in self.walls:
            sample = np.arange(start + (-start) % stride, end, stride)
            product, fits = self._multiply(sample, start, end)
            parts.append(product[fits & (product >= threshold)])
        found = np.sort(np.concatenate([np.empty(0, np.float32), *parts]))[::-1]
        # A sampled row has its pairs with all rows of its wall, and itself: each pair counts twice.
        place = 2 * allowed // stride
        return threshold if len(found) <= place else max(threshold, min(float(found[place]), last - _STEP))

    def find_pairs(self, lowest: float) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return i < j of the pairs that may merge and whose product is at least ``lowest``, ascending."""
        found_i, found_j = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        for start, end in self.walls:
            top = start
            while top < end:
                bottom = min(end, top + max(1, _ELEMENTS // (end - top)))
                product, fits = self._multiply(np.arange(top, bottom), top, end)
                # The products have the rounding of float32; ``agglomerate`` computes them again.
                i, j = np.nonzero(fits & (product >= lowest - 2 * SLACK))
                ascending = i < j
                found_i.append((i[ascending] + top).astype(np.int32))
                found_j.append((j[ascending] + top).astype(np.int32))
                top = bottom
        return np.concatenate(found_i), np.concatenate(found_j)

    def _multiply(self, rows: NDArray[np.int64], start: int, end: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Return the products of ``rows`` with the groups ``start`` to ``end``, and True for those that may merge."""
        product = self.means[rows] @ self.means[start:end].T
        return product, self.weights[rows, None] + self.weights[None, start:end] <= self.most
