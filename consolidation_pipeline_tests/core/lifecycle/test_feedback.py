"""Feedback moves importance a step, within bounds."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.lifecycle.feedback import adjust_importance


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
def test_feedback_moves_importance_one_step(before: float, helpful: bool | None, after: float) -> None:
    assert adjust_importance(before, helpful=helpful) == after


def test_opposite_feedback_cancels_out() -> None:
    assert adjust_importance(adjust_importance(0.7, helpful=True), helpful=False) == 0.7
