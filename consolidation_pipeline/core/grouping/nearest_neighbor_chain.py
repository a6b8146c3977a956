"""Agglomerative clustering on a sparse graph by nearest-neighbour chains.

A chain steps from a group to its nearest neighbour until two groups are nearest to each other, and merges these. It
gives the same groups as merging the two nearest of all again and again, in any order of mergers (Müllner, *Modern
hierarchical, agglomerative clustering algorithms*, 2011). The condition is that linkage is reducible: merging two
groups brings neither nearer to a third one than the nearer of them was. Complete and average linkage are reducible.
This holds with ties and rounding too: see ``united``.

The functions are valid Python and valid Numba. A small graph is faster in plain Python; for a large one, loading Numba
pays. Both run the same lines.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Average similarities are compared on a grid of 2^-36, about 1.5e-11. Sums in float64 are off by about 1e-15, so that
# equal averages are a tie in any order of summation.
STEP = 2.0**-36

# Weight of a removed edge; below every similarity.
DEAD = -4.0


class Graph(NamedTuple):
    """Edges between groups, in linked lists; all parts are lists or arrays. A group is numbered by its first member.

    Edge e is in the lists of its two ends as the half-edges 2e and 2e + 1. Per half-edge: ``ends``, the group at
    its far end, and ``following``, the next half-edge of the same list or -1. Per group: ``heads``, the first half-edge
    of its list or -1, and ``marks``, scratch space that is -1 outside of a merger. Per edge: ``weights``, similarity or
    ``DEAD``.
    """

    ends: Any
    following: Any
    heads: Any
    marks: Any
    weights: Any


class Rows(NamedTuple):
    """Sums (n, d) and sizes (n,) of the groups' rows for average linkage, and the lowest average that merges.

    Without rows, shape (0, 0), linkage is complete.
    """

    sums: NDArray[np.float64]
    sizes: Any
    lowest: float


def follow_chains(graph: Graph, rows: Rows, into: Any, chain: Any) -> None:
    """Merge until no two groups can merge.

    Groups before ``start`` have no edges left, so ``start`` remains the first of its chain. The edges along a chain
    only grow heavier, so that it never meets itself.

    Args:
        into: receives, for each group that merged, the group that it became part of (n,).
        chain: scratch space (n,).
    """
    weigh(graph, rows)
    for start in range(len(into)):
        chain[0], depth = start, 0
        near = nearest(graph, start)
        while near >= 0:
            if depth > 0 and chain[depth - 1] == near:
                first, second = min(near, chain[depth]), max(near, chain[depth])
                into[second] = first
                merge(graph, rows, first, second)
                depth = max(0, depth - 2)
            else:
                depth += 1
                chain[depth] = near
            near = nearest(graph, chain[depth])


def weigh(graph: Graph, rows: Rows) -> None:
    """Give each edge the scalar product of its rows, if there are rows."""
    if len(rows.sums) > 0:
        for edge in range(len(graph.weights)):
            product = mean_product(rows, graph.ends[2 * edge + 1], graph.ends[2 * edge])
            graph.weights[edge] = product if product >= rows.lowest else DEAD


def mean_product(rows: Rows, a: int, b: int) -> float:
    """Return the mean scalar product between the rows of two groups, from their sums, on the grid of ``STEP``."""
    mean = (rows.sums[a] @ rows.sums[b]) / (rows.sizes[a] * rows.sizes[b])
    return float(math.floor(mean / STEP + 0.5) * STEP)


def nearest(graph: Graph, group: int) -> int:
    """Return the neighbour with the heaviest edge, of equals the one with the smallest number; -1 without any.

    Dead half-edges are removed from the list on the way.
    """
    best, found = DEAD, -1
    before, half = -1, graph.heads[group]
    while half >= 0:
        weight, far, beyond = graph.weights[half >> 1], graph.ends[half], graph.following[half]
        if weight > DEAD:
            if weight > best or (weight == best and far < found):
                best, found = weight, far
            before = half
        elif before < 0:
            graph.heads[group] = beyond
        else:
            graph.following[before] = beyond
        half = beyond
    return found


def merge(graph: Graph, rows: Rows, a: int, b: int) -> None:
    """Make group ``b`` part of ``a``."""
    average = len(rows.sums) > 0
    mark(graph, a)
    hand_over(graph, a, b, average)
    if average:
        rows.sums[a] += rows.sums[b]
        rows.sizes[a] += rows.sizes[b]
    settle(graph, rows, a, average)


def mark(graph: Graph, a: int) -> None:
    """Note at each neighbour of ``a`` the edge that connects them."""
    half = graph.heads[a]
    while half >= 0:
        if graph.weights[half >> 1] > DEAD:
            graph.marks[graph.ends[half]] = half >> 1
        half = graph.following[half]


def hand_over(graph: Graph, a: int, b: int, average: bool) -> None:
    """Move the edges of ``b`` to ``a``, unite those to common neighbours and clear their marks."""
    half = graph.heads[b]
    while half >= 0:
        edge, far, beyond = half >> 1, graph.ends[half], graph.following[half]
        weight = graph.weights[edge]
        if weight > DEAD and average and far != a and graph.marks[far] < 0:
            graph.weights[edge] = united(weight, DEAD, average)
            graph.ends[half ^ 1] = a
            graph.following[half] = graph.heads[a]
            graph.heads[a] = half
        elif weight > DEAD:
            graph.weights[edge] = DEAD
            if far != a and graph.marks[far] >= 0:
                common = graph.marks[far]
                graph.weights[common] = united(weight, graph.weights[common], average)
                graph.marks[far] = -1
        half = beyond
    graph.heads[b] = -1


def settle(graph: Graph, rows: Rows, a: int, average: bool) -> None:
    """Weigh the edges of ``a`` after a merger; a neighbour that is still marked was a neighbour of ``a`` alone."""
    half = graph.heads[a]
    while half >= 0:
        edge, far = half >> 1, graph.ends[half]
        weight = graph.weights[edge]
        if weight > DEAD and graph.marks[far] >= 0:
            weight = united(weight, DEAD, average)
        if weight > DEAD and average:
            weight = min(weight, mean_product(rows, a, far))
        graph.weights[edge] = weight if weight >= rows.lowest else DEAD
        graph.marks[far] = -1
        half = graph.following[half]


def united(one: float, other: float, average: bool) -> float:
    """Return the weight of two edges to a common neighbour: the lower for complete linkage, a bound to it for average.

    A mean of different weights is below the higher one. Keeping to that on the grid, whatever rounding or missing edges
    may say, guarantees two things: a merger brings no neighbour nearer, and makes no new tie with a third group.
    """
    if not average or one == other:
        return min(one, other)
    return max(one, other) - STEP
