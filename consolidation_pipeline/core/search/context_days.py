"""Days in a context: what is or was so is told with the day on which it was learned, as it may have changed since."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from functools import lru_cache

from consolidation_pipeline.core.knowledge.lesson_sentences import read_lesson
from consolidation_pipeline.core.text.sentences import extract_sentences

# Kinds of memories of one day. Those behind a pattern or summary are of many.
_OF_ONE_DAY = ("raw", "merged")


def find_day(kind: str, text: str, learned_at: datetime) -> date | None:
    """Return the day to tell beside a memory; None for instructions, which hardly change, and for derived memories."""
    return learned_at.astimezone(UTC).date() if kind in _OF_ONE_DAY and _tells_fact(text) else None


def are_of_one_day(times: Iterable[datetime]) -> bool:
    """Return True if all times are of one day, as those of an import without dates: it tells nothing then."""
    return len({time.astimezone(UTC).date() for time in times}) < 2


# The next context of a project tells many of the same texts.
@lru_cache(maxsize=1 << 12)
def _tells_fact(text: str) -> bool:
    """Return True if a text says that something is or was so, beside what it tells to do."""
    return any(read_lesson(sentence.text).role in ("fact", "report") for sentence in extract_sentences(text))
