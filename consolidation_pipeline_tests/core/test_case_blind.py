"""Patterns that ignore case match what ``re`` with IGNORECASE matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline_tests.hypothesis_examples import examples

PATTERNS = (
    r"\b(?:fail(?:s|ed)?|kelvin|ski|müsst|σ)\b",
    r"^\W*(?P<cue>is|skip)\s+(?P<rest>.*)",
    r"(?<![\w-])no(?!\d)|i+s?$",
)
# Also letters that lower-case to another one, or to two: İ, ı, ſ, the Kelvin sign, final sigma.
TEXTS = st.lists(
    st.sampled_from(
        "Fails FAILED fail Kelvin \u212aelvin \u017fki SK\u0130P sk\u0131p is IS No I MÜSST Σ ς no5 “No” 第 - .".split()
    )
).map(" ".join)


@pytest.mark.parametrize("pattern", PATTERNS)
@settings(max_examples=examples(100))
@given(text=TEXTS)
def test_patterns_match_as_re_ignoring_case(pattern: str, text: str) -> None:
    """Each method gives what ``re`` gives, with the spans and the letters of the text."""
    blind, exact = ignore_case(pattern), re.compile(pattern, re.IGNORECASE)
    for name in ("search", "match", "fullmatch"):
        found, expected = getattr(blind, name)(text), getattr(exact, name)(text)
        assert (found and (found.span(), found.groups())) == (expected and (expected.span(), expected.groups()))
    assert blind.findall(text) == exact.findall(text)
    assert [one.span() for one in blind.finditer(text)] == [one.span() for one in exact.finditer(text)]
    assert blind.sub("<\\g<0>>", text) == exact.sub("<\\g<0>>", text)


def test_patterns_keep_other_flags() -> None:
    """Flags beside IGNORECASE hold for both forms of a pattern."""
    assert ignore_case(r"^second").search("first\nSecond") is None
    found = ignore_case(r"^second", re.MULTILINE).search("first\nSecond")
    assert found is not None
    assert found[0] == "Second"


def test_patterns_with_capitals_are_refused() -> None:
    """A capital would match no text in lower case; escapes and names of groups are no capitals."""
    with pytest.raises(ValueError, match="has the capital M; write it in lower case"):
        ignore_case("build|Mozilla")
    assert ignore_case(r"(?P<Word>\W\S\B)").pattern == r"(?P<Word>\W\S\B)"
