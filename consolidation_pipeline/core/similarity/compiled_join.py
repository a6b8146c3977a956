"""The compiled join: byte products in registers, survivors checked on the spot, no table of scores in memory."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.jit import jit
from consolidation_pipeline.core.similarity.dimension_pruning import leading_directions, sample_of, shorten
from consolidation_pipeline.core.similarity.matrix_products import Join, Rows, compare_products
from consolidation_pipeline.core.similarity.quantization import Quantised, quantise, spread
from consolidation_pipeline.core.similarity.row_strips import STEP, Compare, Found
from consolidation_pipeline.core.similarity.vnni import COLS, MASK, ROWS, reaches

# Bytes of the columns that stay in a core's second-level cache while all rows of a strip pass by.
_CACHE = 1 << 18

# The level of rows that only fill up the last tile: no product brings it up to 0.
_NEVER = -(2**29)

# Terms may be added in any order, which is what lets the compiler use vector registers; margins allow for it.
_jit_sum = partial(jit, fastmath={"reassoc", "contract", "nsz"})


@_jit_sum
def _dot(a: Rows, b: Rows) -> np.float32:
    total = np.float32(0.0)
    for c in range(len(a)):
        total += a[c] * b[c]
    return total


@jit
def _cosine(a: Rows, b: Rows, scale: float, terms: NDArray[np.float64]) -> np.float32:
    """Compute the same as ``matrix_products.cosines``, to the last bit."""
    width = len(a)
    half = (width + 1) // 2
    for c in range(half):
        terms[c] = np.float64(a[c]) * np.float64(b[c])
    for c in range(width - half):
        terms[c] += np.float64(a[half + c]) * np.float64(b[half + c])
    while half > 1:
        width = half
        half = (width + 1) // 2
        for c in range(width - half):
            terms[c] += terms[half + c]
    return np.float32(min(max(terms[0] / (scale if scale != 0.0 else 1.0), -1.0), 1.0))


@jit
def _order(i: Any, j: Any, similarity: Any, top: int, bottom: int) -> Any:
    """The pairs sorted by i; they come with ascending j for each i, and keep that order."""
    starts = np.zeros(bottom - top + 1, dtype=np.int64)
    for at in range(len(i)):
        starts[i[at] - top + 1] += 1
    starts = np.cumsum(starts)
    i_out, j_out, similarity_out = np.empty_like(i), np.empty_like(j), np.empty_like(similarity)
    for at in range(len(i)):
        to = starts[i[at] - top]
        starts[i[at] - top] = to + 1
        i_out[to], j_out[to], similarity_out[to] = i[at], j[at], similarity[at]
    return i_out, j_out, similarity_out


@jit
def _check_tile(masks: Any, group: int, panel: int, data: Any, limits: Any, found: Any, count: int, terms: Any) -> int:
    """Append the pairs of one tile that its masks let through and that are similar; the new count, -1 if full."""
    short, rows, lengths = data
    short_cut, cut, least, top, bottom, known = limits
    i, j, similarity = found
    for r in range(ROWS):
        mask, a, b = np.int64(masks[r]), group * ROWS + r, panel * COLS - 1
        while mask:
            wanted, mask, b = mask & 1, mask >> 1, b + 1
            if not wanted or b <= a or b < known or a < top or a >= bottom:
                continue
            if _dot(short[a], short[b]) < short_cut or _dot(rows[a], rows[b]) < cut:
                continue
            value = _cosine(rows[a], rows[b], lengths[a] * lengths[b], terms)
            if np.float64(value) < least:
                continue
            if count == len(i):
                return -1
            i[count], j[count], similarity[count] = a, b, value
            count += 1
    return count


@jit
def _scan(tiles: Any, data: Any, limits: Any, found: Any) -> int:
    """All tiles of the strip, a cacheful of columns at a time; how many pairs were ``found``, -1 if too many."""
    above, beside, above_levels, beside_levels = tiles
    top, bottom, known = limits[3:]
    masks, terms, count = np.zeros(ROWS, dtype=MASK), np.empty(len(data[1][0]) + 1), 0
    steps = above.shape[1]
    block = max(1, _CACHE // (4 * steps * COLS))
    for left in range(max(top, known) // COLS, len(beside), block):
        for group in range(top // ROWS, (bottom + ROWS - 1) // ROWS):
            for panel in range(max(left, group * ROWS // COLS), min(left + block, len(beside))):
                if reaches(
                    above.ctypes.data + 4 * steps * ROWS * group,
                    beside.ctypes.data + 4 * steps * COLS * panel,
                    above_levels.ctypes.data + 4 * ROWS * group,
                    beside_levels.ctypes.data + 4 * COLS * panel,
                    steps,
                    masks.ctypes.data,
                ):
                    count = _check_tile(masks, group, panel, data, limits, found, count, terms)
                    if count < 0:
                        return count
    return count


@jit
def compare_strip(tiles: Any, data: Any, limits: Any, capacity: int) -> Any:
    """Return (i, j, similarity, True if there was room for all) of one strip, sorted."""
    i, j = np.empty(capacity, dtype=np.int32), np.empty(capacity, dtype=np.int32)
    similarity = np.empty(capacity, dtype=np.float32)
    count = _scan(tiles, data, limits, (i, j, similarity))
    fits, count = count >= 0, max(count, 0)
    i, j, similarity = _order(i[:count], j[:count], similarity[:count], limits[3], limits[4])
    return i, j, similarity, fits


def _tiles(short: Quantised) -> tuple[NDArray[Any], ...]:
    """The bytes and levels in the order in which ``vnni.reaches`` reads them, filled up to whole tiles.

    One side of the product is unsigned: 128 more than the byte, which 128 times the row's sum takes away again.
    """
    n, width = short.bytes.shape
    size, steps = -(-n // STEP) * STEP, -(-width // 4)
    rows = np.zeros((size, 4 * steps), dtype=np.int8)
    rows[:n, :width] = short.bytes
    above, beside = np.full(size, _NEVER, dtype=np.int32), np.full(size, _NEVER, dtype=np.int32)
    above[:n] = short.levels - short.least - 128 * short.bytes.sum(axis=1, dtype=np.int64)
    beside[:n] = short.levels
    columns = rows.view(np.uint8) ^ 128
    return _packed(rows, ROWS), _packed(columns, COLS), above, beside


def _packed(rows: NDArray[Any], height: int) -> NDArray[Any]:
    n, width = rows.shape
    return np.ascontiguousarray(rows.reshape(n // height, height, width // 4, 4).transpose(0, 2, 1, 3))


def compiled(join: Join, basis: Rows) -> Compare:
    """Build the join by byte products of short vectors along ``basis`` (d, k).

    Memory: 9 (k + 1) bytes per row while it is prepared, 6 (k + 1) from then on, and 25 MB for each block. Threads may
    call the result at the same time.
    """
    short = shorten(join.rows, join.lengths, spread(basis))
    short_cut = short.cut(join.least)
    tiles = _tiles(quantise(short.vectors, short_cut, sample_of(len(join.rows))))
    data = short.vectors, join.rows, join.lengths

    def compare(top: int, bottom: int) -> Found | None:
        limits = short_cut, join.cut, join.least, top, bottom, join.known
        i, j, similarity, fits = compare_strip(tiles, data, limits, join.capacity)
        return (i, j, similarity) if fits else None

    return compare


def find_fault() -> str | None:
    """Try the kernel out on a small matrix, which loads or compiles it; return what is wrong with it, or None."""
    rows = leading_directions(np.eye(STEP, dtype=np.float32), STEP)
    rows = np.concatenate([rows, rows, -rows[: STEP // 2]])
    join = Join(rows, np.ones(len(rows)), least=0.9, known=5)
    wanted, found = (
        compare_products(join, rows, join.cut, 0, len(rows)),
        compiled(join, rows[:7].T.copy())(0, len(rows)),
    )
    if wanted is None or found is None or not all(map(np.array_equal, wanted, found)):
        return "the compiled kernel does not find the pairs of a test matrix"
    return None
