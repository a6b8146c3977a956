"""What the clauses of a text say, deny and are: reported, wished, asked or supposed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.conflicts.clause_reader import read_clauses
from consolidation_pipeline.core.conflicts.clauses import Mood
from consolidation_pipeline_tests.core.conflicts.near_misses import PAIRS
from consolidation_pipeline_tests.hypothesis_examples import examples


def written(text: str) -> list[str]:
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
def test_clauses_end_where_another_statement_begins(text: str, clauses: list[str]) -> None:
    assert written(text) == clauses


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
def test_a_negation_denies_the_word_it_is_about(text: str, denied: list[str]) -> None:
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
def test_clauses_report_wish_ask_or_suppose(text: str, mood: Mood) -> None:
    assert [clause.mood for clause in read_clauses(text)] == [mood]


def test_both_ends_of_a_scale_are_one_word_unless_both_are_named() -> None:
    (enabled,) = read_clauses("Enable the cache")
    (disabled,) = read_clauses("Turn the cache off")
    (both,) = read_clauses("Map minimum to maximum")
    assert enabled.words == disabled.words == {"enable", "cach"}
    assert enabled.high == disabled.low == {"enable"}
    assert both.low == both.high == frozenset()


def test_what_stands_before_before_is_kept_apart() -> None:
    (clause,) = read_clauses("Run tests before the deploy")
    assert clause.left == {"run", "test"}


def test_only_the_first_clauses_of_a_very_long_text_are_read() -> None:
    assert len(read_clauses(". ".join(f"word{number}" for number in range(1000)))) == 400


@settings(deadline=None, max_examples=examples(300))
@given(st.one_of(st.text(max_size=200), st.sampled_from([text for pair in PAIRS for text in pair])))
def test_clauses_lie_in_the_text_and_speak_of_what_they_deny(text: str) -> None:
    for clause in read_clauses(text):
        assert 0 <= clause.start < clause.end <= len(text)
        assert {word for pair in clause.denied for word in pair} | clause.low | clause.high <= clause.words
