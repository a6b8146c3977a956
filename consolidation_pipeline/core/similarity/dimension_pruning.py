"""Short vectors whose dot products bound cosines from above, so that most pairs need not be computed in full.

Let u = x / |x|, Q an orthonormal basis (d, k), y = Q'u the part of u inside the basis and r = sqrt(1 - |y|^2) the
length of what is left outside. The parts outside meet at most head on (Cauchy-Schwarz), so for any two rows

    cos(a, b) = u_a . u_b <= y_a . y_b + r_a r_b

which is the dot product of the k + 1 numbers (y, r). A pair whose short product stays below the threshold cannot be
similar; only the others are computed in full. Nothing is lost, whatever the basis; a basis along the leading
directions of the data merely leaves less outside.

Computed numbers are off: let |y_computed - y| <= e (``_projection_error``). Then r <= sqrt(1 - |y_computed|^2 + 2 e
+ e^2), which is what is stored as r, and the product of the computed y is off by at most 2 e + e^2
(``Shortened.margin``).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.similarity.matrix_products import ROUNDING, Join, Lengths, Rows, compare_products
from consolidation_pipeline.core.similarity.row_strips import Compare

# Rows that the directions are taken from.
SAMPLE = 1024

_ITERATIONS = 3
_DEPTH = 128
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Shortened:
    """``vectors`` float32 (n, k + 1): (y, r) of each row, 0 for rows without a direction; a cosine is at most the true
    dot product of two of them plus ``margin``.
    """

    vectors: Rows
    margin: float

    def cut(self, least: float) -> float:
        """Return the float32 product that two short vectors reach when the cosine, rounded, reaches ``least``.

        Their squared lengths are at most 1 + ``margin``; float32 products are off as in ``Join.cut``.
        """
        rounding = (self.vectors.shape[1] + 1) * 2.0**-23 * (1.0 + self.margin)
        return float(least - self.margin - rounding - ROUNDING)


def sample_of(n: int, size: int = SAMPLE) -> NDArray[np.int64]:
    """At most ``size`` positions spread evenly over ``n`` rows, but not in step with any period of theirs."""
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


def shorten(rows: Rows, lengths: Lengths, basis: Rows) -> Shortened:
    """Short vectors of ``rows`` (n, d) of the given ``lengths`` (n,) along ``basis`` (d, k)."""
    error = _projection_error(*basis.shape)
    vectors = np.empty((len(rows), basis.shape[1] + 1), dtype=np.float32)
    for at in range(0, len(rows), _BLOCK):
        part = slice(at, at + _BLOCK)
        inside = _projected(rows[part], basis) / np.where(lengths[part] == 0.0, 1.0, lengths[part])[:, None]
        vectors[part, :-1] = inside
        outside = 1.0 - np.einsum("ij,ij->i", inside, inside) + (2.0 + error) * error
        vectors[part, -1] = np.sqrt(np.maximum(outside, 0.0)) * (1.0 + ROUNDING) * (lengths[part] > 0.0)
    return Shortened(vectors, (2.0 + error) * error)


def _projected(rows: Rows, basis: Rows) -> NDArray[np.float64]:
    # float32 products over a few columns at a time, added up in float64: the error does not grow with d.
    result = np.zeros((len(rows), basis.shape[1]))
    for at in range(0, rows.shape[1], _DEPTH):
        result += rows[:, at : at + _DEPTH] @ basis[at : at + _DEPTH]
    return result


def _projection_error(d: int, k: int) -> float:
    # Each of the k coordinates: up to min(d, depth) roundings of 2^-24 in the product (Higham 3.1), and four more for
    # the basis, the sum, the division and the result; doubled.
    return float((min(d, _DEPTH) + 4) * 2.0**-23 * np.sqrt(max(k, 1)))


def pruned(join: Join, basis: Rows) -> Compare:
    """Build the join in NumPy: products of short vectors leave the pairs to compute in full."""
    short = shorten(join.rows, join.lengths, basis)
    return partial(compare_products, join, short.vectors, short.cut(join.least))
