"""Decision on many pairs of texts at once: which may become one."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.differences.alignment import Similarity, shorten
from consolidation_pipeline.core.differences.explanation import MIN_COMMON, may_merge_readings
from consolidation_pipeline.core.differences.reading import Reading, read
from consolidation_pipeline.core.grouping.linkage import connected_components
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs

# Raised when verdicts change: projects then compare their pairs again.
RULES_VERSION = 8
# Texts whose readings are kept: about 200 MB.
_KEPT_READINGS = 20_000
# Words that are not equal but may stand for each other: at most this share of the common ones, or two.
_MAX_RESEMBLING = 0.5


def find_mergeable(
    texts: Sequence[str], i: ArrayLike, j: ArrayLike, similarity: Similarity | None = None
) -> NDArray[np.bool_]:
    """Return for each pair (i[k], j[k]) if every difference of its texts is harmless: bool (m,).

    A cheap screen of values and words drops most pairs before they are explained.

    Args:
        texts: n texts.
        i: positions of the first texts in ``texts``, int (m,).
        j: positions of the second texts, int (m,).
        similarity: as in ``explain``.

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
    read_at = lru_cache(maxsize=_KEPT_READINGS)(lambda at: _ScreenedReading(read(texts[at])))
    for part in _iter_components(len(texts), one, other):
        found[part] = list(_judge(read_at, one[part].tolist(), other[part].tolist(), similarity))
    return found


class _ScreenedReading:
    """Reading of a text and the keys of its tokens, those of paths without folders."""

    __slots__ = ("reading", "values", "words")

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        tokens = reading.tokens
        self.values = frozenset(shorten(token.key) for token in tokens if token.kind == "value")
        self.words = frozenset(shorten(token.key) for token in tokens)

    def may_match(self, other: "_ScreenedReading") -> bool:
        """Return False if the texts surely differ: in values, or in more words than may stand for each other."""
        if not (self.values <= other.words or other.values <= self.words):
            return False
        common = len(self.words & other.words)
        alone, alone_other = len(self.words) - common, len(other.words) - common
        resembling = max(2, int(_MAX_RESEMBLING * common))
        if min(alone, alone_other) <= resembling:
            return True
        return common + resembling >= MIN_COMMON * (max(alone, alone_other) - resembling)


def _judge(
    read_at: Callable[[int], _ScreenedReading], i: list[int], j: list[int], similarity: Similarity | None
) -> Iterator[bool]:
    for first, second in zip(i, j, strict=True):
        a, b = read_at(first), read_at(second)
        yield a.may_match(b) and may_merge_readings(a.reading, b.reading, similarity)


def _iter_components(n: int, i: NDArray[np.int64], j: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield the positions of the pairs of each connected component of the n texts."""
    component = _find_components(n, i, j)
    order = np.argsort(component, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(component[order])) + 1)


def split_pairs(n: int, i: ArrayLike, j: ArrayLike, *, size: int) -> list[NDArray[np.int64]]:
    """Return the positions of the pairs in portions of ``size`` with few texts in common: each can be judged alone.

    Args:
        n: number of texts.
        i: positions of the first texts, int (m,).
        j: positions of the second texts, int (m,).
        size: pairs of a portion; the last has fewer.
    """
    first = np.asarray(i)
    order = np.lexsort((first, _find_components(n, first, np.asarray(j))))
    return np.split(order, range(size, len(order), size))


def _find_components(n: int, i: NDArray[np.integer], j: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the number of the connected component of each pair (m,)."""
    pairs = SimilarPairs(i.astype(np.int32), j.astype(np.int32), np.ones(len(i), dtype=np.float32))
    return np.asarray(connected_components(n, pairs, 1.0)[i])
