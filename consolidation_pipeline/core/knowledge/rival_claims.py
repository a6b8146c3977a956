"""Comparison of two sentences: do they claim different things of one matter, and which words tell the difference?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from consolidation_pipeline.core.case_blind import ignore_case
from consolidation_pipeline.core.differences.explanation import Difference, Explanation, explain_readings
from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Reading, Token, sort_as_written
from consolidation_pipeline.core.knowledge.change_words import find_changes, find_roles, is_ban, tells_addition
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.lesson_sentences import find_past
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.truncation import truncate_at_word

# Sentences of which a larger share of tokens and cues has no like in the other one are about different matters.
_MOST_UNLIKE = 1 / 3
# Literals that name something, by the beginning of their key; other literals are values.
NAMES = ("path:", "url:", "identifier:", "error_code:", "quoted:")
# What numbers name rather than measure.
_LABELS = frozenset(
    """
    step phase issue ticket pr chapter section page paper part episode lesson case week day sprint round run attempt
    level item rule question task room line row column table figure node shard replica server worker slot group team
    unit module block id number nr no schritt ticketnummer kapitel abschnitt seite teil aufgabe zeile woche tag
    knoten gruppe paso fase capítulo página tarea línea grupo semana étape chapitre tâche ligne groupe semaine nœud
    build job iteration version-id
    """.split()
)
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
# Quoted words beyond this length are cut.
_MAX_QUOTE = 160
_SENTENCE_END = re.compile(r"[\s.!?…。！？]*\Z")
# The rest of a word, and marks that close what it stands in.
_WORD_END = re.compile(r"(?:[A-Za-z0-9_-]|[./:](?=[A-Za-z0-9_])|\([^()\s]*\))*[`\"'”’»)\]*]*")
_HEADING_BEHIND = re.compile(r"[^.!?:]* ?:\s")
_AND = re.compile(r"\s(?:and|und|y|e|et)\s+", re.IGNORECASE)
_NUMBER_BEHIND = re.compile(r"\s\d")
# The rest of a unit: "6 mg/kg".
_UNIT = re.compile(r"/[^\W\d_]+\b(?![./])")

# An operator before or after a value that is part of a formula: "2 * x", "n / 2".
_OPERATOR_BEFORE, _OPERATOR_AFTER = re.compile(r"[*/^]\s*$|[\w)]\s+\+\s+$"), re.compile(r"\s*[*^]|\s+[/+]\s")
# Cues of opposite bounds, and the class of markers such as "if" and "when".
_BOUNDS, _CONDITION = frozenset(("above", "below")), "if"
# What stands before a date that is the value told: "was on 9 May", "was moved to 9 May".
_IS_ON = ignore_case(
    r"\b(?:(?:was|were|war|waren|fue|fueron|era|était|étaient)(?: (?:on|at|am|el|le))?|to|until|till|auf|bis|hasta|"
    r"jusqu['’]au)\s+(?:the |den |zum )?$"
)
# Markers of reasons.
_REASONS = frozenset(("because", "result"))
# Markers of the order of two steps.
_ORDERS = frozenset(("before", "after"))
# Cues that stand at the verb of a clause.
_VERB_CUES = ("modality", "polarity")

Relation = Literal["agrees", "replaces", "renames", "elsewhere", "apart"]
Span = tuple[int, int]


@dataclass(frozen=True)
class Quote:
    """Words of a sentence that tell how it differs. ``end``: offset behind them, where more can be told."""

    text: str
    end: int


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
    return None if comparison and _report_otherwise(found, first, other) else _compare_claims(first, other, found)


def _compare_claims(first: Reading, other: Reading, found: Explanation) -> Comparison | None:
    """Return how two sentences relate that do not agree; None if they are about different matters."""
    differs_in_cues = _differ_in_cues_alone(first, other)
    differs_in_cues |= _reverse_order(found, first, other)
    differs_in_cues |= {one.kind for one in found.differences} == {"exception"} and except_said(found, first, other)
    if found.verdict != "contradicts" and not differs_in_cues:
        return None
    sides = (
        _Side(first, [(one.kind, one.spans_a) for one in found.differences]),
        _Side(other, [(one.kind, one.spans_b) for one in found.differences]),
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


def _tell_whole(sides: tuple[_Side, _Side]) -> Comparison:
    """Return the comparison of sentences of which one replaces the other as a whole."""
    claim = normalize_text(sides[1].reading.text)
    return Comparison("replaces", "", claim, *(quote_sentence(side.reading.text) for side in sides))


def _tell_beside(sides: tuple[_Side, _Side]) -> Comparison:
    """Return the comparison of sentences that both hold, each in its own case."""
    case = normalize_text(sides[1].reading.text)
    return Comparison("elsewhere", case, "", *(quote_sentence(side.reading.text) for side in sides))


def _compare_values(sides: tuple[_Side, _Side]) -> Comparison | None:
    """Compare sentences with different values, which may be those of different things."""
    counts = sorted(side.count("value") for side in sides)
    if any(side.count(*_UNLIKE) > _MOST_UNLIKE * side.size for side in sides) or 1 < counts[0] < counts[1]:
        return None
    for side in sides:
        side.drop_reasons()
        side.narrow("value")
    if any(side.count(*_THINGS) > _MOST_WORDS for side in sides):
        return None
    if any(side.is_in_formula("value") for side in sides) or _leave_out_unit(sides):
        return None
    is_apart = any(side.goes_on("value", *_THINGS) for side in sides)
    quotes = [side.quote_whole("value") if is_apart else side.quote("value", *_THINGS) for side in sides]
    if any(side.count(*_THINGS) for side in sides):
        return Comparison("elsewhere", sides[1].join(*_THINGS) or "-", sides[1].join("value"), *quotes)
    if any(side.speaks_of("value") for side in sides) or all(side.claims_labels() for side in sides):
        return Comparison("elsewhere", sides[1].join("value"), "", *quotes)
    return Comparison("replaces", "", sides[1].join("value"), *quotes)


def _leave_out_unit(sides: tuple[_Side, _Side]) -> bool:
    """Return True if the numbers are the same, and one sentence leaves out a unit: "2 °C to 8 °C", "2 to 8 °C"."""
    values = [
        [side.tokens[start].key.split() for start, _ in side.spans["value"] if start in side.tokens] for side in sides
    ]
    numbers = [sorted(one[0] for one in found if one) for found in values]
    return numbers[0] == numbers[1] and any(len(one) == 1 for found in values for one in found)


def _compare_names(sides: tuple[_Side, _Side]) -> Comparison | None:
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


def are_events(first: Reading, other: Reading) -> bool:
    """Return True for reports of what happened once, each with a date or number of its own: both hold.

    The number names what the report is of ("release 2.3 was withdrawn"), so it stands before the verb; a date may stand
    behind it. What is said to be "on 9 May", or to be moved to it, is no report of that day.
    """
    return bool(_list_occasions(first) - other.key_set) and bool(_list_occasions(other) - first.key_set)


def _report_otherwise(found: Explanation, first: Reading, other: Reading) -> bool:
    """Return True for reports of what happened that differ in no value and no name: "it came from / to the port".

    Each may tell of an occasion of its own, so that both hold.
    """
    if not all(map(_is_report, (first, other))):
        return False
    return not any(one.kind in ("value", "name", "code") for one in found.differences)


def _is_report(reading: Reading) -> bool:
    """Return True if a sentence tells what happened, and neither what is so nor what is not."""
    if any(cue.pole == "present" or cue.category in ("polarity", "modality") for cue in reading.cues):
        return False
    return _find_past(reading) is not None or Claim.of(reading.text, reading.language or "en").is_event


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


def are_of_others(first: Reading, other: Reading) -> bool:
    """Return True for reports of other occasions or other things: "the mailer broke", "the planner broke"."""
    if are_events(first, other):
        return True
    own, others = (_list_subjects(one) - two.key_set for one, two in ((first, other), (other, first)))
    return 0 < len(own) <= _MOST_WORDS and 0 < len(others) <= _MOST_WORDS


def _list_subjects(reading: Reading) -> frozenset[str]:
    """Return the keys of the words before the verb of a report; empty if a marker stands there: "when it was shut"."""
    start = _find_past(reading)
    if start is None or any(cue.category == "marker" and cue.start < start for cue in reading.cues):
        return frozenset()
    return frozenset(token.key for token in reading.tokens if token.start < start)


def _list_occasions(reading: Reading) -> frozenset[str]:
    """Return the keys of the dates and numbers that tell of which occasion a report is; empty for what is no report."""
    text, start = reading.text, _find_past(reading)
    if start is None:
        return frozenset()
    tokens = [reading.tokens[at] for at in sort_as_written(reading.tokens)]
    return frozenset(
        token.key
        for at, token in enumerate(tokens)
        if (token.key.startswith("date:") and _IS_ON.search(text[: token.start]) is None)
        or (token.start < start and _numbers_thing(tokens, at, text))
    )


def _find_past(reading: Reading) -> int | None:
    """Return where a sentence first tells of what was; None if it does not."""
    past = [cue.start for cue in reading.cues if (cue.category, cue.pole) == ("tense", "past")]
    found = find_past(reading.text)
    return min([*past, *([] if found is None else [found])], default=None)


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


def is_label(tokens: Sequence[Token], at: int, text: str, *, may_open: bool = False) -> bool:
    """Return True if a number names a thing: "ticket 4512".

    Args:
        tokens: As they are written in ``text``.
        at: Position of the number.
        may_open: Any word that opens the sentence may be such a thing: "gate 4 opens".
    """
    token = tokens[at]
    if at == 0 or not token.key.startswith("number:") or " " in token.key or token.gap != "tight":
        return False
    word = tokens[at - 1]
    if ":" in text[word.start : token.start]:
        return False  # "Limit: 5"
    if word.kind == "name" and word.text.istitle() and at > 1:
        return False  # "runs on Node 20"
    return word.text.lower() in _LABELS or (may_open and at == 1 and len(tokens) > 2)


def _numbers_thing(tokens: Sequence[Token], at: int, text: str) -> bool:
    """Return True for a number beside the name of what it numbers, and a version: "incident 4", "release 2.3"."""
    token = tokens[at]
    return is_label(tokens, at, text, may_open=True) or (token.key.startswith("number:") and token.text[0].isalpha())


def is_name(token: Token) -> bool:
    """Return True for a name, a path, an address or an identifier; False for a value and a word."""
    return token.kind == "name" or token.key.startswith(NAMES)


def _deny_each_other(denials: Sequence[Difference], sides: tuple[_Side, _Side]) -> bool:
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


class _Side:
    """The words of one sentence that the other one lacks, by kind of difference. ``size``: of its tokens and cues."""

    def __init__(self, reading: Reading, found: Iterable[tuple[str, Sequence[Span]]]) -> None:
        self.reading = reading
        self.tokens = {token.start: token for token in reading.tokens}
        self.size = len(reading.tokens) + len(reading.cues)
        self.spans = defaultdict[str, list[Span]](list)
        for kind, spans in found:
            for span in spans:
                self.spans[self._find_kind(kind, span)].append(span)
        self.spans["word"] = [span for span in self.spans["word"] if span not in self.spans["opposite"]]

    def _find_kind(self, kind: str, span: Span) -> str:
        """Return the kind of a word: a path is a name, and so is code unless it is a sign."""
        token = self.tokens.get(span[0])
        if kind == "value" and token and token.key.startswith(NAMES):
            return "name"
        return "name" if kind == "code" and any(map(str.isalnum, self.reading.text[slice(*span)])) else kind

    @property
    def is_heading(self) -> bool:
        """True if most words are written as names: "Incident Detection and Response"."""
        return 2 * sum(token.kind == "name" for token in self.reading.tokens) > len(self.tokens)

    def count(self, *kinds: str) -> int:
        """Return the number of words of these kinds."""
        return sum(len(self.spans[kind]) for kind in kinds)

    def join(self, *kinds: str) -> str:
        """Return the words of these kinds, in their order."""
        spans = sorted(span for kind in kinds for span in self.spans[kind])
        return normalize_text(" ".join(self.reading.text[start:end] for start, end in spans))

    def claims_labels(self) -> bool:
        """Return True if the values name what the sentence speaks of."""
        tokens = [self.reading.tokens[at] for at in sort_as_written(self.reading.tokens)]
        claimed = {start for start, _ in self.spans["value"]}
        return all(is_label(tokens, at, self.reading.text) for at, one in enumerate(tokens) if one.start in claimed)

    def narrow(self, claimed: str) -> None:
        """Drop added detail that is not in the clause of the claim.

        What stands beside a value tells where it holds: "port 5433 in a second checkout".
        """
        begin, end = self.find_clause(claimed)
        for kind in ("addition", "modifier"):
            self.spans[kind] = [span for span in self.spans[kind] if begin <= span[0] < end]

    def drop_reasons(self) -> None:
        """Drop what is added in clauses of its own that are no cases: "so that it stays dry", not "if it is dry".

        Behind a reason, nothing else of its clause follows.
        """
        reasons = [cue for cue in self.reading.cues if cue.category == "marker" and cue.pole in _REASONS and cue.start]
        begins = {cue.clause: cue.start for cue in reversed(reasons)}
        self.spans["addition"] = [
            span
            for span in self.spans["addition"]
            if span[0] < begins.get(self.tokens[span[0]].clause, len(self.reading.text))
        ]
        added = {start for start, _ in self.spans["addition"]}
        shared = {token.clause for token in self.reading.tokens if token.start not in added or token.governor}
        shared |= {cue.clause for cue in self.reading.cues if cue.category == "marker" and cue.pole not in _REASONS}
        self.spans["addition"] = [span for span in self.spans["addition"] if self.tokens[span[0]].clause in shared]

    def find_clause(self, claimed: str) -> Span:
        """Return where the tokens of the clause of the claim begin and end."""
        token = self.tokens[self.spans[claimed][0][0]]
        inside = [one for one in self.reading.tokens if one.clause == token.clause]
        return min(one.start for one in inside), max(one.start + len(one.text) for one in inside)

    def speaks_of(self, claimed: str) -> bool:
        """Return True if the claim names what the clause speaks of, rather than what it says.

        A name does, if no verb is known to stand before it: "renamed a.py". A number after a name does, if the first
        known verb comes after it: "status 404 must not be retried". Known verbs are auxiliaries, modals and negations.
        What stands in a heading is of what the sentence speaks of: "Sand of 10 kg: the price is 4 euros".
        """
        start, end = self.spans[claimed][0]
        token, reading = self.tokens[start], self.reading
        if claimed == "value" and self._opens_heading(end):
            return True
        words = load_language(reading.language or "en")
        begin, last = self.find_clause(claimed)
        cues = [cue.start for cue in reading.cues if cue.clause == token.clause and cue.category in _VERB_CUES]
        # "Amounts to 5 euros and is debited": a verb behind "and" has the subject of the one before.
        joined = (one.end() for one in _AND.finditer(reading.text, end, last))
        last = next((at for at in joined if at in cues or self._opens_with_auxiliary(at)), last)
        cues = [cue for cue in cues if cue < last]
        before, after = split_words(reading.text[begin:start]), split_words(reading.text[end:last])
        is_after = any(cue < start for cue in cues) or not words.passive_auxiliaries.isdisjoint(before)
        is_before = any(cue > start for cue in cues) or not words.passive_auxiliaries.isdisjoint(after)
        if is_before or is_after:
            is_numbered = any(one.start < start and one.phrase == token.phrase for one in reading.tokens)
            return is_before and not is_after and (claimed == "name" or is_numbered)
        opening = split_words(reading.text)[:1]
        return claimed == "name" and words.determiners.isdisjoint(opening)

    def _opens_with_auxiliary(self, at: int) -> bool:
        """Return True if a word such as "is" stands at an offset."""
        auxiliaries = load_language(self.reading.language or "en").passive_auxiliaries
        return not auxiliaries.isdisjoint(split_words(self.reading.text[at:])[:1])

    def _opens_heading(self, end: int) -> bool:
        """Return True if a heading ends behind a value that ends here, and another value follows; not for a report."""
        heading = _HEADING_BEHIND.match(self.reading.text, end)
        if heading is None or _find_past(self.reading) is not None:
            return False
        behind = (token for token in self.reading.tokens if token.start >= heading.end())
        return any(token.kind == "value" and not is_name(token) for token in behind)

    def is_in_formula(self, claimed: str) -> bool:
        """Return True if a claim is one part of a formula, which says nothing without the rest."""
        text = self.reading.text
        return any(
            _OPERATOR_BEFORE.search(text[:start]) is not None or _OPERATOR_AFTER.match(text, end) is not None
            for start, end in self.spans[claimed]
        )

    def goes_on(self, claimed: str, *kinds: str) -> bool:
        """Return True if words of both sentences stand between words of these kinds and the claim, or several behind.

        "Sheds over 40 m² need a permit of the mayor": the quotation would end in the middle of "over 90 m² .. and Ada".
        So too if another clause has a value, name or opposite of its own: a quotation of one clause would leave it out.
        """
        begin, last = self.find_clause(claimed)
        own = {start for kind in (claimed, *kinds) for start, _ in self.spans[kind]}
        unlike = {start for kind in (claimed, "value", "name", "opposite") for start, _ in self.spans[kind]}
        if any(not begin <= start < last for start in unlike):
            return True
        # "18 h 30"
        if any(_NUMBER_BEHIND.match(self.reading.text, end) for _, end in self.spans[claimed]):
            return True
        inside = [start for start in own if begin <= start < last]
        first, claim = min(inside), self.spans[claimed][-1][0]
        shared = [token.start for token in self.reading.tokens if first < token.start < max(inside)]
        shared = [start for start in shared if start not in own]
        verbs = (cue.start for cue in self.reading.cues if cue.category in _VERB_CUES)
        return any(start < claim for start in (*shared, *(at for at in verbs if first < at))) or len(shared) > 1

    def quote_whole(self, claimed: str) -> Quote:
        """Return the sentence in quotation marks, or the clause that opens it if all that differs stands in that."""
        text, (begin, last) = self.reading.text, self.find_clause(claimed)
        spans = [span for found in self.spans.values() for span in found]
        starts = [token.start for token in self.reading.tokens]
        is_alone = min(starts) >= begin and max(starts) < last
        if is_alone or min(starts) < begin or any(start >= last for start, _ in spans):
            return quote_sentence(text)
        rest = _WORD_END.match(text, last)
        end = min(rest.end() if rest else last, quote_sentence(text).end)
        return Quote(f"“{_shorten(' '.join(text[:end].split()))}”", end)

    def quote(self, claimed: str, *kinds: str) -> Quote:
        """Return the words from the first to the last of these kinds in the clause of the claim."""
        text, (begin, last) = self.reading.text, self.find_clause(claimed)
        spans = [span for kind in (claimed, *kinds) for span in self.spans[kind] if begin <= span[0] < last]
        # The stop behind "9 May." ends the sentence.
        start, end = min(start for start, _ in spans), min(max(end for _, end in spans), quote_sentence(text).end)
        rest = _WORD_END.match(text, end)
        unit = _UNIT.match(text, end)
        words = text[start : unit.end() if unit else end]
        return Quote(_shorten(" ".join(words.split())), rest.end() if rest else end)


def quote_sentence(text: str) -> Quote:
    """Return a sentence in quotation marks."""
    found = _SENTENCE_END.search(text)
    end = found.start() if found else len(text)
    return Quote(f"“{_shorten(' '.join(text[:end].split()))}”", end)


def _shorten(words: str) -> str:
    return words if len(words) <= _MAX_QUOTE else truncate_at_word(words, _MAX_QUOTE - 2) + " …"
