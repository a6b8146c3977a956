"""Claim: a sentence with what tells whether it states a fact that may change, or a plan, an event, a title, a task."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from itertools import pairwise

from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reader import read_in
from consolidation_pipeline.core.differences.reading import Reading, Token, sort_as_written
from consolidation_pipeline.core.knowledge.change_words import (
    Change,
    Span,
    find_changes,
    find_fillers,
    is_plan,
    tells_addition,
    tells_ban,
)

# English verbs of what was done once, unless an auxiliary stands before them, and of tasks that open a sentence.
_DONE = frozenset(
    """
    failed passed returned showed added removed fixed created deployed released finished completed started ended
    crashed worked tested tried reported received processed imported merged reviewed closed opened resolved measured
    counted
    """.split()
)
_TASKS = frozenset(
    """
    update upgrade bump backport port add remove fix replace rename migrate move release merge improve investigate need
    """.split()
)
# A label before a task: "Client: update the year".
_LABEL = re.compile(r"^[\w.-]+:\s")
# Words that end as past forms do.
_NO_PAST = frozenset("need needed speed feed seed bed red memcached".split())
# Participles that open rules too: "Set the limit to 5".
_SAME_FORMS = frozenset("set put read run let cut".split())
# English forms of what happened, how a question opens that has no question mark, and adverbs of a state after an event.
_PERFECT = re.compile(r"\b(?:has|have|had|was|were)(?: been)? \w+ed\b|'s \w+ed\b", re.IGNORECASE)
_QUESTIONS = frozenset("is are am was were do does did can could has have how what why when where which who".split())
ADVERBS = frozenset(("now", "nowadays", "by now", "these days"))
# A label with its value; how English rules open; subjects that show that a verb follows.
_VALUE_OF = re.compile(r":\s*[$€£]?\d")
_RULES = frozenset("use keep run pin call write store prefer always never don't do".split())
_SUBJECTS = frozenset("we i they you he she it this that".split())
_VERBS = frozenset("has have had must should can cannot does do did".split())
# How an English report of a fault opens.
_FAULT_OPENINGS = frozenset(f"the {word}" for word in ("issue", "problem", "bug", "error", "mistake"))
# A measured change: "test count 1646 -> 10".
_ARROW = re.compile(r"\d\s*(?:->|→)\s*\d")


class Claim:
    """A sentence with its change words. It is read when its tokens are first asked for."""

    def __init__(self, text: str, language: str) -> None:
        self.text = text
        self.language = language

    @cached_property
    def reading(self) -> Reading:
        """The sentence as it is read."""
        return read_in(self.text, self.language)

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens in the order in which they are written."""
        return [self.reading.tokens[at] for at in sort_as_written(self.reading.tokens)]

    @cached_property
    def keys(self) -> frozenset[str]:
        """The different keys of the tokens."""
        return frozenset(token.key for token in self.tokens)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words in lower case."""
        return split_words(self.text)

    @cached_property
    def is_question(self) -> bool:
        """True if it asks."""
        return any(cue.category == "question" for cue in self.reading.cues)

    @property
    def asks(self) -> bool:
        """True if it asks, or opens as an English question does."""
        opens = self.language == "en" and not _QUESTIONS.isdisjoint(self.words[:1])
        return self.is_question or (opens and "not" not in self.words[1:2])

    @property
    def is_denied(self) -> bool:
        """True if it has a negation."""
        return any(cue.category == "polarity" for cue in self.reading.cues)

    @cached_property
    def is_plan(self) -> bool:
        """True if it tells a plan rather than a fact."""
        return is_plan(self.text, self.language)

    @cached_property
    def is_addition(self) -> bool:
        """True if it tells of something that comes beside what there is."""
        return tells_addition(self.text, self.language)

    @property
    def is_ban(self) -> bool:
        """True if it forbids something, by a negation or by a word such as "banned"."""
        return self.is_denied or tells_ban(self.text, self.language)

    @cached_property
    def fillers(self) -> frozenset[str]:
        """The keys of the words that tell no other thing apart: "old"."""
        return frozenset(token.key for token in self.inside(*find_fillers(self.text, self.language)))

    @cached_property
    def is_event(self) -> bool:
        """True if it tells what happened once."""
        return _is_event(self)

    @cached_property
    def is_reported(self) -> bool:
        """True if an English sentence tells what was done, or where a fault is."""
        if self.language != "en":
            return False
        return bool(_PERFECT.search(self.text)) or " ".join(self.words[:2]) in _FAULT_OPENINGS

    @cached_property
    def is_statement(self) -> bool:
        """True unless it is an English sentence without a sign of a verb, as titles and steps are: "Open page 3"."""
        words = self.words
        if self.language != "en" or not words or _VALUE_OF.search(self.text):
            return True
        language = load_language("en")
        if any(change.form == "ended" for change in self.changes):
            return True  # "no longer leaks"
        if words[0] in _RULES | _SUBJECTS or not (language.passive_auxiliaries | _VERBS).isdisjoint(words):
            return True
        if words[0].endswith("s") and words[1:2] and not language.is_light(words[1]):
            return True
        if any(word.endswith("ed") or word in language.past_forms for word in words):
            return True
        return any(
            word.endswith("s") and not word.endswith("ss") and before not in language.determiners
            for before, word in pairwise(words[:-1])
        )

    @property
    def is_task(self) -> bool:
        """True if an English sentence opens as a task does, or has one behind a label: "Client: update the year"."""
        opening = split_words(_LABEL.sub("", self.text, count=1))[:1]
        return self.language == "en" and not _TASKS.isdisjoint(opening)

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """The changes that it tells."""
        return find_changes(self.text, self.language)

    @cached_property
    def is_state(self) -> bool:
        """True if it may hold until it is revised: no plan, question, contrast or title, and no event but a change."""
        if self.is_plan or self.asks or any(change.form == "contrast" for change in self.changes):
            return False
        if any(change.form != "present" and self.quote(change.cue) not in ADVERBS for change in self.changes):
            return True
        return self.is_statement and not (self.is_event or self.is_reported)

    @staticmethod
    @lru_cache(maxsize=20_000)
    def of(text: str, language: str) -> Claim:
        """Return the claim of a sentence."""
        return Claim(text, language)

    def quote(self, span: Span) -> str:
        """Return the words of a span in lower case."""
        return self.text[slice(*span)].lower()

    def inside(self, *spans: Span | None) -> list[Token]:
        """Return the tokens that begin in one of the spans."""
        return [t for t in self.tokens if any(span and span[0] <= t.start < span[1] for span in spans)]


def _is_event(claim: Claim) -> bool:
    """Return True if an English sentence tells what happened once: "Fixed 3 tests", "The import took 40 minutes"."""
    if _ARROW.search(claim.text):
        return True
    if claim.language != "en" or claim.is_task:
        return claim.is_task
    words = claim.words
    auxiliaries = load_language("en").passive_auxiliaries | {"has", "have", "had"}
    opening = words[1] if len(words) > 1 and words[0] in ("i", "we") else words[0] if words else ""
    if opening.endswith("ed") or opening in load_language("en").participles - _SAME_FORMS:
        return opening not in _NO_PAST
    done = _DONE | load_language("en").past_forms
    plain = [word for word in words if word not in ADVERBS]  # "is now led by"
    return any(word in done and plain[max(0, at - 1)] not in auxiliaries for at, word in enumerate(plain))
