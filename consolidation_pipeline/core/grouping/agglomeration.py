"""Agglomerative clustering on a sparse graph, in plain Python or compiled, whichever is faster."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.grouping import nearest_neighbor_chain
from consolidation_pipeline.core.grouping.labels import Labels
from consolidation_pipeline.core.grouping.nearest_neighbor_chain import DEAD, Graph, Rows
from consolidation_pipeline.core.jit import JitFunction, jit

# Seconds per edge that compiled code saves, by complete linkage and by average linkage of 256 columns.
SAVED, SAVED_AVERAGE = 3e-6, 1.2e-5

# The functions that ``follow_chains`` calls.
_PARTS = (
    nearest_neighbor_chain.weigh,
    nearest_neighbor_chain.mean_product,
    nearest_neighbor_chain.nearest,
    nearest_neighbor_chain.merge,
    nearest_neighbor_chain.mark,
    nearest_neighbor_chain.hand_over,
    nearest_neighbor_chain.settle,
    nearest_neighbor_chain.united,
)


def _compiled() -> Any:
    from numba.extending import register_jitable

    for part in _PARTS:
        register_jitable(part)
    return jit(nearest_neighbor_chain.follow_chains)


FOLLOW_CHAINS = JitFunction(_compiled)

COMPLETE = Rows(np.empty((0, 0)), np.empty(0, dtype=np.int64), DEAD)


def agglomerate(
    n: int, i: NDArray[np.integer], j: NDArray[np.integer], weights: NDArray[np.floating], *, rows: Rows = COMPLETE
) -> Labels:
    """Merge groups bottom-up until no two can merge; return for each row the first member of its group, int64 (n,).

    - Complete linkage: groups merge if all their pairs are edges, at the weight of the weakest.
    - Average linkage: groups merge if connected by an edge, at the mean scalar product between their ``rows``, if that
      is not below ``rows.lowest``. ``weights`` play no part.

    Takes about 60 bytes per edge. Time: for each merger the edges of the two groups, times d for average linkage.

    Args:
        n: number of rows.
        i: first row of each edge.
        j: second row of each edge, with ``i`` < ``j``; each pair once.
        weights: similarities in [-1, 1]. Of neighbours with the same weight, the one with the smallest first member is
            nearest.
        rows: sums of rows for average linkage; they are overwritten. ``COMPLETE`` = complete linkage.
    """
    heads, following = _lists(n, i, j)
    ends = np.column_stack([j, i]).ravel().astype(np.int32)
    graph = Graph(ends, following, heads, np.full(n, -1, dtype=np.int32), weights.astype(np.float64))
    into = np.arange(n, dtype=np.int64)
    if FOLLOW_CHAINS.pays(len(i) * (SAVED_AVERAGE if len(rows.sums) else SAVED)):
        # Rows in another order in memory would be compiled for once more.
        rows = rows._replace(sums=np.ascontiguousarray(rows.sums))
        FOLLOW_CHAINS.function(graph, rows, into, np.empty(n, dtype=np.int64))
    else:
        into = _in_plain_python(graph, rows, into)
    while (into != into[into]).any():
        into = into[into]
    return into


def _lists(n: int, i: NDArray[np.integer], j: NDArray[np.integer]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return ``heads`` and ``following`` of the linked lists of half-edges, see ``Graph``."""
    owners = np.column_stack([i, j]).ravel()
    order = np.argsort(owners, kind="stable").astype(np.int32)
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    heads, following = np.full(n, -1, dtype=np.int32), np.empty(len(order), dtype=np.int32)
    heads[owners[order[starts]]] = order[starts]
    following[order] = np.roll(order, -1)
    following[order[starts - 1]] = -1
    return heads, following


def _in_plain_python(graph: Graph, rows: Rows, into: Labels) -> Labels:
    # One number at a time, lists are several times as fast as arrays.
    merged = into.tolist()
    lists = rows._replace(sizes=rows.sizes.tolist())
    nearest_neighbor_chain.follow_chains(Graph(*(part.tolist() for part in graph)), lists, merged, into.tolist())
    return np.array(merged, dtype=np.int64)
