"""Sentences of one group of units: what each is, how much of the group it stands for, and what the group is made of."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from typing import NamedTuple

import numpy as np

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.knowledge.disputes import read_sentence, tell_day, tell_later
from consolidation_pipeline.core.knowledge.lesson_sentences import (
    SENTENCE_END,
    TO_TRY,
    Lesson,
    Role,
    is_bug_report,
    is_undecided,
    judges_attempt,
    opens_with_condition,
    read_lesson,
)
from consolidation_pipeline.core.knowledge.pattern_sentences import (
    MAX_SENTENCES,
    Candidate,
    as_written,
    is_disputed,
    list_sentences,
    opposes,
    settle_disputes,
)
from consolidation_pipeline.core.knowledge.pattern_units import Unit
from consolidation_pipeline.core.knowledge.reported_events import are_of_others
from consolidation_pipeline.core.knowledge.same_claims import SameClaim
from consolidation_pipeline.core.knowledge.sentence_ranking import RankedSentence, SentenceRanking
from consolidation_pipeline.core.knowledge.weak_sentences import contests, names_remedy, names_wish_alone, read_fault
from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline.core.text.key_terms import extract_terms
from consolidation_pipeline.core.text.sentence_cues import is_command
from consolidation_pipeline.core.text.word_overlap import extract_content_words, shares_words

# A sentence of lower readability is a heading, a fragment or markup. It is never a practice or gotcha, and in the text
# only if there is nothing else.
_READABLE = 0.35
# Factors of the centrality of a sentence by its role, in the choice of the headline.
_ROLE_FACTORS: dict[Role, float] = {
    "rule": 1.6,
    "warning": 1.4,
    "fact": 1.0,
    "definition": 0.5,
    "report": 0.4,
    "subject": 0.1,
    "question": 0.1,
    "fragment": 0.05,
}
# Factor of a command: "Check the log" rather than "The log must be checked".
_COMMAND = 1.15
# Factor of what changed, or what units differ in: a reader must know it.
_DISPUTED = 1.3
# A fact that is newer than all other texts scores this much more, as facts change and instructions hardly do.
_NEWEST = 0.5
# Factor for each literal of a sentence that few other units have: it is about one case.
_SPECIFIC = 0.85
_MOST_SPECIFIC = 0.45
# Factor of a short rule after one with a condition, which may hold for both: "When x, do y. Always do z."
_SHORT_WORDS, _CONDITION_BEFORE = 10, 0.6
# Factor of a verdict that names no cause, and of one that does not say what is right.
_WISH, _UNMENDED = 0.5, 0.8
_LONG_CHARS, _LONG = 240, 0.8
# A unit supports a sentence if one of its own has this cosine with it.
_SUPPORTS = 0.3
# A unit is on the matter of a sentence if one of its own has this cosine with it. Of the units that say more than what
# they are about, this share must be on it, and in all this weight of them.
_ON_MATTER, _ON_MATTER_SHARE, _FEWEST_WEIGHT = 0.12, 0.6, 2.0
# In a group of so few units, two topics of two memories each share a word such as "lock": this cosine is needed, unless
# the sentence tells what several units say.
_FEW_UNITS, _ON_MATTER_OF_FEW = 5, 0.16
# Sentences that are searched for the opposite, and the share of units on a matter that may say it.
_MAX_COMPARED, _AGAINST = 24, 0.34
# Share of the attempts on a matter that contest a guess, from which it is not told.
_CONTESTED = 0.1
# Share of the units with more than a subject that must have an instruction, for the headline to be one.
_INSTRUCTING = 0.5

# Reports that share this part of the content words of the shorter one are of one kind.
_LIKE_WORDS = 0.5

# What is wrong, rather than what would be right.
_BLAMES = ignore_case(r"\b(?:is|are) causing\b|\b(?:incorrectly|wrongly)\b")
# Share of the units by weight that speaks for all, and of failed attempts that makes advice their guess.
_MOST, _ATTEMPTS = 0.5, 0.25


class LaterSentence(NamedTuple):
    """A sentence of a newer text on the matter of another one. ``is_revision``: that one is so no longer."""

    ranked: RankedSentence
    is_revision: bool


class PatternGroup:
    """One group of units with its sentences as candidates for the text of a pattern.

    Args:
        units: In the order of ``sort_units``.
        ranking: Their sentences.
        terms: Key terms of the group.

    ``has_verdicts``: most units judge an attempt; ``has_attempts``: some do.
    """

    def __init__(self, units: Sequence[Unit], ranking: SentenceRanking, terms: tuple[str, ...]) -> None:
        self.units = units
        self.ranking = ranking
        self.terms = terms
        self._vectors = ranking.vectors[[one.row for one in ranking.sentences]]
        self._places = {one.row: at for at, one in enumerate(ranking.sentences)}
        self._cosines: dict[int, list[float]] = {}
        self._saying: dict[int, set[int]] = {}
        self.sentences = list_sentences(ranking)
        self.texts = {at: "\n".join(found) for at, found in self.sentences.items()}
        self.language = detect_language("\n".join(self.texts.values()))
        self.weight = sum(units[at].weight for at in self.texts)
        clear = [one for one in ranking.sentences if one.sentence.readability >= _READABLE]
        settled = settle_disputes(clear or ranking.sentences, units, self.sentences)
        usable, self.overruled, self.outdated, self._told_with = settled
        if self.weigh_texts(at for at, text in self.texts.items() if judges_attempt(text)) >= _ATTEMPTS:
            # Guesses on failures differ by nature, so none of them is told with what the others say.
            usable = list(clear or ranking.sentences)[:MAX_SENTENCES]
        self.has_clear = bool(clear)
        # A literal lies inside one sentence, and those of sentences are read anyway.
        self.literals = Counter(
            literal for found in self.sentences.values() for literal in set[Literal]().union(*map(literals, found))
        )
        self.bug_reports = {at for at, text in self.texts.items() if is_bug_report(text)}
        self.stems = {term.stem for word in terms for term in extract_terms(word)}
        self.candidates = self._prefer_newer([self.read(one) for one in usable])
        self._candidates = {one.ranked.row: one for one in self.candidates}
        verdicts = (one.ranked.text for one in self.candidates if one.lesson.is_verdict)
        judged = {*verdicts}
        self.has_verdicts = self.weigh_texts(judged) >= _MOST
        judged |= {at for at, text in self.texts.items() if judges_attempt(text)}
        self.has_attempts = self.weigh_texts(judged) >= _ATTEMPTS

    def tell(self, one: Candidate) -> str:
        """Return a sentence as the text tells it; what attempts conclude from a failure is not known to work."""
        if one.lesson.text.startswith(TO_TRY):
            return one.lesson.text
        is_guess = self.has_attempts and one.lesson.role in ("rule", "warning") and not one.lesson.is_verdict
        is_guess = is_guess and _BLAMES.search(one.lesson.text) is None
        return f"{TO_TRY}{one.lesson.text}" if is_guess else one.lesson.text

    def tell_with(self, one: Candidate, later: LaterSentence | None) -> str:
        """Return a sentence as the text tells it, behind what took its place by a newer text.

        A fact that none of the newest units says has the last day of those that do: it may have changed since.
        """
        day = self.units[later.ranked.text].day if later else self._find_last_day(one)
        if day is None:
            return self.tell(one)
        if later is None:
            return tell_day(self.tell(one), day, self.language)
        # What a sentence tells of others stands in brackets: it is not quoted in others.
        text, told = self.tell(as_written(one)), self.read(later.ranked).lesson.text
        if later.is_revision:
            return tell_later(text, told, day, self.language)
        return tell_day(text, max(self._list_days(one)), self.language)

    def tell_news(self, one: Candidate, later: LaterSentence) -> tuple[str, bool]:
        """Return what a newer text says beside a sentence, with its day, and True if it tells all of that sentence."""
        text, day = self.read(later.ranked).lesson.text, self.units[later.ranked.text].day
        is_all = self._read_claim(one).is_told_in(text)
        newest = max((unit.day for unit in self.units if unit.day), default=day)
        return tell_day(text, day, self.language) if day and not (is_all and day == newest) else text, is_all

    def measure_support(self, candidate: Candidate) -> float:
        """Return the share of the units, by weight, that have a sentence like this one."""
        return self.weigh_texts(self.list_supporters(candidate))

    def list_supporters(self, candidate: Candidate) -> set[int]:
        """Return the positions of the texts that have a sentence like this one."""
        return {other.text for other, cosine in self.compare(candidate) if cosine >= _SUPPORTS}

    def stands_for_most(self, one: Candidate) -> bool:
        """Return True if most units are on the matter of a sentence, and few of them say the opposite."""
        cosines = self.compare(one)
        is_strict = len(self.texts) <= _FEW_UNITS and not is_disputed(one.ranked)
        least = _ON_MATTER_OF_FEW if is_strict else _ON_MATTER
        near = {other.text for other, cosine in cosines if cosine >= least}
        weight = sum(self.units[at].weight for at in near)
        speaking = [at for at, found in self.sentences.items() if len(found) > 1 or at in near]
        if weight < _ON_MATTER_SHARE * sum(self.units[at].weight for at in speaking) or weight < _FEWEST_WEIGHT:
            return False
        return sum(self.units[at].weight for at in self._list_opponents(one)) < _AGAINST * weight

    def list_saying(self, one: Candidate) -> set[int]:
        """Return the positions of the texts that say a sentence, in its words or, if it tells them too, in theirs.

        Unlike the support, this does not depend on the other groups: it is told, and a text stays the same without
        cause.
        """
        told = self._told_with.get(one.ranked.row)
        return self.list_saying_alone(one) | (told.holding if told else frozenset())

    def list_telling(self, one: Candidate) -> set[int]:
        """Return the positions of the texts that say a sentence, or what it tells of others."""
        told = self._told_with.get(one.ranked.row)
        return self.list_saying(one) | (told.units if told else frozenset())

    def list_saying_alone(self, one: Candidate) -> set[int]:
        """Return the positions of the texts that say a sentence without what it tells of others."""
        row = one.ranked.row
        if row not in self._saying:
            claim = self._read_claim(one)
            saying = {at for at, sentences in self.sentences.items() if claim.is_said_in(sentences)}
            self._saying[row] = saying | {one.ranked.text}
        return self._saying[row]

    def find_later(self, one: Candidate) -> LaterSentence | None:
        """Return what a newer text says instead of a sentence, or tells of a change; None if there is no such text."""
        days = self._list_days(one)
        if not days or self.has_attempts:
            return None
        told = self._told_with.get(one.ranked.row)
        near = {other.text for other, cosine in self.compare(one) if cosine >= _ON_MATTER}
        newer = {
            at: day
            for at in near
            if (day := self.units[at].day) and day > max(days) and not (told and at in told.units)
        }
        claim, known = self._read_claim(one), SameClaim(self.texts[one.ranked.text], self.language)
        ordered = sorted(newer, key=lambda at: (-newer[at].toordinal(), at))
        # What tells what was before is itself the news of its matter.
        is_news = told is not None and told.units != told.holding
        for is_revision, find in ((True, claim.find_revision), (False, claim.find_news)):
            for at in ordered if is_revision or not is_news else ():
                text = find(self.sentences[at])
                if text and (is_revision or not known.repeats(text)):
                    found = (other for other in self.ranking.sentences if other.text == at)
                    return LaterSentence(next(other for other in found if other.sentence.text == text), is_revision)
        return None

    def _list_days(self, one: Candidate) -> list[date]:
        """Return the days of the units that say a sentence itself; none if one of them has no day."""
        days = [self.units[at].day for at in self.list_saying_alone(one)]
        known = [day for day in days if day is not None]
        return known if len(known) == len(days) else []

    def list_others(self, one: Candidate) -> set[int]:
        """Return the positions of the texts that have a sentence like this one, which says it of another thing.

        What became of them, by this sentence, is of the same thing.
        """
        saying, claim = self.list_telling(one), self._read_claim(one)
        like = [other for other, cosine in self.compare(one) if cosine >= _SUPPORTS and other.text not in saying]
        others = {other.text for other in like if claim.is_said_of_other(other.sentence.text)}
        return others - {other.text for other in like if other.text in others and self._is_older(other, one)}

    def _is_older(self, one: RankedSentence, newer: Candidate) -> bool:
        """Return True if a newer sentence may tell what became of an older one."""
        days = self.units[one.text].day, self.units[newer.ranked.text].day
        if days[0] is None or days[1] is None or days[0] >= days[1]:
            return False
        return self._read_claim(newer).tells_outcome_of(one.sentence.line)

    def is_of_few(self, one: Candidate) -> bool:
        """Return True if as many units have a sentence like this one of other things as have it of the same thing."""
        if self.has_attempts or self.language is None:
            return False
        others = self.list_others(one)
        return self.weigh_texts(others) >= self.weigh_texts(self.list_supporters(one) - others)

    def _find_last_day(self, one: Candidate) -> date | None:
        """Return the last day on which a fact was said, if others are newer and all have a day."""
        days = {at: day for at in self.texts if (day := self.units[at].day)}
        if one.lesson.role != "fact" or is_disputed(one.ranked) or self.has_attempts or len(days) < len(self.texts):
            return None
        last = max(days[at] for at in self.list_saying(one))
        return last if last < max(days.values()) else None

    def _read_claim(self, one: Candidate) -> SameClaim:
        return SameClaim(one.ranked.sentence.line, self.language)

    def _list_opponents(self, one: Candidate) -> set[int]:
        """Return the positions of the texts that say the opposite of a sentence."""
        compared = sorted((other for other in self.compare(one) if other[1] >= _SUPPORTS), key=lambda pair: -pair[1])
        told = self._told_with.get(one.ranked.row)
        known = {one.ranked.text} | (told.units if told else frozenset())
        return {
            other.text
            for other, _ in compared[:_MAX_COMPARED]
            if other.text not in known and self._is_against(one, self._read_once(other))
        }

    def _read_once(self, ranked: RankedSentence) -> Candidate:
        """Return a sentence as ``read`` does; that of a candidate may tell what others say instead."""
        known = self._candidates.get(ranked.row)
        return known if known is not None and known.ranked is ranked else self.read(ranked)

    def is_contested(self, one: Candidate) -> bool:
        """Return True if other attempts want what a sentence calls wrong, or call wrong what it wants.

        They guess: which of them is right is not known.
        """
        if not self.has_attempts:
            return False
        text = one.ranked.sentence.text
        near = self.list_supporters(one)
        against = {
            other.text
            for other in self.ranking.sentences
            if other.text in near and other.text != one.ranked.text and contests(text, other.sentence.text)
        }
        weight = sum(self.units[at].weight for at in near)
        return sum(self.units[at].weight for at in against) >= _CONTESTED * weight > 0

    def measure_cosine(self, one: Candidate, other: Candidate) -> float:
        return self._find_cosines(other.ranked.row)[self._places[one.ranked.row]]

    def weigh_texts(self, texts: Iterable[int]) -> float:
        """Return the share of texts by weight."""
        return sum(self.units[at].weight for at in set(texts)) / self.weight

    def measure_part(self, texts: Iterable[int]) -> float:
        """Return the share of the units, by weight, that texts are. Nothing may be left of the text of a unit."""
        return sum(self.units[at].weight for at in set(texts)) / sum(unit.weight for unit in self.units)

    def measure_asking(self) -> float:
        """Return the share of units that ask something."""
        return self.weigh_texts(one.ranked.text for one in self.candidates if one.lesson.role == "question")

    def is_one_case(self, one: Candidate) -> bool:
        """Return True for a report of one occasion, or of one thing, where another unit reports the like of another."""
        if one.lesson.role != "report" or self.has_attempts:
            return False
        text = one.ranked.sentence.line
        words, reading = extract_content_words(text), read_sentence(text, self.language)
        others = (text for at, found in self.sentences.items() if at != one.ranked.text for text in found)
        like = (text for text in others if shares_words(words, extract_content_words(text), _LIKE_WORDS))
        return any(are_of_others(reading, read_sentence(text, self.language)) for text in like)

    def has_instructions(self) -> bool:
        """Return True if enough of the units that have more than a subject instruct."""
        speaking = {at for at, found in self.sentences.items() if len(found) > 1}
        speaking |= {one.ranked.text for one in self.candidates if one.lesson.role not in ("subject", "fragment")}
        instructing = {one.ranked.text for one in self.candidates if one.lesson.role in ("rule", "warning")}
        total = sum(self.units[at].weight for at in speaking)
        return sum(self.units[at].weight for at in instructing) >= _INSTRUCTING * total

    def say_something(self) -> bool:
        """Return True if half of the units are more than a title or the name of a change."""
        silent: tuple[Role, ...] = ("subject", "fragment")
        return self.weigh_texts(one.ranked.text for one in self.candidates if one.lesson.role not in silent) >= _MOST

    def is_on_topic(self, text: str) -> bool:
        return not self.stems or any(term.stem in self.stems for term in extract_terms(text))

    def list_faults(self) -> list[tuple[str, ...]]:
        """Return what the units call wrong."""
        return sorted({fault for one in self.candidates if (fault := read_fault(one.ranked.sentence.text))})

    def choose(
        self, candidates: Sequence[Candidate], *, most: int, max_chars: int, first: Sequence[Candidate] = ()
    ) -> list[Candidate]:
        """Return what ``SentenceRanking.choose`` does, the ``first`` before the others."""
        by_row = {one.ranked.row: one for one in candidates}
        top = max((one.score for one in candidates), default=0.0)
        before = {one.ranked.row: top * (1 + 0.01 * (len(first) - at)) for at, one in enumerate(first)}
        scored = (
            replace(
                one.ranked,
                sentence=replace(one.ranked.sentence, text=one.lesson.text),
                score=before.get(one.ranked.row, one.score),
            )
            for one in candidates
        )
        return [by_row[one.row] for one in self.ranking.choose(scored, most=most, max_chars=max_chars)]

    def read(self, ranked: RankedSentence) -> Candidate:
        sentences = self.sentences[ranked.text]
        is_opening = len(sentences) > 1 and ranked.sentence.text == sentences[0]
        lesson = read_lesson(ranked.sentence.text, is_opening=is_opening)
        # What units dispute is of all of them, whatever its values; "was 3" makes it no report.
        disputed = is_disputed(ranked)
        if disputed:
            role = read_lesson(ranked.sentence.line).role
            lesson = replace(lesson, role=role if role in ("rule", "warning", "question") else "fact")
        if lesson.role == "fact" and len(sentences) > 1 and not SENTENCE_END.search(lesson.text):
            lesson = replace(lesson, role="subject")
        if lesson.role in ("rule", "warning") and self._is_opinion(ranked):
            lesson = Lesson(ranked.sentence.text, "report", lesson.is_reason)
        if lesson.role in ("rule", "warning", "fact") and ranked.text in self.bug_reports:
            lesson = replace(lesson, role="fragment")
        factor = _ROLE_FACTORS[lesson.role]
        found = frozenset() if disputed else literals(lesson.text)
        rare = sum(2 * self.literals[literal] < len(self.texts) for literal in found)
        factor *= _DISPUTED if disputed else 1.0
        factor *= _COMMAND if is_command(lesson.text) else 1.0
        factor *= max(_MOST_SPECIFIC, _SPECIFIC**rare)
        factor *= _CONDITION_BEFORE if lesson.role == "rule" and self._follows_condition(ranked) else 1.0
        factor *= _WISH if names_wish_alone(lesson.text) else 1.0
        factor *= _UNMENDED if lesson.is_verdict and not names_remedy(lesson.text) else 1.0
        # What a sentence tells of others does not count.
        factor *= _LONG if len(ranked.sentence.line if disputed else lesson.text) > _LONG_CHARS else 1.0
        return Candidate(ranked, lesson, ranked.score * factor)

    def _is_opinion(self, ranked: RankedSentence) -> bool:
        """Return True if a sentence, or the one behind it, says that it is what someone thinks or proposes."""
        told = ranked.sentence.line
        is_believed = any(cue.category == "stance" for cue in read_sentence(told, self.language).cues)
        return is_believed or is_undecided(told) or bool(self.find_reservation(ranked))

    def find_reservation(self, ranked: RankedSentence) -> str:
        """Return the sentence behind another one that calls it an opinion or undecided; empty if it does not."""
        told, sentences = ranked.sentence.line, self.sentences[ranked.text]
        behind = sentences[sentences.index(told) + 1 :][:1] if told in sentences else []
        return behind[0] if behind and is_undecided(behind[0]) else ""

    def _prefer_newer(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates with a higher score for newer facts, if the best of them is a fact."""
        best = max(candidates, key=lambda one: one.score, default=None)
        if best is None or best.lesson.role != "fact":
            return [*candidates]
        days = sorted(day for at in self.texts if (day := self.units[at].day))

        def measure_newness(one: Candidate) -> float:
            day = self.units[one.ranked.text].day
            return bisect_left(days, day) / max(1, len(self.texts) - 1) if day else 0.0

        return [
            replace(one, score=one.score * (1 + _NEWEST * measure_newness(one))) if one.lesson.role == "fact" else one
            for one in candidates
        ]

    def _follows_condition(self, ranked: RankedSentence) -> bool:
        """Return True for a short rule without a condition, after a sentence that has one."""
        sentences = self.sentences[ranked.text]
        at = sentences.index(ranked.sentence.text) if ranked.sentence.text in sentences else 0
        is_short = len(ranked.sentence.text.split()) <= _SHORT_WORDS
        return at > 0 and is_short and opens_with_condition(sentences[at - 1])

    def _is_against(self, one: Candidate, other: Candidate) -> bool:
        # What is wrong and what is right differ in a negation.
        return one.lesson.is_verdict == other.lesson.is_verdict and opposes(one, other)

    def compare(self, candidate: Candidate) -> list[tuple[RankedSentence, float]]:
        """Return the sentences of the group with their cosines with one of them."""
        return list(zip(self.ranking.sentences, self._find_cosines(candidate.ranked.row), strict=True))

    def _find_cosines(self, row: int) -> list[float]:
        """Return the cosines of a sentence with those of ``ranking``."""
        if row not in self._cosines:
            vector = np.zeros(self._vectors.shape[1])
            own = self._vectors[[self._places[row]]]
            vector[own.indices] = own.data
            self._cosines[row] = (self._vectors @ vector).tolist()
        return self._cosines[row]
