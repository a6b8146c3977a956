"""Merge proposals: fingerprint, trimmed texts and sentences left out."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge.merge_proposals import find_left_out, fingerprint, trim_words

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
