"""The member that stands for its group, and how close the others are to it."""

from collections.abc import Sequence
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.labels import Labels

# Mean similarities are compared to six decimals, as more is rounding noise.
_DECIMALS = 6

# Rows are widened to float64 this many at a time.
_BLOCK = 4096


def choose_representative(reused_counts: ArrayLike, similarities: ArrayLike, ids: Sequence[str | UUID]) -> int:
    """Position of the member that stands for its group: most reused; ties: most similar to the rest, then smallest id.

    All three of shape (m,), m >= 1; ``similarities`` as from ``mean_similarities``, compared to six decimals. For many
    groups: ``choose_representatives``. ValueError: no members, or lengths that differ.
    """
    reused, similar = np.asarray(reused_counts), np.asarray(similarities, dtype=np.float64)
    if not ids or not len(reused) == len(similar) == len(ids):
        raise ValueError(
            f"{len(reused)} reused counts, {len(similar)} similarities and {len(ids)} ids given; "
            "a group needs one of each per member, and at least one member"
        )
    names = np.array([str(member) for member in ids])
    return int(choose_representatives(np.zeros(len(ids), dtype=np.int64), reused, similar, names)[0])


def choose_representatives(
    labels: Labels, reused_counts: ArrayLike, similarities: ArrayLike, ids: NDArray[np.bytes_] | NDArray[np.str_]
) -> NDArray[np.int64]:
    """Row (g,) that stands for each group, by the rule of ``choose_representative``.

    All four of shape (n,): ``labels`` 0..g-1, -1 = alone; ``similarities`` as from ``summarize_groups``; ``ids`` an
    array that sorts as ids do, such as ``S16`` or text. ValueError: lengths that differ.
    """
    reused, similar = np.asarray(reused_counts), np.asarray(similarities, dtype=np.float64)
    lengths = len(labels), len(reused), len(similar), len(ids)
    if len(set(lengths)) > 1:
        raise ValueError(f"labels, reused counts, similarities and ids have lengths {lengths}; they must be equal")
    order = np.lexsort((ids, -np.round(similar, _DECIMALS), -reused, labels))
    grouped = order[np.count_nonzero(labels < 0) :]
    return np.asarray(grouped[np.flatnonzero(np.diff(labels[grouped], prepend=-1))], dtype=np.int64)


def similarity_to(x: NDArray[np.floating], members: ArrayLike, representative: int) -> NDArray[np.float32]:
    """Cosine (m,) of each of the rows ``members`` of L2-normalised ``x`` (n, d) to its row ``representative``."""
    rows = np.asarray(members, dtype=np.int64)
    return _cosines(x, rows, np.full(len(rows), representative, dtype=np.int64))


def compute_similarities(
    x: NDArray[np.floating], labels: Labels, representatives: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Cosine (n,) of each row of L2-normalised ``x`` (n, d) to the representative of its group; NaN for rows alone.

    ``labels`` (n,) 0..g-1, -1 = alone; ``representatives`` (g,) as from ``choose_representatives``.
    """
    similarity = np.full(len(labels), np.nan, dtype=np.float32)
    grouped = np.flatnonzero(labels >= 0)
    similarity[grouped] = _cosines(x, grouped, representatives[labels[grouped]])
    return similarity


def _cosines(x: NDArray[np.floating], one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float32]:
    """Cosine of the rows ``one`` of ``x`` to the rows ``other``, pair by pair."""
    cosines = np.empty(len(one), dtype=np.float32)
    for at in range(0, len(one), _BLOCK):
        part = slice(at, at + _BLOCK)
        products = np.einsum("ij,ij->i", x[one[part]].astype(np.float64), x[other[part]].astype(np.float64))
        cosines[part] = np.clip(products, -1.0, 1.0)
    return cosines
