"""Candidate pairs by float32 matrix products, and the exact cosine by which every form of the join decides."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.similarity.row_strips import BLOCK_PAIRS, PairArrays

Rows = NDArray[np.float32]
Lengths = NDArray[np.float64]

# Columns of a tile of float32 scores: 4 MB stay in the processor's cache between the product and the comparison.
_TILE = 1024

# Numbers of one float64 operand of the exact cosines: 1 MB stays in the cache.
_EXACT_ELEMENTS = 1 << 17

# Rounding of a float64 cosine to float32. The threshold is compared with the rounded value.
ROUNDING = 2.0**-23


@dataclass(frozen=True, eq=False)
class Join:
    """Input of a join: ``rows`` float32 (n, d) of length 1 or 0, and their ``lengths`` (n,).

    Wanted are the pairs with j >= ``known`` whose cosine, rounded to float32, is >= ``least``.
    """

    rows: Rows
    lengths: Lengths
    least: float
    known: int

    @property
    def cut(self) -> float:
        """Lower bound of the float32 dot product of a wanted pair, for any order of summation.

        A product of d terms is off by at most d 2^-24 for rows of length 1 (Higham, Accuracy and Stability of
        Numerical Algorithms, 3.1), doubled here. |cosine - dot product| <= 3 max | |x| - 1 | covers the lengths.
        """
        off_unit = np.abs(self.lengths[self.lengths > 0.0] - 1.0).max(initial=0.0)
        return float(self.least - (self.rows.shape[1] + 1) * 2.0**-23 - 3.0 * off_unit - ROUNDING)

    @property
    def pairs(self) -> int:
        """Number of pairs to compare."""
        n = len(self.rows)
        return (n * (n - 1) - self.known * (self.known - 1)) // 2

    @property
    def capacity(self) -> int:
        """Pairs that a block may hold: enough for a row that is similar to all others."""
        return max(BLOCK_PAIRS, len(self.rows))


def compare_products(join: Join, vectors: Rows, cut: float, top: int, bottom: int) -> PairArrays | None:
    """Return the similar pairs (i, j), top <= i < bottom, whose float32 dot product of ``vectors`` reaches ``cut``.

    Args:
        join: The input.
        vectors: The rows themselves, or short vectors (n, m) whose products bound the cosines from above.
        cut: Lower bound of the products of similar pairs.
        top: First row of the strip.
        bottom: Row after its last one.

    Returns:
        The pairs; None if more pairs reach ``cut`` than a block may hold.
    """
    buffer = np.empty((bottom - top) * _TILE, dtype=np.float32)
    tiles, count = [np.empty(0, dtype=np.int64)], 0
    for left in range(max(top, join.known), len(vectors), _TILE):
        tiles.append(_find_candidates(vectors, slice(top, bottom), left, cut=cut, buffer=buffer))
        count += len(tiles[-1])
        if count > join.capacity:
            return None
    return _keep_similar(join, np.sort(np.concatenate(tiles)))


def _find_candidates(vectors: Rows, strip: slice, left: int, *, cut: float, buffer: Rows) -> NDArray[np.int64]:
    above, beside = vectors[strip], vectors[left : left + _TILE]
    scores = buffer[: len(above) * len(beside)]
    np.matmul(above, beside.T, out=scores.reshape(len(above), len(beside)))
    i, j = np.divmod(np.flatnonzero(scores >= cut), len(beside))
    i, j = i + strip.start, j + left
    return np.asarray((i * len(vectors) + j)[j > i], dtype=np.int64)


def _keep_similar(join: Join, keys: NDArray[np.int64]) -> PairArrays:
    step = max(1, _EXACT_ELEMENTS // max(1, join.rows.shape[1]))
    i, j = np.divmod(keys, max(1, len(join.rows)))
    found = [compute_cosines(join, i[at : at + step], j[at : at + step]) for at in range(0, len(keys), step)]
    similarity = np.concatenate([np.empty(0, np.float32), *found])
    kept = similarity >= np.float64(join.least)
    return i[kept].astype(np.int32), j[kept].astype(np.int32), similarity[kept]


def compute_cosines(join: Join, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the cosines of the pairs (i, j), arrays (m,), computed in float64 and rounded to float32.

    Products of float32 numbers are exact in float64. They are added by folding the array in half repeatedly. This order
    depends on d alone, so that NumPy, the compiled kernel and processors of any vector width give the same bits.
    """
    terms = np.multiply(join.rows[i], join.rows[j], dtype=np.float64)
    width = terms.shape[1]
    while width > 1:
        half = (width + 1) // 2
        terms[:, : width - half] += terms[:, half:width]
        width = half
    scale = join.lengths[i] * join.lengths[j]
    dots = terms[:, 0] if width else np.zeros(len(terms))
    return np.asarray(np.clip(dots / np.where(scale == 0.0, 1.0, scale), -1.0, 1.0).astype(np.float32))
