"""Recall of a merged memory: its place in a search for the text of a source, and the place that the source had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.search.ranking import SCORE_WEIGHTS, bm25, sum_z_scores
from consolidation_pipeline.core.search.words import count_texts

# Places of a search in which a memory counts as found: the default limit of a search.
SHOWN = 10
# Lowest cosine of a memory that a search finds by meaning, by default.
MIN_SIMILARITY = 0.30
# A smaller difference of two scores is rounding: the memories are tied.
_TIE = 1e-6


@dataclass(frozen=True)
class Places:
    """Places of a search, counted from 1: ``before`` of the best source, ``after`` of the successor.

    ``above``: row of the best rival.
    """

    before: int
    after: int
    above: int

    @property
    def is_lower(self) -> bool:
        """True if the best source was shown, and the successor stands lower."""
        return self.before <= SHOWN and self.after > self.before

    @property
    def is_lost(self) -> bool:
        """True if the best source was shown, and the successor is not."""
        return self.before <= SHOWN < self.after


def compare_by_text(
    similarities: NDArray[np.float64], lengths: NDArray[Any], counts: NDArray[Any], is_rival: NDArray[np.bool_]
) -> Places:
    """Return the places in a search by meaning and words, fused as in ``weighted_z_scores``.

    Rows are other memories first, then the sources, the successor last.

    Args:
        similarities: Cosines with the query (n,).
        lengths: Lengths of the texts (n,) in any unit.
        counts: Occurrences of each query word in each text (n, m).
        is_rival: Of each other memory (o,), False if it says what the query says: it may stand above the successor.
    """
    rows, others = np.arange(len(similarities)), len(is_rival)
    before, after = rows[:-1], np.delete(rows, rows[others:-1])
    scores = (_score(similarities, lengths, counts, found) for found in (before, after))
    return _compare(*scores, is_rival=is_rival)


def _score(
    similarities: NDArray[np.float64], lengths: NDArray[Any], counts: NDArray[Any], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the fused scores (m,) of ``rows`` (m,); -inf for a row that neither retriever finds.

    As in a search, a row that only its words find gets the lowest similarity that was found.
    """
    similarity, counted = similarities[rows], counts[rows]
    has_words, is_near = counted.any(axis=1), similarity >= MIN_SIMILARITY
    keyword = np.zeros(len(rows))
    if has_words.any():
        sizes, words = lengths[rows][has_words], counted[has_words]
        keyword[has_words] = bm25(sizes, words, count_texts(sizes, words))
    semantic = np.where(is_near, similarity, similarity[is_near].min() if is_near.any() else 0.0)
    found = has_words | is_near
    scores = np.full(len(rows), -np.inf)
    if found.any():
        scores[found] = sum_z_scores(np.stack([semantic[found], keyword[found]]), SCORE_WEIGHTS)
    return scores


def compare_by_meaning(similarities: NDArray[np.float64], is_rival: NDArray[np.bool_]) -> Places:
    """Return the places in a search by meaning alone; arguments as of ``compare_by_text``."""
    after = np.append(similarities[: len(is_rival)], similarities[-1])
    return _compare(similarities[:-1], after, is_rival=is_rival)


def _compare(before: NDArray[np.float64], after: NDArray[np.float64], *, is_rival: NDArray[np.bool_]) -> Places:
    others = len(is_rival)
    rivals = np.where(is_rival, after[:others], -np.inf)
    return Places(
        before=1 + int((is_rival & (before[:others] > before[others:].max() + _TIE)).sum()),
        after=1 + int((rivals > after[-1] + _TIE).sum()),
        above=int(np.argmax(rivals)) if others else -1,
    )
