"""Groups of rows as labels, int64 (n,): -1 for a row that is alone, else 0..g-1 in the order of first members."""

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]


def renumber_labels(raw: Labels, size: int) -> Labels:
    """Return labels 0..g-1, in the order of first members, from any labels >= 0.

    Groups of fewer than ``size`` rows become -1, as do negative labels.
    """
    labels = np.full(len(raw), -1, dtype=np.int64)
    grouped = np.flatnonzero(raw >= 0)
    _, first, group_of, sizes = np.unique(raw[grouped], return_index=True, return_inverse=True, return_counts=True)
    large = np.flatnonzero(sizes >= size)
    number = np.full(len(sizes), -1, dtype=np.int64)
    number[large[np.argsort(first[large])]] = np.arange(len(large))
    labels[grouped] = number[group_of]
    return labels


def list_members(labels: Labels) -> list[NDArray[np.int64]]:
    """Return the rows of each group 0..g-1, ascending."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels[labels >= 0])
    return np.split(order[len(labels) - sizes.sum() :], np.cumsum(sizes)[:-1]) if sizes.size else []
