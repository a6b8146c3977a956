"""Clauses of a text: boundaries, denied words and mood."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.conflicts.clause_reader import read_clauses
from consolidation_pipeline.core.conflicts.clauses import Mood
from consolidation_pipeline_tests.core.conflicts.near_misses import PAIRS
from consolidation_pipeline_tests.hypothesis_examples import examples


def read_clause_texts(text: str) -> list[str]:
    return [text[clause.start : clause.end] for clause in read_clauses(text)]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("", []),
        ("Is it?", []),
        ("Open the file, read it and close it.", ["Open the file", "read it", "close it"]),
        ("The build fails because the cache is stale", ["The build fails", "the cache is stale"]),
        ("Retry if the request fails", ["Retry if the request fails"]),
        ("Restart the worker if the request fails", ["Restart the worker", "the request fails"]),
        ("Use queues instead of locks", ["Use queues", "instead of locks"]),
        ("It sorts names instead of dates", ["It sorts names"]),
        ("Take the lock early to avoid deadlocks", ["Take the lock early"]),
        ("Log it. Log it. Stop", ["Log it", "Stop"]),
    ],
)
def test_clauses_end_where_next_statement_begins(text: str, clauses: list[str]) -> None:
    assert read_clause_texts(text) == clauses


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("the cache works", []),
        ("the cache does not work", ["work"]),
        ("never call commit there", ["commit"]),
        ("the index is not used", ["use"]),
        ("a payment I did not send", ["send"]),
        ("don't forget the lock", []),
        ("not only fast", []),
        ("fix it without any problems", []),
        ("it is not properly closed", ["properli"]),
        ("never commit without testing", ["commit", "test"]),
        ("handles non-empty lists", ["empti"]),
    ],
)
def test_negation_denies_its_word(text: str, denied: list[str]) -> None:
    assert [word for clause in read_clauses(text) for word, _ in clause.denied] == denied


@pytest.mark.parametrize(
    ("text", "mood"),
    [
        ("Close the file", Mood.PLAIN),
        ("A handler may commit", Mood.PLAIN),
        ("The cache never expires", Mood.PLAIN),
        ("The cache was cold", Mood.REPORTED),
        ("It returns rows", Mood.REPORTED),
        ("I can't activate it", Mood.REPORTED),
        ("Why isn't the index used?", Mood.REPORTED),
        ("The cache must be warm", Mood.WISHED),
        ("Ensure warm caches", Mood.WISHED),
        ("How do I close it", Mood.ASKED),
        ("Should a handler commit", Mood.ASKED),
        ("Works with postgres?", Mood.ASKED),
        ("If the cache was cold", Mood.SUPPOSED),
    ],
)
def test_clause_moods_are_recognized(text: str, mood: Mood) -> None:
    assert [clause.mood for clause in read_clauses(text)] == [mood]


def test_antonyms_share_word_and_polarity() -> None:
    (enabled,) = read_clauses("Enable the cache")
    (disabled,) = read_clauses("Turn the cache off")
    (both,) = read_clauses("Map minimum to maximum")
    assert enabled.words == disabled.words == {"enable", "cach"}
    assert enabled.high == disabled.low == {"enable"}
    assert both.low == both.high == frozenset()


def test_clause_splits_words_at_before() -> None:
    (clause,) = read_clauses("Run tests before the deploy")
    assert clause.left == {"run", "test"}


def test_very_long_text_reads_first_clauses_only() -> None:
    assert len(read_clauses(". ".join(f"word{number}" for number in range(1000)))) == 400


@settings(deadline=None, max_examples=examples(300))
@given(st.one_of(st.text(max_size=200), st.sampled_from([text for pair in PAIRS for text in pair])))
def test_clauses_stay_inside_text(text: str) -> None:
    for clause in read_clauses(text):
        assert 0 <= clause.start < clause.end <= len(text)
        assert {word for pair in clause.denied for word in pair} | clause.low | clause.high <= clause.words
