"""Conflicts between texts, and the search for a literal in a text."""

import pytest

from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import Conflict, conflicts, literals, stands_in
from consolidation_pipeline_tests.core.conflicts.near_misses import MUST_CONFLICT, MUST_NOT_CONFLICT, PAIRS


@pytest.mark.parametrize(("a", "b", "kind"), MUST_CONFLICT)
def test_near_misses_are_conflicts(a: str, b: str, kind: str) -> None:
    assert kind in {conflict.kind for conflict in conflicts(a, b)}


@pytest.mark.parametrize(("a", "b"), MUST_NOT_CONFLICT)
def test_paraphrases_and_subsets_do_not_conflict(a: str, b: str) -> None:
    assert [str(conflict) for conflict in conflicts(a, b)] == []


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_conflicts_are_symmetric(a: str, b: str) -> None:
    mirrored = {Conflict(conflict.kind, conflict.b, conflict.a) for conflict in conflicts(b, a)}
    assert set(conflicts(a, b)) == mirrored


@pytest.mark.parametrize("text", sorted({text for pair in PAIRS for text in pair}))
def test_text_does_not_conflict_with_itself(text: str) -> None:
    assert conflicts(text, text) == ()


def test_conflict_text_names_kind_and_values() -> None:
    assert [str(conflict) for conflict in conflicts("timeout 30 s", "timeout 60 seconds")] == ["number: 30 s / 60 s"]
    assert [str(conflict) for conflict in conflicts("It works with v2.", "It doesn't work with v2.")] == [
        "polarity: It works with v2 / It doesn't work with v2"
    ]


@pytest.mark.parametrize(("a", "b", "kind"), MUST_CONFLICT)
def test_conflict_names_positions_in_both_texts(a: str, b: str, kind: str) -> None:
    for conflict in conflicts(a, b):
        for text, side in ((a, conflict.a), (b, conflict.b)):
            assert side
            assert all(text[item.start :].startswith(item.text) and item.text for item in side), kind


def test_conflict_names_value_text_and_offset() -> None:
    (number, polarity) = conflicts("First wait 30 seconds. Then enable the cache.", "Wait 60s. Disable the cache.")
    assert (number.kind, polarity.kind) == ("number", "polarity")
    assert [(item.value, item.text, item.start) for item in number.a] == [("30 s", "30 seconds", 11)]
    assert [(item.value, item.text, item.start) for item in number.b] == [("60 s", "60s", 5)]
    one, other = "enable the cache", "Disable the cache"
    assert [(item.value, item.text, item.start) for item in polarity.a] == [(one, one, 28)]
    assert [(item.value, item.text, item.start) for item in polarity.b] == [(other, other, 10)]


def test_long_conflict_text_is_shortened() -> None:
    words = " ".join(["gamma"] * 40)
    shown = str(conflicts(f"Commit the {words}", f"Do not commit the {words}")[0])
    assert len(shown) < 150
    assert shown.count("…") == 2
    ports = "Open ports " + ", ".join(map(str, range(8000, 8020)))
    assert str(conflicts(ports, "Open ports 1, 2")[0]) == "number: 8000, 8001, 8002, 8003, … / 1, 2"


def test_repeated_literal_reports_first_position() -> None:
    (conflict,) = conflicts("Port 80, really 80", "Port 81")
    assert (conflict.a[0].start, conflict.b[0].start) == (5, 5)


def test_literals_compare_by_kind_and_value() -> None:
    (spaced,) = literals("30 s")
    (spelled,) = literals("after 30 seconds")
    assert (spaced.text, spaced.start) == ("30 s", 0)
    assert (spelled.text, spelled.start) == ("30 seconds", 6)
    assert frozenset((spaced, spelled)) == {Literal("number", "30 s")}


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
def test_long_texts_are_compared_in_linear_time(unit: str) -> None:
    # A quadratic implementation exceeds the suite's time limit here.
    text = unit * (100_000 // len(unit))
    assert conflicts(text, text) == ()
