"""The graph of similar pairs: those that reach a threshold, and its connected components."""

import numpy as np

from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs


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
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components as components

    strong = strong_pairs(n, pairs, threshold)
    if not len(strong):
        return np.full(n, -1, dtype=np.int64)
    graph = csr_array((np.ones(len(strong), dtype=np.bool_), (strong.i, strong.j)), shape=(n, n))
    return renumber_labels(components(graph, directed=False)[1].astype(np.int64), 2)
