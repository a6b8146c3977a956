"""Months that had passed when a later sentence was noted: what was said of them is not replaced by it."""

from __future__ import annotations

from datetime import date

from consolidation_pipeline.core.differences.reading import Reading
from consolidation_pipeline.core.knowledge.change_words import find_changes

_MONTHS = "months-"
# A month that comes later than this after a note is the one before it: "in March", noted in November.
_MOST_AHEAD = 6


def are_of_months_in_turn(one: Reading, day: date, other: Reading, other_day: date) -> bool:
    """Return True if two sentences name different months, and the older one's was over when the newer was noted.

    "Ann is on call in April" of 1 April and ".. in May" of 2 May both hold. What was to come when the newer one was
    noted may have been moved, and words of change tell so: "moved to May".
    """
    (older, was), (newer, now) = sorted([(one, day), (other, other_day)], key=lambda pair: pair[1])
    months, others = _list_months(older), _list_months(newer)
    if was == now or not months - others or not others - months:
        return False
    return all(_is_over(month, was, now) for month in months - others) and not find_changes(
        newer.text, newer.language or "en"
    )


def _list_months(reading: Reading) -> set[int]:
    return {int(token.key.removeprefix(_MONTHS)) for token in reading.tokens if token.key.startswith(_MONTHS)}


def _is_over(month: int, noted: date, now: date) -> bool:
    """Return True if the month that a note of a day named was over on another day."""
    ahead = (month - noted.month) % 12
    return ahead > _MOST_AHEAD or 12 * (now.year - noted.year) + now.month - noted.month > ahead
