"""Quality gates, on both sides of each boundary."""

from __future__ import annotations

import math
from functools import partial

import pytest

from consolidation_pipeline.core.knowledge.quality_gates import (
    EntryAction,
    Gate,
    Verdict,
    find_failed_gate,
    judge_fit,
    judge_pattern,
    judge_principle,
    judge_promotion,
    lowest_promotion_confidence,
)


@pytest.mark.parametrize(
    ("confidence", "pattern", "principle"),
    [
        (0.0, "discard", "discard"),
        (0.6999, "discard", "discard"),
        (0.70, "review", "discard"),
        (0.7999, "review", "discard"),
        (0.80, "review", "discard"),
        (0.8001, "store", "store"),
        (1.0, "store", "store"),
    ],
)
def test_reply_gates_at_confidence_boundaries(confidence: float, pattern: str, principle: str) -> None:
    assert judge_pattern(confidence) == pattern
    assert judge_principle(confidence) == principle


@pytest.mark.parametrize(
    ("confidence", "evidence", "expected"),
    [
        (0.80, 3, None),
        (0.80, 2, Gate.EVIDENCE),
        (0.7999, 2, Gate.EVIDENCE),
        (0.7999, 99, Gate.CONFIDENCE),
        (None, 99, Gate.CONFIDENCE),
    ],
)
def test_failed_gate_at_boundaries(confidence: float | None, evidence: int, expected: Gate | None) -> None:
    assert find_failed_gate(confidence, evidence, lowest_confidence=0.8) is expected


@pytest.mark.parametrize(("t_promote", "expected"), [(0.70, 0.70), (0.80, 0.80), (0.95, 0.80)])
def test_lowest_promotion_confidence_follows_t_promote(t_promote: float, expected: float) -> None:
    assert lowest_promotion_confidence(t_promote) == expected


@pytest.mark.parametrize(
    ("confidence", "needs_review", "t_promote", "expected"),
    [
        (0.85, False, 0.85, Verdict.STORE),
        (0.85, True, 0.85, Verdict.REVIEW),
        (0.8499, False, 0.85, Verdict.REVIEW),
        (0.70, False, 0.70, Verdict.STORE),
        (0.90, False, 0.95, Verdict.REVIEW),
    ],
)
def test_promotion_is_stored_from_t_promote(
    confidence: float, needs_review: bool, t_promote: float, expected: Verdict
) -> None:
    assert judge_promotion(confidence, needs_review, t_promote=t_promote) is expected


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [
        (None, EntryAction.CREATE),
        (-1.0, EntryAction.CREATE),
        (0.8499, EntryAction.CREATE),
        (0.85, EntryAction.REVIEW),
        (0.8999, EntryAction.REVIEW),
        (0.90, EntryAction.REINFORCE),
        (0.8999999, EntryAction.REINFORCE),
        (1.0, EntryAction.REINFORCE),
    ],
)
def test_entry_action_follows_similarity(similarity: float | None, expected: EntryAction) -> None:
    assert judge_fit(similarity) is expected


@pytest.mark.parametrize("confidence", [math.nan, -0.1, 1.1])
def test_gates_refuse_invalid_confidence(confidence: float) -> None:
    promotion = partial(judge_promotion, needs_review=False)
    gate = partial(find_failed_gate, evidence=3, lowest_confidence=0.8)
    for judge in (judge_pattern, judge_principle, promotion, gate):
        with pytest.raises(ValueError, match="must be from 0 to 1"):
            judge(confidence)


def test_gates_refuse_negative_evidence_and_nan() -> None:
    with pytest.raises(ValueError, match="evidence is -1"):
        find_failed_gate(0.9, -1, lowest_confidence=0.8)
    with pytest.raises(ValueError, match="NaN"):
        judge_fit(math.nan)
