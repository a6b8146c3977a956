"""Kinds of differences of a group of texts."""

import pytest

from consolidation_pipeline.core.knowledge.difference_kinds import count_kinds, find_common_kind, list_kinds


@pytest.mark.parametrize(
    ("a", "b", "kinds"),
    [
        ("The nightly build 1646 failed.", "The nightly build 1702 failed.", ("value: build #",)),
        ("Build #12 passed", "Build #9 passed", ("value: build #",)),
        ("Failing tests: 1646 -> 0", "Failing tests: 12 -> 3", ("value: tests #",)),
        ("Deploy v1.2.3 today", "Deploy v1.3.0 today", ("value: deploy v#.#.#",)),
        ("The commit abc1234f broke it.", "The commit 77fe12ab broke it.", ("value: commit #",)),
        ("It closes after 30 seconds, so ping.", "It closes after 90 minutes, so ping.", ("value: after #",)),
        ("The worker handles retries.", "The worker does not handle retries.", ("polarity",)),
        ("The cache is cold.", "Note: the cache is cold!", ()),
    ],
)
def test_kinds_name_place_of_values(a: str, b: str, kinds: tuple[str, ...]) -> None:
    assert list_kinds([a, b]) == kinds
    assert list_kinds([b, a]) == kinds


def test_kind_of_most_pairs_comes_first() -> None:
    texts = ["The job runs at 3.", "The job runs at 5.", "The job does not run at 3."]
    assert list_kinds(texts) == ("polarity", "value: at #")


@pytest.mark.parametrize(
    ("kinds", "common"),
    [
        (("value: build #",), "value: build #"),
        (("value: build #", "value: after #"), "value"),
        (("value: build #", "word"), None),
        ((), None),
    ],
)
def test_common_kind_is_sole_one(kinds: tuple[str, ...], common: str | None) -> None:
    assert find_common_kind(kinds) == common


def test_values_count_by_place_and_together() -> None:
    assert count_kinds([("value: build #",), ("value: build #",), ("word",), ("word", "order")]) == {
        "value: build #": 2,
        "word": 1,
    }
    two_places = [("value: build #",), ("value: port #", "value: build #"), ("value: port #",)]
    assert count_kinds(two_places) == {"value: build #": 1, "value: port #": 1, "value": 3}
