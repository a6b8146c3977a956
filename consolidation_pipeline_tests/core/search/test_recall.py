"""Places of a source and of its successor in searches."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.search.recall import Places, compare_by_meaning, compare_by_text


def by_text(
    similarities: ArrayLike, lengths: ArrayLike, counts: ArrayLike, is_rival: NDArray[np.bool_]
) -> tuple[int, int, int]:
    """Return the places of one search, and the column of the best rival."""
    rows = [np.asarray(column)[None] for column in (similarities, lengths, counts)]
    return read(compare_by_text(*rows, np.ones(rows[0].shape, np.bool_), is_rival[None]))


def by_meaning(similarities: ArrayLike, is_rival: NDArray[np.bool_]) -> tuple[int, int, int]:
    row = np.asarray(similarities)[None]
    return read(compare_by_meaning(row, np.ones(row.shape, np.bool_), is_rival[None]))


def read(places: Places) -> tuple[int, int, int]:
    before, after, above = (int(column[0]) for column in places)
    return before, after, above


def judge(before: int, after: int) -> tuple[bool, bool]:
    """Return if a successor stands lower than a source did, and if it is lost."""
    places = Places(*(np.array([place]) for place in (before, after, 0)))
    return bool(places.are_lower[0]), bool(places.are_lost[0])


def test_only_a_fall_from_the_shown_places_counts() -> None:
    assert judge(1, 1) == judge(3, 2) == judge(11, 12) == (False, False)
    assert judge(1, 2) == judge(2, 10) == (True, False)
    assert judge(10, 11) == (True, True)


def test_successor_with_scores_of_a_source_ties() -> None:
    similarities = [0.8, 0.3, 1.0, 0.9, 1.0]
    counts = [[1, 0], [0, 0], [1, 1], [1, 0], [1, 1]]
    assert by_text(similarities, np.full(5, 60), counts, np.ones(2, np.bool_)) == (1, 1, 0)


def test_successor_below_another_memory_is_lower() -> None:
    counts = [[1, 1], [0, 0], [1, 1], [1, 1]]
    assert by_text([0.95, 0.3, 1.0, 0.7], [60, 60, 60, 400], counts, np.ones(2, np.bool_)) == (1, 2, 0)


def test_query_without_words_goes_by_meaning() -> None:
    similarities = [0.8, 1.0, 0.7]
    found = by_text(similarities, np.full(3, 60), np.zeros((3, 0)), np.ones(1, np.bool_))
    assert found == by_meaning(similarities, np.ones(1, np.bool_)) == (1, 2, 0)


def test_group_that_is_alone_stays_first() -> None:
    assert by_meaning([1.0, 0.4], np.zeros(0, np.bool_)) == (1, 1, -1)


def test_fall_below_the_shown_places_is_no_evidence() -> None:
    others = np.linspace(0.9, 0.8, 12)
    before, after, _ = by_meaning(np.r_[others, 0.5, 0.4], np.ones(12, np.bool_))
    assert not judge(before, after)[0]
    assert by_meaning(np.r_[others, 0.95, 0.4], np.ones(12, np.bool_))[:2] == (1, 13)


def test_memory_that_says_the_same_is_no_rival() -> None:
    assert by_meaning([0.95, 0.3, 1.0, 0.7], np.array([False, True])) == (1, 1, 1)


def test_memory_that_search_does_not_find_changes_nothing() -> None:
    sizes, counts = np.array([60, 60, 400]), np.array([[1, 1], [1, 1], [1, 1]])
    found = by_text([0.95, 1.0, 0.7], sizes, counts, np.ones(1, np.bool_))
    unrelated = by_text(
        [0.95, 0.1, 1.0, 0.7], np.insert(sizes, 1, 60), np.insert(counts, 1, 0, axis=0), np.ones(2, np.bool_)
    )
    assert found == unrelated == (1, 2, 0)


def test_searches_with_more_columns_have_the_same_places() -> None:
    """Searches are compared together; columns and words that a search lacks change nothing."""
    draw = np.random.default_rng(3)
    searches: list[tuple[Any, ...]] = []
    for _ in range(60):
        others, sources, words = draw.integers(0, 6), draw.integers(1, 4), draw.integers(0, 5)
        n = others + sources + 1
        similarities, lengths = draw.uniform(0.1, 1.0, n).round(1), draw.integers(20, 90, n)
        counts, is_rival = draw.integers(0, 3, (n, words)), draw.random(others) < 0.8
        searches.append((similarities, lengths, counts, is_rival, others, sources))
    similarities, lengths = np.full((60, 10), 0.5), np.full((60, 10), 40)
    counts, is_there, is_rival = (
        np.ones((60, 10, 5), np.int64),
        np.zeros((60, 10), np.bool_),
        np.ones((60, 6), np.bool_),
    )
    for at, (own, sizes, counted, rival, others, sources) in enumerate(searches):
        columns = np.r_[:others, 6 : 6 + sources, 9]
        similarities[at, columns], lengths[at, columns], is_there[at, columns] = own, sizes, True
        counts[at, :, counted.shape[1] :] = 0
        counts[at, columns, : counted.shape[1]] = counted
        is_rival[at, :others] = rival
    together = compare_by_text(similarities, lengths, counts, is_there, is_rival)
    meant = compare_by_meaning(similarities, is_there, is_rival)
    for at, (own, sizes, counted, rival, *_) in enumerate(searches):
        assert (together.before[at], together.after[at]) == by_text(own, sizes, counted, rival)[:2]
        assert (meant.before[at], meant.after[at]) == by_meaning(own, rival)[:2]
