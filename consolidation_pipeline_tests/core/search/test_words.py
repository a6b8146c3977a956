"""Words of a query: their frequencies, and the groups that lead to the best matches."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.core.search.words import WordFrequencies, add_frequencies, choose_groups, count_texts

KNOWN = WordFrequencies(100_000, {"test": 20_000, "code": 10_000, "loop": 1_000, "index": 400}, 100)


def test_rare_words_come_first_each_alone() -> None:
    assert choose_groups(["test", "err_7731", "index", "xyz"], KNOWN, most=700) == [("err_7731",), ("xyz",), ("index",)]


def test_frequent_words_are_combined() -> None:
    assert choose_groups(["test", "code", "loop"], KNOWN, most=320) == [("loop", "code"), ("loop", "test")]
    assert choose_groups(["test", "code"], KNOWN, most=500) == [("code", "test")]


def test_rare_words_leave_room_for_combinations() -> None:
    words = ["err_7731", "xyz", "index", "test", "code"]
    pairs = [("xyz", "index"), ("xyz", "code"), ("xyz", "test"), ("index", "code"), ("index", "test")]
    assert choose_groups(words, KNOWN, most=700, alone=150) == [("err_7731",), *pairs]


def test_all_words_stand_alone_if_they_fit() -> None:
    assert choose_groups(["index", "loop"], KNOWN, most=1_400) == [("index",), ("loop",)]


@given(st.lists(st.sampled_from(["test", "code", "loop", "index", "rare", "rarer"]), min_size=1), st.integers(1, 10**6))
def test_groups_do_not_depend_on_word_order(words: list[str], most: int) -> None:
    groups = choose_groups(words, KNOWN, most=most)
    assert groups
    assert groups == choose_groups(words[::-1], KNOWN, most=most)
    assert {word for group in groups for word in group} <= set(words)


def test_frequencies_of_parts_are_added() -> None:
    other = WordFrequencies(100, {"test": 7}, 5)
    assert add_frequencies([KNOWN, other], ["test", "loop", "rare"]) == WordFrequencies(
        100_100, {"test": 20_007, "loop": 1_005}, 105
    )


def test_known_words_are_not_counted_in_the_matches() -> None:
    lengths, counts = np.array([10, 30]), np.array([[1, 2, 0], [0, 1, 0]])
    own = count_texts(lengths, counts)
    assert (own.total, own.frequencies.tolist(), own.mean_length) == (2, [1, 2, 0], 20.0)
    known = count_texts(lengths, counts, ["code", "rare", "rarer"], KNOWN)
    assert (known.total, known.frequencies.tolist(), known.mean_length) == (100_000, [10_000, 2, 0], 20.0)
