"""Every pair of similar rows, exactly: nothing is sampled, and nothing depends on the order of the rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.vectors import as_matrix

# Thresholds are inclusive. float32 rows carry a rounding error of about 1e-7, so without this slack two equal rows
# could miss a threshold of 1.0.
SLACK = 1e-6

# Rows that are further from length 1 than float16 rounding explains were not normalised by whoever passed them.
LENGTH_TOLERANCE = 1e-3

# A square tile of float32 scores: 4 MB stays in the processor's cache between the product and the comparison.
_TILE = 1024

# Elements of one float64 operand while similarities are recomputed: 16 MB.
_EXACT_ELEMENTS = 1 << 21

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
        """The pairs at ``chosen``: a boolean mask of shape (m,) or positions."""
        return SimilarPairs(self.i[chosen], self.j[chosen], self.similarity[chosen])

    def at_least(self, threshold: float) -> "SimilarPairs":
        """The pairs whose similarity reaches ``threshold`` (see ``reaches``)."""
        return self.select(reaches(self.similarity, threshold))


def reaches(similarity: ArrayLike, threshold: float) -> Mask:
    """Where ``similarity`` >= ``threshold`` holds with ``SLACK``; the one meaning of a threshold everywhere."""
    return np.asarray(np.asarray(similarity, dtype=np.float64) >= threshold - SLACK)


def similarity_join(x: NDArray[np.floating], threshold: float, *, known: int = 0) -> SimilarPairs:
    """All pairs i < j of rows of ``x`` whose cosine reaches ``threshold``, sorted by (i, j).

    ``x``: float32 (n, d) with rows of length 1 or, for rows without a direction, 0 (cosine 0 with everything).
    ``known``: the first rows that were compared with each other before; only pairs with j >= ``known`` are returned.

    Float32 matrix products find candidates with a margin above their largest possible rounding error; the cosine of
    each candidate is then recomputed by itself in float64. So value and decision depend on the two rows alone: not on
    their position, on ``known`` or on the number of threads.

    Takes n^2 d / 2 multiplications. Peak memory besides ``x``: about 60 MB, plus twice the result (12 bytes per pair),
    plus 40 bytes per candidate within one strip of 1,024 rows.
    ValueError: ``x``, ``threshold`` or ``known`` is not as described; the message says which.
    """
    rows, lengths = _checked(x)
    _check_bounds(len(rows), threshold, known)
    cut = threshold - SLACK - _rounding_margin(rows.shape[1], lengths)
    parts = [_exact(rows, lengths, keys, threshold) for keys in _candidates(rows, cut, known)]
    return SimilarPairs(
        np.concatenate([np.empty(0, np.int32), *(part.i for part in parts)]),
        np.concatenate([np.empty(0, np.int32), *(part.j for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.similarity for part in parts)]),
    )


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


def _rounding_margin(d: int, lengths: NDArray[np.float64]) -> float:
    # A float32 dot product of d terms is off by at most d * 2^-24 for unit rows, in any order of summation
    # (Higham, Accuracy and Stability of Numerical Algorithms, 3.1); doubled for rounding of the threshold itself.
    off_unit = np.abs(lengths[lengths > 0.0] - 1.0).max(initial=0.0)
    return float((d + 1) * 2.0**-23 + 3.0 * off_unit)


def _candidates(rows: NDArray[np.float32], cut: float, known: int) -> Iterator[NDArray[np.int64]]:
    """Ascending keys i * n + j of the pairs to look at, one array per strip of rows."""
    n = len(rows)
    buffer = np.empty(_TILE * _TILE, dtype=np.float32)
    for top in range(0, n, _TILE):
        tiles = [_tile(rows, top, left, cut=cut, buffer=buffer) for left in range(max(top, known), n, _TILE)]
        if tiles:
            yield np.sort(np.concatenate(tiles))


def _tile(
    rows: NDArray[np.float32], top: int, left: int, *, cut: float, buffer: NDArray[np.float32]
) -> NDArray[np.int64]:
    above, beside = rows[top : top + _TILE], rows[left : left + _TILE]
    scores = buffer[: len(above) * len(beside)]
    np.matmul(above, beside.T, out=scores.reshape(len(above), len(beside)))
    i, j = np.divmod(np.flatnonzero(scores >= cut), len(beside))
    keys = (i + top) * len(rows) + (j + left)
    return np.asarray(keys[j + left > i + top], dtype=np.int64)


def _exact(
    rows: NDArray[np.float32], lengths: NDArray[np.float64], keys: NDArray[np.int64], threshold: float
) -> SimilarPairs:
    step = max(1, _EXACT_ELEMENTS // max(1, rows.shape[1]))
    found = [_exact_block(rows, lengths, keys[at : at + step]) for at in range(0, len(keys), step)]
    similarity = np.concatenate([np.empty(0, np.float32), *found])
    kept = reaches(similarity, threshold)
    i, j = np.divmod(keys[kept], max(1, len(rows)))
    return SimilarPairs(i.astype(np.int32), j.astype(np.int32), similarity[kept])


def _exact_block(
    rows: NDArray[np.float32], lengths: NDArray[np.float64], keys: NDArray[np.int64]
) -> NDArray[np.float32]:
    i, j = np.divmod(keys, len(rows))
    dots = np.einsum("ij,ij->i", rows[i].astype(np.float64), rows[j].astype(np.float64))
    scale = lengths[i] * lengths[j]
    return np.asarray(np.clip(dots / np.where(scale == 0.0, 1.0, scale), -1.0, 1.0).astype(np.float32))
