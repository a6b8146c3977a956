"""Agglomerative clustering on a sparse graph by nearest-neighbour chains.

A chain steps from a group to its nearest neighbour until two groups are nearest to each other; these merge. The result
is the same as if the two nearest of all groups merged first (Müllner, *Modern hierarchical, agglomerative clustering
algorithms*, 2011). This requires that linkage is reducible: a merged group is not nearer to a third one than the nearer
of its two parts was. Complete and average linkage are reducible, with ties and rounding too: see ``combine_weights``.
A highest weight of groups keeps that: a merger may forbid another one, but never allows one.

The functions run in plain Python, which is faster for a small graph, and compiled by numba.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Average similarities are rounded to multiples of 2^-36, about 1.5e-11. Errors of float64 sums are about 1e-15, so that
# equal averages are ties in any order of summation.
STEP = 2.0**-36

# Weight of a removed edge; below every similarity.
DEAD = -4.0


class Graph(NamedTuple):
    """Edges between groups as linked lists. All fields are lists or arrays. A group has the number of its first member.

    Edge e is in the lists of its two ends as the half-edges 2e and 2e + 1.

    - Per half-edge: ``ends``, the group at its far end; ``following``, the next half-edge of the same list, or -1.
    - Per group: ``heads``, the first half-edge of its list, or -1; ``marks``, scratch space, -1 outside of a merger.
    - Per edge: ``weights``, similarity or ``DEAD``.
    """

    ends: Any
    following: Any
    heads: Any
    marks: Any
    weights: Any


class Rows(NamedTuple):
    """Sums (n, d) and sizes (n,) of the groups' rows for average linkage, and the limits of a merger.

    ``lowest``: lowest average. ``weights`` (n,): weight of each group, an integer; ``most``: highest weight of a group
    that a merger makes. Sums of shape (0, 0) select complete linkage.
    """

    sums: NDArray[np.float64]
    sizes: Any
    weights: Any
    lowest: float
    most: int


def follow_chains(graph: Graph, rows: Rows, into: Any, chain: Any) -> None:
    """Merge until no two groups can merge.

    Groups before ``start`` have no edges left, so ``start`` stays the first of its chain. Weights along a chain never
    decrease, so it never returns to a group.

    Args:
        graph: The edges; changed.
        rows: See ``Rows``; changed.
        into: Filled for each group that merged with the group that it became part of (n,).
        chain: Scratch space (n,).
    """
    weigh_edges(graph, rows)
    for start in range(len(into)):
        chain[0], depth = start, 0
        near = find_nearest(graph, start)
        while near >= 0:
            if depth > 0 and chain[depth - 1] == near:
                first, second = min(near, chain[depth]), max(near, chain[depth])
                into[second] = first
                merge_groups(graph, rows, first, second)
                depth = max(0, depth - 2)
            else:
                depth += 1
                chain[depth] = near
            near = find_nearest(graph, chain[depth])


def weigh_edges(graph: Graph, rows: Rows) -> None:
    """Give each edge the scalar product of its rows, if there are rows."""
    if len(rows.sums) > 0:
        for edge in range(len(graph.weights)):
            a, b = graph.ends[2 * edge + 1], graph.ends[2 * edge]
            product = mean_product(rows, a, b)
            may_merge = product >= rows.lowest and rows.weights[a] + rows.weights[b] <= rows.most
            graph.weights[edge] = product if may_merge else DEAD


def mean_product(rows: Rows, a: int, b: int) -> float:
    """Return the mean scalar product between the rows of two groups, from their sums, on the grid of ``STEP``."""
    mean = (rows.sums[a] @ rows.sums[b]) / (rows.sizes[a] * rows.sizes[b])
    return float(math.floor(mean / STEP + 0.5) * STEP)


def find_nearest(graph: Graph, group: int) -> int:
    """Return the neighbour with the heaviest edge, ties: the smallest number; -1 if there is none.

    Also removes dead half-edges from the group's list.
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


def merge_groups(graph: Graph, rows: Rows, a: int, b: int) -> None:
    """Make group ``b`` part of ``a``."""
    average = len(rows.sums) > 0
    mark_neighbors(graph, a)
    move_edges(graph, a, b, average)
    if average:
        rows.sums[a] += rows.sums[b]
        rows.sizes[a] += rows.sizes[b]
        rows.weights[a] += rows.weights[b]
    reweigh_edges(graph, rows, a, average)


def mark_neighbors(graph: Graph, a: int) -> None:
    """Set the mark of each neighbour of ``a`` to the edge that connects them."""
    half = graph.heads[a]
    while half >= 0:
        if graph.weights[half >> 1] > DEAD:
            graph.marks[graph.ends[half]] = half >> 1
        half = graph.following[half]


def move_edges(graph: Graph, a: int, b: int, average: bool) -> None:
    """Move the edges of ``b`` to ``a``; combine the two edges to a common neighbour and clear its mark."""
    half = graph.heads[b]
    while half >= 0:
        edge, far, beyond = half >> 1, graph.ends[half], graph.following[half]
        weight = graph.weights[edge]
        if weight > DEAD and average and far != a and graph.marks[far] < 0:
            graph.weights[edge] = combine_weights(weight, DEAD, average)
            graph.ends[half ^ 1] = a
            graph.following[half] = graph.heads[a]
            graph.heads[a] = half
        elif weight > DEAD:
            graph.weights[edge] = DEAD
            if far != a and graph.marks[far] >= 0:
                common = graph.marks[far]
                graph.weights[common] = combine_weights(weight, graph.weights[common], average)
                graph.marks[far] = -1
        half = beyond
    graph.heads[b] = -1


def reweigh_edges(graph: Graph, rows: Rows, a: int, average: bool) -> None:
    """Weigh the edges of ``a`` after a merger. A neighbour that is still marked was a neighbour of ``a`` alone."""
    half = graph.heads[a]
    while half >= 0:
        edge, far = half >> 1, graph.ends[half]
        weight = graph.weights[edge]
        if weight > DEAD and graph.marks[far] >= 0:
            weight = combine_weights(weight, DEAD, average)
        if weight > DEAD and average:
            fits = rows.weights[a] + rows.weights[far] <= rows.most
            weight = min(weight, mean_product(rows, a, far)) if fits else DEAD
        graph.weights[edge] = weight if weight >= rows.lowest else DEAD
        graph.marks[far] = -1
        half = graph.following[half]


def combine_weights(one: float, other: float, average: bool) -> float:
    """Return the weight of two edges to a common neighbour: the lower one, or for average linkage an upper bound.

    The mean of two different weights is below the higher one, so the bound is the higher one minus ``STEP``. With it, a
    merger brings no neighbour nearer and makes no new tie with a third group, whatever rounding or missing edges do.
    """
    if not average or one == other:
        return min(one, other)
    return max(one, other) - STEP
