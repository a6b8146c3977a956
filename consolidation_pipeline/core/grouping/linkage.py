"""Linkage on the sparse graph of similar pairs: connected components, complete linkage and average linkage."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.agglomeration import agglomerate
from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.grouping.nearest_neighbor_chain import Rows
from consolidation_pipeline.core.similarity.similarity_join import SLACK, SimilarPairs

# Numbers in the float64 rows of the components that are linked at a time: 32 MB.
_ELEMENTS = 1 << 22


def select_strong_pairs(n: int, pairs: SimilarPairs, threshold: float) -> SimilarPairs:
    """Return the pairs of different rows whose similarity reaches ``threshold``, each with i < j.

    Raises:
        ValueError: A pair names a row outside 0..n-1.
    """
    strong = pairs.at_least(threshold)
    low, high = np.minimum(strong.i, strong.j), np.maximum(strong.i, strong.j)
    if len(low) and (low.min() < 0 or high.max() >= n):
        raise ValueError(f"pairs name rows {low.min()} to {high.max()}; with n = {n} they must be within 0 to {n - 1}")
    return SimilarPairs(low, high, strong.similarity).select(low != high)


def connected_components(n: int, pairs: SimilarPairs, threshold: float) -> Labels:
    """Return labels (n,) of the groups that pairs connect whose similarity reaches ``threshold`` (single linkage).

    Two members of a group need not be similar themselves: groups may chain. Labels are 0..g-1, -1 = alone.

    Raises:
        ValueError: A pair names a row outside 0..n-1.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components as components

    strong = select_strong_pairs(n, pairs, threshold)
    if not len(strong):
        return np.full(n, -1, dtype=np.int64)
    graph = csr_array((np.ones(len(strong), dtype=np.bool_), (strong.i, strong.j)), shape=(n, n))
    return renumber_labels(components(graph, directed=False)[1].astype(np.int64), 2)


def complete_linkage(n: int, pairs: SimilarPairs, threshold: float, *, initial: ArrayLike | None = None) -> Labels:
    """Return labels (n,) of groups in which *every* pair is in ``pairs`` and reaches ``threshold``.

    The two groups whose weakest pair is strongest merge first; ties: those with the smallest first members. Finally, no
    two groups can merge. Only ties depend on the numbering of the rows, so number them by their ids, for example.
    Takes e log e steps and about 120 e bytes for e pairs that reach the threshold.

    Args:
        n: Number of rows.
        pairs: Similar pairs of rows, in any order.
        threshold: Lowest similarity within a group.
        initial: Labels (n,) of existing groups, -1 = alone. Their members stay together, whatever their similarity. A
            row or another group joins only if it is paired with all of their members.

    Returns:
        0..g-1, -1 for a row that is alone.

    Raises:
        ValueError: ``pairs`` or ``initial`` do not fit ``n``.
    """
    owner = _owners(n, initial)
    a, b, weakest = _group_edges(n, pairs, threshold, owner=owner)
    return renumber_labels(agglomerate(n, a, b, weakest)[owner], 2)


def average_linkage(
    x: NDArray[np.floating], pairs: SimilarPairs, threshold: float, *, order: NDArray[np.integer]
) -> Labels:
    """Return labels (n,) by average linkage: two groups merge if the mean cosine between them reaches ``threshold``.

    Exact, without a matrix of all distances. If the mean cosine of two groups reaches the threshold, so does a pair
    between them: only groups that such a pair connects are compared. Their mean cosine is the scalar product of their
    sums, divided by the number of pairs.

    The most similar groups merge first; ties, to 1.5e-11: those with the smallest first members. Takes about e d steps
    and 100 e bytes for e pairs, and 8 d bytes for each row of a connected component.

    Args:
        x: Vectors (n, d), L2-normalised.
        pairs: Pairs of positions in ``order``: all pairs of rows, or of rows of one kind, with a cosine of at least
            ``threshold``.
        threshold: Lowest mean cosine.
        order: Rows of ``x`` (n,) in the order in which ``pairs`` number them.

    Returns:
        Labels of the rows ``x[order]``: 0..g-1, -1 for a row that is alone.

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
    """Yield rows and pairs, both ascending, of a few connected components at a time; each pair once."""
    strong = select_strong_pairs(n, pairs, threshold)
    strong = strong.select(np.unique(strong.i.astype(np.int64) * n + strong.j, return_index=True)[1])
    component = connected_components(n, strong, threshold)
    portion = np.cumsum(np.bincount(component[component >= 0])) * d // _ELEMENTS
    of_row = np.full(n, -1, dtype=np.int64)
    of_row[component >= 0] = portion[component[component >= 0]]
    for number in np.unique(portion):
        yield np.flatnonzero(of_row == number), strong.select(of_row[strong.i] == number)


def _unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return ``rows`` (m, d) as float64, normalised again to length 1; zero rows stay zero."""
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.where(lengths == 0.0, 1.0, lengths)[:, None]
    return wide


def _owners(n: int, initial: ArrayLike | None) -> Labels:
    """Return the first member (n,) of each row's initial group, by which the group is numbered."""
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
    """Return a, b and weakest similarity of the initial groups a < b with all pairs present, ascending."""
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
