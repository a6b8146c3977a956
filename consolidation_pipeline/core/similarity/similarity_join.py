"""Every pair of similar rows, exactly: nothing is sampled, and nothing depends on the order of the rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.similarity.join_planner import find_pairs
from consolidation_pipeline.core.similarity.matrix_products import Join
from consolidation_pipeline.core.vectors import as_matrix

# Thresholds are inclusive. float32 rows carry a rounding error of about 1e-7, so without this slack two equal rows
# could miss a threshold of 1.0.
SLACK = 1e-6

# Rows that are further from length 1 than float16 rounding explains were not normalised by whoever passed them.
LENGTH_TOLERANCE = 1e-3

Indices = NDArray[np.int32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SimilarPairs:
    """Pairs of rows as three arrays of the same length m: positions ``i`` < ``j`` (int32, widen them before
    arithmetic) and cosine ``similarity`` (float32 in [-1, 1]). ``similarity_join`` sorts them by (i, j).

    ValueError: the arrays differ in length.
    """

    i: Indices
    j: Indices
    similarity: NDArray[np.float32]

    def __post_init__(self) -> None:
        lengths = len(self.i), len(self.j), len(self.similarity)
        if len(set(lengths)) > 1:
            raise ValueError(f"i, j and similarity have lengths {lengths}; they must be equal")

    def __len__(self) -> int:
        return len(self.i)

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.integer]) -> "SimilarPairs":
        """Return the pairs at ``chosen``: a boolean mask of shape (m,) or positions."""
        return SimilarPairs(self.i[chosen], self.j[chosen], self.similarity[chosen])

    def at_least(self, threshold: float) -> "SimilarPairs":
        """Return the pairs whose similarity reaches ``threshold`` (see ``reaches``)."""
        return self.select(reaches(self.similarity, threshold))


def reaches(similarity: ArrayLike, threshold: ArrayLike) -> Mask:
    """Return a mask of ``similarity`` >= ``threshold``, within ``SLACK``. Every threshold has this meaning."""
    return np.asarray(np.asarray(similarity, dtype=np.float64) >= np.asarray(threshold) - SLACK)


def similarity_join(x: NDArray[np.floating], threshold: float, *, known: int = 0) -> SimilarPairs:
    """Return all pairs i < j of rows of ``x`` whose cosine reaches ``threshold``, sorted by (i, j).

    ``x``: float32 (n, d) with rows of length 1 or, for rows without a direction, 0 (cosine 0 with everything).
    ``known``: the first rows that were compared with each other before; only pairs with j >= ``known`` are returned.

    Exact: a pair is left out without computing its cosine only where an upper bound of the cosine says so
    (``pruning``, ``quantising``), rounding included. The cosine of each other pair is computed by itself in float64,
    always in the same way. So value and decision depend on the two rows alone: not on their position, on ``known``,
    on the processor, on the number of threads or on the form of the join, which a sample of the rows decides
    (``planning``).

    Peak memory besides ``x``: that of ``iter_similar_pairs`` plus twice the result (12 bytes per pair).
    ValueError: ``x``, ``threshold`` or ``known`` is not as described; the message says which.
    """
    return concatenate_pairs(list(iter_similar_pairs(x, threshold, known=known)))


def concatenate_pairs(parts: Sequence[SimilarPairs]) -> SimilarPairs:
    """Return the pairs of all ``parts``, one after the other."""
    return SimilarPairs(
        np.concatenate([np.empty(0, np.int32), *(part.i for part in parts)]),
        np.concatenate([np.empty(0, np.int32), *(part.j for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.similarity for part in parts)]),
    )


def iter_similar_pairs(x: NDArray[np.floating], threshold: float, *, known: int = 0) -> Iterator[SimilarPairs]:
    """Yield the pairs of ``similarity_join`` in order, in blocks of at most max(n, 2,097,152) pairs, so that they
    can go to a database without ever standing in memory at once.

    Arguments are checked at the call, not at the first block. As many threads work as BLAS has; while they do, BLAS
    itself uses one thread in the whole process. Peak memory besides ``x``, whatever the number of pairs: 0.3 to 1.2 KB
    per row (more only where that stays below 1.2 GB in all), plus about 100 MB per thread.
    ValueError: as ``similarity_join``.
    """
    rows, lengths = _checked(x)
    _check_bounds(len(rows), threshold, known)
    join = Join(rows, lengths, threshold - SLACK, known)
    return (SimilarPairs(*found) for found in find_pairs(join))


def _checked(x: NDArray[np.floating]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    matrix = as_matrix(x)
    if matrix.dtype.kind != "f":
        raise ValueError(f"x has dtype {matrix.dtype}; it must be float32")
    rows = np.ascontiguousarray(matrix, dtype=np.float32)
    lengths = np.sqrt(np.concatenate([np.empty(0), *map(_squares, np.array_split(rows, len(rows) // 4096 + 1))]))
    bad = np.flatnonzero(~((lengths == 0.0) | (np.abs(lengths - 1.0) <= LENGTH_TOLERANCE)))
    if bad.size:
        raise ValueError(
            f"row {bad[0]} of x has length {lengths[bad[0]]:g} (and so {bad.size} rows of {len(rows)}); "
            "rows must be finite and L2-normalised, see core.vectors.normalize"
        )
    return rows, lengths


def _check_bounds(n: int, threshold: float, known: int) -> None:
    if not isfinite(threshold):
        raise ValueError(f"threshold is {threshold}; it must be a finite cosine, usually between -1 and 1")
    if not 0 <= known <= n:
        raise ValueError(f"known is {known}; it must be between 0 and the number of rows, {n}")


def _squares(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    return np.asarray(np.einsum("ij,ij->i", wide, wide))
