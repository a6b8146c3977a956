"""Linkage over the graph of similar pairs: complete, groups in which every pair is similar, and average."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.agglomeration import agglomerate
from consolidation_pipeline.core.grouping.components import connected_components, strong_pairs
from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.grouping.nearest_neighbor_chain import Rows
from consolidation_pipeline.core.similarity.similarity_join import SLACK, SimilarPairs

# Numbers in the widened rows of the components that are linked together: 32 MB of float64.
_ELEMENTS = 1 << 22


def complete_linkage(n: int, pairs: SimilarPairs, threshold: float, *, initial: ArrayLike | None = None) -> Labels:
    """Groups of ``n`` rows in which *every* pair is in ``pairs`` with a similarity that reaches ``threshold``.

    Agglomerative: the two groups whose weakest pair is strongest merge first, of equals those with the smallest first
    members; no two of the resulting groups could still merge. Only such ties depend on the numbering of the rows, so
    number them by something lasting, such as their ids. The order of ``pairs`` does not matter.

    ``initial``: labels (n,) of groups that exist already, -1 = alone. They stay together, their inner pairs are taken
    as given, and a row or another group joins only if paired with all of their members.

    For e pairs that reach the threshold it takes e log e steps and about 120 e bytes.
    ValueError: ``pairs`` or ``initial`` do not fit ``n``.
    """
    owner = _owners(n, initial)
    a, b, weakest = _group_edges(n, pairs, threshold, owner=owner)
    return renumber_labels(agglomerate(n, a, b, weakest)[owner], 2)


def average_linkage(
    x: NDArray[np.floating], pairs: SimilarPairs, threshold: float, *, order: NDArray[np.integer]
) -> Labels:
    """Groups (n,) by average linkage of the rows ``x[order]``, cut where the mean cosine falls below ``threshold``.

    ``x`` (n, d), L2-normalised; ``pairs`` number the rows by their place in ``order`` (n,) and are those of all rows,
    or of all rows of a kind, with a cosine of at least ``threshold``. Two groups whose mean cosine is as high have such
    a pair between them, so it is enough to look at groups that are connected by one, and the mean over all pairs of two
    groups is the scalar product of their sums: exact, without a matrix of all distances. Rows that no chain of pairs
    connects never meet. Of equally similar groups those with the smallest first members merge first; means are equal
    if they are to 1.5e-11.

    For e pairs it takes about e d steps and 100 e bytes; the rows of a component are widened together, 8 d bytes each.
    ValueError: ``pairs`` do not fit ``x``.
    """
    labels = np.arange(len(x), dtype=np.int64)
    for rows, inside in _by_components(len(x), x.shape[1], pairs, threshold):
        i, j = np.searchsorted(rows, inside.i), np.searchsorted(rows, inside.j)
        merging = Rows(_unit_rows(x[order[rows]]), np.ones(len(rows), dtype=np.int64), threshold - SLACK)
        labels[rows] = rows[agglomerate(len(rows), i, j, inside.similarity, rows=merging)]
    return renumber_labels(labels, 2)


def _by_components(
    n: int, d: int, pairs: SimilarPairs, threshold: float
) -> Iterator[tuple[NDArray[np.int64], SimilarPairs]]:
    """Rows, ascending, and pairs, ascending and without repeats, of a few whole components at a time."""
    strong = strong_pairs(n, pairs, threshold)
    strong = strong.select(np.unique(strong.i.astype(np.int64) * n + strong.j, return_index=True)[1])
    component = connected_components(n, strong, threshold)
    portion = np.cumsum(np.bincount(component[component >= 0])) * d // _ELEMENTS
    of_row = np.full(n, -1, dtype=np.int64)
    of_row[component >= 0] = portion[component[component >= 0]]
    for number in np.unique(portion):
        yield np.flatnonzero(of_row == number), strong.select(of_row[strong.i] == number)


def _unit_rows(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """``rows`` (m, d) in float64 and of length 1, which they were up to the rounding of their type; zero stays zero."""
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.where(lengths == 0.0, 1.0, lengths)[:, None]
    return wide


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


def _group_edges(
    n: int, pairs: SimilarPairs, threshold: float, *, owner: Labels
) -> tuple[Labels, Labels, NDArray[np.float32]]:
    """Initial groups a < b of which every cross pair is present, ascending, and their weakest similarity."""
    strong = strong_pairs(n, pairs, threshold)
    # A pair that is listed twice counts once.
    key, similarity, _ = _weakest(strong.i.astype(np.int64) * n + strong.j, strong.similarity)
    a, b = owner[key // max(1, n)], owner[key % max(1, n)]
    apart = a != b
    key = np.minimum(a, b)[apart] * n + np.maximum(a, b)[apart]
    key, similarity, crossing = _weakest(key, similarity[apart])
    a, b = np.divmod(key, max(1, n))
    sizes = np.bincount(owner, minlength=n)
    whole = crossing == sizes[a] * sizes[b]
    return a[whole], b[whole], similarity[whole]


def _weakest(key: Labels, similarity: NDArray[np.float32]) -> tuple[Labels, NDArray[np.float32], Labels]:
    """Each distinct key, ascending, with its smallest similarity and how often it occurs."""
    order = np.lexsort((similarity, key))
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    return key[first], similarity[order[first]], np.diff(first, append=len(key))
