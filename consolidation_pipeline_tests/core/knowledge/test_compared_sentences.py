"""Sentences that were read and compared before: a text that is written with them is the same as without."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge import disputes
from consolidation_pipeline.core.knowledge.compared_sentences import ComparedPairs, compare_once, knowing
from consolidation_pipeline.core.knowledge.extractive_patterns import extract_patterns
from consolidation_pipeline.core.knowledge.pattern_units import ExtractedPattern, Unit
from consolidation_pipeline.core.knowledge.topic_summaries import TopicSummary, summarize_topics
from consolidation_pipeline_tests.hypothesis_examples import examples

PIECES = st.sampled_from(
    [
        "Use a lock for the job.",
        "Do not use a lock for the job.",
        "Use a lock for the job at night.",
        "The limit of the queue is 5.",
        "The limit of the queue is 8.",
        "The limit of the queue was 8 in staging.",
        "The limit of the other queue is 8.",
        "The queue of the mail service is full.",
        "Empty the queue of the mail service first.",
        "Größe prüfen, dann löschen.",
        "Größe prüfen, nicht löschen.",
    ]
)
TEXTS = st.lists(PIECES, min_size=1, max_size=4).map(" ".join)


def extract(texts: list[str], compared: bytes = b"") -> ExtractedPattern:
    units = [Unit(id=f"{at:04}", text=text, memory_type="learning") for at, text in enumerate(texts)]
    [found] = extract_patterns([units], compared=[compared])
    return found


def summarize(texts: list[str], compared: bytes = b"") -> TopicSummary:
    return summarize_topics(texts, [date(2026, 3, 1)] * len(texts), compared=compared)


@settings(deadline=None, max_examples=examples(60))
@given(texts=st.lists(TEXTS, min_size=1, max_size=6), more=st.lists(TEXTS, min_size=1, max_size=2))
def test_text_is_the_same_with_known_pairs(texts: list[str], more: list[str]) -> None:
    expected = extract([*texts, *more])
    grown = extract([*texts, *more], compared=extract(texts).compared)
    assert grown == expected
    assert grown.compared == expected.compared
    assert extract([*texts, *more], compared=grown.compared) == expected


@settings(deadline=None, max_examples=examples(60))
@given(texts=st.lists(TEXTS, min_size=1, max_size=8), more=st.lists(TEXTS, min_size=1, max_size=2))
def test_summary_is_the_same_with_known_sentences(texts: list[str], more: list[str]) -> None:
    first, expected = summarize(texts), summarize([*texts, *more])
    grown = summarize([*texts, *more], compared=first.compared)
    assert grown == expected
    assert grown.compared == expected.compared


def test_known_pairs_are_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []
    compare = disputes.compare_sentences

    def watch(*readings: Any) -> Any:
        compared.append(readings)
        return compare(*readings)

    monkeypatch.setattr(disputes, "compare_sentences", watch)
    texts = [f"The mail queue of the old Berlin shop {rest}." for rest in ("stores paper", "needs staff", "likes tea")]
    first = extract(texts)
    assert compared
    compared.clear()
    assert extract(texts, compared=first.compared) == first
    assert not compared


def test_pairs_are_told_apart_by_question_language_and_order() -> None:
    asked: list[str] = []

    def ask(name: str, *key: str) -> None:
        compare_once(name, key[0], key[1], key[2], lambda: asked.append(name), None)

    with knowing(b"") as pairs:
        ask("a", "x", "y", "en")
        ask("a", "x", "y", "en")
        assert len(asked) == 2  # only what an earlier text met is known
    with knowing(pairs.pack()):
        ask("a", "x", "y", "en")
        assert len(asked) == 2
        for key in (("b", "x", "y", "en"), ("a", "y", "x", "en"), ("a", "x", "y", "de"), ("a", "x", "yy", "en")):
            ask(*key)
        assert len(asked) == 6


def test_what_was_found_is_asked_again() -> None:
    with knowing(b"") as pairs:
        assert compare_once("a", "x", "y", None, lambda: "found", "same") == "found"
    assert pairs.pack() == ComparedPairs().pack() == b""


def test_texts_that_say_the_same_are_known() -> None:
    with knowing(b"") as pairs:
        assert compare_once("a", "x", "y", None, lambda: "same", "same") == "same"
        assert compare_once("a", "x", "z", None, lambda: "", "same") == ""
    with knowing(pairs.pack()):
        assert compare_once("a", "x", "y", None, lambda: "other", "same") == "same"
        assert compare_once("a", "x", "z", None, lambda: "other", "same") is None


def test_pairs_that_are_not_met_are_forgotten() -> None:
    with knowing(b"") as first:
        compare_once("a", "x", "y", None, lambda: False, True)
        compare_once("a", "x", "z", None, lambda: False, True)
    with knowing(first.pack()) as second:
        compare_once("a", "x", "z", None, lambda: False, True)
    assert len(second.pack()) == len(first.pack()) // 2
