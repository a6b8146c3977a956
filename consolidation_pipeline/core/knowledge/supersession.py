"""Supersession: does a newer memory say that something an older one says is so no longer?"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from typing import Literal

from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import Token
from consolidation_pipeline.core.knowledge.change_words import (
    Span,
    drop_asides,
    drop_reason,
    find_changes,
    find_permissions,
)
from consolidation_pipeline.core.knowledge.claim_slots import (
    have_same_words,
    is_one_slot,
    may_be_states,
    stand_in_opposite_places,
    tells_amount,
)
from consolidation_pipeline.core.knowledge.claim_subjects import (
    are_on_named_things,
    deny_other_clause,
    differ_in_order,
    have_other_kinds,
    have_other_owners,
    hold_side_by_side,
    leaves_subject,
    open_with_things,
    opens_with_article,
    tell_other_days,
    tells_narrower_case,
    tells_step,
)
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.clause_updates import updates_clause
from consolidation_pipeline.core.knowledge.ended_claims import (
    ends_any,
    ends_first_clause,
    ends_one_of_two,
    ends_part,
    names_former_value,
)
from consolidation_pipeline.core.knowledge.gone_claims import (
    comes_back,
    frees_from,
    gives_up_part,
    lifts_ban,
    uses_gone,
)
from consolidation_pipeline.core.knowledge.lesson_sentences import find_past
from consolidation_pipeline.core.knowledge.named_things import is_name
from consolidation_pipeline.core.knowledge.past_months import are_of_months_in_turn
from consolidation_pipeline.core.knowledge.rival_claims import compare_sentences
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.boilerplate import strip_boilerplate
from consolidation_pipeline.core.text.sentences import extract_sentences

Status = Literal["candidate", "confirmed"]
Rule = Literal["change words", "same writer", "dates", "language model"]

# Confidence of each rule: development sequences of benchmarks/sequences. A model's answer is not measured on them.
CONFIDENCE: dict[Rule, float] = {"change words": 0.9, "same writer": 0.8, "dates": 0.6, "language model": 0.6}
# What words of change tell of a part of an older sentence, or of more than is certain.
_UNCERTAIN = (
    ends_part,
    ends_one_of_two,
    ends_first_clause,
    uses_gone,
    gives_up_part,
    frees_from,
    lifts_ban,
    comes_back,
    updates_clause,
)
# What lets two sentences hold beside each other.
_BESIDE = (have_other_owners, have_other_kinds, hold_side_by_side)
# What may stand between what changed and why, and the fewest words of a clause.
_EXPLAINS = re.compile(r"\s?(?:[:;]|\s[–—-]|\s(?:since|now that|seit|seitdem|desde que|depuis que))\s")
_FEWEST_WORDS = 3
_COMMAS = re.compile(r"[,，、;；]")
# What stands for "may" where it is no plan.
_CAN = "can"
# Characters of each sentence in the reason of a relation.
_SHOWN_CHARS = 160


@dataclass(frozen=True)
class Writer:
    """Writer of a memory; None for each field that is not known.

    ``key``: the API key, whose user, agent and session are claims.
    """

    user: str | None = None
    agent: str | None = None
    session: str | None = None
    key: str | None = None

    def is_same(self, other: Writer) -> bool:
        """Return True if both have a session, agent or user in common, and no different users or keys."""
        if self.key != other.key:
            return False
        if self.user and other.user and self.user != other.user:
            return False
        pairs = ((self.user, other.user), (self.agent, other.agent), (self.session, other.session))
        return any(one and one == two for one, two in pairs)


@dataclass(frozen=True)
class Supersession:
    """A newer memory takes the place of what an older one says.

    Attributes:
        status: ``confirmed`` by a rule, or a ``candidate`` that waits for a person.
        rule: Why: change words in the newer text, the same writer, the dates alone, or the answer of a language model.
        was, now: The sentences that differ.
    """

    status: Status
    rule: Rule
    was: str
    now: str

    @property
    def confidence(self) -> float:
        """Confidence of the rule."""
        return CONFIDENCE[self.rule]


@dataclass(frozen=True)
class Revision:
    """A sentence of one text that revises one of another. ``is_explicit``: by change words; ``is_certain``: see below.

    A name for a name may hold beside it ("Ann works with Bob"), so that only change words make it certain. Nothing is
    if only the order of the words tells the difference, or if a pronoun may stand for somebody else.
    """

    was: str
    now: str
    is_explicit: bool
    is_certain: bool = True


def judge_revision(revision: Revision, older: Writer, newer: Writer) -> Supersession | None:
    """Return the supersession by a later text, with the rule that confirms it.

    None if somebody else tells what is so on another day of the week: both may hold.
    """
    if not revision.is_explicit and not revision.is_certain and not newer.is_same(older):
        language = _find_language(revision.was, revision.now)
        claims = [Claim.of(text, language) for text in (revision.was, revision.now)] if language else []
        if claims and not claims[1].changes and tell_other_days(*claims):
            return None
    rule: Rule = "change words" if revision.is_explicit else "same writer" if newer.is_same(older) else "dates"
    is_confirmed = rule == "change words" or (rule == "same writer" and revision.is_certain)
    return Supersession("confirmed" if is_confirmed else "candidate", rule, revision.was, revision.now)


def tells_past_month(revision: Revision, was: date, now: date) -> bool:
    """Return True if the older of two sentences tells of a month that was over when the newer one was noted.

    Args:
        revision: Has the sentences.
        was, now: The days on which they were noted.
    """
    language = None if revision.is_explicit else _find_language(revision.was, revision.now)
    if language is None:
        return False
    older, newer = (Claim.of(text, language).reading for text in (revision.was, revision.now))
    return are_of_months_in_turn(older, was, newer, now)


def describe_supersession(found: Supersession) -> str:
    """Return the reason of a relation: the rule and both sentences."""
    return f"{found.rule}: {_shorten(found.was)} -> {_shorten(found.now)}"


def is_superseded(sentence: str, reason: str) -> bool:
    """Return True if this is the older sentence of a reason of ``describe_supersession``."""
    return reason.partition(": ")[2].startswith(f"{_shorten(sentence)} -> ")


def drop_superseded(text: str, reasons: Collection[str]) -> str:
    """Return ``text`` without the sentences that newer memories replaced, by the reasons of ``describe_supersession``.

    The rest keeps its words and white space. A text of nothing else becomes empty.
    """
    forms = {sentence: normalize_text(sentence.whole) for sentence in extract_sentences(text)}
    dropped = {form for sentence, form in forms.items() if any(is_superseded(sentence.text, one) for one in reasons)}
    return "" if dropped == {*forms.values()} else strip_boilerplate(text, dropped)


def _shorten(sentence: str) -> str:
    return sentence if len(sentence) <= _SHOWN_CHARS else sentence[: _SHOWN_CHARS - 2].rstrip() + " …"


def choose_revision(revisions: Iterable[Revision]) -> Revision | None:
    """Return the most certain one; ties by their texts."""
    return min(revisions, key=lambda one: (not one.is_explicit, not one.is_certain, one.was, one.now), default=None)


@lru_cache(maxsize=4096)
def split_claims(text: str) -> tuple[str, ...]:
    """Return the sentences of a text, each once."""
    return tuple(dict.fromkeys(sentence.text for sentence in extract_sentences(text)))


def find_claim(text: str, quote: str) -> str | None:
    """Return the sentence of a text that a quote is of, or is but for its end; None if it is of none, or of several."""
    wanted = normalize_text(quote)
    found = [claim for claim in split_claims(text) if wanted and wanted in normalize_text(claim)]
    return min(found, key=len, default=None)


@lru_cache(maxsize=20_000)
def revise_sentence(was: str, now: str) -> Revision | None:
    """Return the revision of the sentence ``was`` by the later sentence ``now``; None if it does not revise it."""
    language = _find_language(was, now)
    if language is not None:
        for one, other in _list_readings(was, now, language):
            before, after = Claim.of(one, language), Claim.of(other, language)
            revision = _find_revision(before, after)
            # Hardly any pair gets here, so that these are asked last.
            if revision and any(rule(before, after) for rule in _BESIDE):
                # Whoever uses what is gone needs another, and nobody does what is needless.
                is_told = uses_gone(before, after) or frees_from(before, after)
                return Revision(was, now, False, False) if is_told else None
            if revision and tells_narrower_case(before, after):
                return Revision(was, now, False, False)
            if revision:
                return replace(revision, was=was, now=now)
    return _find_translated(was, now)


def _list_readings(was: str, now: str, language: str) -> Iterator[tuple[str, str]]:
    """Yield two sentences as they are compared: as they are, and without why something changed, or was so.

    What one "may" do by both is no plan, but allowed or not.
    """
    spans = [find_permissions(text, language) for text in (was, now)]
    if all(spans):
        was, now = (_fill_in(text, found, _CAN) for text, found in zip((was, now), spans, strict=True))
    yield was, now
    plain = (drop_asides(was, language), drop_asides(now, language))
    if plain != (was, now) and all(tells_amount(Claim.of(text, language)) for text in plain):
        yield plain  # not "opens again at 14:00"
    short = drop_reason(now, language)
    if short != now:
        yield was, short
    if any(change.form == "ended" for text in (was, short) for change in find_changes(text, language)):
        # "Times out, because X" is over too, whatever ended it: "no longer times out: Y was done".
        former, present = (_drop_explanation(drop_reason(text, language), language) for text in (was, now))
        if (former, present) != (was, short):
            yield former, present


def _drop_explanation(sentence: str, language: str) -> str:
    """Return a sentence without a clause behind a colon or the like: "no longer leaks: the seal was replaced"."""
    head, *rest = _EXPLAINS.split(sentence, maxsplit=1)
    words = split_words(rest[0]) if rest else ()
    read = load_language(language)
    is_clause = read.passive_auxiliaries.intersection(words) or read.determiners.intersection(words[:1])
    return head if is_clause and len(words) >= _FEWEST_WORDS else sentence


def _fill_in(text: str, spans: Iterable[Span], word: str) -> str:
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]}{word}{text[end:]}"
    return text


def say_same(one: str, other: str) -> bool:
    """Return True if two sentences say the same in other words or in another order."""
    language = _find_language(one, other)
    if language is None:
        return False
    comparison = compare_sentences(Claim.of(one, language).reading, Claim.of(other, language).reading)
    return comparison is not None and comparison.relation == "agrees"


def follow_other_subjects(was: str, now: str, opening: str, other: str) -> bool:
    """Return True if two sentences without a name follow openings about two things: "the mailer was slow".

    Args:
        was, now: Sentences of two texts.
        opening, other: The sentences that open these.
    """
    if was == opening or now == other:
        return False
    language = _find_language(opening, other)
    if language is None or any(is_name(t) for text in (was, now) for t in Claim.of(text, language).tokens):
        return False
    return open_with_things(Claim.of(opening, language), Claim.of(other, language))


def follow_other_names(was: str, now: str, opening: str, other: str) -> bool:
    """Return True if "the column" of two sentences is that of two things, which the openings of their texts name.

    Each opening has names that the other text lacks, and tells an event, or has no name in common with the other.

    Args:
        was, now: Sentences of two texts, the first one behind its opening.
        opening, other: The sentences that open these.
    """
    language = _find_language(opening, other)
    if was == opening or language is None:
        return False
    before, after = Claim.of(opening, language), Claim.of(other, language)
    own, others = ({token.key for token in claim.tokens if is_name(token)} for claim in (before, after))
    told = [{token.key for token in Claim.of(text, language).tokens} for text in (was, now)]
    if not opens_with_article(Claim.of(was, language)) or not own - others - told[1] or not others - own - told[0]:
        return False
    return own.isdisjoint(others) or all(
        claim.is_event or find_past(claim.text) is not None for claim in (before, after)
    )


def _find_revision(before: Claim, after: Claim) -> Revision | None:
    """Return the revision of one claim by a later one, if both are about one thing; None if it does not revise it."""
    if after.is_plan:
        return None
    # Most pairs are refused by their words alone, before either sentence is read.
    are_states = may_be_states(before, after)
    if not after.changes and not are_states:
        return None
    if before.is_question or after.is_question or not before.tokens or not after.tokens:
        return None
    if comes_back(before, after) and not any(token not in _list_told(before) for token in before.tokens):
        return Revision(before.text, after.text, True)
    if ends_any(before, after):
        is_same = not leaves_subject(before, after)
        return Revision(before.text, after.text, is_same, is_same)
    if are_states and (found := _compare_states(before, after)):
        return found
    if after.changes and any(rule(before, after) for rule in _UNCERTAIN):
        return Revision(before.text, after.text, False, False)
    return None


def _list_told(claim: Claim) -> list[Token]:
    """Return the words of what a sentence says of changes."""
    return claim.inside(*(span for change in claim.changes for span in (change.cue, change.was, change.now)))


def _compare_states(before: Claim, after: Claim) -> Revision | None:
    """Return the revision of one state by another, without words of change."""
    if after.is_addition and not before.is_addition:
        return None
    comparison = compare_sentences(before.reading, after.reading)
    if comparison is None or comparison.relation not in ("replaces", "renames"):
        return None
    if any(claim.asks or claim.is_reported or not claim.is_statement for claim in (before, after)):
        return None
    if any(change.form == "contrast" for claim in (before, after) for change in claim.changes):
        return None
    if not have_same_words(before, after) or deny_other_clause(before, after) or _exchange_clauses(before, after):
        return None
    if not is_one_slot(before, after, comparison) or stand_in_opposite_places(before, after):
        return None
    if differ_in_order(before, after) and tells_step(before) and tells_step(after):
        return None  # two steps: "Ann gave it to Ben", "Ben gave it to Ann"
    if comparison.relation == "renames" and are_on_named_things(before, after):
        return None
    is_certain = comparison.relation == "replaces" and not differ_in_order(before, after)
    is_certain = is_certain and not tell_other_days(before, after)
    return Revision(before.text, after.text, False, is_certain)


def _exchange_clauses(before: Claim, after: Claim) -> bool:
    """Return True if only two clauses change places of which one denies: "(drinks) tea, not milk", "not milk, tea"."""
    start = next((at for at, (a, b) in enumerate(zip(before.text, after.text, strict=False)) if a != b), 0)
    one, other = ([*map(str.strip, _COMMAS.split(claim.text[start:].rstrip("。.!")))] for claim in (before, after))
    denied = [Claim.of(clause, before.language).is_denied for clause in one]
    return len(one) == 2 and other == one[::-1] and denied.count(True) == 1


def _find_translated(was: str, now: str) -> Revision | None:
    """Return the revision of a sentence by a later one in another language, by the former value that it names."""
    one, other = detect_language(was), detect_language(now)
    if one is None or other is None or one == other:
        return None
    before, after = Claim.of(was, one), Claim.of(now, other)
    if not after.changes or after.is_plan or not before.is_state or not names_former_value(before, after):
        return None
    return Revision(was, now, False, False)


def _find_language(was: str, now: str) -> str | None:
    """Return the language of two sentences, each of which may be too short to tell it; None if they are of two."""
    codes = {detect_language(was), detect_language(now)} - {None}
    if len(codes) == 1:
        return codes.pop()
    both = detect_language(f"{was}\n{now}")
    if codes or both:
        return both if both in codes or not codes else None
    return "en" if was.isascii() and now.isascii() else None
