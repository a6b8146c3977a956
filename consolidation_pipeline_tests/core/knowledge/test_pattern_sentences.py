"""Sentences of patterns: which instructions exclude each other."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.lesson_sentences import read_lesson
from consolidation_pipeline.core.knowledge.pattern_sentences import Candidate, excludes
from consolidation_pipeline.core.knowledge.sentence_ranking import rank_sentences


def build_candidate(text: str) -> Candidate:
    return Candidate(rank_sentences([[text]])[0].sentences[0], read_lesson(text), 1.0)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("The report should filter out old rows.", "The report should not filter out old rows.", True),
        ("The test should be `rows > 0`.", "The test should be `rows >= 0`.", True),
        ("Wait 5 seconds for the report.", "Wait 9 seconds for the report.", True),
        ("Return the sum of the rows rather than the mean.", "Return the mean of the rows rather than the sum.", True),
        ("Count open rows, not closed rows.", "Count only open rows, not both open and closed rows.", False),
        ("Sort the rows of the report.", "Sort the rows of the report by day.", False),
    ],
)
def test_instructions_exclude_each_other(one: str, other: str, expected: bool) -> None:
    first, second = map(build_candidate, (one, other))
    assert excludes(first, second) is excludes(second, first) is expected
