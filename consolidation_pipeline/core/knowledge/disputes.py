"""Disputes: sentences of a group that claim different things of one matter, and the one text that tells them all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.differences.reading import Reading
from consolidation_pipeline.core.knowledge.compared_sentences import compare_once
from consolidation_pipeline.core.knowledge.differing_words import quote_sentence
from consolidation_pipeline.core.knowledge.past_months import are_of_months_in_turn
from consolidation_pipeline.core.knowledge.rival_claims import (
    AGREES,
    Comparison,
    Relation,
    compare_sentences,
    takes_over,
)
from consolidation_pipeline.core.knowledge.supersession import revise_sentence, tells_past_month
from consolidation_pipeline.core.knowledge.weak_sentences import refers_elsewhere
from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentences import extract_sentences
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Sentences are compared if they share this part of the content words of the longer one.
_SHARED_WORDS = 0.6
# Matters that a sentence is compared with, the most alike first. It bounds the time.
_MAX_COMPARED = 2
# Most claims of a kind that are told; the newest come first.
_MAX_TOLD = 4
# Literals that name a thing.
_NAMING_KINDS = frozenset(("identifier", "path", "url"))


@dataclass(frozen=True)
class Statement:
    """A sentence of a unit.

    ``day``: on which the unit was learned; None if it does not matter or is not known. ``things``: what the sentences
    before it in the unit name. ``before``: the sentence before it, if it refers to that one: "It took 12 minutes".
    """

    text: str
    unit: int
    day: date | None = None
    things: frozenset[str] = frozenset()
    before: str = ""


@dataclass(frozen=True)
class Dispute:
    """Statements on one matter, by position.

    ``told``: the text of the ``rule`` with what the ``others`` claim. ``overruled``: the others that contradict the
    newest claim on the same thing. ``is_decided``: the rule is newer than those that contradict it.
    """

    rule: int
    told: str
    others: tuple[int, ...]
    overruled: tuple[int, ...]
    is_decided: bool


class _Phrases(NamedTuple):
    """Words of a language that tell rival claims. The day of a memory is that of its note, not that of the fact."""

    noted: str
    dated: str
    contested: str
    also: str
    was: str
    as_of: str


_PHRASES = {
    "en": _Phrases("noted {}; was {}", "{}; before: {}", "others say {}", "also {}", "{}, was {}", "as of {}"),
    "de": _Phrases(
        "notiert {}; vorher {}", "{}; vorher: {}", "andere sagen {}", "auch {}", "{}, vorher {}", "Stand {}"
    ),
    "es": _Phrases("anotado {}; antes {}", "{}; antes: {}", "otros dicen {}", "también {}", "{}, antes {}", "a {}"),
    "fr": _Phrases("noté {} ; avant {}", "{} ; avant : {}", "d'autres disent {}", "aussi {}", "{}, avant {}", "au {}"),
    "zh": _Phrases("{} 记录；此前 {}", "{}；此前：{}", "另有说法：{}", "另有 {}", "{}，此前 {}", "截至 {}"),
    "ja": _Phrases("{} 記録；以前は {}", "{}；以前：{}", "別の記述：{}", "ほかに {}", "{}、以前は {}", "{} 時点"),
}


@dataclass(frozen=True)
class _Sentence:
    """A distinct sentence, the positions of its statements, and how it relates to the first one on its matter."""

    text: str
    positions: Sequence[int]
    comparison: Comparison


def list_statements(texts: Sequence[str], days: Sequence[date | None]) -> list[Statement]:
    """Return the sentences of the texts of units, with the day of each unit."""
    statements = []
    for number, (text, day) in enumerate(zip(texts, days, strict=True)):
        sentences = [sentence.text for sentence in extract_sentences(text)]
        places = zip(sentences, list_things(sentences), list_before(sentences), strict=True)
        statements += [Statement(text, number, day, things, before) for text, things, before in places]
    return statements


def list_before(sentences: Sequence[str]) -> list[str]:
    """Return the sentence before each one of a text that refers to it, and nothing before the others."""
    pairs = zip(["", *sentences], sentences, strict=False)
    return [before if refers_elsewhere(text) else "" for before, text in pairs]


def list_things(sentences: Sequence[str]) -> list[frozenset[str]]:
    """Return what the sentences before each one of a text name: identifiers, paths and addresses."""
    named = (
        frozenset(literal.value for literal in literals(text) if literal.kind in _NAMING_KINDS) for text in sentences
    )
    return [*accumulate(named, lambda known, new: known | new, initial=frozenset[str]())][: len(sentences)]


def list_overruled(statements: Sequence[Statement], disputes: Iterable[Dispute]) -> list[int]:
    """Return the units with an overruled statement, ascending."""
    return sorted({statements[at].unit for dispute in disputes for at in dispute.overruled})


@lru_cache(maxsize=4096)
def read_sentence(text: str, language: str | None) -> Reading:
    """Read a sentence. If it has too few words to tell its language, it is in English where all its texts are."""
    reading = read(text)
    # A text of an unknown language is read with the word lists of English.
    return replace(reading, language="en") if reading.language is None and language == "en" else reading


def find_disputes(statements: Sequence[Statement]) -> list[Dispute]:
    """Return the disputes among statements.

    Args:
        statements: The best first. Of claims of the same day, or without one, the best is the rule.
    """
    language = detect_language("\n".join(dict.fromkeys(one.text for one in statements)))
    matters = _group_matters(statements, language)
    return [_settle(found, statements, language) for found in matters if any(one.comparison.other for one in found)]


def contradicts_itself(text: str) -> bool:
    """Return True if two sentences of ``text`` claim different things of one matter.

    An example: "The limit of this queue is 5. The limit of that queue is 8."
    """
    return bool(find_disputes(list_statements([text], [None])))


def say_other_things(one: str, other: str) -> bool:
    """Return True if two texts claim different things of one matter."""
    statements = list_statements([one, other], [None, None])
    units = ({statements[at].unit for at in (found.rule, *found.others)} for found in find_disputes(statements))
    return any(len(told) > 1 for told in units)


def _group_matters(statements: Sequence[Statement], language: str | None) -> list[list[_Sentence]]:
    """Group the sentences that agree with, or dispute, the first one of their group. ``language``: of all."""
    forms = defaultdict[tuple[str, str], list[int]](list)
    for at, statement in enumerate(statements):
        forms[normalize_text(statement.text), normalize_text(statement.before)].append(at)
    matters: list[list[_Sentence]] = []
    words_of: list[frozenset[str]] = []
    matters_with = defaultdict[str, list[int]](list)
    things_of: list[frozenset[str]] = []
    for positions in forms.values():
        text, before = statements[positions[0]].text, statements[positions[0]].before
        things = frozenset[str]().union(*(statements[at].things for at in positions))
        words = extract_content_words(text)
        shared = Counter(chain.from_iterable(matters_with.get(word, ()) for word in words))
        shares = ((-count / max(len(words), len(words_of[number])), number) for number, count in shared.items())
        for _, number in sorted(one for one in shares if -one[0] >= _SHARED_WORDS)[:_MAX_COMPARED]:
            first = statements[matters[number][0].positions[0]]
            comparison = _compare(first.text, text, language)
            # "Pod of `mailer` ran out. Raised the limit to 2 GB." is of the pod that the sentence before names.
            is_other = comparison and comparison != AGREES and _are_apart(things, things_of[number])
            if comparison and comparison != AGREES and not _follow_same(first.before, before, language):
                continue
            if comparison and comparison.other:
                sides = ((one, _find_last_day(one, statements)) for one in (matters[number][0].positions, positions))
                told = [(statements[at[0]].text, day) for at, day in sides]
                comparison = _tell_changed(_keep_past_month(comparison, told, language), told, language)
            if comparison and not is_other:
                matters[number].append(_Sentence(text, positions, comparison))
                break
        else:
            for word in words:
                matters_with[word].append(len(matters))
            matters.append([_Sentence(text, positions, AGREES)])
            words_of.append(words)
            things_of.append(things)
    return matters


def _compare(first: str, other: str, language: str | None) -> Comparison | None:
    """Return what ``compare_sentences`` does for two texts; None if they are of different matters."""

    def read_and_compare() -> Comparison | None:
        found = compare_sentences(read_sentence(first, language), read_sentence(other, language))
        return None if found and found.relation == "apart" else found

    return compare_once("claims", first, other, language, read_and_compare, AGREES)


def _are_apart(things: frozenset[str], others: frozenset[str]) -> bool:
    """Return True if the sentences before two others name different things."""
    return bool(things - others and others - things)


def _follow_same(before: str, other: str, language: str | None) -> bool:
    """Return True if the sentences that two others refer to say the same, or there are none."""
    if normalize_text(before) == normalize_text(other):
        return True
    return bool(before and other) and _compare(before, other, language) == AGREES


def _keep_past_month(
    comparison: Comparison, told: Sequence[tuple[str, date | None]], language: str | None
) -> Comparison:
    """Return a comparison as one of another thing, if the newer of two sentences does not replace what was in a month.

    Args:
        comparison: Of two sentences.
        told: These sentences in its order, with their days.
        language: Of all sentences.
    """
    (first, day), (other, other_day) = told
    if comparison.relation == "elsewhere" or day is None or other_day is None:
        return comparison
    readings = read_sentence(first, language), read_sentence(other, language)
    is_past = are_of_months_in_turn(readings[0], day, readings[1], other_day)
    return replace(comparison, relation="elsewhere", thing=comparison.claim, claim="") if is_past else comparison


def _tell_changed(comparison: Comparison, told: Sequence[tuple[str, date | None]], language: str | None) -> Comparison:
    """Return a comparison as one of the same thing, if the newer of two sentences tells what became of the older one.

    Args:
        comparison: Of two sentences; one of another relation than ``elsewhere`` stays.
        told: These sentences in its order, with their days.
        language: Of all sentences.
    """
    if comparison.relation != "elsewhere":
        return comparison
    days = [day for _, day in told if day is not None]
    if len({*days}) < len(told):
        return comparison
    older, newer = (text for text, _ in sorted(told, key=lambda one: one[1] or date.min))
    claim = normalize_text(told[1][0])
    if takes_over(read_sentence(older, language), read_sentence(newer, language)):
        relation: Relation = "replaces" if comparison.claim else "renames"
        return replace(comparison, relation=relation, thing="", claim=claim)
    # Without a claim, the sentences are of other cases or things.
    if not comparison.claim or revise_sentence(older, newer) is None:
        return comparison
    return Comparison("renames", "", claim, *(quote_sentence(text) for text, _ in told))


def _find_last_day(positions: Iterable[int], statements: Sequence[Statement]) -> date | None:
    """Return the last day of statements; None if some have none."""
    days = [statements[at].day for at in positions]
    known = [day for day in days if day is not None]
    return max(known) if len(known) == len(days) else None


class _Claim:
    """The sentences of a matter that claim the same of the same thing."""

    def __init__(self, sentences: Sequence[_Sentence], statements: Sequence[Statement]) -> None:
        self.positions = sorted(at for sentence in sentences for at in sentence.positions)
        self.days = [day for at in self.positions if (day := statements[at].day) is not None]
        self.last_day = _find_last_day(self.positions, statements)
        self.text = statements[self.positions[0]].text
        # The first sentence has the first position, and is the one that is told.
        self.comparison = next((one.comparison for one in sentences if one.comparison.other), AGREES)


def _settle(sentences: Sequence[_Sentence], statements: Sequence[Statement], language: str | None) -> Dispute:
    """Choose the newest claim on the thing that the first sentence speaks of, and tell the others with it."""
    grouped = defaultdict[tuple[str, str], list[_Sentence]](list)
    for sentence in sentences:
        grouped[sentence.comparison.thing, sentence.comparison.claim].append(sentence)
    things = defaultdict[str, list[_Claim]](list)
    for (thing, _), found in grouped.items():
        things[thing].append(_Claim(found, statements))
    for claims in things.values():
        _sort_claims(claims)
    rule, *overruled = things.pop("")
    elsewhere = sorted(things.values(), key=lambda claims: (-_to_number(claims[0]), claims[0].positions))
    is_decided = _is_newer(rule, overruled)
    beaten = [*overruled, *(claim for _, *older in elsewhere for claim in older)]
    others = [*overruled, *(claim for claims in elsewhere for claim in claims)]
    current = [rule, *(claims[0] for claims in elsewhere)]
    outdated = [claims for claims in elsewhere if any(_is_outdated(claims[0], one, statements) for one in current)]
    beaten += [claims[0] for claims in outdated]
    elsewhere = [claims for claims in elsewhere if claims not in outdated]
    return Dispute(
        rule.positions[0],
        _tell(statements[rule.positions[0]].text, rule, overruled, elsewhere, language),
        tuple(sorted(at for claim in others for at in claim.positions)),
        tuple(sorted(at for claim in beaten for at in claim.positions)),
        is_decided,
    )


def _is_outdated(claim: _Claim, newer: _Claim, statements: Sequence[Statement]) -> bool:
    """Return True if a claim of a later day says that something another one says is so no longer."""
    if not claim.last_day or not newer.last_day or claim.last_day >= newer.last_day:
        return False
    revision = revise_sentence(*(statements[one.positions[0]].text for one in (claim, newer)))
    return revision is not None and not tells_past_month(revision, claim.last_day, newer.last_day)


def _sort_claims(claims: list[_Claim]) -> None:
    """Sort the newest claim first; ties, and claims of which some have no day: the best first."""
    claims.sort(key=lambda claim: claim.positions)
    if all(claim.last_day for claim in claims):
        claims.sort(key=_to_number, reverse=True)


def _to_number(claim: _Claim) -> int:
    return claim.last_day.toordinal() if claim.last_day else 0


def _is_newer(rule: _Claim, others: Iterable[_Claim]) -> bool:
    """Return True if days tell that a claim is newer than all others."""
    return all(rule.last_day and other.last_day and rule.last_day > other.last_day for other in others)


def _tell(
    text: str,
    rule: _Claim,
    overruled: Sequence[_Claim],
    elsewhere: Sequence[Sequence[_Claim]],
    language: str | None,
) -> str:
    """Return the text of the rule, and in brackets what the other claims say."""
    language = language or detect_language(text) or "en"
    phrases = _PHRASES[language]
    rivals = [*overruled, *(claims[0] for claims in elsewhere)]
    own = rule.comparison.other
    ends = (claim.comparison.first.end for claim in rivals if claim.comparison.first)
    end = own.end if own else max(ends, default=len(text))

    def quote(claims: Iterable[_Claim]) -> str:
        """Return the words of claims. The first sentence, which was compared with all, has words for each."""
        quotes = (claim.comparison.other or rule.comparison.first for claim in claims)
        told = [found.text for found in quotes if found]
        return ", ".join([*told[:_MAX_TOLD], *(["…"] if len(told) > _MAX_TOLD else [])])

    notes = []
    if overruled:
        words = quote(overruled)
        if _is_newer(rule, overruled):
            older = max(claim.last_day or date.min for claim in overruled)
            day = _format_day(min(day for day in rule.days if day > older), language)
            relation = (rule if own else overruled[0]).comparison.relation
            notes.append((phrases.dated if relation == "renames" else phrases.noted).format(day, words))
        else:
            notes.append(phrases.contested.format(words))
    if elsewhere:
        # Words of a sentence like the first one do not fit in another.
        tell = (lambda claims: ", ".join(quote_sentence(one.text).text for one in claims)) if own else quote
        told = [
            phrases.was.format(tell([new]), tell(old)) if old and _is_newer(new, old) else tell([new, *old])
            for new, *old in elsewhere[:_MAX_TOLD]
        ]
        notes.append(phrases.also.format("; ".join([*told, *(["…"] if len(elsewhere) > _MAX_TOLD else [])])))
    return f"{text[:end]} ({'; '.join(notes)}){text[end:]}" if notes else text


def tell_later(text: str, later: str, day: date, language: str | None) -> str:
    """Return what a memory of a later day says, and in brackets the sentence that was so before."""
    language = language or detect_language(later) or "en"
    return _add_note(later, _PHRASES[language].dated.format(_format_day(day, language), quote_sentence(text).text))


def tell_day(text: str, day: date, language: str | None) -> str:
    """Return a sentence, and in brackets the last day on which it was said."""
    language = language or detect_language(text) or "en"
    return _add_note(text, _PHRASES[language].as_of.format(_format_day(day, language)))


def _add_note(text: str, note: str) -> str:
    end = quote_sentence(text).end
    return f"{text[:end]} ({note}){text[end:]}"


def _format_day(day: date, language: str) -> str:
    return f"{day.day} {day:%B %Y}" if language == "en" else day.isoformat()
