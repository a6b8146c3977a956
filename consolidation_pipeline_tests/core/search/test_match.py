"""Match of a memory and a query: shares of words, and their mean with the place of the cosine."""

from __future__ import annotations

import numpy as np
import pytest

from consolidation_pipeline.core.search.match import compute_match, compute_word_shares
from consolidation_pipeline.core.search.words import count_texts

LEVELS = {"unrelated": 0.1, "same": 0.6}


@pytest.mark.parametrize(
    ("similarity", "word_share", "match"),
    [
        (0.1, 0.0, 0.0),
        (0.6, 1.0, 1.0),
        (0.35, 0.5, 0.5),
        (-0.4, 0.0, 0.0),  # below unrelated
        (0.95, 0.0, 0.5),  # above the same
        (None, 0.4, 0.4),
        (0.35, None, 0.5),
        (None, None, 0.0),
    ],
)
def test_match_is_mean_of_meaning_and_words(similarity: float | None, word_share: float | None, match: float) -> None:
    assert compute_match(similarity, word_share, **LEVELS) == pytest.approx(match)


def test_rare_words_count_more_than_common_ones() -> None:
    counts = np.array([[3, 1, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0]])  # the third word is in no text
    both, common, _, rare = compute_word_shares(counts, [[0, 1, 2]], count_texts(np.ones(4), counts))
    assert 0 < common < rare < both < 1
    assert both == pytest.approx(common + rare)


def test_word_share_is_that_of_the_best_language() -> None:
    counts = np.array([[1, 1, 0, 0], [0, 0, 1, 0]])
    shares = compute_word_shares(counts, [[0, 1], [2, 3]], count_texts(np.ones(2), counts))
    assert shares[0] == 1.0
    assert shares[1] < 1.0


def test_word_shares_of_no_text_are_empty() -> None:
    counts = np.zeros((0, 2), np.int64)
    assert compute_word_shares(counts, [[0, 1]], count_texts(np.zeros(0), counts)).shape == (0,)
