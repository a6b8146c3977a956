"""Verdicts on near-misses and rewordings of short notes, as agents write them."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline_tests.core.differences.light_edits import LIGHT_EDITS
from consolidation_pipeline_tests.core.differences.near_misses import (
    NEAR_MISSES,
    PAIRS,
    PROVEN_REWORDINGS,
    UNPROVEN_REWORDINGS,
)


@pytest.mark.parametrize(("a", "b"), NEAR_MISSES)
def test_near_miss_may_not_merge(a: str, b: str) -> None:
    for similarity in (None, word_similarity):
        explanation = explain(a, b, similarity)
        assert not explanation.may_merge
        assert explanation.list_obstacles()


@pytest.mark.parametrize(("a", "b"), LIGHT_EDITS)
def test_light_edit_may_merge(a: str, b: str) -> None:
    assert explain(a, b).may_merge, explain(a, b)
    assert explain(b, a).may_merge


@pytest.mark.parametrize(("a", "b"), PROVEN_REWORDINGS)
def test_proven_rewording_may_merge(a: str, b: str) -> None:
    explanation = explain(a, b, word_similarity)
    assert explanation.may_merge, explanation
    assert explanation.list_obstacles() == ()


@pytest.mark.parametrize(("a", "b"), UNPROVEN_REWORDINGS)
def test_unproven_rewording_is_no_contradiction(a: str, b: str) -> None:
    explanation = explain(a, b, word_similarity)
    assert explanation.verdict != "contradicts", explanation


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_verdict_on_pair_is_symmetric(a: str, b: str) -> None:
    assert explain(a, b, word_similarity).verdict == explain(b, a, word_similarity).verdict


@pytest.mark.parametrize("text", sorted({text for pair in PAIRS for text in pair}))
def test_short_note_is_the_same_as_itself(text: str) -> None:
    assert explain(text, text).verdict == "same"
    assert explain(text, f" {text.upper()}!").may_merge
