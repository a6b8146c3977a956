"""Novelty of sentences: which ones were said already, and which ones contradict others.

A sentence was said if one with the same words was. One in other words is told too: it may add or stress something, and
consolidation merges the memories that say the same.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cached_property, lru_cache
from itertools import count, takewhile

from consolidation_pipeline.core.differences.explanation import PROOFS, Difference, Spans, explain_readings
from consolidation_pipeline.core.differences.reading import Reading, Token
from consolidation_pipeline.core.knowledge.claim_slots import STATES, find_verb, is_date, names_thing, tells_size
from consolidation_pipeline.core.knowledge.claim_subjects import (
    order_other_things,
    tell_hours_of_other_days,
    tells_step,
)
from consolidation_pipeline.core.knowledge.claims import Claim
from consolidation_pipeline.core.knowledge.named_things import is_name
from consolidation_pipeline.core.knowledge.rival_claims import names_things
from consolidation_pipeline.core.knowledge.told_words import PLAIN_VERBS
from consolidation_pipeline.core.literals.literals import KINDS, stands_in
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentence_splitter import BULLET, split_sentences
from consolidation_pipeline.core.text.text_coverage import Statement
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Sentences with at least this Dice overlap of content words are about one matter: they may contradict each other.
_SAME_MATTER = 0.6
# A sentence is compared with so many others, the most similar ones. The next ones would give 3 % more results.
_MAX_COMPARED = 3
# Pairs that one index compares, about a second's work. Further sentences are not compared.
_MAX_PAIRS = 2000
# Sentences about different matters differ in two of the subjects, or in more added words than these.
_SUBJECTS = frozenset(("value", "name", "code"))
_MAX_ADDED = 4

# Beginnings of the keys of identifiers and the like.
_IDENTIFIERS = ("identifier:", "path:", "code:", "quoted:")
_QUOTES = frozenset("'\"`")
# A sentence of an error, or one that tells its cause or fix.
_OF_ERROR = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception)\b|\bTraceback\b"
    r"|^\W*(?i:fix|solution|cause|workaround|lösung|ursache|behebung|solución|causa|arreglo|correctif)\s*:"
)
# Auxiliaries of one state in English.
_SAME_STATE = frozenset(frozenset(pair) for pair in (("is", "has"), ("are", "have"), ("is", "have"), ("are", "has")))

# Words that connect or stress and state nothing.
_CONNECTIVES = extract_content_words(
    """
    actually already although always anyway basically besides but else even finally furthermore hence here however
    indeed instead just likewise moreover namely nevertheless now otherwise please really simply since still therefore
    though thus whereas whether while yet
    """
)


class Sentence(Statement):
    """Sentence with the features by which it is compared, each computed on first use."""

    @cached_property
    def normal_form(self) -> str:
        """Normal form of the text without its bullet."""
        return normalize_text(BULLET.sub("", self.text, count=1))

    @cached_property
    def content_words(self) -> frozenset[str]:
        """Stems of the content words, without connectives."""
        return extract_content_words(self.text) - _CONNECTIVES

    def shares_literal(self, text: str) -> bool:
        """Return True if ``text`` contains one of the sentence's literals."""
        return any(literal.kind in KINDS and stands_in(literal, text) for literal in self.literals)


# The next context of a project tells many of the same sentences.
as_sentence = lru_cache(maxsize=2048)(Sentence)


def parse_sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text that have content words or literals, in order."""
    sentences = map(as_sentence, split_sentences(text))
    return [sentence for sentence in sentences if sentence.content_words or sentence.literals]


class SentenceIndex:
    """Sentences found by their words.

    An overlap of words proposes a contradiction, the explanation of the differences decides.
    """

    def __init__(self) -> None:
        self._numbers: dict[Sentence, int] = {}
        self._count = count()
        self._pairs = 0
        self._forms: set[str] = set()
        self._by_word: defaultdict[str, set[Sentence]] = defaultdict(set)

    def add(self, sentence: Sentence) -> None:
        """Add a sentence."""
        self._numbers[sentence] = next(self._count)
        self._forms.add(sentence.normal_form)
        for word in sentence.content_words:
            self._by_word[word].add(sentence)

    def __contains__(self, sentence: object) -> bool:
        """Return True if a sentence has the same normal form."""
        return isinstance(sentence, Sentence) and sentence.normal_form in self._forms

    def find_contradicted(
        self, sentence: Sentence, is_comparable: Callable[[Sentence], bool] = lambda _: True
    ) -> tuple[Sentence, Difference] | None:
        """Return the most similar sentence that a new one contradicts, and how the new one (a) differs from it (b)."""
        for other in filter(is_comparable, self._find_similar(sentence)):
            if contradiction := _find_contradiction(sentence, other):
                return other, contradiction
        return None

    def _find_similar(self, sentence: Sentence) -> list[Sentence]:
        if self._pairs == _MAX_PAIRS:
            return []
        shared = Counter(one for word in sentence.content_words for one in self._by_word.get(word, ()))
        ranked = []
        for one, common in shared.items():
            overlap = 2 * common / (len(sentence.content_words) + len(one.content_words))
            if overlap >= _SAME_MATTER:
                ranked.append((-overlap, self._numbers[one], one))
        similar = [one for *_, one in sorted(ranked)[: min(_MAX_COMPARED, _MAX_PAIRS - self._pairs)]]
        self._pairs += len(similar)
        return similar


def _find_contradiction(sentence: Sentence, known: Sentence) -> Difference | None:
    """Return the difference by which two sentences about one matter contradict each other; None if there is none.

    The rest of the sentences must say the same, but for a few added words.
    """
    readings = sentence.reading, known.reading
    found = explain_readings(*readings).differences
    contradicting = next((one for one in found if PROOFS[one.kind] == "contradicts"), None)
    if contradicting is None or not all(map(_tells_fact, readings)):
        return None
    if any(names_things(one, *readings) for one in found) or _have_own_dates(*readings):
        return None
    one, other = contradicting.a.split(), contradicting.b.split()
    words = {difference.kind: {*difference.a.split(), *difference.b.split()} for difference in found}
    added = words.pop("addition", set())
    replaced = words.pop("word", set()) - {*one, *other}  # opposites are listed as replaced words too
    # "Do it only then" agrees with "do not do it before".
    is_exception = "exception" in words and contradicting.kind in (*_SUBJECTS, "exchange", "polarity")
    if replaced or is_exception or len(_SUBJECTS & words.keys()) > 1 or len(added) > _MAX_ADDED:
        return None
    if _hold_both(contradicting, *readings):
        return None
    if contradicting.kind in _SUBJECTS:  # a value for a value, a date for a date
        sides = (contradicting.spans_a, contradicting.spans_b)
        if all(_names_subject(*side) for side in zip(readings, sides, strict=True)):
            return None
        kinds, others = (_list_kinds(*side) for side in zip(readings, sides, strict=True))
        # "50 for /orders", "200 for /entries": with the name, the thing is another one.
        return contradicting if kinds == others and not ("name" in kinds and len({*kinds}) > 1) else None
    # "It helps on A", "it does not help on B"; "it is sent", "it has been sent".
    if _SUBJECTS & words.keys() or (contradicting.kind == "cue" and frozenset((one[0], other[0])) in _SAME_STATE):
        return None
    # What a negation denies, and what changed its place, must be in both.
    is_elsewhere = added and contradicting.kind == "exchange"
    return None if is_elsewhere or not added.isdisjoint([*one, *other]) else contradicting


def _hold_both(difference: Difference, first: Reading, other: Reading) -> bool:
    """Return True if two sentences are of two cases, two things, or two steps: "Ann gave it to Ben", "Ben to Ann"."""
    claims = [Claim.of(reading.text, reading.language or "en") for reading in (first, other)]
    if difference.kind == "exchange" and all(map(tells_step, claims)):
        return True
    if tell_hours_of_other_days(*claims) or order_other_things(*claims):
        return True
    if difference.kind not in _SUBJECTS:
        return False
    sides = [
        [token for token in claim.tokens if token.start in {start for start, _ in spans}]
        for claim, spans in zip(claims, (difference.spans_a, difference.spans_b), strict=True)
    ]
    if all(any(names_thing(claim, token) for token in side) for claim, side in zip(claims, sides, strict=True)):
        return True
    # What an error or its fix names is that of one time.
    return all(
        _OF_ERROR.search(claim.text) and all(_is_quoted(claim, token) for token in side)
        for claim, side in zip(claims, sides, strict=True)
    )


def _is_quoted(claim: Claim, token: Token) -> bool:
    """Return True for an identifier, and for what stands behind a quotation mark."""
    mark = claim.text[max(0, token.start - 1) : token.start + 1]
    return token.key.startswith(_IDENTIFIERS) or not _QUOTES.isdisjoint(mark)


def _have_own_dates(first: Reading, other: Reading) -> bool:
    """Return True if each of two texts has a date and another value that the other lacks: they tell two events."""
    for own, keys in ((first.tokens, other.keys), (other.tokens, first.keys)):
        dated = [is_date(token) for token in own if token.kind == "value" and token.key not in keys]
        if all(dated) or not any(dated):
            return False
    return True


def _tells_fact(reading: Reading) -> bool:
    """Return False for a title or a task, which claim nothing: "Remove version 3.1", "Remove version 2.9".

    A rule such as "Freeze the ledger on Mondays." ends with a full stop, and most of its words are no names.
    """
    if reading.language is None:
        return True
    claim = Claim.of(reading.text, reading.language)
    is_rule = reading.text.rstrip().endswith(".") and 2 * reading.names <= len(reading.tokens)
    return (claim.is_statement or is_rule) and not claim.is_task


def _names_subject(reading: Reading, spans: Spans) -> bool:
    """Return True if words in some spans name what a sentence is about.

    "Ticket 4711", the name that it opens with, one before its verb: "table `a` has", "`a` must be", or a size of it:
    "2 l bottles of milk: 5 are left".
    """
    claim, starts = Claim.of(reading.text, reading.language or "en"), {start for start, _ in spans}
    opening = {token.start for token in takewhile(lambda token: token.text[:1].isupper(), claim.tokens)}
    found = [token for token in claim.tokens if token.start in starts]
    verb = find_verb(claim)
    return bool(found) and all(
        token.start in opening
        or names_thing(claim, token)
        or tells_size(claim, token)
        or (token.start < verb and _is_named_behind(claim, token))
        for token in found
    )


def _is_named_behind(claim: Claim, token: Token) -> bool:
    """Return True for an identifier that opens a sentence, or stands behind the noun that does: "table `a`"."""
    ahead = claim.tokens[: claim.tokens.index(token)]
    is_inside = all(one.phrase == token.phrase and one.key not in STATES | PLAIN_VERBS for one in ahead)
    return _is_quoted(claim, token) and is_inside and (not ahead or token.gap == "tight")


def _list_kinds(reading: Reading, spans: Spans) -> list[str]:
    """Return what the tokens in some spans are: names, or values by their kind, such as number or date."""
    starts = {start for start, _ in spans}
    return sorted(_find_kind(token) for token in reading.tokens if token.start in starts)


def _find_kind(token: Token) -> str:
    kind, colon, _ = token.key.partition(":")
    return "name" if is_name(token) else kind if colon else token.kind
