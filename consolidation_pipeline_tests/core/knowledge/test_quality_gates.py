"""Quality gates, on both sides of each boundary."""

from __future__ import annotations

import math
from functools import partial

import pytest

from consolidation_pipeline.core.knowledge.confidence import HEURISTIC_CAP
from consolidation_pipeline.core.knowledge.quality_gates import (
    HEURISTIC_REVIEW_FROM,
    EntryAction,
    Verdict,
    judge_fit,
    judge_heuristic_promotion,
    judge_pattern,
    judge_principle,
    judge_promotion,
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
    ("confidence", "evidence", "needs_review", "expected"),
    [
        (0.85, 3, False, Verdict.STORE),
        (0.85, 2, False, Verdict.DISCARD),
        (0.85, 3, True, Verdict.REVIEW),
        (0.8499, 3, False, Verdict.REVIEW),
        (0.80, 3, False, Verdict.REVIEW),
        (0.80, 2, False, Verdict.DISCARD),
        (0.7999, 99, False, Verdict.DISCARD),
        (0.75, 99, True, Verdict.DISCARD),
        (None, 99, False, Verdict.DISCARD),
        (1.0, 3, False, Verdict.STORE),
    ],
)
def test_promotion_gate_at_confidence_boundaries(
    confidence: float | None, evidence: int, needs_review: bool, expected: Verdict
) -> None:
    assert judge_promotion(confidence, evidence, needs_review) is expected


@pytest.mark.parametrize(
    ("confidence", "evidence", "expected"),
    [(0.7, 3, Verdict.STORE), (0.2, 3, Verdict.STORE), (0.9, 2, Verdict.DISCARD), (None, 3, Verdict.DISCARD)],
)
def test_approved_source_is_promoted_at_any_confidence(
    confidence: float | None, evidence: int, expected: Verdict
) -> None:
    assert judge_promotion(confidence, evidence, needs_review=False, approved=True) is expected


@pytest.mark.parametrize(
    ("confidence", "t_promote", "expected"),
    [
        (0.70, 0.70, Verdict.STORE),
        (0.6999, 0.70, Verdict.DISCARD),
        (0.90, 0.95, Verdict.REVIEW),
        (0.95, 0.95, Verdict.STORE),
        (0.7999, 0.95, Verdict.DISCARD),
    ],
)
def test_promotion_gate_uses_configured_threshold(confidence: float, t_promote: float, expected: Verdict) -> None:
    assert judge_promotion(confidence, 3, False, t_promote=t_promote) is expected


@pytest.mark.parametrize(
    ("confidence", "evidence", "instructs", "expected"),
    [
        (HEURISTIC_REVIEW_FROM, 3, True, Verdict.REVIEW),
        (HEURISTIC_REVIEW_FROM - 1e-6, 99, True, Verdict.DISCARD),
        (HEURISTIC_CAP, 2, True, Verdict.DISCARD),
        (HEURISTIC_CAP, 3, False, Verdict.DISCARD),
        (1.0, 99, True, Verdict.REVIEW),
        (None, 99, True, Verdict.DISCARD),
    ],
)
def test_heuristic_promotion_is_review_at_best(
    confidence: float | None, evidence: int, instructs: bool, expected: Verdict
) -> None:
    assert judge_heuristic_promotion(confidence, evidence, instructs=instructs) is expected


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
    heuristic = partial(judge_heuristic_promotion, evidence=3, instructs=True)
    for judge in (judge_pattern, judge_principle, heuristic, lambda value: judge_promotion(value, 3, False)):
        with pytest.raises(ValueError, match="must be from 0 to 1"):
            judge(confidence)


def test_gates_refuse_negative_evidence_and_nan() -> None:
    with pytest.raises(ValueError, match="evidence is -1"):
        judge_promotion(0.9, -1, False)
    with pytest.raises(ValueError, match="evidence is -1"):
        judge_heuristic_promotion(0.7, -1, instructs=True)
    with pytest.raises(ValueError, match="NaN"):
        judge_fit(math.nan)
