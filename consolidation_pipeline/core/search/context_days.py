"""Days in a context: what is or was so is told with the day on which it was learned, as it may have changed since."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from functools import lru_cache

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.change_words import find_changes
from consolidation_pipeline.core.knowledge.lesson_sentences import read_lesson
from consolidation_pipeline.core.text.sentences import extract_sentences

# Times by which a text is of its day.
_NOW = ignore_case(
    r"\b(?:this|diese[nmrs]?|est[ea]|cette|ce) (?:week|month|quarter|year|season|sprint|term|semester|woche"
    r"|monat|quartal|jahr|saison|semana|mes|trimestre|año|temporada|semaine|mois|année|saison|semestre)\b"
    r"|\b(?:currently|at present|right now|derzeit|zurzeit|aktuell|momentan|actualmente|de momento|actuellement"
    r"|en ce moment)\b"
)
# Kinds of memories of one day. Those behind a pattern or summary are of many.
_OF_ONE_DAY = ("raw", "merged")


def find_day(kind: str, text: str, learned_at: datetime, *, is_one_of_two: bool = False) -> date | None:
    """Return the day to tell beside a memory; None for derived memories.

    Instructions, which hardly change, have none either, unless they tell what is so "now" or "this quarter".
    ``is_one_of_two``: another one tells other values of its matter, or is known to take its place.
    """
    if kind not in _OF_ONE_DAY or not (is_one_of_two or _tells_fact(text) or is_of_its_time(text)):
        return None
    return learned_at.astimezone(UTC).date()


def are_of_one_day(times: Iterable[datetime]) -> bool:
    """Return True if all times are of one day, as those of an import without dates: it tells nothing then."""
    return len({time.astimezone(UTC).date() for time in times}) < 2


@lru_cache(maxsize=1 << 12)
def is_of_its_time(text: str) -> bool:
    """Return True if a text tells what is so at its time: "now", "since May", "this quarter"."""
    language = detect_language(text) or "en"
    return _NOW.search(text) is not None or any(
        change.form in ("now", "present")
        for one in extract_sentences(text)
        for change in find_changes(one.text, language)
    )


# The next context of a project tells many of the same texts.
@lru_cache(maxsize=1 << 12)
def _tells_fact(text: str) -> bool:
    """Return True if a text says that something is or was so, beside what it tells to do."""
    return any(read_lesson(sentence.text).role in ("fact", "report") for sentence in extract_sentences(text))
