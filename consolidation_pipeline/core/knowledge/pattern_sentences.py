"""Sentences of the units of a group as candidates for the text of a pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from textwrap import shorten
from typing import NamedTuple

from consolidation_pipeline.core.differences.explanation import PROOFS, Difference, explain_readings, may_merge_readings
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.knowledge.compared_sentences import ask_once
from consolidation_pipeline.core.knowledge.disputes import (
    Statement,
    find_disputes,
    list_before,
    list_overruled,
    list_things,
)
from consolidation_pipeline.core.knowledge.lesson_sentences import Lesson, read_lesson
from consolidation_pipeline.core.knowledge.pattern_units import Evidence, Unit
from consolidation_pipeline.core.knowledge.reported_events import are_events
from consolidation_pipeline.core.knowledge.sentence_ranking import RankedSentence, SentenceRanking
from consolidation_pipeline.core.knowledge.statement_markup import strip_commit_prefix, strip_markup
from consolidation_pipeline.core.knowledge.weak_sentences import (
    contests,
    instructs_fault,
    negates,
    read_fault,
    reverses,
)
from consolidation_pipeline.core.text.word_overlap import extract_content_words, shares_words

_EXAMPLE_CHARS = 160
# Sentences that share this part of the content words of the shorter one are on one matter.
_SAME_MATTER = 0.6
_CUT = re.compile(r"(.+\S)\s+\S*(?:\.\.\.|…)$", re.DOTALL)
# Sentences of a group, the best first, that are searched for disputes and may be used. It bounds the time.
MAX_SENTENCES = 256


def list_sentences(ranking: SentenceRanking) -> dict[int, list[str]]:
    """Return the sentences of each text in their order, by the position of the text."""
    texts: dict[int, list[str]] = {}
    for one in sorted(ranking.sentences, key=lambda one: one.row):
        texts.setdefault(one.text, []).append(one.sentence.text)
    return texts


@dataclass(frozen=True)
class Candidate:
    """A sentence as a lesson, with its ``score`` as a headline."""

    ranked: RankedSentence
    lesson: Lesson
    score: float


def is_disputed(ranked: RankedSentence) -> bool:
    """Return True if a sentence tells what other units say instead."""
    return ranked.sentence.text != ranked.sentence.line


def as_written(one: Candidate) -> Candidate:
    """Return a sentence without what it tells of other units."""
    text = one.ranked.sentence.line
    return replace(one, lesson=replace(one.lesson, text=text)) if is_disputed(one.ranked) else one


def shorten_example(text: str) -> str:
    """Return an example without the prefix of a commit, cut at the end of a word."""
    bare = strip_markup(strip_commit_prefix(text))
    if cut := _CUT.match(bare):
        # The source was cut, perhaps inside a word.
        bare = f"{cut[1]} …"
    return shorten(bare.rstrip("."), _EXAMPLE_CHARS, placeholder=" …")


def repeats(one: Candidate, other: Candidate) -> bool:
    """Return True if one sentence says no more than the other, in words of its own."""
    return _ask(_may_merge, one.lesson.text, other.lesson.text)


def opposes(one: Candidate, other: Candidate) -> bool:
    """Return True if two sentences contradict each other, or one tells to do what the other calls wrong."""
    texts = one.lesson.text, other.lesson.text
    if any(instructs_fault(text, read_fault(verdict)) for text, verdict in (texts, texts[::-1])):
        return True
    if reverses(*texts):
        return True
    words, others = map(extract_content_words, texts)
    return shares_words(words, others, _SAME_MATTER) and _ask(_contradict, *texts)


def excludes(one: Candidate, other: Candidate) -> bool:
    """Return True if only one of two instructions can be followed: "filter out old rows", "do not filter out rows".

    They want the reverse of each other, differ in a value or in code, or one denies words that the other has.
    """
    texts = sorted((one.lesson.text, other.lesson.text))
    return reverses(*texts) or contests(*texts) or _ask(_exclude, *texts)


def _ask(question: Callable[[str, str], bool], *texts: str) -> bool:
    """Return the answer to a question that is the same for both orders of two texts."""
    one, other = sorted(texts)
    return ask_once(question.__name__, "", one, other, find=partial(question, one, other))


@lru_cache(maxsize=1 << 10)
def _exclude(one: str, other: str) -> bool:
    differences = explain_readings(read(one), read(other)).differences
    return any(found.kind in ("code", "value") or _denies_said(found, one, other) for found in differences)


def _denies_said(found: Difference, one: str, other: str) -> bool:
    """Return True for a negation in one text of words that the other one has without it."""
    if found.kind != "polarity":
        return False
    denied, affirmed = extract_content_words(found.a or found.b), other if found.a else one
    return bool(denied) and denied <= extract_content_words(affirmed) and not negates(affirmed)


# Both are asked of the same pairs again, in either order.
@lru_cache(maxsize=1 << 12)
def _may_merge(one: str, other: str) -> bool:
    return may_merge_readings(read(one), read(other))


@lru_cache(maxsize=1 << 12)
def _contradict(one: str, other: str) -> bool:
    first, second = read(one), read(other)
    differences = explain_readings(first, second, is_brief=True).differences
    return not are_events(first, second) and any(
        PROOFS[found.kind] == "contradicts" and (found.kind != "polarity" or _denies_said(found, one, other))
        for found in differences
    )


class ToldUnits(NamedTuple):
    """Units whose sentences another one tells. ``holding``: those that it does not contradict."""

    units: frozenset[int]
    holding: frozenset[int]


class SettledSentences(NamedTuple):
    """Sentences of which one tells what is disputed.

    ``overruled``: the overruled units; ``outdated``: those with a lasting claim that a newer one replaced.
    ``told_with``: the units whose sentences one of these sentences tells too, by its row; those that it does not
    contradict hold as well.
    """

    sentences: list[RankedSentence]
    overruled: frozenset[int]
    outdated: frozenset[int]
    told_with: dict[int, ToldUnits]


def settle_disputes(
    ranked: Sequence[RankedSentence], units: Sequence[Unit], sentences: Mapping[int, Sequence[str]]
) -> SettledSentences:
    """Return the sentences with one in place of those that dispute each other.

    Args:
        ranked: Some sentences of the units, the best first.
        units: All units.
        sentences: All sentences of each unit that has any, in their order.
    """
    ranked = ranked[:MAX_SENTENCES]
    places = {
        (at, text): place
        for at, found in sentences.items()
        for text, *place in zip(*map(reversed, (found, list_things(found), list_before(found))), strict=True)
    }
    statements = [
        Statement(one.sentence.text, one.text, units[one.text].day, *places[one.text, one.sentence.text])
        for one in ranked
    ]
    disputes = find_disputes(statements)
    told = {
        # In its new words, with the score of the best: it stands for all of them.
        dispute.rule: replace(
            ranked[dispute.rule],
            sentence=replace(ranked[dispute.rule].sentence, text=dispute.told),
            score=ranked[min(dispute.rule, *dispute.others)].score,
        )
        for dispute in disputes
    }
    left_out = {at for dispute in disputes for at in dispute.others}
    usable = [told.get(at, one) for at, one in enumerate(ranked) if at not in left_out]
    told_with = {}
    for one in disputes:
        units_told = frozenset(statements[at].unit for at in one.others)
        told_with[ranked[one.rule].row] = ToldUnits(units_told, units_told - {*list_overruled(statements, [one])})
    decided = {at for one in disputes if one.is_decided for at in one.overruled}
    outdated = frozenset(statements[at].unit for at in decided if read_lesson(statements[at].text).role != "report")
    return SettledSentences(usable, frozenset(list_overruled(statements, disputes)), outdated, told_with)


def list_evidence(ranking: SentenceRanking, used: Sequence[RankedSentence]) -> tuple[Evidence, ...]:
    used_texts = {one.text for one in used}
    others = {one.text: one for one in reversed(ranking.sentences) if one.text not in used_texts}
    found = {Evidence(one.text + 1, one.sentence.quote) for one in [*used, *others.values()]}
    return tuple(sorted(found, key=lambda evidence: (evidence.unit, evidence.quote)))
