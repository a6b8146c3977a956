"""Which pairs of texts must never become one without a person, and when a literal stands in a text."""

import pytest

from consolidation_pipeline.core.literals import Conflict, Literal, conflicts, literals, stands_in
from consolidation_pipeline_tests.core.near_misses import MUST_CONFLICT, MUST_NOT_CONFLICT, PAIRS


@pytest.mark.parametrize(("a", "b", "kind"), MUST_CONFLICT)
def test_near_misses_conflict(a: str, b: str, kind: str) -> None:
    assert kind in {conflict.kind for conflict in conflicts(a, b)}


@pytest.mark.parametrize(("a", "b"), MUST_NOT_CONFLICT)
def test_paraphrases_and_subsets_do_not_conflict(a: str, b: str) -> None:
    assert [str(conflict) for conflict in conflicts(a, b)] == []


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_conflicts_are_the_same_from_both_sides(a: str, b: str) -> None:
    mirrored = {Conflict(conflict.kind, conflict.b, conflict.a) for conflict in conflicts(b, a)}
    assert set(conflicts(a, b)) == mirrored


@pytest.mark.parametrize("text", sorted({text for pair in PAIRS for text in pair}))
def test_no_text_conflicts_with_itself(text: str) -> None:
    assert conflicts(text, text) == ()


def test_conflicts_read_as_a_reason() -> None:
    assert [str(conflict) for conflict in conflicts("timeout 30 s", "timeout 60 seconds")] == ["number: 30 s / 60 s"]
    assert [str(conflict) for conflict in conflicts("It works with v2.", "It doesn't work with v2.")] == [
        "polarity: It works with v2 / It doesn't work with v2"
    ]


def test_literals_are_equal_by_kind_and_value() -> None:
    (spaced,) = literals("30 s")
    (spelled,) = literals("after 30 seconds")
    assert (spaced.text, spaced.start) == ("30 s", 0)
    assert (spelled.text, spelled.start) == ("30 seconds", 6)
    assert frozenset((spaced, spelled)) == {Literal("number", "30 s")}


def test_a_literal_stands_in_a_text_that_marks_it_up_differently() -> None:
    assert stands_in(Literal("path", "a.py"), "see src/A.py.")
    assert stands_in(Literal("identifier", "sorted"), "use sorted here")
    assert not stands_in(Literal("path", "/users"), "call /users/all")
    assert not stands_in(Literal("identifier", "hadoop-yarn"), "the hadoop-yarn-project")
    assert not stands_in(Literal("number", "3"), "in 30 s")


@pytest.mark.parametrize("unit", ["a-", "a.", "a+", "a@", "0x", "A. ", "...", '" a', "not ", "1. ", "x=1\n", "a://"])
def test_long_rows_are_read_in_linear_time(unit: str) -> None:
    # Quadratic readers would run into the suite's time limit here.
    text = unit * (100_000 // len(unit))
    assert conflicts(text, text) == ()
