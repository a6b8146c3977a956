"""The vetoes on many pairs of texts at once."""

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.grouping.linkage import connected_components
from consolidation_pipeline.core.literals.literals import Facts, facts_contradict
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs


def find_conflicting(texts: Sequence[str], i: ArrayLike, j: ArrayLike) -> NDArray[np.bool_]:
    """Return for each pair (i[k], j[k]) whether ``literals.conflicts`` finds anything: bool (m,).

    Each text that is in a pair is read once. Pairs are compared one connected component after the other, and what was
    read is dropped after each: about 10 KB per text of the largest component.

    Args:
        texts: n texts.
        i: Positions of the first texts in ``texts``, int (m,).
        j: Positions of the second texts, int (m,).

    Raises:
        ValueError: ``i`` and ``j`` are not of one shape (m,), or a position is outside of ``texts``.
    """
    one, other = np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)
    if one.ndim != 1 or one.shape != other.shape:
        raise ValueError(f"i and j have the shapes {one.shape} and {other.shape}; both must be (m,)")
    used = np.concatenate([one, other])
    if used.size and not 0 <= used.min() <= used.max() < len(texts):
        raise ValueError(f"positions reach from {used.min()} to {used.max()}; there are {len(texts)} texts")
    found = np.zeros(len(one), dtype=np.bool_)
    for part in _by_component(len(texts), one, other):
        read = cache(lambda at: Facts(texts[at]))
        pairs = zip(one[part].tolist(), other[part].tolist(), strict=True)
        found[part] = [facts_contradict(read(a), read(b)) for a, b in pairs]
    return found


def _by_component(n: int, i: NDArray[np.int64], j: NDArray[np.int64]) -> Iterable[NDArray[np.int64]]:
    """Return the positions of the pairs of each connected component of the n texts."""
    pairs = SimilarPairs(i.astype(np.int32), j.astype(np.int32), np.ones(len(i), dtype=np.float32))
    component = connected_components(n, pairs, 1.0)[i]
    order = np.argsort(component, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(component[order])) + 1)
