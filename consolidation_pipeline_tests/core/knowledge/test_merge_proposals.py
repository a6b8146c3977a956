"""Merge proposals: fingerprint, trimmed texts and sentences left out."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge.merge_proposals import (
    compute_worth,
    differs_only_in,
    find_left_out,
    fingerprint,
    learn_from_decisions,
    measure_closeness,
    trim_words,
)

A, B = UUID(int=1), UUID(int=2)


def test_proposal_fingerprint_ignores_order_of_sources() -> None:
    assert fingerprint([(A, "x"), (B, "y")]) == fingerprint([(B, "y"), (A, "x")])
    assert fingerprint([(A, "x"), (B, "y")]) != fingerprint([(A, "y"), (B, "x")])
    assert fingerprint([(A, "x"), (B, "y")]) != fingerprint([(A, "x")])


@pytest.mark.parametrize(
    ("text", "most", "trimmed"),
    [
        ("one two three", 13, "one two three"),
        ("one two three", 12, "one two"),
        ("one two three", 7, "one two"),
        ("one two three", 8, "one two"),
        ("one  two", 5, "one"),
        ("extraordinary", 5, "extra"),
        ("extraordinary day", 5, "extra"),
        ("  padded  ", 6, "padded"),
        ("word", 0, "w"),
        ("   ", 3, ""),
    ],
)
def test_trim_cuts_between_words_and_keeps_some(text: str, most: int, trimmed: str) -> None:
    assert trim_words(text, most) == trimmed


@given(st.text(), st.integers(1, 30))
def test_trimmed_text_is_nonempty_prefix_within_limit(text: str, most: int) -> None:
    cut = trim_words(text, most)
    assert len(cut) <= most
    assert text.strip().startswith(cut)
    assert bool(cut) == bool(text.strip())
    assert cut == cut.strip()


def test_left_out_sentences_are_listed_once() -> None:
    sources = ["Wait 30 s. Then retry.", "Wait 60 s. Then retry.", "Wait 60 s."]
    assert find_left_out(sources, "Wait 30 s, then retry.") == ("Wait 60 s.",)
    assert find_left_out(sources, "Wait 30 s or 60 s, then retry.") == ()


def test_worth_grows_with_size_uses_and_closeness() -> None:
    assert compute_worth(2, 0, 1.0) == 1.0
    assert compute_worth(2, 0, 0.5) < compute_worth(3, 0, 0.5) < compute_worth(3, 10, 0.5) < compute_worth(3, 10, 0.9)


@pytest.mark.parametrize(
    ("lowest", "floor", "closeness"), [(None, 0.5, 0.01), (0.5, 0.5, 0.01), (0.75, 0.5, 0.5), (1.0, 0.5, 1.0)]
)
def test_closeness_is_height_above_floor(lowest: float | None, floor: float, closeness: float) -> None:
    assert measure_closeness(lowest, floor) == pytest.approx(closeness)


def test_rejected_kinds_are_worth_less() -> None:
    decided = {"value": (0, 8), "word": (8, 8)}
    assert learn_from_decisions({"polarity"}, decided) == learn_from_decisions((), {}) == 1.0
    assert learn_from_decisions({"value"}, decided) == pytest.approx(0.2)
    assert learn_from_decisions({"word"}, decided) == pytest.approx(1.8)
    assert learn_from_decisions({"word", "value"}, decided) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("kinds", "wanted", "matches"),
    [
        (["value: build #"], "value: build #", True),
        (["value: build #", "value: after #"], "value", True),
        (["value: build #", "word"], "value", False),
        (["value: build #"], "value: after #", False),
        ([], "value", False),
    ],
)
def test_rule_matches_groups_of_one_kind(kinds: list[str], wanted: str, *, matches: bool) -> None:
    assert differs_only_in(kinds, wanted) is matches
