"""Representatives of groups, and the similarity of the other members to them."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.labels import Labels
from consolidation_pipeline.core.vectors import CACHED

# Mean similarities are compared to six decimals: more is rounding noise.
_DECIMALS = 6


def choose_representatives(
    labels: Labels, reused_counts: ArrayLike, similarities: ArrayLike, ids: NDArray[np.bytes_] | NDArray[np.str_]
) -> NDArray[np.int64]:
    """Return the row (g,) that represents each group: its most reused member.

    Ties: the member that is most similar to the others (to six decimals), then the one with the smallest id.

    Args:
        labels: Group of each row (n,), 0..g-1, -1 = alone.
        reused_counts: Number of times that each row was reused (n,).
        similarities: Mean cosine to the other members (n,), as from ``summarize_groups``.
        ids: Ids (n,) in an array that sorts as ids do, such as S16 or text.

    Raises:
        ValueError: The lengths differ.
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
        x: Vectors (n, d), L2-normalised.
        labels: Group of each row (n,), 0..g-1, -1 = alone.
        representatives: Rows (g,) as from ``choose_representatives``.
    """
    similarity = np.full(len(labels), np.nan, dtype=np.float32)
    grouped = np.flatnonzero(labels >= 0)
    step = max(1, CACHED // max(1, x.shape[1]))
    for at in range(0, len(grouped), step):
        rows = grouped[at : at + step]
        others = representatives[labels[rows]]
        products = np.einsum("ij,ij->i", x[rows].astype(np.float64), x[others].astype(np.float64))
        similarity[rows] = np.clip(products, -1.0, 1.0)
    return similarity
