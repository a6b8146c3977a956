"""Units of which patterns and principles are extracted, and the texts that are made of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date


@dataclass(frozen=True, kw_only=True)
class Unit:
    """One text of a group: a memory, a merged memory, or a pattern with its ``pattern_type`` and ``title``.

    ``weight``: how much it counts, for example the number of memories merged in it. ``day``: on which it was learned;
    None if that does not tell which of two units is newer.

    Raises:
        ValueError: ``weight`` is not a finite number above 0.
    """

    id: str
    text: str
    memory_type: str
    success: bool | None = None
    weight: float = 1.0
    pattern_type: str | None = None
    title: str = ""
    day: date | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.weight < float("inf"):
            raise ValueError(f"weight of unit {self.id} is {self.weight}; it must be a finite number above 0")


@dataclass(frozen=True)
class Evidence:
    """A ``quote`` that occurs verbatim in a unit. ``unit``: its number in the order of ``sort_units``, from 1."""

    unit: int
    quote: str


@dataclass(frozen=True)
class ExtractedPattern:
    """The text of a pattern or principle.

    Each sentence is taken from a unit, unchanged except for white space, for a label or "I will" before it
    (``lesson_sentences``), and for what other units say instead (``disputes.find_disputes``), which stands in it in
    brackets.

    Attributes:
        content: Lines of ``pattern_layout``.
        seen: How often and when it was seen. It is no part of the content, so that nobody searches for it.
        title: Phrases that tell the group from the others; empty if the headline is a template.
        summary: The headline; of a group without one, its examples.
        pattern_type: None if nothing tells it.
        evidence: The sentences used, and the most central one of every other unit, by unit number.
        overruled: Number of units that contradict others and are not the newest.
        support: Share of the units, by weight, that say the headline or something like it; 0 without a headline.
        is_shared: Most units are on what the text tells; if not, it is of one unit, or of nothing.
        compared: Pairs of sentences that were compared, packed (``compared_sentences.ComparedPairs``).
    """

    content: str
    seen: str
    title: str
    summary: str
    best_practices: tuple[str, ...]
    gotchas: tuple[str, ...]
    key_terms: tuple[str, ...]
    pattern_type: str | None
    evidence: tuple[Evidence, ...]
    overruled: int = 0
    support: float = 0.0
    is_shared: bool = True
    compared: bytes = field(default=b"", compare=False, repr=False)


def sort_units(units: Iterable[Unit]) -> list[Unit]:
    """Return the units in the order in which evidence numbers them: by id."""
    return sorted(units, key=lambda unit: (unit.id, unit.text, unit.memory_type, str(unit.success), unit.weight))
