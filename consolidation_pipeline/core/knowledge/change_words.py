"""Words that say that something changed: "no longer", "moved from X to Y", "X instead of Y", "since March".

Keys of a language in ``change_words.toml``, all regular expressions.

patterns: Form of the change (see ``Change``), and its words, with the groups cue, was and now.
    One that opens with ``\\b`` has alternatives in brackets only.
plan: Signs of a plan, proposal, wish or possibility.
denied, denied_after: Negations before and behind the words of a change: "was not moved from".
date, end, moved: Parts of patterns: a date, what ends the name of a thing, verbs of change.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

from consolidation_pipeline.core.case_blind import CaseBlindPattern, ignore_case

Form = Literal["from", "contrast", "ended", "now"]
Span = tuple[int, int]

# What was before, and what took its place, end at a comma or where another phrase begins. Times and URLs have colons.
_WORDS = r"(?:[^,;:()。，；]|:(?=[\d/])){1,80}?"
_PARTS = {"WAS": rf"(?P<was>{_WORDS})", "NOW": rf"(?P<now>{_WORDS})"}
_PLACEHOLDER = re.compile(r"<([A-Z]+)>")
_EDGE, _GROUP_NAME = r"\b", re.compile(r"\(\?P<\w+>")


@dataclass(frozen=True)
class Change:
    """Change that a sentence tells, as offsets in it.

    Attributes:
        form: ``from``: names what was before. ``contrast``: may do so ("instead of", ", not"). ``ended``: the rest of
            the clause is no longer so. ``now``: the rest of the sentence is so by now.
        cue: The words that say so.
        was: What was before; None unless ``form`` is ``from`` or ``contrast``.
        now: What took its place, if it is named.
    """

    form: Form
    cue: Span
    was: Span | None = None
    now: Span | None = None


@dataclass(frozen=True)
class _ChangeWords:
    """Change words of a language.

    ``patterns``: in their order, each with True if it opens at the edge of a word. ``at_words``: matches where one of
    those does.
    """

    patterns: tuple[tuple[Form, CaseBlindPattern, bool], ...]
    at_words: CaseBlindPattern
    plan: re.Pattern[str]
    denied: re.Pattern[str]
    denied_after: re.Pattern[str]


@cache
def _load(language: str) -> _ChangeWords:
    raw = tomllib.loads((files(__package__) / "change_words.toml").read_text("utf-8"))[language]
    filled = [(form, _fill(pattern, raw)) for form, pattern in raw["patterns"]]
    patterns = tuple((form, ignore_case(pattern), pattern.startswith(_EDGE)) for form, pattern in filled)
    # One search that looks at the edges of words alone takes a fraction of the time of one for each pattern.
    opening = [_GROUP_NAME.sub("(?:", pattern) for _, pattern in filled if pattern.startswith(_EDGE)]
    at_words = ignore_case(rf"{_EDGE}(?:{'|'.join(opening)})" if opening else r"(?!)")
    # "May" is a month: the words of plans are in lower case unless they open the sentence.
    denied, denied_after = (re.compile(raw.get(key, r"(?!)"), re.IGNORECASE) for key in ("denied", "denied_after"))
    return _ChangeWords(patterns, at_words, re.compile(raw["plan"]), denied, denied_after)


def _fill(pattern: str, raw: Mapping[str, Any]) -> str:
    """Return a pattern with its parts in place."""
    return _PLACEHOLDER.sub(lambda match: _PARTS.get(match[1]) or _fill(raw[match[1].lower()], raw), pattern)


def is_plan(sentence: str, language: str) -> bool:
    """Return True if a sentence tells a plan, a proposal, a wish or a possibility rather than a fact."""
    return bool(_load(language).plan.search(sentence))


@lru_cache(maxsize=1 << 14)
def find_changes(sentence: str, language: str) -> tuple[Change, ...]:
    """Return what a sentence says of changes, at most one for each pattern; none if it denies a change."""
    words = _load(language)
    is_at_word = words.at_words.search(sentence) is not None
    found = []
    for form, pattern, opens_word in words.patterns:
        if (is_at_word or not opens_word) and (match := pattern.search(sentence)):
            groups = match.re.groupindex
            was, now = (match.span(name) if name in groups and match[name] else None for name in ("was", "now"))
            if was and _is_denied(sentence, match, words):
                return ()
            found.append(Change(form, match.span("cue"), was, now))
    return tuple(found)


def _is_denied(sentence: str, match: re.Match[str], words: _ChangeWords) -> bool:
    is_before = words.denied.search(sentence[: match.start("cue")])
    return bool(is_before or words.denied_after.search(sentence, match.end("cue")))
