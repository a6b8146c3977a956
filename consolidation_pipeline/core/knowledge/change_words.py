"""Words that say that something changed: "no longer", "moved from X to Y", "X instead of Y", "since March".

Keys of a language in ``change_words.toml``, all regular expressions.

patterns: Form of the change (see ``Change``), and its words, with the groups cue, was, now and what.
    One that opens with ``\\b`` has alternatives in brackets only.
plan: Signs of a plan, proposal, wish or possibility.
permission: Those of them that may tell what is allowed: "may".
reason: Why something changed, from where it is told to the end of the sentence.
added: Words by which something comes beside what there is: "also".
asides: Words beside an amount that tell no other thing of it: "again", "only".
fillers, kinds: Words that tell no other thing apart: "old", and before the name of a thing: "the server".
roles, roles_by: What stands between a person and what that person has: "leads", and the other way round: "led by".
denied, denied_after: Negations before and behind the words of a change: "was not moved from".
banned: Words that forbid what a sentence names: "banned".
date, end, moved: Parts of patterns: a date, what ends the name of a thing, verbs of change (which open sentences too).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

from consolidation_pipeline.core.case_blind import CaseBlindPattern, ignore_case

Form = Literal["from", "contrast", "gone", "left", "ended", "needless", "allowed", "back", "present", "now"]
Span = tuple[int, int]

# What was before, and what took its place, end at a comma or where another phrase begins. Times and URLs have colons.
_WORDS = r"(?:[^,;:()。，；]|:(?=[\d/])){1,80}?"
_PARTS = {"WAS": rf"(?P<was>{_WORDS})", "NOW": rf"(?P<now>{_WORDS})"}
_NAMED = ("was", "now", "what")
_PLACEHOLDER = re.compile(r"<([A-Z]+)>")
_EDGE, _GROUP_NAME = r"\b", re.compile(r"\(\?P<\w+>")


@dataclass(frozen=True)
class Change:
    """Change that a sentence tells, as offsets in it.

    Attributes:
        form: ``from``: names what was before. ``contrast``: may do so ("instead of", ", not"). ``gone``: names what is
            no more. ``left``: names who gave up a part. ``ended``: the rest of the clause is no longer so.
            ``needless``: what the clause names is no longer necessary. ``allowed``: names what is no longer forbidden.
            ``back``: names who came back.
            ``present``: the rest of the sentence may be so
            by now only ("currently", "our new"). ``now``: it is so by now.
        cue: The words that say so.
        was: What was before, is gone, or who left; None for the other forms.
        now: What took its place, if it is named.
        what: What changed hands, where the words before ``was`` do not tell it: "handed over the wiki".
    """

    form: Form
    cue: Span
    was: Span | None = None
    now: Span | None = None
    what: Span | None = None


@dataclass(frozen=True)
class _ChangeWords:
    """Change words of a language.

    ``patterns``: in their order, each with True if it opens at the edge of a word. ``at_words``: matches where one of
    those does.
    """

    patterns: tuple[tuple[Form, CaseBlindPattern, bool], ...]
    at_words: CaseBlindPattern
    plan: re.Pattern[str]
    permission: re.Pattern[str]
    reason: re.Pattern[str]
    added: re.Pattern[str]
    asides: re.Pattern[str]
    fillers: re.Pattern[str]
    kinds: re.Pattern[str]
    roles: re.Pattern[str]
    roles_by: re.Pattern[str]
    denied: re.Pattern[str]
    denied_after: re.Pattern[str]
    banned: re.Pattern[str]
    moved: re.Pattern[str]


@cache
def _load(language: str) -> _ChangeWords:
    raw = tomllib.loads((files(__package__) / "change_words.toml").read_text("utf-8"))[language]
    filled = [(form, _fill(pattern, raw)) for form, pattern in raw["patterns"]]
    patterns = tuple((form, ignore_case(pattern), pattern.startswith(_EDGE)) for form, pattern in filled)
    # One search that looks at the edges of words alone takes a fraction of the time of one for each pattern.
    opening = [_GROUP_NAME.sub("(?:", pattern) for _, pattern in filled if pattern.startswith(_EDGE)]
    at_words = ignore_case(rf"{_EDGE}(?:{'|'.join(opening)})" if opening else r"(?!)")
    # "May" is a month: the words of plans are in lower case unless they open the sentence.
    plain = [re.compile(raw.get(key, r"(?!)")) for key in ("plan", "permission", "reason")]
    keys = ("added", "asides", "fillers", "kinds", "roles", "roles_by", "denied", "denied_after", "banned")
    others = [re.compile(raw.get(key, r"(?!)"), re.IGNORECASE) for key in keys]
    others.append(re.compile(rf"\W*(?:(?:we|i) )?(?:{raw.get('moved', '(?!)')})\b", re.IGNORECASE))
    return _ChangeWords(patterns, at_words, *plain, *others)


def _fill(pattern: str, raw: Mapping[str, Any]) -> str:
    """Return a pattern with its parts in place."""
    return _PLACEHOLDER.sub(lambda match: _PARTS.get(match[1]) or _fill(raw[match[1].lower()], raw), pattern)


def is_plan(sentence: str, language: str) -> bool:
    """Return True if a sentence tells a plan, a proposal, a wish or a possibility rather than a fact."""
    return bool(_load(language).plan.search(sentence))


def find_permissions(sentence: str, language: str) -> list[Span]:
    """Return the words that may tell what is allowed, if a sentence has no other words of a plan."""
    words = _load(language)
    spans = [match.span() for match in words.plan.finditer(sentence)]
    return spans if all(words.permission.fullmatch(sentence[slice(*span)]) for span in spans) else []


def drop_reason(sentence: str, language: str) -> str:
    """Return a sentence without why something changed: "opens at 8 because of the works"."""
    return _load(language).reason.sub("", sentence)


def drop_asides(sentence: str, language: str) -> str:
    """Return a sentence without words that tell nothing else of an amount: "is at 442 Hz again", "only 6 tonnes"."""
    return _load(language).asides.sub("", sentence)


def tells_addition(sentence: str, language: str) -> bool:
    """Return True if a sentence tells of something that comes beside what there is."""
    return bool(_load(language).added.search(sentence))


def tells_ban(sentence: str, language: str) -> bool:
    """Return True if a sentence says that something is forbidden."""
    return _load(language).banned.search(sentence) is not None


def is_ban(words: str, language: str) -> bool:
    """Return True if words are one that forbids, and nothing else."""
    return _load(language).banned.fullmatch(words) is not None


def opens_with_change(sentence: str, language: str) -> bool:
    """Return True if a sentence opens with a verb of change: "Switched X to Y"."""
    return _load(language).moved.match(sentence) is not None


def find_fillers(sentence: str, language: str, *, of_name: bool = False) -> Iterator[Span]:
    """Yield the words of a sentence that tell no other thing apart, if ``of_name`` beside the name of a thing."""
    words = _load(language)
    yield from (match.span() for match in words.fillers.finditer(sentence))
    if of_name:
        yield from (match.span() for match in words.kinds.finditer(sentence))


def find_roles(sentence: str, language: str) -> Iterator[tuple[Span, bool]]:
    """Yield the words between a person and what that person has, and True if the person stands behind them."""
    words = _load(language)
    yield from ((match.span(), False) for match in words.roles.finditer(sentence))
    yield from ((match.span(), True) for match in words.roles_by.finditer(sentence))


@lru_cache(maxsize=1 << 14)
def find_changes(sentence: str, language: str) -> tuple[Change, ...]:
    """Return what a sentence says of changes, at most one for each pattern; none if it denies a change."""
    words = _load(language)
    is_at_word = words.at_words.search(sentence) is not None
    found = []
    for form, pattern, opens_word in words.patterns:
        if (is_at_word or not opens_word) and (match := pattern.search(sentence)):
            groups = match.re.groupindex
            was, now, what = (match.span(name) if name in groups and match[name] else None for name in _NAMED)
            if was and _is_denied(sentence, form, match, words):
                return ()
            found.append(Change(form, match.span("cue"), was, now, what))
    return tuple(found)


def _is_denied(sentence: str, form: Form, match: re.Match[str], words: _ChangeWords) -> bool:
    if words.denied.search(sentence[: match.start("cue")]):
        return True
    # What is gone or left may be told by a negation.
    return form in ("from", "contrast") and words.denied_after.search(sentence, match.end("cue")) is not None
