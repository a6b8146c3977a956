"""Recall of merged memories: their places in searches for the texts of sources, and the places that these had."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.search.ranking import SCORE_WEIGHTS, bm25, sum_z_scores
from consolidation_pipeline.core.search.words import TextStatistics

# Places of a search in which a memory counts as found: the default limit of a search.
SHOWN = 10
# Lowest cosine of a memory that a search finds by meaning, by default.
MIN_SIMILARITY = 0.30
# A smaller difference of two scores is rounding: the memories are tied.
_TIE = 1e-6

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]


class Places(NamedTuple):
    """Places of q searches, counted from 1: ``before`` of the best source (q,), ``after`` of the successor (q,).

    ``above`` (q,): column of the best rival, -1 = there is none.
    """

    before: NDArray[np.int64]
    after: NDArray[np.int64]
    above: NDArray[np.int64]

    @property
    def are_lower(self) -> Mask:
        """True (q,) where the best source was shown, and the successor stands lower."""
        return (self.before <= SHOWN) & (self.after > self.before)

    @property
    def are_lost(self) -> Mask:
        """True (q,) where the best source was shown, and the successor is not."""
        return (self.before <= SHOWN) & (self.after > SHOWN)


def compare_by_text(
    similarities: Scores, lengths: NDArray[Any], counts: NDArray[Any], is_there: Mask, is_rival: Mask
) -> Places:
    """Return the places in searches by meaning and words, fused as in ``weighted_z_scores``.

    The columns of a search are other memories first, then the sources, the successor last.

    Args:
        similarities: Cosines with the query (q, n).
        lengths: Lengths of the texts (q, n) in any unit.
        counts: Occurrences of each query word in each text (q, n, m).
        is_there: False for a column without a memory (q, n), as searches have different numbers of them.
        is_rival: Of each other memory (q, o), False if it says what the query says: it may stand above the successor.
    """
    others = is_rival.shape[1]
    before, after = is_there.copy(), is_there.copy()
    before[:, -1] = False
    after[:, others:-1] = False
    scores = [_score(similarities, lengths, counts, searched) for searched in (before, after)]
    return _compare(scores[0], scores[1], is_rival & is_there[:, :others])


def _score(similarities: Scores, lengths: NDArray[Any], counts: NDArray[Any], searched: Mask) -> Scores:
    """Return the fused scores (q, n) of the memories that are ``searched``; -inf for one that neither retriever finds.

    As in a search, a memory that only its words find gets the lowest similarity that was found.
    """
    has_words = searched & counts.any(axis=2)
    is_near = searched & (similarities >= MIN_SIMILARITY)
    found = has_words | is_near
    keyword = np.where(has_words, bm25(lengths, counts, _count_texts(lengths, counts, has_words)), 0.0)
    lowest = np.where(is_near, similarities, np.inf).min(axis=1, initial=np.inf)
    semantic = np.where(is_near, similarities, np.where(np.isfinite(lowest), lowest, 0.0)[:, None])
    fused = sum_z_scores(np.stack([semantic, keyword], axis=1), SCORE_WEIGHTS, found)
    return np.where(found, fused, -np.inf)


def _count_texts(lengths: NDArray[Any], counts: NDArray[Any], counted: Mask) -> TextStatistics:
    """Return the statistics of the texts of each search that are ``counted`` (q, n)."""
    total = counted.sum(axis=1, keepdims=True)
    frequencies = ((counts > 0) & counted[:, :, None]).sum(axis=1)
    length = np.where(counted, lengths, 0).sum(axis=1, keepdims=True)
    return TextStatistics(total, frequencies, np.where(length > 0, length / np.maximum(total, 1), 1.0))


def compare_by_meaning(similarities: Scores, is_there: Mask, is_rival: Mask) -> Places:
    """Return the places in searches by meaning alone; arguments as of ``compare_by_text``."""
    found = np.where(is_there, similarities, -np.inf)
    return _compare(found, found, is_rival & is_there[:, : is_rival.shape[1]])


def _compare(before: Scores, after: Scores, is_rival: Mask) -> Places:
    others = is_rival.shape[1]
    best = before[:, others:-1].max(axis=1, keepdims=True, initial=-np.inf)
    rivals = np.where(is_rival, after[:, :others], -np.inf)
    return Places(
        before=1 + (is_rival & (before[:, :others] > best + _TIE)).sum(axis=1),
        after=1 + (rivals > after[:, -1:] + _TIE).sum(axis=1),
        above=rivals.argmax(axis=1) if others else np.full(len(before), -1),
    )
