"""Linkage on the sparse graph of similar pairs: connected components, complete linkage and average linkage."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.agglomeration import agglomerate
from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.grouping.nearest_neighbor_chain import Rows
from consolidation_pipeline.core.similarity.similarity_join import SLACK, SimilarPairs

# Numbers in the widened rows of the components that are linked together: 32 MB of float64.
_ELEMENTS = 1 << 22


def select_strong_pairs(n: int, pairs: SimilarPairs, threshold: float) -> SimilarPairs:
    """Return the pairs of different rows whose similarity reaches ``threshold``, each with i < j.

    Raises:
        ValueError: a pair names a row outside 0..n-1.
    """
    strong = pairs.at_least(threshold)
    low, high = np.minimum(strong.i, strong.j), np.maximum(strong.i, strong.j)
    if len(low) and (low.min() < 0 or high.max() >= n):
        raise ValueError(f"pairs name rows {low.min()} to {high.max()}; with n = {n} they must be within 0 to {n - 1}")
    return SimilarPairs(low, high, strong.similarity).select(low != high)


def connected_components(n: int, pairs: SimilarPairs, threshold: float) -> Labels:
    """Group ``n`` rows that are connected through pairs whose similarity reaches ``threshold`` (single linkage).

    Two members of a group need not be similar themselves: groups may chain.

    Returns:
        Labels (n,): 0..g-1, -1 for a row that is alone.

    Raises:
        ValueError: a pair names a row outside 0..n-1.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components as components

    strong = select_strong_pairs(n, pairs, threshold)
    if not len(strong):
        return np.full(n, -1, dtype=np.int64)
    graph = csr_array((np.ones(len(strong), dtype=np.bool_), (strong.i, strong.j)), shape=(n, n))
    return renumber_labels(components(graph, directed=False)[1].astype(np.int64), 2)


def complete_linkage(n: int, pairs: SimilarPairs, threshold: float, *, initial: ArrayLike | None = None) -> Labels:
    """Group ``n`` rows such that *every* pair within a group is in ``pairs`` and reaches ``threshold``.

    Agglomerative: the two groups whose weakest pair is strongest merge first. Of equals, those with the smallest first
    members merge first. No two of the resulting groups could still merge. Only such ties depend on the numbering of the
    rows, so number them by something lasting, such as their ids. The order of ``pairs`` does not matter.

    For e pairs that reach the threshold it takes e log e steps and about 120 e bytes.

    Args:
        n: number of rows.
        pairs: similar pairs of rows, in any order.
        threshold: lowest similarity within a group.
        initial: labels (n,) of groups that exist already, -1 = alone. They stay together and their inner pairs are
            taken as given. A row or another group joins only if it is paired with all of their members.

    Returns:
        Labels (n,): 0..g-1, -1 for a row that is alone.

    Raises:
        ValueError: ``pairs`` or ``initial`` do not fit ``n``.
    """
    owner = _owners(n, initial)
    a, b, weakest = _group_edges(n, pairs, threshold, owner=owner)
    return renumber_labels(agglomerate(n, a, b, weakest)[owner], 2)


def average_linkage(
    x: NDArray[np.floating], pairs: SimilarPairs, threshold: float, *, order: NDArray[np.integer]
) -> Labels:
    """Group rows by average linkage: two groups merge while the mean cosine between them reaches ``threshold``.

    Exact, without a matrix of all distances: two groups whose mean cosine reaches the threshold have a pair between
    them that reaches it too. So only groups that such a pair connects are considered. The mean over all pairs of two
    groups is the scalar product of their sums. Rows that no chain of pairs connects never meet.

    Of equally similar groups, those with the smallest first members merge first. Means are equal if they are equal to
    1.5e-11.

    For e pairs it takes about e d steps and 100 e bytes. The rows of a component are widened together, 8 d bytes each.

    Args:
        x: vectors (n, d), L2-normalised.
        pairs: pairs of positions in ``order``: all pairs of rows, or of rows of one kind, with a cosine of at least
            ``threshold``.
        threshold: lowest mean cosine.
        order: rows of ``x`` (n,) in the order in which ``pairs`` number them.

    Returns:
        Labels (n,) of the rows ``x[order]``: 0..g-1, -1 for a row that is alone.

    Raises:
        ValueError: ``pairs`` do not fit ``x``.
    """
    labels = np.arange(len(x), dtype=np.int64)
    for rows, inside in _by_components(len(x), x.shape[1], pairs, threshold):
        i, j = np.searchsorted(rows, inside.i), np.searchsorted(rows, inside.j)
        merging = Rows(_unit_rows(x[order[rows]]), np.ones(len(rows), dtype=np.int64), threshold - SLACK)
        labels[rows] = rows[agglomerate(len(rows), i, j, inside.similarity, rows=merging)]
    return renumber_labels(labels, 2)


def _by_components(
    n: int, d: int, pairs: SimilarPairs, threshold: float
) -> Iterator[tuple[NDArray[np.int64], SimilarPairs]]:
    """Yield rows and pairs of a few whole components at a time: both ascending, each pair once."""
    strong = select_strong_pairs(n, pairs, threshold)
    strong = strong.select(np.unique(strong.i.astype(np.int64) * n + strong.j, return_index=True)[1])
    component = connected_components(n, strong, threshold)
    portion = np.cumsum(np.bincount(component[component >= 0])) * d // _ELEMENTS
    of_row = np.full(n, -1, dtype=np.int64)
    of_row[component >= 0] = portion[component[component >= 0]]
    for number in np.unique(portion):
        yield np.flatnonzero(of_row == number), strong.select(of_row[strong.i] == number)


def _unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``rows`` (m, d) as float64 of length 1, without the rounding of their type; zero rows stay zero."""
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.where(lengths == 0.0, 1.0, lengths)[:, None]
    return wide


def _owners(n: int, initial: ArrayLike | None) -> Labels:
    """Return the first member (n,) of each row's initial group: it numbers the group while groups merge."""
    owner = np.arange(n, dtype=np.int64)
    if initial is None:
        return owner
    labels = np.asarray(initial)
    if labels.shape != (n,) or (n and labels.dtype.kind not in "iu"):
        raise ValueError(f"initial has shape {labels.shape} and dtype {labels.dtype}; it must be integer labels ({n},)")
    grouped = np.flatnonzero(labels >= 0)
    _, first, group_of = np.unique(labels[grouped], return_index=True, return_inverse=True)
    owner[grouped] = grouped[first[group_of]]
    return owner


def _group_edges(
    n: int, pairs: SimilarPairs, threshold: float, *, owner: Labels
) -> tuple[Labels, Labels, NDArray[np.float32]]:
    """Return the initial groups a < b between which every pair is present, ascending, and their weakest similarity."""
    strong = select_strong_pairs(n, pairs, threshold)
    # A pair that is listed twice counts once.
    key, similarity, _ = _weakest(strong.i.astype(np.int64) * n + strong.j, strong.similarity)
    a, b = owner[key // max(1, n)], owner[key % max(1, n)]
    crosses = a != b
    key = np.minimum(a, b)[crosses] * n + np.maximum(a, b)[crosses]
    key, similarity, crossing = _weakest(key, similarity[crosses])
    a, b = np.divmod(key, max(1, n))
    sizes = np.bincount(owner, minlength=n)
    complete = crossing == sizes[a] * sizes[b]
    return a[complete], b[complete], similarity[complete]


def _weakest(key: Labels, similarity: NDArray[np.float32]) -> tuple[Labels, NDArray[np.float32], Labels]:
    """Return each distinct key, ascending, with its smallest similarity and its number of occurrences."""
    order = np.lexsort((similarity, key))
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    return key[first], similarity[order[first]], np.diff(first, append=len(key))
