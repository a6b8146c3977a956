"""Complete linkage over the graph of similar pairs: groups in which every pair is similar."""

import heapq
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.components import strong_pairs
from consolidation_pipeline.core.labels import Labels, numbered
from consolidation_pipeline.core.similarity import SimilarPairs

Edge = tuple[float, int, int]


def complete_linkage(n: int, pairs: SimilarPairs, threshold: float, *, initial: ArrayLike | None = None) -> Labels:
    """Groups of ``n`` rows in which *every* pair is in ``pairs`` with a similarity that reaches ``threshold``.

    Agglomerative: the two groups whose weakest pair is strongest merge first, of equals those with the smallest first
    members; no two of the resulting groups could still merge. Only such ties depend on the numbering of the rows, so
    number them by something lasting, such as their ids. The order of ``pairs`` does not matter.

    ``initial``: labels (n,) of groups that exist already, -1 = alone. They stay together, their inner pairs are taken
    as given, and a row or another group joins only if paired with all of their members.

    For e pairs that reach the threshold it takes e log e steps and about 300 e bytes.
    ValueError: ``pairs`` or ``initial`` do not fit ``n``.
    """
    owner = _owners(n, initial)
    edges = _group_edges(n, pairs, threshold, owner=owner)
    into = owner.tolist()
    neighbours: dict[int, dict[int, float]] = defaultdict(dict)
    for cost, a, b in edges:
        neighbours[a][b] = neighbours[b][a] = cost
    weakened: list[Edge] = []
    for cost, a, b in _strongest_first(edges, weakened):
        if neighbours[a].get(b) == cost:
            into[b] = a
            _absorb(neighbours, a, b, weakened)
    for row in range(n):
        into[row] = into[into[row]]
    return numbered(np.array(into, dtype=np.int64), 2)


def _owners(n: int, initial: ArrayLike | None) -> Labels:
    """The first member of each row's initial group: the group's number until the end."""
    owner = np.arange(n, dtype=np.int64)
    if initial is None:
        return owner
    labels = np.asarray(initial)
    if labels.shape != (n,) or (n and labels.dtype.kind not in "iu"):
        raise ValueError(f"initial has shape {labels.shape} and dtype {labels.dtype}; it must be integer labels ({n},)")
    grouped = np.flatnonzero(labels >= 0)
    _, first, group_of = np.unique(labels[grouped], return_index=True, return_inverse=True)
    owner[grouped] = grouped[first[group_of]]
    return owner


def _group_edges(n: int, pairs: SimilarPairs, threshold: float, *, owner: Labels) -> list[Edge]:
    """(-weakest similarity, a, b), ascending, for the initial groups a < b of which every cross pair is present."""
    strong = strong_pairs(n, pairs, threshold)
    # A pair that is listed twice counts once.
    key, similarity, _ = _weakest(strong.i.astype(np.int64) * n + strong.j, strong.similarity)
    a, b = owner[key // max(1, n)], owner[key % max(1, n)]
    apart = a != b
    key = np.minimum(a, b)[apart] * n + np.maximum(a, b)[apart]
    key, similarity, crossing = _weakest(key, similarity[apart])
    a, b = np.divmod(key, max(1, n))
    sizes = np.bincount(owner, minlength=n)
    whole = np.flatnonzero(crossing == sizes[a] * sizes[b])
    order = whole[np.lexsort((key[whole], -similarity[whole]))]
    return list(zip((-similarity[order]).tolist(), a[order].tolist(), b[order].tolist(), strict=True))


def _weakest(key: Labels, similarity: NDArray[np.float32]) -> tuple[Labels, NDArray[np.float32], Labels]:
    """Each distinct key, ascending, with its smallest similarity and how often it occurs."""
    order = np.lexsort((similarity, key))
    distinct, first, count = np.unique(key[order], return_index=True, return_counts=True)
    return distinct, similarity[order][first], count


def _strongest_first(edges: list[Edge], weakened: list[Edge]) -> Iterator[Edge]:
    """``edges``, which are sorted, merged with the heap ``weakened``, which grows meanwhile.

    A weakened edge (a, c) took its similarity from an edge (b, c) with b > a that is still to come, so it is always
    followed by another edge: nothing can be left in the heap at the end.
    """
    for edge in edges:
        while weakened and weakened[0] < edge:
            yield heapq.heappop(weakened)
        yield edge


def _absorb(neighbours: dict[int, dict[int, float]], a: int, b: int, weakened: list[Edge]) -> None:
    """Make group b part of a: it stays a neighbour of those that both had, at the weaker of the two similarities."""
    kept, gone = neighbours[a], neighbours.pop(b)
    del kept[b], gone[a]
    for c in gone:
        del neighbours[c][b]
    for c in [c for c in kept if c not in gone]:
        del kept[c], neighbours[c][a]
    for c, cost in kept.items():
        if gone[c] > cost:
            kept[c] = neighbours[c][a] = gone[c]
            heapq.heappush(weakened, (gone[c], min(a, c), max(a, c)))
