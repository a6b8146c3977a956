"""Agglomerative clustering on a sparse graph, in plain Python or compiled code, depending on its size."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.grouping import nearest_neighbor_chain
from consolidation_pipeline.core.grouping.labels import Labels
from consolidation_pipeline.core.grouping.nearest_neighbor_chain import DEAD, Graph, Rows
from consolidation_pipeline.core.jit import JitFunction, jit

# Seconds per edge that compiled code saves, by complete linkage and by average linkage of 256 columns.
SAVED, SAVED_AVERAGE = 3e-6, 1.2e-5

# Functions that ``follow_chains`` calls.
_PARTS = (
    nearest_neighbor_chain.weigh_edges,
    nearest_neighbor_chain.mean_product,
    nearest_neighbor_chain.find_nearest,
    nearest_neighbor_chain.merge_groups,
    nearest_neighbor_chain.mark_neighbors,
    nearest_neighbor_chain.move_edges,
    nearest_neighbor_chain.reweigh_edges,
    nearest_neighbor_chain.combine_weights,
)


def _compiled() -> Any:
    from numba.extending import register_jitable

    for part in _PARTS:
        register_jitable(part)
    return jit(nearest_neighbor_chain.follow_chains)


FOLLOW_CHAINS = JitFunction(_compiled)

COMPLETE = Rows(np.empty((0, 0)), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), DEAD, 0)


def agglomerate(
    n: int, i: NDArray[np.integer], j: NDArray[np.integer], weights: NDArray[np.floating], *, rows: Rows = COMPLETE
) -> Labels:
    """Merge groups bottom-up until no two can merge; return for each row the first member of its group, int64 (n,).

    - Complete linkage: groups merge if all their pairs are edges. Their weight is that of the weakest edge.
    - Average linkage: groups merge if an edge connects them, the mean scalar product between their ``rows`` is at
      least ``rows.lowest``, and their ``rows.weights`` add up to ``rows.most`` at most. The weight of their edge is
      that mean; ``weights`` are not used.

    Takes about 60 bytes per edge. The time of a merger grows with the edges of its two groups, and with d for average
    linkage.

    Args:
        n: Number of rows.
        i: First row of each edge.
        j: Second row of each edge, with ``i`` < ``j``; each pair once.
        weights: Similarities in [-1, 1]. Ties: the neighbour with the smallest first member is nearest.
        rows: Sums of rows for average linkage. They are overwritten: at the first member of a group is then the sum of
            the group. ``COMPLETE`` = complete linkage.
    """
    heads, following = _link_half_edges(n, i, j)
    ends = np.column_stack([j, i]).ravel().astype(np.int32)
    graph = Graph(ends, following, heads, np.full(n, -1, dtype=np.int32), weights.astype(np.float64))
    into = np.arange(n, dtype=np.int64)
    if FOLLOW_CHAINS.pays(len(i) * (SAVED_AVERAGE if len(rows.sums) else SAVED)):
        FOLLOW_CHAINS.function(graph, rows, into, np.empty(n, dtype=np.int64))
    else:
        into = _follow_chains_in_python(graph, rows, into)
    while (into != into[into]).any():
        into = into[into]
    return into


def _link_half_edges(
    n: int, i: NDArray[np.integer], j: NDArray[np.integer]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return ``heads`` and ``following`` of the linked lists of half-edges, see ``Graph``."""
    owners = np.column_stack([i, j]).ravel()
    order = np.argsort(owners, kind="stable").astype(np.int32)
    starts = np.flatnonzero(np.diff(owners[order], prepend=-1))
    heads, following = np.full(n, -1, dtype=np.int32), np.empty(len(order), dtype=np.int32)
    heads[owners[order[starts]]] = order[starts]
    following[order] = np.roll(order, -1)
    following[order[starts - 1]] = -1
    return heads, following


def _follow_chains_in_python(graph: Graph, rows: Rows, into: Labels) -> Labels:
    # For single numbers, lists are several times as fast as arrays.
    merged = into.tolist()
    lists = rows._replace(sizes=rows.sizes.tolist(), weights=rows.weights.tolist())
    nearest_neighbor_chain.follow_chains(Graph(*(part.tolist() for part in graph)), lists, merged, into.tolist())
    return np.array(merged, dtype=np.int64)
