"""Pattern types: votes and ties."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.extractive_patterns import Unit
from consolidation_pipeline.core.knowledge.pattern_types import PATTERN_TYPES, vote_pattern_type
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES


def unit(memory_type: str = "learning", text: str = "The queue holds jobs.", **more: object) -> Unit:
    return Unit(id=text, text=text, memory_type=memory_type, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("voter", "expected"),
    [
        (unit(), "success"),
        (unit(success=True), "success"),
        (unit(success=False), "failure"),
        (unit("decision", success=False), "failure"),
        (unit("decision"), "decision"),
        (unit("warning"), "gotcha"),
        (unit("error_fix"), "gotcha"),
        (unit("change"), "workflow"),
        (unit(text="Never retry a charge."), "gotcha"),
        (unit(text="The team chose Redis."), "decision"),
        (unit(text="First build the image, then push."), "workflow"),
        (unit("decision", pattern_type="success"), "success"),
    ],
)
def test_unit_vote_follows_success_type_and_words(voter: Unit, expected: str) -> None:
    assert vote_pattern_type([voter]) == expected


def test_weighted_majority_wins_and_ties_have_order() -> None:
    units = [unit("decision"), unit("decision"), unit("warning")]
    assert vote_pattern_type(units) == "decision"
    assert (
        vote_pattern_type([unit("decision"), unit("warning")])
        == vote_pattern_type([unit("warning"), unit("decision")])
        == "gotcha"
    )
    assert vote_pattern_type([unit("decision"), unit("decision"), unit("warning", weight=3.0)]) == "gotcha"


def test_every_memory_type_has_a_vote() -> None:
    assert {vote_pattern_type([unit(name)]) for name in MEMORY_TYPES} <= set(PATTERN_TYPES)
    with pytest.raises(ValueError, match="no units"):
        vote_pattern_type([])
