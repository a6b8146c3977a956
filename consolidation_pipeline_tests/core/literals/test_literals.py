"""Literals of a text, and the search for a literal in a text."""

import pytest

from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import literals, stands_in
from consolidation_pipeline_tests.core.differences.near_misses import PAIRS


def test_literals_compare_by_kind_and_value() -> None:
    (spaced,) = literals("30 s")
    (spelled,) = literals("after 30 seconds")
    assert (spaced.text, spaced.start) == ("30 s", 0)
    assert (spelled.text, spelled.start) == ("30 seconds", 6)
    assert frozenset((spaced, spelled)) == {Literal("number", "30 s")}


@pytest.mark.parametrize("text", ["30 €", "30€", "€30", "30 euros"])
def test_currency_stands_before_or_behind_the_number(text: str) -> None:
    assert literals(f"It costs {text}.") == {Literal("number", "30 €")}


def test_variable_behind_a_number_is_no_currency() -> None:
    assert Literal("number", "3") in literals("repeat 3 $HOME")
    assert literals("30 $") != literals("30 €")


def test_repeated_literal_has_its_first_position() -> None:
    (port,) = literals("Port 80, really 80")
    assert (port.text, port.start) == ("80", 5)


@pytest.mark.parametrize("text", sorted({text for pair in PAIRS for text in pair}))
def test_every_literal_stands_in_its_text(text: str) -> None:
    for literal in literals(text):
        assert stands_in(literal, text)
        assert stands_in(literal, f"Note: {text}\nAnd more.")


def test_stands_in_ignores_markup_and_case() -> None:
    assert stands_in(Literal("path", "a.py"), "see src/A.py.")
    assert stands_in(Literal("identifier", "sorted"), "use sorted here")
    assert not stands_in(Literal("path", "/users"), "call /users/all")
    assert not stands_in(Literal("identifier", "hadoop-yarn"), "the hadoop-yarn-project")
    assert not stands_in(Literal("number", "3"), "in 30 s")


@pytest.mark.parametrize(
    "unit",
    ["a-", "a.", "a+", "a@", "0x", "A. ", "...", '" a', "not ", "1. ", "x=1\n", "a://", "'a ", "unless ", "before "],
)
def test_long_texts_are_read_in_linear_time(unit: str) -> None:
    # A quadratic implementation exceeds the suite's time limit here.
    text = unit * (100_000 // len(unit))
    assert all(text[literal.start :].startswith(literal.text) for literal in literals(text))


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["a-", "a+", "0x", "x=1\n", "not ", "1. ", "'a ", "the a ", "unless ", "before a "])
def test_long_texts_are_compared_in_linear_time(unit: str) -> None:
    text = unit * (40_000 // len(unit))
    assert explain(text, f"{text} c").verdict == explain(f"{text} c", text).verdict != "same"
