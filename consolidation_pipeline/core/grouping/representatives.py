"""Representatives: the member that represents a group, and the similarity of the other members to it."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.labels import Labels

# Mean similarities are compared to six decimals: more is rounding noise.
_DECIMALS = 6

# Rows are widened to float64 this many at a time.
_BLOCK = 4096


def choose_representatives(
    labels: Labels, reused_counts: ArrayLike, similarities: ArrayLike, ids: NDArray[np.bytes_] | NDArray[np.str_]
) -> NDArray[np.int64]:
    """Return the row (g,) that represents each group.

    It is the most reused member; of equals the one most similar to the rest, then the one with the smallest id. Mean
    similarities are compared to six decimals.

    Args:
        labels: group of each row (n,), 0..g-1, -1 = alone.
        reused_counts: number of times that each row was reused (n,).
        similarities: mean cosine to the other members (n,), as from ``summarize_groups``.
        ids: ids (n,) in an array that sorts as ids do, such as S16 or text.

    Raises:
        ValueError: the lengths differ.
    """
    reused, similar = np.asarray(reused_counts), np.asarray(similarities, dtype=np.float64)
    lengths = len(labels), len(reused), len(similar), len(ids)
    if len(set(lengths)) > 1:
        raise ValueError(f"labels, reused counts, similarities and ids have lengths {lengths}; they must be equal")
    order = np.lexsort((ids, -np.round(similar, _DECIMALS), -reused, labels))
    grouped = order[np.count_nonzero(labels < 0) :]
    return np.asarray(grouped[np.flatnonzero(np.diff(labels[grouped], prepend=-1))], dtype=np.int64)


def compute_similarities(
    x: NDArray[np.floating], labels: Labels, representatives: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return the cosine (n,) of each row to the representative of its group; NaN for rows that are alone.

    Args:
        x: vectors (n, d), L2-normalised.
        labels: group of each row (n,), 0..g-1, -1 = alone.
        representatives: rows (g,) as from ``choose_representatives``.
    """
    similarity = np.full(len(labels), np.nan, dtype=np.float32)
    grouped = np.flatnonzero(labels >= 0)
    similarity[grouped] = _cosines(x, grouped, representatives[labels[grouped]])
    return similarity


def _cosines(x: NDArray[np.floating], one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the cosines of the rows ``one`` of ``x`` with the rows ``other``, pair by pair."""
    cosines = np.empty(len(one), dtype=np.float32)
    for at in range(0, len(one), _BLOCK):
        part = slice(at, at + _BLOCK)
        products = np.einsum("ij,ij->i", x[one[part]].astype(np.float64), x[other[part]].astype(np.float64))
        cosines[part] = np.clip(products, -1.0, 1.0)
    return cosines
