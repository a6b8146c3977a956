"""What kind of pattern a group is: each of its units votes by its success, its memory type and its words."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Protocol

from consolidation_pipeline.core.text.sentence_cues import is_choice, is_sequence, is_warning

# In this order ties are decided: what went wrong is missed most when it is filed as something else.
PATTERN_TYPES = ("failure", "gotcha", "decision", "workflow", "success")

# What a memory type says by itself; discoveries, learnings and knowledge are about anything.
_BY_TYPE = {
    "decision": "decision",
    "warning": "gotcha",
    "error_fix": "gotcha",
    "bugfix": "gotcha",
    "feature": "workflow",
    "refactor": "workflow",
    "change": "workflow",
}


class Voter(Protocol):
    """What a vote is read from."""

    @property
    def text(self) -> str: ...
    @property
    def memory_type(self) -> str: ...
    @property
    def success(self) -> bool | None: ...
    @property
    def weight(self) -> float: ...
    @property
    def pattern_type(self) -> str | None: ...


def vote_pattern_type(units: Sequence[Voter]) -> str:
    """The type with the most votes by weight; ties in the order of ``PATTERN_TYPES``.

    The vote of a unit, first match wins: its own pattern type if it is a pattern; ``success`` False: failure; memory
    type decision: decision; warning, error_fix, bugfix (a trap that somebody was in): gotcha; feature, refactor, change
    (how something was done): workflow; else its words: a warning: gotcha, a choice: decision, an order of steps:
    workflow; else success. ValueError: no units.
    """
    if not units:
        raise ValueError("no units given; a pattern has at least one")
    votes: dict[str, list[float]] = {}
    for unit in units:
        votes.setdefault(_vote(unit), []).append(unit.weight)
    # fsum: whatever the order of units, the same sum.
    return max(PATTERN_TYPES, key=lambda name: fsum(votes.get(name, ())))


def _vote(unit: Voter) -> str:
    if unit.pattern_type is not None:
        return unit.pattern_type
    if unit.success is False:
        return "failure"
    if unit.memory_type in _BY_TYPE:
        return _BY_TYPE[unit.memory_type]
    if is_warning(unit.text):
        return "gotcha"
    if is_choice(unit.text):
        return "decision"
    return "workflow" if is_sequence(unit.text) else "success"
