"""Groups of similar rows from the graph of similar pairs; every function gives labels that depend on content alone.

Labels are int64 (n,): -1 for a row that is alone, else 0..g-1, numbered by each group's first member.
"""

import hashlib
import heapq
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.similarity import SLACK, SimilarPairs
from consolidation_pipeline.core.vectors import as_matrix
from consolidation_pipeline.errors import InvalidOptionError

# Part of every cluster key: raise it whenever the same input may give other groups.
ALGORITHM_VERSION = "1"

METHODS = ("average", "complete", "components", "hdbscan")

# Average linkage needs all distances of a component at once: 8,000 members take 256 MB, twice while linking.
LARGEST_COMPONENT = 8_000

# A larger component is split by raising its threshold by a hundredth, or by a tenth of what is left to 1.0 if that is
# less: near 1.0 a whole hundredth could turn one dense component into nothing but lone rows.
SPLIT_STEP, SPLIT_SHARE = 0.01, 0.1

_BLOCK = 256

Labels = NDArray[np.int64]
Edge = tuple[float, int, int]


class Cohesion(NamedTuple):
    """Mean and minimum cosine over the pairs of a group; None where there is no pair."""

    mean: float | None
    minimum: float | None


def group(x: NDArray[np.floating], pairs: SimilarPairs, *, method: str, threshold: float, min_size: int) -> Labels:
    """Groups of at least ``max(2, min_size)`` rows of ``x``, L2-normalised (n, d), by ``method``.

    - ``average``: average linkage inside each connected component of the ``pairs``, over all cosines of the component,
      cut at ``threshold``. The same as over all rows, as every cosine between components is below ``threshold``.
      A component beyond ``LARGEST_COMPONENT`` members is first split by raising its own threshold, step by step, until
      every piece is small enough; rows that are still together within 1e-6 of 1.0 are one group of repeats.
    - ``complete``: see ``complete_linkage``. ``components``: see ``connected_components``.
    - ``hdbscan``: density clusters by Euclidean distance; noise is alone. ``pairs`` and ``threshold`` play no part.

    ``pairs``: as from ``similarity_join`` at ``threshold`` or lower. Rows are taken in an order given by their content,
    so that ties do not depend on their position. InvalidOptionError: unknown ``method``. ValueError: ``x`` is not a
    matrix, or ``pairs`` do not fit it.
    """
    if method not in METHODS:
        raise InvalidOptionError(f"cluster_method is {method!r}; it must be one of {', '.join(METHODS)}")
    strong = _edges(len(as_matrix(x)), pairs, threshold)
    order = _content_order(x)
    rank = np.empty(len(x), dtype=np.int32)
    rank[order] = np.arange(len(x))
    ranked = SimilarPairs(rank[strong.i], rank[strong.j], strong.similarity)
    size = max(2, min_size)
    labels = np.empty(len(x), dtype=np.int64)
    labels[order] = _labels_by(method, x[order], ranked, threshold=threshold, size=size)
    return _numbered(labels, size)


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
    return _numbered(np.array(into, dtype=np.int64), 2)


def connected_components(n: int, pairs: SimilarPairs, threshold: float) -> Labels:
    """Groups of ``n`` rows that are connected through pairs that reach ``threshold``; such groups may chain.

    ValueError: ``pairs`` do not fit ``n``.
    """
    from scipy.sparse.csgraph import connected_components as components

    strong = _edges(n, pairs, threshold)
    if not len(strong):
        return np.full(n, -1, dtype=np.int64)
    return _numbered(components(_graph(n, strong), directed=False)[1].astype(np.int64), 2)


def members_of(labels: Labels) -> list[NDArray[np.int64]]:
    """The rows of each group 0..g-1, ascending."""
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels[labels >= 0])
    return np.split(order[len(labels) - sizes.sum() :], np.cumsum(sizes)[:-1]) if sizes.size else []


def cohesion(x: NDArray[np.floating], members: ArrayLike) -> Cohesion:
    """Mean and minimum cosine over all pairs of the rows ``members`` (positions) of ``x``, L2-normalised (n, d).

    None and None for fewer than two members.
    """
    rows = _wide(x, members)
    m = len(rows)
    if m < 2:
        return Cohesion(None, None)
    # The pairs' sum in O(m d): |sum of rows|^2 counts each pair twice and each row with itself.
    total = rows.sum(axis=0)
    mean = (total @ total - np.einsum("ij,ij->", rows, rows)) / (m * (m - 1))
    # No row is closer to another than to itself, so the diagonal cannot be the minimum unless all are equal.
    minimum = min(float((rows[at : at + _BLOCK] @ rows.T).min()) for at in range(0, m, _BLOCK))
    return Cohesion(_clamped(float(mean)), _clamped(minimum))


def similarity_to(x: NDArray[np.floating], members: ArrayLike, representative: int) -> NDArray[np.float32]:
    """Cosine (m,) of each of the rows ``members`` of L2-normalised ``x`` (n, d) to its row ``representative``."""
    similarity = np.einsum("ij,j->i", _wide(x, members), x[representative].astype(np.float64))
    return np.asarray(np.clip(similarity, -1.0, 1.0).astype(np.float32))


def mean_similarities(x: NDArray[np.floating], members: ArrayLike) -> NDArray[np.float64]:
    """Mean cosine (m,) of each of the rows ``members`` of ``x``, L2-normalised (n, d), to the other members.

    NaN for a single member, which has no other.
    """
    rows = _wide(x, members)
    if len(rows) < 2:
        return np.full(len(rows), np.nan)
    with_itself = np.einsum("ij,ij->i", rows, rows)
    return np.asarray(np.clip((rows @ rows.sum(axis=0) - with_itself) / (len(rows) - 1), -1.0, 1.0))


def choose_representative(reused_counts: ArrayLike, similarities: ArrayLike, ids: Sequence[str | UUID]) -> int:
    """Position of the member that stands for its group: most reused; ties: most similar to the rest, then smallest id.

    All three of shape (m,), m >= 1; ``similarities`` as from ``mean_similarities``, compared to six decimals, as more
    is rounding noise. ValueError: no members, or lengths that differ.
    """
    reused = np.asarray(reused_counts).tolist()
    similar = np.round(np.asarray(similarities, dtype=np.float64), 6).tolist()
    if not ids or not len(reused) == len(similar) == len(ids):
        raise ValueError(
            f"{len(reused)} reused counts, {len(similar)} similarities and {len(ids)} ids given; "
            "a group needs one of each per member, and at least one member"
        )
    return min(range(len(ids)), key=lambda at: (-reused[at], -similar[at], str(ids[at])))


def cluster_key(member_ids: Sequence[str | UUID], algorithm_version: str = ALGORITHM_VERSION) -> str:
    """A group's lasting name: 32 hexadecimal digits of the SHA-256 of its sorted member ids and the version.

    The same members give the same key in any order; another member or version gives another.
    """
    text = json.dumps([algorithm_version, *sorted({str(member) for member in member_ids})])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _labels_by(
    method: str, x: NDArray[np.floating], pairs: SimilarPairs, *, threshold: float, size: int
) -> NDArray[np.int64]:
    if method == "complete":
        return complete_linkage(len(x), pairs, threshold)
    if method == "components":
        return connected_components(len(x), pairs, threshold)
    if method == "hdbscan":
        return _density_labels(x, size)
    return _average_linkage(x, pairs, threshold)


def _density_labels(x: NDArray[np.floating], size: int) -> Labels:
    if len(x) <= size:  # a density estimate over `size` neighbours needs more points than that
        return np.full(len(x), -1, dtype=np.int64)
    from hdbscan import HDBSCAN

    model = HDBSCAN(min_cluster_size=size, metric="euclidean", core_dist_n_jobs=1)
    return np.asarray(model.fit_predict(x.astype(np.float64)), dtype=np.int64)


def _average_linkage(x: NDArray[np.floating], pairs: SimilarPairs, threshold: float) -> Labels:
    from scipy.cluster.hierarchy import fcluster, linkage

    labels = np.full(len(x), -1, dtype=np.int64)
    first = 0
    for members in _pieces(len(x), pairs, threshold):
        inner = 0
        if len(members) <= LARGEST_COMPONENT:
            tree = linkage(_distances(x[members]), method="average")
            inner = fcluster(tree, t=1.0 - threshold + SLACK, criterion="distance")
        labels[members] = first + inner
        first += len(members) + 1
    return labels


def _pieces(n: int, pairs: SimilarPairs, threshold: float) -> Iterator[NDArray[np.int64]]:
    """Members of the connected components, each split by its own higher threshold while it is too large."""
    pending = [(pairs, threshold)]
    while pending:
        connected, cut = pending.pop()
        labels = connected_components(n, connected, cut)
        for members in members_of(labels):
            if len(members) <= LARGEST_COMPONENT or cut >= 1.0 - SLACK:
                yield members
            else:
                inside = connected.select(labels[connected.i] == labels[members[0]])
                pending.append((_spanning(n, inside), cut + min(SPLIT_STEP, SPLIT_SHARE * (1.0 - cut))))


def _spanning(n: int, pairs: SimilarPairs) -> SimilarPairs:
    """The fewest pairs that are connected like ``pairs`` at every threshold: a maximum spanning forest."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    tree = minimum_spanning_tree(_graph(n, pairs)).tocoo()
    return SimilarPairs(tree.row, tree.col, (2.0 - tree.data).astype(np.float32))


def _graph(n: int, pairs: SimilarPairs) -> Any:
    """Sparse (n, n) of 2 - similarity: a distance that is never 0, which would mean no pair."""
    from scipy.sparse import csr_array

    return csr_array((2.0 - pairs.similarity.astype(np.float64), (pairs.i, pairs.j)), shape=(n, n))


def _distances(x: NDArray[np.floating]) -> NDArray[np.float64]:
    """1 - cosine of all pairs of rows in scipy's condensed order, without the square matrix."""
    rows, m = x.astype(np.float64), len(x)
    condensed = np.empty(m * (m - 1) // 2)
    at = 0
    for top in range(0, m, _BLOCK):
        cosines = rows[top : top + _BLOCK] @ rows[top:].T
        for offset, line in enumerate(cosines, start=1):
            condensed[at : at + len(line) - offset] = 1.0 - line[offset:]
            at += len(line) - offset
    return np.clip(condensed, 0.0, 2.0, out=condensed)


def _edges(n: int, pairs: SimilarPairs, threshold: float) -> SimilarPairs:
    """The pairs that reach the threshold, each with i < j."""
    strong = pairs.at_least(threshold)
    low, high = np.minimum(strong.i, strong.j), np.maximum(strong.i, strong.j)
    if len(low) and (low.min() < 0 or high.max() >= n):
        raise ValueError(f"pairs name rows {low.min()} to {high.max()}; with n = {n} they must be within 0 to {n - 1}")
    return SimilarPairs(low, high, strong.similarity).select(low != high)


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
    strong = _edges(n, pairs, threshold)
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


def _numbered(raw: Labels, size: int) -> Labels:
    """Labels 0..g-1 by first member from any labels >= 0; groups of fewer than ``size`` become -1."""
    labels = np.full(len(raw), -1, dtype=np.int64)
    grouped = np.flatnonzero(raw >= 0)
    _, first, group_of, sizes = np.unique(raw[grouped], return_index=True, return_inverse=True, return_counts=True)
    large = np.flatnonzero(sizes >= size)
    number = np.full(len(sizes), -1, dtype=np.int64)
    number[large[np.argsort(first[large])]] = np.arange(len(large))
    labels[grouped] = number[group_of]
    return labels


def _content_order(x: NDArray[np.floating]) -> NDArray[np.int64]:
    digests = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in x]
    return np.array(sorted(range(len(x)), key=digests.__getitem__), dtype=np.int64)


def _wide(x: NDArray[np.floating], members: ArrayLike) -> NDArray[np.float64]:
    return x[np.asarray(members, dtype=np.int64)].astype(np.float64)


def _clamped(similarity: float) -> float:
    return min(1.0, max(-1.0, similarity))
