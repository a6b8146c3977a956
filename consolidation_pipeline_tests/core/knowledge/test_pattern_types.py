"""Pattern types: votes and ties."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.knowledge.pattern_types import PATTERN_TYPES, vote_pattern_type
from consolidation_pipeline.core.knowledge.pattern_units import Unit
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES


def make_unit(memory_type: str = "learning", text: str = "The queue holds jobs.", **more: object) -> Unit:
    return Unit(id=text, text=text, memory_type=memory_type, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("voter", "expected"),
    [
        (make_unit(), None),
        (make_unit(text="How do I track my parcel?"), None),
        (make_unit(text="Use a lock for the queue."), "workflow"),
        (make_unit(text="Raising the pool size reduced the timeouts by 90 %."), "success"),
        (make_unit(text="After the pin, the build passes again."), "success"),
        (make_unit(text="I failed because I ran the migration first."), "failure"),
        (make_unit(text="The implementation is incorrect because it skips zero."), "failure"),
        (make_unit(text="In my next attempt, I will read the log first."), "failure"),
        (make_unit(text="Mein Fehler war, den Index zu vergessen."), "failure"),
        (make_unit(text="The deploy had to be rolled back.", success=True), "failure"),
        (make_unit(text="The export crashes on empty files."), "gotcha"),
        (make_unit(success=True), "success"),
        (make_unit(success=False), "failure"),
        (make_unit("decision", success=False), "failure"),
        (make_unit("decision"), "decision"),
        (make_unit("warning"), "gotcha"),
        (make_unit("error_fix"), "gotcha"),
        (make_unit("change"), "workflow"),
        (make_unit(text="Never retry a charge."), "gotcha"),
        (make_unit(text="The team chose Redis."), "decision"),
        (make_unit(text="First build the image, then push."), "workflow"),
        (make_unit("decision", pattern_type="success"), "success"),
    ],
)
def test_unit_vote_follows_success_type_and_words(voter: Unit, expected: str | None) -> None:
    assert vote_pattern_type([voter]) == expected


def test_weighted_majority_wins_and_ties_have_order() -> None:
    decision, warning = make_unit("decision"), make_unit("warning")
    assert vote_pattern_type([decision, decision, warning]) == "decision"
    assert vote_pattern_type([decision, warning]) == vote_pattern_type([warning, decision]) == "gotcha"
    assert vote_pattern_type([decision, decision, make_unit("warning", weight=3.0)]) == "gotcha"


def test_every_memory_type_has_one_vote() -> None:
    assert {vote_pattern_type([make_unit(name)]) for name in MEMORY_TYPES} <= {*PATTERN_TYPES, None}
    with pytest.raises(ValueError, match="no units"):
        vote_pattern_type([])


def test_few_votes_of_many_units_give_no_type() -> None:
    asked = [make_unit(text=f"How do I pay with account {number}?") for number in range(5)]
    assert vote_pattern_type([*asked, make_unit("warning")]) is None
    assert vote_pattern_type([*asked[:2], make_unit("warning")]) == "gotcha"
