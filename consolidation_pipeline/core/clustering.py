"""Groups of similar rows from the graph of similar pairs; every function gives labels that depend on content alone.

Complete linkage and connected components have modules of their own and are offered here too.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.components import connected_components, pieces, strong_pairs
from consolidation_pipeline.core.labels import Labels, members_of, numbered
from consolidation_pipeline.core.linkage import complete_linkage
from consolidation_pipeline.core.similarity import SLACK, SimilarPairs
from consolidation_pipeline.core.vectors import as_matrix
from consolidation_pipeline.errors import InvalidOptionError

__all__ = [
    "ALGORITHM_VERSION",
    "LARGEST_COMPONENT",
    "METHODS",
    "Cohesion",
    "Labels",
    "choose_representative",
    "cluster_key",
    "cohesion",
    "complete_linkage",
    "connected_components",
    "group",
    "mean_similarities",
    "members_of",
    "similarity_to",
]

# Part of every cluster key: raise it whenever the same input may give other groups.
ALGORITHM_VERSION = "1"

METHODS = ("average", "complete", "components", "hdbscan")

# Average linkage needs all distances of a component at once: 8,000 members take 256 MB, twice while linking.
LARGEST_COMPONENT = 8_000

_BLOCK = 256


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
    strong = strong_pairs(len(as_matrix(x)), pairs, threshold)
    order = _content_order(x)
    rank = np.empty(len(x), dtype=np.int32)
    rank[order] = np.arange(len(x))
    ranked = SimilarPairs(rank[strong.i], rank[strong.j], strong.similarity)
    size = max(2, min_size)
    labels = np.empty(len(x), dtype=np.int64)
    labels[order] = _labels_by(method, x[order], ranked, threshold=threshold, size=size)
    return numbered(labels, size)


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
    for members in pieces(len(x), pairs, threshold, largest=LARGEST_COMPONENT):
        inner = 0
        if len(members) <= LARGEST_COMPONENT:
            tree = linkage(_distances(x[members]), method="average")
            inner = fcluster(tree, t=1.0 - threshold + SLACK, criterion="distance")
        labels[members] = first + inner
        first += len(members) + 1
    return labels


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


def _content_order(x: NDArray[np.floating]) -> NDArray[np.int64]:
    digests = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in x]
    return np.array(sorted(range(len(x)), key=digests.__getitem__), dtype=np.int64)


def _wide(x: NDArray[np.floating], members: ArrayLike) -> NDArray[np.float64]:
    return x[np.asarray(members, dtype=np.int64)].astype(np.float64)


def _clamped(similarity: float) -> float:
    return min(1.0, max(-1.0, similarity))
