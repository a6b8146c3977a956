"""Layout of extracted patterns: a title, a headline, *Do / Avoid / Because*; and how often and when it was seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Literal, NamedTuple

from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.knowledge.lesson_sentences import TO_TRY, TRIED
from consolidation_pipeline.core.knowledge.phrases import load_phrases

# What most of the units of a group without a lesson are.
ExampleKind = Literal["any", "questions", "problems", "changes"]

# Of what attempts that failed conclude from themselves. Verdicts on attempts are read in English only.
_SUPPOSED = "as the failed attempts suppose, not proven"


@dataclass(frozen=True)
class Sightings:
    """Number of a group's memories and of their sessions, and the days between which they were learned.

    ``sessions``: None if no session is known. ``first``, ``last``: None if no day is known. ``patterns``: number of
    patterns that a principle is made of, told in place of ``count``; None for a pattern. ``said``: number of the
    memories that say the headline, as far as their words prove it; None without a headline, or if it is not known.
    """

    count: int
    sessions: int | None = None
    first: date | None = None
    last: date | None = None
    patterns: int | None = None
    said: int | None = None


class _Labels(NamedTuple):
    """Words of a language for the lines of a pattern, as ``pattern_labels.toml`` explains them."""

    do: str
    avoid: str
    because: str
    examples: str
    questions: str
    problems: str
    changes: str
    group: str
    seen: str
    seen_once: str
    seen_in_patterns: str
    said_in: str
    in_sessions: str
    in_session: str


_LABELS = load_phrases("pattern_labels.toml", _Labels)
_SEEN_LINE = re.compile(
    "|".join(
        re.escape(told).replace(r"\{\}", r"\d+")
        for one in _LABELS.values()
        for told in (one.group, one.seen, one.seen_once, one.seen_in_patterns, one.said_in)
    )
)
_PART = re.compile(
    "(?:" + "|".join(re.escape(word) for one in _LABELS.values() for word in (one.do, one.avoid, one.because)) + "): "
)
_EXAMPLES = tuple(
    f"{told}: " for one in _LABELS.values() for told in (one.examples, one.questions, one.problems, one.changes)
)


def render_pattern(
    *,
    title: str,
    headline: str,
    do: Sequence[str] = (),
    avoid: Sequence[str] = (),
    because: Sequence[str] = (),
    examples: Sequence[str] = (),
    examples_are: ExampleKind = "any",
    language: str | None,
) -> str:
    """Return the lines of a pattern; parts without a sentence are left out, and lines of attempts have a label.

    A warning that forbids by itself has none: "Avoid: Never do it" would be denied twice.
    """
    labels = _LABELS.get(language or "en", _LABELS["en"])
    parts = ((labels.do, do), (labels.avoid, avoid), (labels.because, because))
    told = [(label, line) for label, found in parts for line in found]
    lines = [
        title,
        headline,
        *(
            line
            if line.startswith((TRIED, TO_TRY)) or (label == labels.avoid and _forbids(line))
            else f"{label}: {line}"
            for label, line in told
        ),
    ]
    if examples:
        kinds: dict[ExampleKind, str] = {
            "any": labels.examples,
            "questions": labels.questions,
            "problems": labels.problems,
            "changes": labels.changes,
        }
        lines.append(f"{kinds[examples_are]}: {'; '.join(examples)}")
    return "\n".join(line for line in lines if line)


def _forbids(line: str) -> bool:
    """Return True if the first clause of a warning has a negation."""
    return any(cue.category == "polarity" and cue.clause == 0 for cue in read(line).cues)


def read_statements(content: str, title: str) -> str:
    """Return the statements of a pattern's text: without its ``title``, its labels and its examples.

    Older texts have a last line on when the pattern was seen, which is left out too.
    """
    first, *rest = content.split("\n")
    lines = rest if rest and first == title else [first, *rest]
    if len(lines) > 1 and is_seen_line(lines[-1]):
        lines = lines[:-1]
    return "\n".join(line for line in map(strip_part_label, lines) if not line.startswith(_EXAMPLES)) or first


def is_seen_line(line: str) -> bool:
    """Return True for the line of an older pattern on how often and when it was seen."""
    return _SEEN_LINE.match(line) is not None


def strip_part_label(line: str) -> str:
    """Return a line of a pattern without its label: "Avoid: Never log the key." gives "Never log the key."."""
    label = _PART.match(line)
    return line[label.end() :] if label else line


def tell_sightings(seen: Sightings, content: str, language: str | None) -> str:
    """Return how often and when a pattern with this content was seen."""
    language = language or "en"
    labels = _LABELS.get(language, _LABELS["en"])
    parts = [labels.seen_once if seen.count == 1 else labels.group.format(seen.count)]
    # That one memory says it tells nothing: others may say the same in words of their own.
    if seen.said is not None and seen.said > 1:
        is_all = seen.said >= seen.count
        parts = [labels.seen.format(seen.count) if is_all else labels.said_in.format(seen.said, seen.count)]
    if seen.patterns is not None:
        parts = [labels.seen_in_patterns.format(seen.patterns)]
    if seen.sessions is not None:
        told = labels.in_session if seen.sessions == 1 else labels.in_sessions.format(seen.sessions)
        parts[0] = f"{parts[0]} {told}"
    if seen.first is not None and seen.last is not None:
        parts.append(_tell_days(seen.first, seen.last, language))
    is_guess = any(line.startswith((TRIED, TO_TRY)) for line in content.split("\n"))
    return f"{', '.join(parts)}; {_SUPPOSED}." if is_guess else f"{', '.join(parts)}."


def tell_in_english(seen: str) -> str:
    """Return what ``tell_sightings`` told in another language in English, for lists that are. Days stay as written."""
    english = _LABELS["en"]
    for labels in _LABELS.values():
        for field in ("said_in", "seen_in_patterns", "seen", "seen_once", "group"):
            if match := _compile(getattr(labels, field)).match(seen):
                told, rest = str(getattr(english, field)).format(*match.groups()), seen[match.end() :]
                for place in ("in_session", "in_sessions"):
                    if sessions := _compile(f" {getattr(labels, place)}").match(rest):
                        named = getattr(english, place).format(*sessions.groups())
                        return f"{told} {named}{rest[sessions.end() :]}"
                return told + rest
    return seen


@cache
def _compile(template: str) -> re.Pattern[str]:
    """Return the pattern of a label with numbers; nothing of a word follows it."""
    return re.compile(re.escape(template).replace(r"\{\}", r"(\d+)") + r"(?!\w)")


def _tell_days(first: date, last: date, language: str) -> str:
    """Return a day or the range of two days: "3 to 12 May 2026"; as ISO dates outside of English."""
    if first == last:
        return f"{last.day} {last:%B %Y}" if language == "en" else last.isoformat()
    if language != "en":
        return f"{first.isoformat()} – {last.isoformat()}"
    start = f"{first.day}"
    if (first.year, first.month) != (last.year, last.month):
        start += f" {first:%B}"
    if first.year != last.year:
        start += f" {first.year}"
    return f"{start} to {last.day} {last:%B %Y}"
