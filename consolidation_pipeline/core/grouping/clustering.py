"""Clustering of rows on the graph of similar pairs, independent of their order; cluster keys of groups."""

import hashlib
import json
from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.grouping.labels import Labels, renumber_labels
from consolidation_pipeline.core.grouping.linkage import (
    average_linkage,
    complete_linkage,
    connected_components,
    select_strong_pairs,
)
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
    scopes: NDArray[np.int64] | None = None,
) -> Labels:
    """Return labels (n,) of the rows of ``x``: 0..g-1, -1 = alone. Groups have at least ``max(2, min_size)`` members.

    Ties are broken by the bytes of the rows, not by their position. Rows of different scopes are in different groups if
    no pair connects them.

    Args:
        x: Vectors (n, d), L2-normalised.
        pairs: Similar pairs of rows, as from ``similarity_join`` at ``threshold`` or lower.
        method: ``average``, ``complete``: see ``average_linkage``, ``complete_linkage``. ``components``: see
            ``connected_components``. ``hdbscan``: density clusters by Euclidean distance, noise is alone, ``pairs`` and
            ``threshold`` are not used.
        threshold: Lowest cosine that connects two rows or groups.
        min_size: Fewest members of a group.
        scopes: Scope of each row (n,), for ``hdbscan``; None = all are of one scope.

    Raises:
        InvalidOptionError: ``method`` is unknown, or ``hdbscan`` for more than ``MAX_HDBSCAN_ROWS`` rows of one scope.
        ValueError: ``x`` is not a matrix, or ``pairs`` do not fit it.
    """
    if method not in METHODS:
        raise InvalidOptionError(f"cluster_method is {method!r}; it must be one of {', '.join(METHODS)}")
    strong = select_strong_pairs(len(as_matrix(x)), pairs, threshold)
    size = max(2, min_size)
    labels = np.full(len(x), -1, dtype=np.int64)
    if method == "hdbscan":
        for order in _list_scopes(_order_by_content(x), scopes):
            found = _density_labels(x[order], size)
            labels[order] = np.where(found >= 0, found + labels.max(initial=-1) + 1, -1)
    elif len(strong):
        order = _order_by_content(x)
        labels[order] = _linked_labels(x, strong, order, method=method, threshold=threshold)
    return renumber_labels(labels, size)


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


def _linked_labels(
    x: NDArray[np.floating], pairs: SimilarPairs, order: NDArray[np.int64], *, method: str, threshold: float
) -> Labels:
    """Return labels (n,): position k has the label of the row ``order[k]``."""
    rank = np.empty(len(x), dtype=np.int32)
    rank[order] = np.arange(len(x))
    ranked = SimilarPairs(rank[pairs.i], rank[pairs.j], pairs.similarity)
    if method == "complete":
        return complete_linkage(len(x), ranked, threshold)
    if method == "components":
        return connected_components(len(x), ranked, threshold)
    return average_linkage(x, ranked, threshold, order=order)


def _list_scopes(order: NDArray[np.int64], scopes: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
    """Return the rows of each scope, in the order of ``order``."""
    if scopes is None:
        return [order]
    by_scope = order[np.argsort(scopes[order], kind="stable")]
    return np.split(by_scope, np.flatnonzero(np.diff(scopes[by_scope])) + 1)


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
