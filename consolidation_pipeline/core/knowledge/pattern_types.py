"""Type of a pattern: each unit of the group votes by its success, its memory type and its words."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import TYPE_CHECKING

from consolidation_pipeline.core.text.sentence_cues import is_choice, is_sequence, is_warning

if TYPE_CHECKING:
    from consolidation_pipeline.core.knowledge.extractive_patterns import Unit

# Ties are broken in this order. Failures come first: a failure with another type does the most harm.
PATTERN_TYPES = ("failure", "gotcha", "decision", "workflow", "success")

# Votes by memory type alone; discoveries, learnings and knowledge can be of any type.
_BY_TYPE = {
    "decision": "decision",
    "warning": "gotcha",
    "error_fix": "gotcha",
    "bugfix": "gotcha",
    "feature": "workflow",
    "refactor": "workflow",
    "change": "workflow",
}


def vote_pattern_type(units: Sequence[Unit]) -> str:
    """Return the type with the most votes by weight; ties: the first of ``PATTERN_TYPES``.

    The vote of a unit is the first that applies:

    1. its own pattern type, if it is a pattern;
    2. ``success`` is False: failure;
    3. memory type decision: decision; warning, error_fix or bugfix: gotcha; feature, refactor or change: workflow;
    4. its words: a warning: gotcha; a choice: decision; a sequence of steps: workflow;
    5. success.

    Raises:
        ValueError: There are no units.
    """
    if not units:
        raise ValueError("no units given; a pattern has at least one")
    votes: dict[str, list[float]] = {}
    for unit in units:
        votes.setdefault(_vote(unit), []).append(unit.weight)
    # fsum: the sum does not depend on the order of units.
    return max(PATTERN_TYPES, key=lambda name: fsum(votes.get(name, ())))


def _vote(unit: Unit) -> str:
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
