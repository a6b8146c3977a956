"""Decision on many pairs of texts at once: which may become one."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.differences.alignment import Similarity, shorten
from consolidation_pipeline.core.differences.explanation import MIN_COMMON, may_merge_readings
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.differences.reading import Reading
from consolidation_pipeline.core.grouping.linkage import connected_components
from consolidation_pipeline.core.memories.memories import hash_text
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs

# Raised when verdicts or keys change: projects then compare their pairs again.
RULES_VERSION = 16
# Texts whose readings are kept: about 200 MB.
_KEPT_READINGS = 20_000
# Words that are not equal but may stand for each other: at most this share of the common ones, or two.
_MAX_RESEMBLING = 0.5
# Pairs that are screened at once: of 20 words each, about 50 MB.
_BLOCK = 100_000
_PACKED = np.dtype("<u8")


class TextKeys(NamedTuple):
    """Keys of the tokens of n texts, as hashes of 64 bits; those of paths without folders.

    Attributes:
        words: Keys of all tokens, each once for a text, text by text: uint64.
        values: Those of values.
        word_counts: Number of the words of each text, int64 (n,).
        value_counts: Number of its values, int64 (n,).
    """

    words: NDArray[np.uint64]
    values: NDArray[np.uint64]
    word_counts: NDArray[np.int64]
    value_counts: NDArray[np.int64]


def list_keys(texts: Iterable[str]) -> TextKeys:
    """Read texts, and return their keys for ``screen_pairs``."""
    return _list_keys(map(read, texts))


def _list_keys(readings: Iterable[Reading]) -> TextKeys:
    words: list[int] = []
    values: list[int] = []
    word_counts, value_counts = [], []
    for reading in readings:
        own = {_hash(token.key) for token in reading.tokens}
        of_values = {_hash(token.key) for token in reading.tokens if token.kind == "value"}
        words += own
        values += of_values
        word_counts.append(len(own))
        value_counts.append(len(of_values))
    return TextKeys(
        np.array(words, dtype=np.uint64),
        np.array(values, dtype=np.uint64),
        np.array(word_counts, dtype=np.int64),
        np.array(value_counts, dtype=np.int64),
    )


@lru_cache(maxsize=100_000)
def _hash(key: str) -> int:
    return hash_text(shorten(key))


def concatenate_keys(parts: Iterable[TextKeys]) -> TextKeys:
    """Return the keys of all texts of some parts, in order."""
    return TextKeys(*map(np.concatenate, zip(*parts, strict=True)))


def pack_keys(keys: TextKeys) -> list[bytes]:
    """Return the keys of each text in a form that can be stored: the number of its values, they, and its words.

    Each is a number of 64 bits, the lowest byte first.
    """
    every = np.arange(len(keys.word_counts))
    texts = [every, every.repeat(keys.value_counts), every.repeat(keys.word_counts)]
    numbers = np.concatenate([keys.value_counts.astype(_PACKED), keys.values, keys.words])
    packed = numbers[np.argsort(np.concatenate(texts), kind="stable")].astype(_PACKED).tobytes()
    ends = _PACKED.itemsize * np.cumsum(1 + keys.value_counts + keys.word_counts)
    return [packed[start:end] for start, end in pairwise([0, *ends.tolist()])]


def unpack_keys(packed: Sequence[bytes]) -> TextKeys:
    """Return the keys of texts in the form of ``pack_keys``."""
    numbers = np.frombuffer(b"".join(packed), _PACKED).astype(np.uint64)
    sizes = np.array([len(one) for one in packed], dtype=np.int64) // _PACKED.itemsize
    begins = np.cumsum(sizes) - sizes
    value_counts = numbers[begins].astype(np.int64)
    # Place of each number among those of its text.
    place = np.arange(len(numbers)) - begins.repeat(sizes)
    is_word, is_value = place > value_counts.repeat(sizes), (place > 0) & (place <= value_counts.repeat(sizes))
    return TextKeys(numbers[is_word], numbers[is_value], sizes - 1 - value_counts, value_counts)


def screen_pairs(keys: TextKeys, i: ArrayLike, j: ArrayLike) -> NDArray[np.bool_]:
    """Return for each pair (i[k], j[k]) False if its texts surely differ: bool (m,).

    They do in values, or in more words than may stand for each other.

    Args:
        keys: of n texts.
        i: positions of the first texts, int (m,).
        j: positions of the second texts, int (m,).
    """
    first, second = np.asarray(i), np.asarray(j)
    words, values = _build_matrices(keys)
    found = np.zeros(len(first), dtype=np.bool_)
    for start in range(0, len(first), _BLOCK):
        a, b = first[start : start + _BLOCK], second[start : start + _BLOCK]
        of_a, of_b = words[a], words[b]
        are_told = values[a].multiply(of_b).sum(axis=1) == keys.value_counts[a]
        are_told |= values[b].multiply(of_a).sum(axis=1) == keys.value_counts[b]
        common = of_a.multiply(of_b).sum(axis=1)
        alone, alone_other = keys.word_counts[a] - common, keys.word_counts[b] - common
        resembling = np.maximum(2, (_MAX_RESEMBLING * common).astype(np.int64))
        is_near = np.minimum(alone, alone_other) <= resembling
        is_near |= common + resembling >= MIN_COMMON * (np.maximum(alone, alone_other) - resembling)
        found[start : start + _BLOCK] = are_told & is_near
    return found


def _build_matrices(keys: TextKeys) -> tuple[Any, Any]:
    """Return the words and the values of n texts as sparse matrices of ones (n, v)."""
    from scipy.sparse import csr_array

    names, columns = np.unique(np.concatenate([keys.words, keys.values]), return_inverse=True)
    shape = len(keys.word_counts), max(1, len(names))
    split = np.split(columns.reshape(-1), [len(keys.words)])
    counts = keys.word_counts, keys.value_counts
    ends = (np.concatenate([[0], np.cumsum(of_text)]) for of_text in counts)
    words, values = (
        csr_array((np.ones(len(own), np.int32), own, rows), shape=shape) for own, rows in zip(split, ends, strict=True)
    )
    words.sort_indices()
    values.sort_indices()
    return words, values


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
    used, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    if used.size and not 0 <= used[0] <= used[-1] < len(texts):
        raise ValueError(f"positions reach from {used[0]} to {used[-1]}; there are {len(texts)} texts")
    read_at = lru_cache(maxsize=_KEPT_READINGS)(lambda at: read(texts[at]))
    found = screen_pairs(_list_keys(map(read_at, used.tolist())), *np.split(places.reshape(-1), 2))
    near = np.flatnonzero(found)
    found[near] = _judge(read_at, len(texts), one[near], other[near], similarity)
    return found


def judge_pairs(
    texts: Sequence[str], i: ArrayLike, j: ArrayLike, similarity: Similarity | None = None
) -> NDArray[np.bool_]:
    """As ``find_mergeable``, for pairs that ``screen_pairs`` left over."""
    read_at = lru_cache(maxsize=_KEPT_READINGS)(lambda at: read(texts[at]))
    return _judge(read_at, len(texts), np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64), similarity)


def _judge(
    read_at: Callable[[int], Reading],
    n: int,
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    similarity: Similarity | None,
) -> NDArray[np.bool_]:
    found = np.zeros(len(i), dtype=np.bool_)
    # Connected pairs follow each other: they are of few texts.
    for at in np.argsort(_find_components(n, i, j), kind="stable").tolist():
        found[at] = may_merge_readings(read_at(int(i[at])), read_at(int(j[at])), similarity)
    return found


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
