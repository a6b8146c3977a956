"""Feedback moves importance a step and votes add up to usefulness, both within bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.core.lifecycle.feedback import Votes, adjust_importance, compute_usefulness

days = st.integers(-200, 200)
votes = st.lists(
    st.builds(Votes, st.sampled_from("abc"), st.text("uvwxyz", min_size=1, max_size=2), days, st.floats(0, 1)),
    max_size=30,
)


@pytest.mark.parametrize(
    ("before", "helpful", "after"),
    [
        (0.5, True, 0.6),
        (0.5, False, 0.4),
        (0.95, True, 1.0),
        (1.0, True, 1.0),
        (3.0, True, 3.0),
        (3.0, False, 2.9),
        (0.05, False, 0.0),
        (0.0, False, 0.0),
    ],
)
def test_feedback_moves_importance_one_step(before: float, helpful: bool, after: float) -> None:
    assert adjust_importance(before, helpful=helpful) == after


def test_opposite_feedback_cancels_out() -> None:
    assert adjust_importance(adjust_importance(0.7, helpful=True), helpful=False) == 0.7


def usefulness(*cast: tuple[int, float]) -> float:
    """Return the usefulness by votes of different voters, given as net days and own share."""
    return compute_usefulness(Votes("m", f"v{at}", *vote) for at, vote in enumerate(cast)).get("m", 0.0)


def test_usefulness_of_known_votes() -> None:
    assert usefulness() == 0.0
    assert usefulness((1, 0.0)) == pytest.approx(0.25 / 2.25)
    assert usefulness((3, 0.0), (3, 0.0)) == pytest.approx(1 / 3)
    assert usefulness((2, 0.0), (-2, 0.0)) == 0.0
    assert usefulness((1, 1.0)) == pytest.approx(0.0625 / 2.0625)
    assert usefulness((-3, 0.0)) == pytest.approx(-0.5 / 2.5)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_one_voter_moves_usefulness_by_a_third(net_days: int, own_share: float) -> None:
    assert 0 < usefulness((net_days, own_share)) < 1 / 3
    assert usefulness((net_days, 1.0)) < 1 / 9
    assert usefulness((net_days, 0.0)) < usefulness(*[(1, 0.0)] * 4)


@given(votes, st.randoms(use_true_random=False))
def test_usefulness_is_bounded_in_any_order(cast: list[Votes[str]], chance: random.Random) -> None:
    found = compute_usefulness(cast)
    assert found.keys() == {vote.memory_id for vote in cast}
    assert all(-1 < value < 1 for value in found.values())
    assert compute_usefulness(chance.sample(cast, len(cast))) == found


@given(days, days, st.floats(0, 1))
def test_usefulness_rises_with_helpful_days(fewer: int, more: int, own_share: float) -> None:
    fewer, more = sorted((fewer, more))
    assert usefulness((fewer, own_share)) <= usefulness((more, own_share))
