"""Compiled join: byte products in registers. Pairs that pass are checked at once, without a matrix of products."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.jit import jit
from consolidation_pipeline.core.similarity.dimension_pruning import leading_directions, sample_positions, shorten_rows
from consolidation_pipeline.core.similarity.matrix_products import Join, Rows, compare_products
from consolidation_pipeline.core.similarity.quantization import QuantizedVectors, quantize, rotate_basis
from consolidation_pipeline.core.similarity.row_strips import STRIP_STEP, CompareStrip, PairArrays
from consolidation_pipeline.core.similarity.vnni import COLS, MASK, ROWS, tile_reaches

# Bytes of the columns that stay in a core's second-level cache while all rows of a strip are compared with them.
_CACHE = 1 << 18

# Level of the rows that fill up the last tile: no product raises their sum to 0.
_PADDING_LEVEL = -(2**29)

# Terms may be added in any order, so that the compiler can use vector registers; ``Join.cut`` allows for any order.
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
    """Return the pairs sorted by i; stable, so that j stays ascending for each i."""
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
    """Append the similar pairs of one tile among those in ``masks``; return the new count, -1 if ``found`` is full."""
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
    """Check all tiles of the strip, block by block of columns; return the number of pairs, -1 if too many."""
    above, beside, above_levels, beside_levels = tiles
    top, bottom, known = limits[3:]
    masks, terms, count = np.zeros(ROWS, dtype=MASK), np.empty(len(data[1][0]) + 1), 0
    steps = above.shape[1]
    block = max(1, _CACHE // (4 * steps * COLS))
    for left in range(max(top, known) // COLS, len(beside), block):
        for group in range(top // ROWS, (bottom + ROWS - 1) // ROWS):
            for panel in range(max(left, group * ROWS // COLS), min(left + block, len(beside))):
                if tile_reaches(
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
    """Return i, j and similarity of the pairs of one strip, sorted, and False if ``capacity`` is too small."""
    i, j = np.empty(capacity, dtype=np.int32), np.empty(capacity, dtype=np.int32)
    similarity = np.empty(capacity, dtype=np.float32)
    count = _scan(tiles, data, limits, (i, j, similarity))
    fits, count = count >= 0, max(count, 0)
    i, j, similarity = _order(i[:count], j[:count], similarity[:count], limits[3], limits[4])
    return i, j, similarity, fits


def _pack_tiles(short: QuantizedVectors) -> tuple[NDArray[Any], ...]:
    """Return bytes and levels in the order in which ``vnni.tile_reaches`` reads them, padded to whole tiles.

    The bytes of one side are unsigned: 128 more than the signed ones. Levels of the other side make up for it.
    """
    n, width = short.bytes.shape
    size, steps = -(-n // STRIP_STEP) * STRIP_STEP, -(-width // 4)
    rows = np.zeros((size, 4 * steps), dtype=np.int8)
    rows[:n, :width] = short.bytes
    above, beside = np.full(size, _PADDING_LEVEL, dtype=np.int32), np.full(size, _PADDING_LEVEL, dtype=np.int32)
    above[:n] = short.levels - short.least - 128 * short.bytes.sum(axis=1, dtype=np.int64)
    beside[:n] = short.levels
    columns = rows.view(np.uint8) ^ 128
    return _group_rows(rows, ROWS), _group_rows(columns, COLS), above, beside


def _group_rows(rows: NDArray[Any], height: int) -> NDArray[Any]:
    n, width = rows.shape
    return np.ascontiguousarray(rows.reshape(n // height, height, width // 4, 4).transpose(0, 2, 1, 3))


def build_compiled_join(join: Join, basis: Rows) -> CompareStrip:
    """Return the join by byte products of short vectors along ``basis`` (d, k); threads may share it.

    Memory: 9 (k + 1) bytes per row while it is prepared, then 6 (k + 1), and 25 MB for each block.
    """
    short = shorten_rows(join.rows, join.lengths, rotate_basis(basis))
    short_cut = short.cut(join.least)
    tiles = _pack_tiles(quantize(short.vectors, short_cut, sample_positions(len(join.rows))))
    data = short.vectors, join.rows, join.lengths

    def compare(top: int, bottom: int) -> PairArrays | None:
        limits = short_cut, join.cut, join.least, top, bottom, join.known
        i, j, similarity, fits = compare_strip(tiles, data, limits, join.capacity)
        return (i, j, similarity) if fits else None

    return compare


def find_kernel_fault() -> str | None:
    """Return what is wrong with the kernel's result for a small matrix, or None. Loads or compiles the kernel."""
    rows = leading_directions(np.eye(STRIP_STEP, dtype=np.float32), STRIP_STEP)
    rows = np.concatenate([rows, rows, -rows[: STRIP_STEP // 2]])
    join = Join(rows, np.ones(len(rows)), least=0.9, known=5)
    wanted = compare_products(join, rows, join.cut, 0, len(rows))
    found = build_compiled_join(join, rows[:7].T.copy())(0, len(rows))
    if wanted is None or found is None or not all(map(np.array_equal, wanted, found)):
        return "the compiled kernel does not find the pairs of a test matrix"
    return None
