"""Boilerplate: sentences that many memories repeat, and their removal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.text import boilerplate
from consolidation_pipeline.core.text.boilerplate import (
    MAX_SENTENCES,
    find_boilerplate,
    strip_boilerplate,
    strip_repeats,
)
from consolidation_pipeline_tests.hypothesis_examples import examples

WORDS = "amber birch cedar delta ember flint grove heron iris juniper".split()
FILLER = "Review the full content for insights."


def make_lessons(count: int, filler: str = FILLER, *, filled: int = 10**6) -> list[str]:
    """Return distinct texts; the first ``filled`` end with the filler."""
    return [f"Lesson number {at} stands alone." + (f" {filler}" if at < filled else "") for at in range(count)]


@pytest.mark.parametrize(
    ("count", "filled", "found"),
    [(9, 9, False), (10, 10, True), (400, 9, False), (400, 10, True), (1000, 19, False), (1000, 20, True)],
)
def test_boilerplate_needs_ten_texts_and_two_percent(count: int, filled: int, found: bool) -> None:
    expected = ("review the full content for insights",) if found else ()
    assert find_boilerplate(make_lessons(count, filled=filled)) == expected


def test_boilerplate_counts_once_per_text() -> None:
    assert find_boilerplate([f"Note {at}. {FILLER} {FILLER}" for at in range(9)]) == ()
    spelled = [f"Note {at}.\n{FILLER.upper() if at % 2 else FILLER.rstrip('.')}" for at in range(10)]
    assert find_boilerplate(spelled) == ("review the full content for insights",)


def test_boilerplate_lists_most_frequent_first() -> None:
    texts = [f"Own {at}.\n" + "\n".join(f"line {n:03}" for n in range(300 - at)) for at in range(20)]
    found = find_boilerplate(texts)
    assert len(found) == MAX_SENTENCES
    assert found[:2] == ("line 000", "line 001")


@settings(deadline=None, max_examples=examples(30))
@given(st.permutations(make_lessons(12) + make_lessons(12, "Another line.")))
def test_boilerplate_ignores_text_order(texts: list[str]) -> None:
    assert find_boilerplate(texts) == find_boilerplate(sorted(texts))


def test_strip_boilerplate_keeps_other_text_verbatim() -> None:
    text = "First line.\n\n  Review the full content for insights!\nSecond:  two  blanks. Third?"
    stripped = strip_boilerplate(text, {"review the full content for insights"})
    assert stripped == "First line.\nSecond:  two  blanks. Third?"


@pytest.mark.parametrize("text", ["", "Nothing of it here.", FILLER, f"{FILLER} {FILLER}"])
def test_strip_boilerplate_never_empties_text(text: str) -> None:
    assert strip_boilerplate(text, {"review the full content for insights"}) == text
    assert strip_boilerplate(text, ()) == text


SENTENCES = st.lists(st.sampled_from([f"{word} grows." for word in WORDS]), min_size=1, max_size=8)


@settings(deadline=None, max_examples=examples(60))
@given(SENTENCES, st.sets(st.sampled_from([f"{word} grows" for word in WORDS])))
def test_strip_boilerplate_is_idempotent(sentences: list[str], left_out: set[str]) -> None:
    text = " ".join(sentence.capitalize() for sentence in sentences)
    kept = [s.capitalize() for s in sentences if s.rstrip(".") not in left_out]
    once = strip_boilerplate(text, left_out)
    assert once == (" ".join(kept) if kept else text)
    assert strip_boilerplate(once, left_out) == once


def test_boilerplate_limits_are_as_documented() -> None:
    assert (boilerplate.MIN_TEXTS, boilerplate.MIN_SHARE) == (10, 0.02)


def test_own_repeats_and_placeholders_are_stripped() -> None:
    texts = [*make_lessons(20), "TODO: Write a rule.", "Keep the lock.\nTBD: why"]
    assert strip_repeats(texts, ()) == [
        *(f"Lesson number {at} stands alone." for at in range(20)),
        "TODO: Write a rule.",
        "Keep the lock.",
    ]
    assert strip_repeats(["Keep the lock. Known line."], {"known line"}) == ["Keep the lock."]


def test_request_of_a_template_is_a_placeholder() -> None:
    assert boilerplate.is_placeholder("Describe the reason for this change.")
    assert boilerplate.is_placeholder("Add a rule before you trust this note.")
    assert not boilerplate.is_placeholder("Add a rule for each role of the proxy.")
    assert boilerplate.strip_repeats(["Keep the lock.\nDescribe this change."], ()) == ["Keep the lock."]
