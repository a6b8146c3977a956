"""Short vectors whose dot products bound cosines from above, so that few pairs are computed in full.

Let u = x / |x|, Q an orthonormal basis (d, k), y = Q'u the coordinates of u in the basis, and r = sqrt(1 - |y|^2) the
length of the part of u outside of it. By Cauchy-Schwarz for the parts outside, any two rows have

    cos(a, b) = u_a . u_b <= y_a . y_b + r_a r_b

The right side is the dot product of the k + 1 numbers (y, r). A pair for which it is below the threshold is not
similar; the others are computed in full. This holds for any basis. Along the leading directions of the data, the bound
is closest.

Rounding: let |y_computed - y| <= e (``_projection_error``). Then r <= sqrt(1 - |y_computed|^2 + 2 e + e^2), which is
stored as r. The product of the computed y is off by at most 2 e + e^2 (``ShortVectors.margin``).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.similarity.matrix_products import ROUNDING, Join, Lengths, Rows, compare_products
from consolidation_pipeline.core.similarity.row_strips import CompareStrip

# Rows from which the directions are computed.
SAMPLE = 1024

_ITERATIONS = 3
_DEPTH = 128
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class ShortVectors:
    """``vectors`` float32 (n, k + 1): (y, r) of each row; all 0 for a zero row.

    A cosine is at most the exact dot product of two of them plus ``margin``.
    """

    vectors: Rows
    margin: float

    def cut(self, least: float) -> float:
        """Return a lower bound of the float32 product of two short vectors whose cosine, rounded, reaches ``least``.

        Their squared lengths are at most 1 + ``margin``. The rounding of float32 products is that of ``Join.cut``.
        """
        rounding = (self.vectors.shape[1] + 1) * 2.0**-23 * (1.0 + self.margin)
        return float(least - self.margin - rounding - ROUNDING)


def sample_positions(n: int, size: int = SAMPLE) -> NDArray[np.int64]:
    """Return at most ``size`` positions, ascending, spread evenly over ``n`` rows without a period (golden ratio)."""
    golden = (np.arange(1, min(n, size) + 1) * 0.6180339887498949) % 1.0
    return np.unique((golden * n).astype(np.int64))


def leading_directions(sample: Rows, k: int) -> Rows:
    """Return an orthonormal basis (d, min(k, d)) of the directions that hold most of ``sample`` (m, d), largest first.

    Subspace iteration from a fixed start (Halko, Martinsson and Tropp 2011, algorithm 4.4), then the eigenvectors of
    the sample inside the subspace. Deterministic.
    """
    d = sample.shape[1]
    wide = sample.astype(np.float64)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((d, min(k, d))))[0]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(wide.T @ (wide @ basis))[0]
    inside = wide @ basis
    order = np.linalg.eigh(inside.T @ inside)[1][:, ::-1]
    return np.asarray(basis @ order, dtype=np.float32)


def shorten_rows(rows: Rows, lengths: Lengths, basis: Rows) -> ShortVectors:
    """Return the short vectors of ``rows`` (n, d) of the given ``lengths`` (n,) along ``basis`` (d, k)."""
    error = _projection_error(*basis.shape)
    vectors = np.empty((len(rows), basis.shape[1] + 1), dtype=np.float32)
    for at in range(0, len(rows), _BLOCK):
        part = slice(at, at + _BLOCK)
        inside = _project(rows[part], basis) / np.where(lengths[part] == 0.0, 1.0, lengths[part])[:, None]
        vectors[part, :-1] = inside
        outside = 1.0 - np.einsum("ij,ij->i", inside, inside) + (2.0 + error) * error
        vectors[part, -1] = np.sqrt(np.maximum(outside, 0.0)) * (1.0 + ROUNDING) * (lengths[part] > 0.0)
    return ShortVectors(vectors, (2.0 + error) * error)


def _project(rows: Rows, basis: Rows) -> NDArray[np.float64]:
    # float32 products of _DEPTH columns at a time, summed in float64: the error does not grow with d.
    result = np.zeros((len(rows), basis.shape[1]))
    for at in range(0, rows.shape[1], _DEPTH):
        result += rows[:, at : at + _DEPTH] @ basis[at : at + _DEPTH]
    return result


def _projection_error(d: int, k: int) -> float:
    # Each of the k coordinates has at most min(d, _DEPTH) roundings of 2^-24 in the product (Higham 3.1), and four more
    # for the basis, the sum, the division and the result. The bound is doubled.
    return float((min(d, _DEPTH) + 4) * 2.0**-23 * np.sqrt(max(k, 1)))


def build_pruned_join(join: Join, basis: Rows) -> CompareStrip:
    """Return the NumPy join that computes in full only the pairs whose short vectors allow it."""
    short = shorten_rows(join.rows, join.lengths, basis)
    return partial(compare_products, join, short.vectors, short.cut(join.least))
