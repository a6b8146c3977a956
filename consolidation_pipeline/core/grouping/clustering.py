"""Clustering of rows on the graph of similar pairs, independent of their order; cluster keys of groups."""

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.grouping.average_linkage import LinkageLimits, average_linkage, unlimited
from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.grouping.linkage import complete_linkage, connected_components, select_strong_pairs
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs
from consolidation_pipeline.core.vectors import as_matrix
from consolidation_pipeline.errors import InvalidOptionError

# Part of every cluster key: raise it if the same input may give other groups.
ALGORITHM_VERSION = "2"

# A key is the hash of a JSON list: an entry for an id after another entry, and the two hexadecimal digits of each byte.
_LISTED = b', "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"'
_HEXADECIMAL = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8).reshape(256, 2)

METHODS = ("average", "complete", "components", "hdbscan")

# hdbscan compares all pairs: with 256 dimensions it takes 20 seconds for 10,000 rows and two minutes for 20,000. Its
# memory is linear in the rows.
MAX_HDBSCAN_ROWS = 30_000


def cluster_rows(
    x: NDArray[np.floating],
    pairs: SimilarPairs,
    *,
    method: str,
    threshold: float,
    min_size: int,
    complete_from: float | None = None,
    limits: LinkageLimits | None = None,
) -> Labels:
    """Return labels (n,) of the rows of ``x``: 0..g-1, -1 = alone.

    Groups have at least two members, and a weight of ``min_size``. Ties are broken by the bytes of the rows, not by
    their position.

    Args:
        x: Vectors (n, d), L2-normalised.
        pairs: Similar pairs of rows, as from ``similarity_join`` at ``complete_from`` or lower.
        method: ``average``, ``complete``: see ``average_linkage``, ``complete_linkage``. ``components``: see
            ``connected_components``. ``hdbscan``: density clusters by Euclidean distance, noise is alone, ``pairs`` and
            ``threshold`` are not used.
        threshold: Lowest cosine that connects two rows or groups.
        min_size: Lowest weight of a group.
        complete_from: Cosine from which ``pairs`` are complete; None = ``threshold``. If it is above ``threshold``,
            ``complete`` and ``components`` use it in place of ``threshold``.
        limits: Walls between rows and their weights; None = no walls, and each row has the weight 1. The highest weight
            of a group holds for ``average`` only. Without it, ``pairs`` are complete from ``threshold``.

    Raises:
        InvalidOptionError: ``method`` is unknown, or ``hdbscan`` for more than ``MAX_HDBSCAN_ROWS`` rows within a wall.
        ValueError: ``x`` is not a matrix, or ``pairs`` do not fit it.
    """
    if method not in METHODS:
        raise InvalidOptionError(f"cluster_method is {method!r}; it must be one of {', '.join(METHODS)}")
    n = len(as_matrix(x))
    limits = limits or unlimited(n)
    start = threshold if complete_from is None else max(threshold, complete_from)
    strong = select_strong_pairs(n, pairs, start)
    labels, order = np.full(n, -1, dtype=np.int64), _order_by_content(x)
    if method == "hdbscan":
        for rows in _list_walls(order, limits.walls):
            found = _density_labels(x[rows], max(2, min_size))
            labels[rows] = np.where(found >= 0, found + labels.max(initial=-1) + 1, -1)
    elif method == "average":
        ranked = _rank_pairs(strong, order)
        labels[order] = average_linkage(x, ranked, threshold, order=order, complete_from=start, limits=limits)
    else:
        link = complete_linkage if method == "complete" else connected_components
        labels[order] = link(n, _rank_pairs(strong, order), start)
    return _drop_light_groups(labels, limits.weights, min_size)


def cluster_key(member_ids: Sequence[str | UUID], algorithm_version: str = ALGORITHM_VERSION) -> str:
    """Return the key of a group: 32 hexadecimal digits of the SHA-256 of version and distinct, sorted member ids."""
    text = json.dumps([algorithm_version, *sorted({str(member) for member in member_ids})])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def cluster_keys(ids: NDArray[np.bytes_], groups: Labels) -> list[str]:
    """Return the ``cluster_key`` of each group 0..g-1.

    Args:
        ids: Member ids, S16 (m,), each once within a group.
        groups: Group of each member (m,).
    """
    order = np.lexsort((ids, groups))
    raw = np.ascontiguousarray(ids[order]).view(np.uint8).reshape(-1, 16)
    listed = np.tile(np.frombuffer(_LISTED, np.uint8), (len(raw), 1))
    listed[:, np.frombuffer(_LISTED, np.uint8) == ord("x")] = _HEXADECIMAL[raw].reshape(-1, 32)
    text, ends = listed.tobytes(), (len(_LISTED) * np.cumsum(np.bincount(groups))).tolist()
    head = json.dumps([ALGORITHM_VERSION])[:-1].encode()
    return [hashlib.sha256(b"%b%b]" % (head, text[a:b])).hexdigest()[:32] for a, b in pairwise([0, *ends])]


def _rank_pairs(pairs: SimilarPairs, order: NDArray[np.int64]) -> SimilarPairs:
    """Return the pairs with positions in ``order`` (n,) in place of rows."""
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    return SimilarPairs(rank[pairs.i], rank[pairs.j], pairs.similarity)


def _drop_light_groups(labels: Labels, weights: NDArray[np.int64], lowest: int) -> Labels:
    """Return the labels without groups of one row, or of a weight below ``lowest``."""
    grouped = labels >= 0
    total = np.bincount(labels[grouped], weights=weights[grouped])
    heavy = grouped.copy()
    heavy[grouped] = total[labels[grouped]] >= lowest
    return renumber_labels(np.where(heavy, labels, -1), 2)


def _list_walls(order: NDArray[np.int64], walls: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the rows of each wall, in the order of ``order``."""
    by_wall = order[np.argsort(walls[order], kind="stable")]
    return np.split(by_wall, np.flatnonzero(np.diff(walls[by_wall])) + 1)


def _density_labels(x: NDArray[np.floating], size: int) -> Labels:
    if len(x) > MAX_HDBSCAN_ROWS:
        raise InvalidOptionError(
            f"cluster_method is 'hdbscan' and there are {len(x)} units to group; it takes at most "
            f"{MAX_HDBSCAN_ROWS}, as it compares each with all; 'average' has no such limit"
        )
    if len(x) <= size:  # a density estimate over `size` neighbours needs more points than that
        return np.full(len(x), -1, dtype=np.int64)
    from hdbscan import HDBSCAN

    model = HDBSCAN(min_cluster_size=size, metric="euclidean", core_dist_n_jobs=1)
    return np.asarray(model.fit_predict(x.astype(np.float64)), dtype=np.int64)


def _order_by_content(x: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the rows sorted by their bytes, equal ones by position."""
    if x.size == 0:
        return np.arange(len(x), dtype=np.int64)
    row = np.dtype((np.void, x.shape[1] * x.itemsize))
    return np.argsort(np.ascontiguousarray(x).view(row).ravel(), kind="stable").astype(np.int64)
