"""Alignment of two texts."""

from __future__ import annotations

from difflib import SequenceMatcher

from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.differences.alignment import match_in_order
from consolidation_pipeline_tests.hypothesis_examples import examples

KEYS = st.lists(st.sampled_from("abcd"), max_size=12)


@given(KEYS, KEYS)
@settings(max_examples=examples(300), deadline=None)
def test_equal_keys_are_matched_as_difflib_does(a: list[str], b: list[str]) -> None:
    blocks = SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    assert match_in_order(a, b) == [(one.a + step, one.b + step) for one in blocks for step in range(one.size)]
