"""Ranges of a flat array: the items of some rows, where each row has a number of them."""

import numpy as np
from numpy.typing import NDArray


def list_ranges(counts: NDArray[np.integer], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the items of ``rows`` (m,), row by row. ``counts`` (n,): items of each of all rows."""
    ends = np.cumsum(counts, dtype=np.int64)
    wanted = counts[rows].astype(np.int64)
    starts = ends[rows] - wanted
    offsets = np.cumsum(wanted) - wanted
    return np.asarray(np.arange(wanted.sum()) + np.repeat(starts - offsets, wanted), np.int64)
