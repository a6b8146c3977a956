"""Differences in words for people."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.core.knowledge.difference_words import describe_differences, describe_sides


@pytest.mark.parametrize(
    ("kind", "a", "b", "words"),
    [
        ("order", "resets", "Resets", "another order of words"),
        ("added cue", "", "What", "only one says: What"),
        ("added cue", "after 90 days", "", "only one says: after 90 days"),
        ("added cue", "before", "After", "different conditions: before / After"),
        ("polarity", "", "never", "only one denies it: never"),
        ("exception", "unless coated", "", "only one has an exception: unless coated"),
        ("value", "7 days", "28 days", "different values: 7 days / 28 days"),
    ],
)
def test_difference_is_told_in_words(kind: str, a: str, b: str, words: str) -> None:
    assert describe_sides(kind, a, b) == words


def test_each_difference_is_told_once() -> None:
    found = explain("照明卓は9月20日に新しくなった。", "9月に照明卓を新しくする予定。").list_obstacles()
    told = describe_differences(found)
    assert len(told) == len({*told}) < len(found)
