"""Candidates from float32 matrix products, and the one exact cosine that every form of the join decides by."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.similarity.row_strips import BLOCK_PAIRS, Found

Rows = NDArray[np.float32]
Lengths = NDArray[np.float64]

# A square tile of float32 scores: 4 MB stays in the processor's cache between the product and the comparison.
_TILE = 1024

# Elements of one float64 operand while cosines are recomputed: 1 MB stays in the cache.
_EXACT_ELEMENTS = 1 << 17

# Rounding of a float64 cosine to float32, which the threshold is compared with.
ROUNDING = 2.0**-23


@dataclass(frozen=True, eq=False)
class Join:
    """Input of a join. ``rows`` float32 (n, d) of length 1 or 0 and their ``lengths`` (n,); only pairs with
    j >= ``known``; a pair counts when its cosine, rounded to float32, is >= ``least``.
    """

    rows: Rows
    lengths: Lengths
    least: float
    known: int

    @property
    def cut(self) -> float:
        """Bound that the float32 dot product of a wanted pair reaches, in whatever order its terms are added.

        Such a product of d terms is off by at most d 2^-24 for rows of length 1 (Higham, Accuracy and Stability of
        Numerical Algorithms, 3.1), doubled here; |cosine - dot product| <= 3 max | |x| - 1 | covers the lengths.
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
        """Pairs that a block may hold: enough for a row that is similar to all."""
        return max(BLOCK_PAIRS, len(self.rows))


def compare_products(join: Join, vectors: Rows, cut: float, top: int, bottom: int) -> Found | None:
    """Return the pairs (i, j), top <= i < bottom, among those whose float32 dot product of ``vectors`` reaches ``cut``.

    ``vectors`` (n, m): the rows themselves, or short vectors whose products bound the cosines from above.
    None when more pairs reach ``cut`` than a block may hold.
    """
    buffer = np.empty((bottom - top) * _TILE, dtype=np.float32)
    tiles, count = [np.empty(0, dtype=np.int64)], 0
    for left in range(max(top, join.known), len(vectors), _TILE):
        tiles.append(_tile(vectors, slice(top, bottom), left, cut=cut, buffer=buffer))
        count += len(tiles[-1])
        if count > join.capacity:
            return None
    return _exact(join, np.sort(np.concatenate(tiles)))


def _tile(vectors: Rows, strip: slice, left: int, *, cut: float, buffer: Rows) -> NDArray[np.int64]:
    above, beside = vectors[strip], vectors[left : left + _TILE]
    scores = buffer[: len(above) * len(beside)]
    np.matmul(above, beside.T, out=scores.reshape(len(above), len(beside)))
    i, j = np.divmod(np.flatnonzero(scores >= cut), len(beside))
    i, j = i + strip.start, j + left
    return np.asarray((i * len(vectors) + j)[j > i], dtype=np.int64)


def _exact(join: Join, keys: NDArray[np.int64]) -> Found:
    step = max(1, _EXACT_ELEMENTS // max(1, join.rows.shape[1]))
    i, j = np.divmod(keys, max(1, len(join.rows)))
    found = [cosines(join, i[at : at + step], j[at : at + step]) for at in range(0, len(keys), step)]
    similarity = np.concatenate([np.empty(0, np.float32), *found])
    kept = similarity >= np.float64(join.least)
    return i[kept].astype(np.int32), j[kept].astype(np.int32), similarity[kept]


def cosines(join: Join, i: NDArray[np.int64], j: NDArray[np.int64]) -> NDArray[np.float32]:
    """Cosines of the pairs (i, j), arrays (m,): float64 in an order of summation that depends on d alone.

    Products of float32 numbers are exact in float64. They are added by folding the array in half again and again, so
    that this code, the compiled kernel and processors of any vector width give the same bits.
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
