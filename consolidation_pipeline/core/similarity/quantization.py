"""Short vectors as bytes, with which integer arithmetic decides which pairs may be similar.

Let z be a short vector (see ``dimension_pruning``), m any centre, w = z - m, s a scale and q the bytes nearest to s w,
so that w = q/s + e. Let g be the largest |w| or |q/s| of all rows. |e| is known for each row. Cauchy-Schwarz gives

    z_a . z_b = w_a . w_b + c_a + c_b,                         c = m . z - m . m / 2
    w_a . w_b = q_a . q_b / s^2 + (q_a / s) . e_b + e_a . w_b <= q_a . q_b / s^2 + g |e_b| + g |e_a|

So if the short product of a pair reaches ``cut``, then q_a . q_b + level_a + level_b >= s^2 cut, with
level = s^2 (c + g |e|). Levels are rounded up and s^2 cut down, so no such pair is missed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.similarity.matrix_products import Rows

# Bytes cover this many standard deviations of a coordinate. Larger values are clipped, which adds to the row's error.
_DEVIATIONS = 4.0
_LARGEST = 127.0

# Keeps s^2 and the levels within 32 bits if all rows are equal.
_LARGEST_SCALE = 2.0**12

_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class QuantizedVectors:
    """``bytes`` int8 (n, k + 1) and ``levels`` int64 (n,) of the rows.

    A pair may be similar only if ``bytes[a] @ bytes[b] + levels[a] + levels[b] >= least``, in integers.
    """

    bytes: NDArray[np.int8]
    levels: NDArray[np.int64]
    least: int


def rotate_basis(basis: Rows) -> Rows:
    """Return ``basis`` (d, k) rotated within its span at random, so that one scale of bytes fits all coordinates."""
    k = basis.shape[1]
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((k, k)))[0]
    return np.asarray(basis.astype(np.float64) @ turn, dtype=np.float32)


def quantize(short: Rows, cut: float, sample: NDArray[np.int64]) -> QuantizedVectors:
    """Return ``short`` (n, k + 1) as bytes, for pairs whose product reaches ``cut``.

    Centre and scale are those of the rows ``sample`` (positions).
    """
    middle = short[sample].mean(axis=0, dtype=np.float64)
    deviation = np.sqrt(np.mean(np.square(short[sample] - middle)))
    scale = min(_LARGEST_SCALE, _LARGEST / max(_DEVIATIONS * float(deviation), 1e-9))
    result, linear = np.empty(short.shape, dtype=np.int8), np.empty(len(short))
    errors, reach = np.empty(len(short)), 0.0
    for at in range(0, len(short), _BLOCK):
        part = slice(at, at + _BLOCK)
        centred = short[part] - middle
        result[part] = rounded = np.clip(np.rint(centred * scale), -_LARGEST, _LARGEST)
        errors[part] = _lengths(centred - rounded / scale)
        linear[part] = short[part] @ middle - middle @ middle / 2.0
        reach = max(reach, _lengths(centred).max(), _lengths(rounded / scale).max())
    levels = np.ceil(scale**2 * (linear + reach * errors)).astype(np.int64) + 1
    return QuantizedVectors(result, levels, int(np.floor(scale**2 * np.clip(cut, -2.0, 2.0))))


def _lengths(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))
