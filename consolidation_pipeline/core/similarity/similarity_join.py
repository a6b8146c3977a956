"""Exact similarity join: all pairs of similar rows, independent of the order of the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.arrays import Arrays
from consolidation_pipeline.core.similarity.join_planner import find_pairs
from consolidation_pipeline.core.similarity.matrix_products import Join
from consolidation_pipeline.core.vectors import as_matrix

# Thresholds are inclusive. float32 rows carry a rounding error of about 1e-7, so without this slack two equal rows
# could miss a threshold of 1.0.
SLACK = 1e-6

# A row whose length differs more from 1 was not normalised: rounding to float16 explains less.
LENGTH_TOLERANCE = 1e-3

Indices = NDArray[np.int32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SimilarPairs(Arrays):
    """Pairs of rows as arrays (m,): positions ``i`` < ``j`` and cosine ``similarity``, float32 in [-1, 1].

    Positions are int32: widen them before arithmetic. ``similarity_join`` sorts the pairs by (i, j).

    Raises:
        ValueError: The arrays differ in length.
    """

    i: Indices
    j: Indices
    similarity: NDArray[np.float32]

    def __post_init__(self) -> None:
        lengths = len(self.i), len(self.j), len(self.similarity)
        if len(set(lengths)) > 1:
            raise ValueError(f"i, j and similarity have lengths {lengths}; they must be equal")

    def at_least(self, threshold: float) -> "SimilarPairs":
        """Return the pairs whose similarity reaches ``threshold``."""
        return self.select(reaches(self.similarity, threshold))


def reaches(similarity: ArrayLike, threshold: ArrayLike) -> Mask:
    """Return the mask ``similarity`` >= ``threshold`` - ``SLACK``. All thresholds are compared in this way."""
    return np.asarray(np.asarray(similarity, dtype=np.float64) >= np.asarray(threshold) - SLACK)


def similarity_join(x: NDArray[np.floating], threshold: float, *, known: int = 0) -> SimilarPairs:
    """Return all pairs i < j of rows of ``x`` whose cosine reaches ``threshold``, sorted by (i, j).

    Exact: a pair is left out only if its cosine, or an upper bound of it that includes rounding
    (``dimension_pruning``, ``quantization``), is too low. Cosines are computed in float64, pair by pair. So the result
    for a pair depends on its two rows alone: not on their positions, ``known``, the processor, the number of threads or
    the form of the join (``join_planner``).

    Peak memory besides ``x``: that of ``iter_similar_pairs`` plus twice the result (12 bytes per pair).

    Args:
        x: Float32 (n, d), rows of length 1 or 0. A zero row has the cosine 0 with every row.
        threshold: Lowest cosine.
        known: Number of first rows that were compared with each other before: only pairs with j >= ``known`` are
            returned.

    Raises:
        ValueError: ``x``, ``threshold`` or ``known`` is not as described; the message says which.
    """
    return concatenate_pairs(list(iter_similar_pairs(x, threshold, known=known)))


def concatenate_pairs(parts: Sequence[SimilarPairs]) -> SimilarPairs:
    """Return the pairs of all ``parts`` in their order."""
    none = SimilarPairs(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
    return none.concatenate([none, *parts])


def iter_similar_pairs(x: NDArray[np.floating], threshold: float, *, known: int = 0) -> Iterator[SimilarPairs]:
    """Yield the pairs of ``similarity_join`` in order, in blocks of at most max(n, 2,097,152) pairs.

    Arguments and errors: as ``similarity_join``; they are checked at the call, not at the first block. The number of
    threads is that of BLAS. Meanwhile, BLAS itself uses one thread in the whole process. Peak memory besides ``x``,
    for any number of pairs: 0.3 to 1.2 KB per row (more only if it stays below 1.2 GB in all), plus about 100 MB per
    thread.
    """
    rows, lengths = check_rows(x)
    if not isfinite(threshold):
        raise ValueError(f"threshold is {threshold}; it must be a finite cosine, usually between -1 and 1")
    if not 0 <= known <= len(rows):
        raise ValueError(f"known is {known}; it must be between 0 and the number of rows, {len(rows)}")
    join = Join(rows, lengths, threshold - SLACK, known)
    return (SimilarPairs(*found) for found in find_pairs(join))


def check_rows(x: NDArray[np.floating]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return the rows as contiguous float32, and their lengths; raise ValueError if a length is neither 1 nor 0."""
    matrix = as_matrix(x)
    if matrix.dtype.kind != "f":
        raise ValueError(f"x has dtype {matrix.dtype}; it must be float32")
    rows = np.ascontiguousarray(matrix, dtype=np.float32)
    lengths = np.sqrt(np.concatenate([np.empty(0), *map(_squares, np.array_split(rows, len(rows) // 4096 + 1))]))
    bad = np.flatnonzero(~((lengths == 0.0) | (np.abs(lengths - 1.0) <= LENGTH_TOLERANCE)))
    if bad.size:
        raise ValueError(
            f"row {bad[0]} of x has length {lengths[bad[0]]:g} ({bad.size} of {len(rows)} rows are wrong); "
            "rows must be finite and L2-normalised, see core.vectors.normalize"
        )
    return rows, lengths


def _squares(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    return np.asarray(np.einsum("ij,ij->i", wide, wide))
