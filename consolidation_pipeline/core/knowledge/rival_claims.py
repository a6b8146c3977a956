"""Comparison of two sentences: do they claim different things of one matter, and which words tell the difference?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from consolidation_pipeline.core.differences.explanation import Difference, Explanation, explain_readings
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Reading
from consolidation_pipeline.core.knowledge.change_words import find_changes, find_roles, is_ban, tells_addition
from consolidation_pipeline.core.knowledge.differing_words import DifferingWords, Quote, quote_sentence
from consolidation_pipeline.core.knowledge.named_things import is_name
from consolidation_pipeline.core.knowledge.reported_events import are_events, report_otherwise
from consolidation_pipeline.core.memories.memories import normalize_text

# Sentences of which a larger share of tokens and cues has no like in the other one are about different matters.
_MOST_UNLIKE = 1 / 3
# Categories of cues that deny what a sentence says, rather than place it in time.
_DENIALS = frozenset(("polarity", "quantity", "restriction", "bound", "modality", "switch", "need"))
# Differences that show of what else a sentence speaks.
_THINGS = ("name", "word", "opposite", "addition", "modifier")
# All differences that sentences on one matter may have, by what they differ in.
_VALUE_KINDS = frozenset(("value", *_THINGS))
_NAME_KINDS = frozenset(("name", "addition"))
_STATEMENT_KINDS = frozenset(("polarity", "opposite", "cue", "added cue", "addition"))
# Differences of these kinds stand in both sentences.
_UNLIKE = ("value", "name", "opposite", "word")
# Most words of one sentence alone that tell of what else it speaks, or in which detail.
_MOST_WORDS = 3

# Cues of opposite bounds, and the class of markers such as "if" and "when".
_BOUNDS, _CONDITION = frozenset(("above", "below")), "if"
# Markers of the order of two steps.
_ORDERS = frozenset(("before", "after"))

Relation = Literal["agrees", "replaces", "renames", "elsewhere", "apart"]


@dataclass(frozen=True)
class Comparison:
    """Relation of a sentence to the first one on its matter.

    Attributes:
        relation: ``agrees``; ``replaces``: another value of the same thing, or the opposite; ``renames``: another name
            or code, and both may hold; ``elsewhere``: the same said of another thing; ``apart``: of two things whose
            names are opposites, so that nothing is in dispute.
        thing: What it is said of; empty if of the same thing as the first sentence.
        claim: What is said. Equal claims on one thing agree.
        first, other: The words of both sentences that differ; None if the sentences agree.
    """

    relation: Relation
    thing: str = ""
    claim: str = ""
    first: Quote | None = None
    other: Quote | None = None


AGREES = Comparison("agrees")


def compare_sentences(first: Reading, other: Reading) -> Comparison | None:
    """Return how ``other`` relates to ``first``; None if they are about different matters.

    Questions claim nothing: they are about different matters.
    """
    if any(cue.category == "question" for reading in (first, other) for cue in reading.cues):
        return None
    found = explain_readings(first, other, is_brief=True)
    if found.may_merge or _forbid_alike(found, first.language or "en"):
        return AGREES
    comparison = _compare_claims(first, other, found)
    if comparison and comparison.relation in ("replaces", "renames") and are_events(first, other):
        return None
    # Few sentences compare: only for these it matters whether words stand in another order, too.
    found = explain_readings(first, other)
    return None if comparison and report_otherwise(found, first, other) else _compare_claims(first, other, found)


def _compare_claims(first: Reading, other: Reading, found: Explanation) -> Comparison | None:
    """Return how two sentences relate that do not agree; None if they are about different matters."""
    differs_in_cues = _differ_in_cues_alone(first, other)
    differs_in_cues |= _reverse_order(found, first, other)
    differs_in_cues |= {one.kind for one in found.differences} == {"exception"} and except_said(found, first, other)
    if found.verdict != "contradicts" and not differs_in_cues:
        return None
    sides = (
        DifferingWords(first, [(one.kind, one.spans_a) for one in found.differences]),
        DifferingWords(other, [(one.kind, one.spans_b) for one in found.differences]),
    )
    if found.verdict != "contradicts":
        return _tell_whole(sides)
    if any(names_things(one, first, other) for one in found.differences):
        return replace(_tell_whole(sides), relation="apart")
    if any(_differs_in_condition(one, first, other) for one in found.differences):
        return _tell_beside(sides)
    denials = [one for one in found.differences if is_denial(one, first)]
    kinds = {kind for side in sides for kind, spans in side.spans.items() if spans}
    if kinds <= _VALUE_KINDS and all(side.spans["value"] for side in sides):
        return _compare_values(sides)
    if kinds <= _NAME_KINDS and all(side.spans["name"] for side in sides):
        return _compare_names(sides)
    is_denied = kinds <= _STATEMENT_KINDS and _deny_each_other(denials, sides)
    is_exchanged = "exchange" in kinds <= {"exchange", "moved cue"} and not sides[0].is_heading
    return _tell_whole(sides) if is_denied or is_exchanged or differs_in_cues else None


def _tell_whole(sides: tuple[DifferingWords, DifferingWords]) -> Comparison:
    """Return the comparison of sentences of which one replaces the other as a whole."""
    claim = normalize_text(sides[1].reading.text)
    return Comparison("replaces", "", claim, *(quote_sentence(side.reading.text) for side in sides))


def _tell_beside(sides: tuple[DifferingWords, DifferingWords]) -> Comparison:
    """Return the comparison of sentences that both hold, each in its own case."""
    case = normalize_text(sides[1].reading.text)
    return Comparison("elsewhere", case, "", *(quote_sentence(side.reading.text) for side in sides))


def _compare_values(sides: tuple[DifferingWords, DifferingWords]) -> Comparison | None:
    """Compare sentences with different values, which may be those of different things."""
    counts = sorted(side.count("value") for side in sides)
    if any(side.count(*_UNLIKE) > _MOST_UNLIKE * side.size for side in sides) or 1 < counts[0] < counts[1]:
        return None
    for side in sides:
        side.drop_reasons()
        side.narrow("value")
    if any(side.count(*_THINGS) > _MOST_WORDS for side in sides):
        return None
    if any(side.is_in_formula() for side in sides) or _leave_out_unit(sides):
        return None
    is_apart = any(side.goes_on("value", *_THINGS) for side in sides)
    quotes = [side.quote_whole("value") if is_apart else side.quote("value", *_THINGS) for side in sides]
    if any(side.count(*_THINGS) for side in sides):
        return Comparison("elsewhere", sides[1].join(*_THINGS) or "-", sides[1].join("value"), *quotes)
    if any(side.speaks_of("value") for side in sides) or all(side.claims_labels() for side in sides):
        return Comparison("elsewhere", sides[1].join("value"), "", *quotes)
    return Comparison("replaces", "", sides[1].join("value"), *quotes)


def _leave_out_unit(sides: tuple[DifferingWords, DifferingWords]) -> bool:
    """Return True if the numbers are the same, and one sentence leaves out a unit: "2 °C to 8 °C", "2 to 8 °C"."""
    values = [
        [side.tokens[start].key.split() for start, _ in side.spans["value"] if start in side.tokens] for side in sides
    ]
    numbers = [sorted(one[0] for one in found if one) for found in values]
    return numbers[0] == numbers[1] and any(len(one) == 1 for found in values for one in found)


def _compare_names(sides: tuple[DifferingWords, DifferingWords]) -> Comparison | None:
    """Compare sentences that differ in names or codes alone. Words of headings are written as names."""
    for side in sides:
        side.narrow("name")
    if any(side.is_heading or side.count("addition") for side in sides):
        return None
    if _is_qualified(*(side.join("name") for side in sides)):
        return AGREES
    is_apart = any(side.goes_on("name") for side in sides)
    quotes = [side.quote_whole("name") if is_apart else side.quote("name") for side in sides]
    if any(side.speaks_of("name") for side in sides):
        return Comparison("elsewhere", sides[1].join("name"), "", *quotes)
    return Comparison("renames", "", sides[1].join("name"), *quotes)


def is_denial(difference: Difference, first: Reading) -> bool:
    """Return True for a negation, an opposite or a changed cue such as *all*, *must* or *on*; not for a tense.

    Args:
        first: The text ``a`` of the difference.
    """
    if difference.kind != "cue":
        return difference.kind in ("polarity", "opposite")
    start = difference.spans_a[0][0]
    return all(cue.category in _DENIALS for cue in first.cues if cue.start == start)


def names_things(difference: Difference, first: Reading, other: Reading) -> bool:
    """Return True for opposites that name two things, such as staging and production: both claims may hold.

    Args:
        first: The text ``a`` of the difference.
        other: The text ``b``.
    """
    if difference.kind != "opposite":
        return False
    things = load_language(first.language or "en").things
    sides = (first, difference.spans_a), (other, difference.spans_b)
    return all(
        token.key in things
        for reading, spans in sides
        for token in reading.tokens
        if any(start <= token.start < end for start, end in spans)
    )


def takes_over(older: Reading, newer: Reading) -> bool:
    """Return True if a newer sentence tells what took the place of a value or a name in an older one.

    Its words of a change ("raised to 9", "is the head of it now") are all that it has besides, and a name stands for
    who has a part that one has.
    """
    language = newer.language
    if language is None or tells_addition(newer.text, language):
        return False
    cues = [change.cue for change in find_changes(newer.text, language) if change.form != "contrast"]
    old = [token for token in older.tokens if token.key not in newer.key_set]
    new = [token for token in newer.tokens if token.key not in older.key_set]
    told = [token for token in new if not any(start <= token.start < end for start, end in cues)]
    if not (cues and old and told) or any(token.kind not in VALUE_KINDS for token in (*old, *told)):
        return False
    has_part = any(True for _ in find_roles(newer.text, language))
    return has_part if any(map(is_name, (*old, *told))) else all(len(side) == 1 for side in (old, told))


def _differs_in_condition(difference: Difference, first: Reading, other: Reading) -> bool:
    """Return True for opposite bounds or opposites in a condition: above and below 5, when it opens and when it closes.

    Both claims may hold.
    """
    sides = (first, difference.spans_a), (other, difference.spans_b)
    if difference.kind == "cue":
        found = (cue for reading, spans in sides for cue in reading.cues if cue.start in {start for start, _ in spans})
        return {cue.pole for cue in found} == _BOUNDS
    return difference.kind == "opposite" and all(
        token.governor == _CONDITION
        for reading, spans in sides
        for token in reading.tokens
        if any(start <= token.start < end for start, end in spans)
    )


def _deny_each_other(denials: Sequence[Difference], sides: tuple[DifferingWords, DifferingWords]) -> bool:
    """Return True if sentences differ in negations, opposites and the like alone.

    One may add a reason, and detail if a negation opens one of them: "Never restart it", "Restart it after a deploy".
    """
    if not denials or any(side.spans["word"] for side in sides):
        return False
    for side in sides:
        side.drop_reasons()
    added = [side for side in sides if side.spans["addition"]]
    if not added:
        return True
    is_rule = any(span[0] == 0 for one in denials for span in (*one.spans_a[:1], *one.spans_b[:1]))
    return is_rule and len(added) == 1 and added[0].count("addition") <= _MOST_WORDS


def _differ_in_cues_alone(first: Reading, other: Reading) -> bool:
    """Return True if sentences have the same words in the same order, and one cue for another: "before", "after"."""
    if first.keys != other.keys:
        return False
    cues, others = (
        sorted((cue.category, cue.pole) for cue in one.cues if cue.category != "tense") for one in (first, other)
    )
    return cues != others and [category for category, _ in cues] == [category for category, _ in others]


def _forbid_alike(found: Explanation, language: str) -> bool:
    """Return True if one sentence denies what the other one calls forbidden, and they say the same otherwise."""
    denied = [one for one in found.differences if one.kind == "polarity"]
    added = [one for one in found.differences if one.kind == "addition"]
    if len(denied) != 1 or len(added) != 1 or len(found.differences) != len(denied) + len(added):
        return False
    # The negation stands in the one text, the word in the other.
    sides = (denied[0].a, added[0].b), (denied[0].b, added[0].a)
    return any(denial and is_ban(word, language) for denial, word in sides)


def _reverse_order(found: Explanation, first: Reading, other: Reading) -> bool:
    """Return True if sentences of the same words tell the order of two steps the other way round."""
    if {one.kind for one in found.differences} != {"moved cue"} or first.key_set != other.key_set:
        return False
    later, earlier = ({token.key for token in one.tokens if token.governor in _ORDERS} for one in (first, other))
    return bool(later and earlier) and later.isdisjoint(earlier)


def except_said(found: Explanation, first: Reading, other: Reading) -> bool:
    """Return True if one sentence excepts what the other one includes: "except for members", "also for members"."""
    excepted = [one for one in found.differences if one.kind == "exception"]
    sides = (first, other, "spans_a"), (other, first, "spans_b")
    named = [
        (token.key, said)
        for one in excepted
        for reading, said, spans in sides
        for token in reading.tokens
        if any(start <= token.start < end for start, end in getattr(one, spans))
    ]
    return bool(named) and all(key in said.key_set for key, said in named)


def _is_qualified(one: str, other: str) -> bool:
    """Return True if one name is the other with more before it: ``hmac.compare_digest``, ``src/a.py``."""
    short, long = sorted((one, other), key=len)
    return long.endswith(tuple(sign + short for sign in "./:"))
