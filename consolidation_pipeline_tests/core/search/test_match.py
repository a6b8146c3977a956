"""Match of a memory and a query: shares of words, and their mean with the place of the cosine."""

from __future__ import annotations

import numpy as np
import pytest

from consolidation_pipeline.core.search.match import compute_match, compute_word_shares

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
    both, common, _, rare = compute_word_shares(counts, [[0, 1, 2]], reference=0)
    assert 0 < common < rare < both < 1
    assert both == pytest.approx(common + rare)


def test_word_share_is_that_of_the_best_language() -> None:
    counts = np.array([[1, 1, 0, 0], [0, 0, 1, 0]])
    shares = compute_word_shares(counts, [[0, 1], [2, 3]], reference=0)
    assert shares[0] == 1.0
    assert shares[1] < 1.0


def test_words_are_counted_in_the_first_texts_alone() -> None:
    counts = np.array([[1, 0], [0, 1], [1, 1], [1, 1]])
    first = compute_word_shares(counts[:2], [[0, 1]], reference=0)
    assert compute_word_shares(counts, [[0, 1]], reference=2).tolist() == [*first, 1.0, 1.0]


def test_word_shares_of_no_text_are_empty() -> None:
    assert compute_word_shares(np.zeros((0, 2), np.int64), [[0, 1]], reference=0).shape == (0,)
