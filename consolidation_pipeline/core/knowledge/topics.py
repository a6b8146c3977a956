"""Topics of texts: groups that share terms, found by spherical k-means from the terms that say most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.text.key_terms import count_terms, normalize_rows

# A text that is less similar to the centre of every topic is in none (cosine of term vectors).
_FLOOR = 0.3
# Shares of the largest weight of a text's terms from which the text is about a term, and mentions it; terms of one text
# do not count.
_ABOUT, _MENTIONS = 0.7, 0.4
# Fewest texts of a topic, repeats included; of less than MANY texts two make a topic, of very many this share.
MIN_SIZE = 3
MANY = 60
_LEAST_SHARE = 0.015
# Topics with more similar centres are one (cosine), unless they have more than this share of many texts together.
_SAME = 0.35
_LARGEST_SHARE = 0.25
# Two texts are a topic if both are this near to their centre: two texts with a cosine of .1 or more.
_PAIR = 0.74
# Topics that are opened for each that is wanted: the largest are kept, and texts on other matters do not blur them.
_OPENED = 2
# Rounds of k-means. Assignments hardly change after the third.
_ROUNDS = 4
# Values are compared to this many decimals; further ones are rounding noise.
_DECIMALS = 9


def find_topics(texts: Sequence[str], counts: Sequence[int], *, most: int) -> list[list[int]]:
    """Return the positions of the texts of each topic, the most central of a topic first, the largest topic first.

    Topics open at the terms with the largest TF-IDF weight in texts that no earlier topic is about. Then each text goes
    to the nearest centre, and the centres follow (spherical k-means). Texts that are near to none are left out. The
    order of the texts matters for ties only; sort them.

    Args:
        texts: Distinct texts.
        counts: How often each text occurs.
        most: Most topics.
    """
    fewest = max(MIN_SIZE, _LEAST_SHARE * sum(counts)) if sum(counts) >= MANY else MIN_SIZE - 1
    if len(texts) < 2 or most < 1:
        return [[at] for at, count in enumerate(counts) if count >= fewest][:most]
    vectors = _build_vectors(texts)
    # A text that occurs a hundred times is not a hundred times as typical of its words.
    weights = 1 + np.log2(np.array(counts, dtype=np.float64))
    centres = _open_topics(vectors, weights, _OPENED * most)
    if centres is None:
        return []
    for _ in range(_ROUNDS):
        nearest, _ = _assign(vectors, centres)
        centres = _move_centres(vectors, weights, nearest, centres)
    nearest, cosines = _assign(vectors, _unite_alike(vectors, weights, centres))
    topics = []
    for number in range(centres.shape[0]):
        members = np.flatnonzero(nearest == number).tolist()
        is_loose = len(members) == MIN_SIZE - 1 and cosines[members].min() < _PAIR
        if sum(counts[at] for at in members) >= fewest and not is_loose:
            topics.append(sorted(members, key=lambda at: (-cosines[at], at)))
    return sorted(topics, key=lambda topic: (-sum(counts[at] for at in topic), topic[0]))[:most]


def _build_vectors(texts: Sequence[str]) -> Any:
    """Return the sparse TF-IDF vectors (n, v) of the texts, L2-normalised."""
    matrix = count_terms(texts).matrix
    having = np.bincount(matrix.nonzero()[1], minlength=matrix.shape[1])
    # Without the usual 1 as the least weight: what all texts have tells no topic from another.
    idf = np.log((1 + len(texts)) / (1 + having))
    return normalize_rows(matrix.log1p().multiply(idf))


def _open_topics(vectors: Any, weights: NDArray[np.float64], most: int) -> Any | None:
    """Return the first centres (k, v): the texts about the term that says most of the texts left, again and again."""
    from scipy.sparse import vstack

    columns = vectors.tocsc()
    is_usable = np.diff(columns.indptr) >= 2
    if not is_usable.any():
        return None
    largest = columns[:, np.flatnonzero(is_usable)].max(axis=1).toarray().ravel()
    left = weights.copy()
    centres: list[Any] = []
    while len(centres) < most:
        gains = np.where(is_usable, np.round(columns.T @ left, _DECIMALS), 0.0)
        term = int(np.argmax(gains))
        if gains[term] <= 0:
            break
        is_usable[term] = False
        start, end = columns.indptr[term], columns.indptr[term + 1]
        rows, values = columns.indices[start:end], columns.data[start:end]
        about = rows[values >= _ABOUT * largest[rows]]
        if len(about) < MIN_SIZE:
            about = rows[values >= _MENTIONS * largest[rows]]
        if len(about) == 0 or not left[about].any():
            continue
        left[about] = 0
        centres.append(_sum_rows(vectors, about, weights))
    return normalize_rows(vstack(centres)) if centres else None


def _sum_rows(vectors: Any, rows: NDArray[np.int64], weights: NDArray[np.float64]) -> Any:
    from scipy.sparse import csr_array

    pick = csr_array((weights[rows], (np.zeros(len(rows), dtype=np.int64), rows)), shape=(1, vectors.shape[0]))
    return pick @ vectors


def _assign(vectors: Any, centres: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the nearest centre of each text, -1 where none is near, and its cosine with it."""
    cosines = np.round((vectors @ centres.T).toarray(), _DECIMALS)
    nearest = np.argmax(cosines, axis=1)
    best = cosines[np.arange(len(nearest)), nearest]
    return np.where(best >= _FLOOR, nearest, -1), best


def _unite_alike(vectors: Any, weights: NDArray[np.float64], centres: Any) -> Any:
    """Return the centres after the two most similar topics became one, again and again."""
    largest = max(MIN_SIZE, _LARGEST_SHARE * vectors.shape[0])
    while True:
        nearest, _ = _assign(vectors, centres)
        sizes = np.bincount(nearest[nearest >= 0], minlength=centres.shape[0])
        cosines = np.triu(np.round((centres @ centres.T).toarray(), _DECIMALS), 1)
        if len(nearest) >= MANY:
            cosines = np.where(sizes[:, None] + sizes > largest, 0, cosines)
        one, other = np.unravel_index(np.argmax(cosines), cosines.shape)
        if cosines[one, other] < _SAME:
            return centres
        centres = _move_centres(vectors, weights, np.where(nearest == other, one, nearest), centres)


def _move_centres(vectors: Any, weights: NDArray[np.float64], nearest: NDArray[np.int64], centres: Any) -> Any:
    """Return the centre of the texts of each topic; a topic without texts gets an empty one."""
    from scipy.sparse import csr_array

    rows = np.flatnonzero(nearest >= 0)
    members = csr_array((weights[rows], (nearest[rows], rows)), shape=(centres.shape[0], vectors.shape[0]))
    return normalize_rows(members @ vectors)
