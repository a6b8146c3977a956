"""The graph of similar pairs: those that reach a threshold, its connected components, and pieces of limited size."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.labels import Labels, members_of, numbered
from consolidation_pipeline.core.similarity import SLACK, SimilarPairs

# A larger component is split by raising its threshold by a hundredth, or by a tenth of what is left to 1.0 if that is
# less: near 1.0 a whole hundredth could turn one dense component into nothing but lone rows.
SPLIT_STEP, SPLIT_SHARE = 0.01, 0.1


def strong_pairs(n: int, pairs: SimilarPairs, threshold: float) -> SimilarPairs:
    """The pairs that reach ``threshold``, each with i < j. ValueError: ``pairs`` do not fit ``n``."""
    strong = pairs.at_least(threshold)
    low, high = np.minimum(strong.i, strong.j), np.maximum(strong.i, strong.j)
    if len(low) and (low.min() < 0 or high.max() >= n):
        raise ValueError(f"pairs name rows {low.min()} to {high.max()}; with n = {n} they must be within 0 to {n - 1}")
    return SimilarPairs(low, high, strong.similarity).select(low != high)


def connected_components(n: int, pairs: SimilarPairs, threshold: float) -> Labels:
    """Groups of ``n`` rows that are connected through pairs that reach ``threshold``; such groups may chain.

    ValueError: ``pairs`` do not fit ``n``.
    """
    from scipy.sparse.csgraph import connected_components as components

    strong = strong_pairs(n, pairs, threshold)
    if not len(strong):
        return np.full(n, -1, dtype=np.int64)
    return numbered(components(_graph(n, strong), directed=False)[1].astype(np.int64), 2)


def pieces(n: int, pairs: SimilarPairs, threshold: float, *, largest: int) -> Iterator[NDArray[np.int64]]:
    """Members of the connected components, each split by its own higher threshold while it has more than ``largest``.

    Rows that are still together at a threshold within 1e-6 of 1.0 stay so, however many.
    """
    pending = [(pairs, threshold)]
    while pending:
        connected, cut = pending.pop()
        labels = connected_components(n, connected, cut)
        for members in members_of(labels):
            if len(members) <= largest or cut >= 1.0 - SLACK:
                yield members
            else:
                inside = connected.select(labels[connected.i] == labels[members[0]])
                pending.append((_spanning(n, inside), cut + min(SPLIT_STEP, SPLIT_SHARE * (1.0 - cut))))


def _spanning(n: int, pairs: SimilarPairs) -> SimilarPairs:
    """The fewest pairs that are connected like ``pairs`` at every threshold: a maximum spanning forest."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    tree = minimum_spanning_tree(_graph(n, pairs)).tocoo()
    return SimilarPairs(tree.row, tree.col, (2.0 - tree.data).astype(np.float32))


def _graph(n: int, pairs: SimilarPairs) -> Any:
    """Sparse (n, n) of 2 - similarity: a distance that is never 0, which would mean no pair."""
    from scipy.sparse import csr_array

    return csr_array((2.0 - pairs.similarity.astype(np.float64), (pairs.i, pairs.j)), shape=(n, n))
