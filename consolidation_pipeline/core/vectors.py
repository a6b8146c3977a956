"""Vector arithmetic that neither overflows nor underflows, and never lets a NaN pass for a number."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# A row whose entries lie this close to the mean's, relative to the largest of them, is the mean up to the rounding of
# float32 input; what is left of it is noise, and must not be blown up to a direction of length 1.
CENTER_TOLERANCE = 1e-6

# Rows are widened to float64 this many at a time, so the extra memory is a few MB whatever n is.
_BLOCK = 4096


def cosine(a: ArrayLike, b: ArrayLike) -> float:
    """Cosine similarity of two vectors of shape (d,), in [-1, 1], computed in float64.

    0.0 when the lengths differ or either vector is empty or zero. Each vector is scaled by its largest entry first,
    so magnitudes from 1e-308 to 1e308 work. ValueError: not one-dimensional, or an entry is NaN or infinite.
    """
    left, right = _scaled(a, "a"), _scaled(b, "b")
    if left.size != right.size:
        return 0.0
    lengths = math.sqrt(float(left @ left) * float(right @ right))
    if lengths == 0.0:
        return 0.0
    return min(1.0, max(-1.0, float(left @ right) / lengths))


def normalize(x: ArrayLike) -> NDArray[np.float32]:
    """Rows of ``x`` (n, d) scaled to Euclidean length 1, as a new float32 array; zero rows stay zero.

    Computed in float64 after scaling by the largest entry, so no magnitude overflows. ValueError: not a numeric (n, d)
    matrix, or a row holds NaN or infinity (``find_unusable`` lists such rows).
    """
    rows = as_matrix(x)
    result = np.empty(rows.shape, dtype=np.float32)
    for part, block in _blocks(rows):
        result[part] = _unit(block)
    return result


def center(x: ArrayLike, mean: ArrayLike) -> NDArray[np.float32]:
    """Rows of ``x`` (n, d) minus ``mean`` (d,), scaled to length 1 again, float32.

    A row equal to the mean within the relative ``CENTER_TOLERANCE`` has no direction and becomes zero.
    ValueError: as in ``normalize``, or ``mean`` is not a finite vector of shape (d,).
    """
    rows = as_matrix(x)
    middle = np.asarray(mean, dtype=np.float64)
    if middle.shape != (rows.shape[1],) or not np.isfinite(middle).all():
        raise ValueError(f"mean has shape {middle.shape}; it must be finite and of shape ({rows.shape[1]},) like a row")
    result = np.empty(rows.shape, dtype=np.float32)
    for part, block in _blocks(rows):
        result[part] = _unit(_offset(block, middle))
    return result


def find_unusable(x: ArrayLike) -> NDArray[np.int64]:
    """Positions, ascending, of the rows of ``x`` (n, d) that no similarity can be computed for.

    These are the rows with a NaN, an infinity or nothing but zeros. ValueError: not a numeric (n, d) matrix.
    """
    rows = as_matrix(x)
    usable = np.isfinite(rows).all(axis=1) & rows.any(axis=1)
    return np.flatnonzero(~usable).astype(np.int64)


def as_matrix(x: ArrayLike) -> NDArray[Any]:
    """``x`` as an array, once it is known to be a real numeric matrix of shape (n, d); else ValueError."""
    rows = np.asarray(x)
    if rows.ndim != 2:
        raise ValueError(f"x has shape {rows.shape}; it must be a matrix of shape (n, d), one row per vector")
    if rows.dtype.kind not in "fiu":
        raise ValueError(f"x has dtype {rows.dtype}; it must be a real number type such as float32")
    return rows


def _scaled(vector: ArrayLike, name: str) -> NDArray[np.float64]:
    values = np.asarray(vector, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"{name} has shape {values.shape}; it must be a vector of shape (d,)")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds NaN or infinity; every entry must be finite")
    largest = np.abs(values).max(initial=0.0)
    return values / largest if largest else values


def _blocks(rows: NDArray[Any]) -> Iterator[tuple[slice, NDArray[np.float64]]]:
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK].astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            raise ValueError(f"row {start + bad[0]} of x holds NaN or infinity; every entry must be finite")
        yield slice(start, start + len(block)), block


def _unit(block: NDArray[np.float64]) -> NDArray[np.float64]:
    safe = block / _or_one(_largest_entry(block))
    return safe / _or_one(np.sqrt(np.einsum("ij,ij->i", safe, safe))[:, None])


def _offset(block: NDArray[np.float64], middle: NDArray[np.float64]) -> NDArray[np.float64]:
    scale = _or_one(np.maximum(_largest_entry(block), np.abs(middle).max(initial=0.0)))
    offset = block / scale - middle / scale
    offset[_largest_entry(offset)[:, 0] <= CENTER_TOLERANCE] = 0.0
    return offset


def _largest_entry(block: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.abs(block).max(axis=1, initial=0.0, keepdims=True))


def _or_one(divisor: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(divisor == 0.0, 1.0, divisor)


def positions_of(ordered: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """Where each of ``wanted`` (m,) stands in ``ordered`` (n,), ascending without repeats; -1 = nowhere."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    one, other = ordered, wanted
    if ordered.dtype == wanted.dtype == np.dtype("S16"):
        # Half of an id is a number, which is compared several times as fast, and hardly ever another one's too.
        halves = _first_halves(ordered)
        if (halves[1:] != halves[:-1]).all():
            one, other = halves, _first_halves(wanted)
    at = np.minimum(np.searchsorted(one, other), len(ordered) - 1)
    return np.where(ordered[at] == wanted, at, -1).astype(np.int64)


def _first_halves(ids: NDArray[np.bytes_]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(ids).view(">u8")[::2].astype(np.uint64)


def checked_numbers(name: str, values: ArrayLike, *, least: float) -> NDArray[np.float64]:
    """``values`` as float64, of their shape. ValueError, with ``name`` and the value: one is NaN or below ``least``."""
    numbers = np.asarray(values, dtype=np.float64)
    wrong = ~(numbers >= least)
    if wrong.any():
        raise ValueError(f"{name} holds {numbers[wrong].flat[0]}; it must be a number of at least {least}")
    return numbers
