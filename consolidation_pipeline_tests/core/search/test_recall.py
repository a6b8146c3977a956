"""Places of a source and of its successor in one search."""

from __future__ import annotations

import numpy as np

from consolidation_pipeline.core.search.recall import Places, compare_by_meaning, compare_by_text


def test_successor_with_scores_of_a_source_ties() -> None:
    similarities = np.array([0.8, 0.3, 1.0, 0.9, 1.0])
    counts = np.array([[1, 0], [0, 0], [1, 1], [1, 0], [1, 1]])
    found = compare_by_text(similarities, np.full(5, 60), counts, np.ones(2, np.bool_))
    assert (found.before, found.after, found.above) == (1, 1, 0)
    assert not found.is_lower


def test_successor_below_another_memory_is_lower() -> None:
    similarities = np.array([0.95, 0.3, 1.0, 0.7])
    counts = np.array([[1, 1], [0, 0], [1, 1], [1, 1]])
    found = compare_by_text(similarities, np.array([60, 60, 60, 400]), counts, np.ones(2, np.bool_))
    assert (found.before, found.after, found.above) == (1, 2, 0)
    assert found.is_lower
    assert not found.is_lost


def test_query_without_words_goes_by_meaning() -> None:
    similarities = np.array([0.8, 1.0, 0.7])
    found = compare_by_text(similarities, np.full(3, 60), np.zeros((3, 0)), np.ones(1, np.bool_))
    assert found == compare_by_meaning(similarities, np.ones(1, np.bool_)) == Places(1, 2, 0)


def test_group_that_is_alone_stays_first() -> None:
    assert compare_by_meaning(np.array([1.0, 0.4]), np.zeros(0, np.bool_)) == Places(1, 1, -1)


def test_fall_below_the_shown_places_is_no_evidence() -> None:
    others = np.linspace(0.9, 0.8, 12)
    assert not compare_by_meaning(np.r_[others, 0.5, 0.4], np.ones(12, np.bool_)).is_lower
    lost = compare_by_meaning(np.r_[others, 0.95, 0.4], np.ones(12, np.bool_))
    assert (lost.before, lost.after) == (1, 13)
    assert lost.is_lost


def test_memory_that_says_the_same_is_no_rival() -> None:
    similarities = np.array([0.95, 0.3, 1.0, 0.7])
    found = compare_by_meaning(similarities, np.array([False, True]))
    assert (found.before, found.after, found.above) == (1, 1, 1)


def test_memory_that_search_does_not_find_changes_nothing() -> None:
    similarities, counts = np.array([0.95, 1.0, 0.7]), np.array([[1, 1], [1, 1], [1, 1]])
    sizes = np.array([60, 60, 400])
    found = compare_by_text(similarities, sizes, counts, np.ones(1, np.bool_))
    unrelated = compare_by_text(
        np.r_[0.95, 0.1, 1.0, 0.7], np.insert(sizes, 1, 60), np.insert(counts, 1, 0, axis=0), np.ones(2, np.bool_)
    )
    assert found == unrelated == Places(1, 2, 0)
