"""Linkage on the sparse graph of similar pairs: connected components and complete linkage."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.agglomeration import agglomerate
from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs


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
