"""Feedback moves importance a step, within bounds."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.lifecycle.feedback import weigh_feedback


@pytest.mark.parametrize(
    ("before", "helpful", "after"),
    [
        (0.5, True, 0.6),
        (0.5, False, 0.4),
        (0.5, None, 0.5),
        (0.95, True, 1.0),
        (1.0, True, 1.0),
        (3.0, True, 3.0),
        (3.0, False, 2.9),
        (0.05, False, 0.0),
        (0.0, False, 0.0),
    ],
)
def test_a_word_moves_importance_one_step_between_0_and_1(before: float, helpful: bool | None, after: float) -> None:
    assert weigh_feedback(before, helpful=helpful) == after


def test_a_helpful_and_an_unhelpful_word_cancel_out() -> None:
    assert weigh_feedback(weigh_feedback(0.7, helpful=True), helpful=False) == 0.7
