"""Novelty of sentences: which ones earlier sentences say already, and which ones contradict them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from consolidation_pipeline.core.differences.explanation import PROOFS, Difference, Explanation, explain_readings
from consolidation_pipeline.core.differences.reading import Reading, read
from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import EXACT_KINDS, KINDS, literals, stands_in
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentence_splitter import split_sentences
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# Sentences with at least this Dice overlap of content words are about one matter: they may contradict each other.
_SAME_MATTER = 0.6
# One sentence may say all of another if it has this share of its content words: of 1,500 that do, 0.3 % have less.
_MIN_SHARED = 0.7
# A sentence is compared with so many others, the most similar ones. The next ones would give 3 % more results.
_MAX_COMPARED = 3
# Sentences about different matters differ in a word, in two of the subjects, or in more added words than this.
_OTHER_MATTERS = frozenset(("word", "exception"))
_SUBJECTS = frozenset(("value", "name", "code"))
_MAX_ADDED = 4

# Words that connect or stress and state nothing.
_CONNECTIVES = extract_content_words(
    """
    actually already although always anyway basically besides but else even finally furthermore hence here however
    indeed instead just likewise moreover namely nevertheless now otherwise please really simply since still therefore
    though thus whereas whether while yet
    """
)

_BULLET = re.compile(r"(?:(?:[>•*+–—-]|#{1,6}|\d{1,3}[.)])\s+)+")
# The sentences of one call are compared again and again, and the next call finds many of them again.
_read = lru_cache(maxsize=4096)(read)


class Sentence:
    """Sentence with the features by which it is compared, each computed on first use."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _bare(self) -> str:
        """The text without its bullet."""
        return _BULLET.sub("", self.text, count=1)

    @cached_property
    def normal_form(self) -> str:
        """Normal form of the text without its bullet."""
        return normalize_text(self._bare)

    @cached_property
    def words(self) -> frozenset[str]:
        """Stems of the content words, without connectives."""
        return extract_content_words(self.text) - _CONNECTIVES

    @cached_property
    def facts(self) -> frozenset[Literal]:
        """Literals, including negations."""
        return literals(self.text)

    @cached_property
    def reading(self) -> Reading:
        """Tokens and cues of the text without its bullet."""
        return _read(self._bare)

    def shares_fact(self, text: str) -> bool:
        """Return True if ``text`` contains one of the sentence's literals."""
        return any(fact.kind in KINDS and stands_in(fact, text) for fact in self.facts)


def parse_sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text that have content words or literals, in order."""
    sentences = [Sentence(part) for part in split_sentences(text)]
    return [sentence for sentence in sentences if sentence.words or sentence.facts]


@dataclass(frozen=True)
class Comparison:
    """What is known of a sentence.

    Attributes:
        is_said: Another sentence says all of it.
        shorter: Sentences of which it says all, and more.
        contradicted: The most similar sentence that it contradicts, and how the sentence (a) differs from that one (b).
    """

    is_said: bool = False
    shorter: tuple[Sentence, ...] = ()
    contradicted: tuple[Sentence, Difference] | None = None


class SentenceIndex:
    """Sentences found by their words. An overlap of words proposes, the explanation of the differences decides."""

    def __init__(self) -> None:
        self._numbers: dict[Sentence, int] = {}
        self._by_form: dict[str, Sentence] = {}
        self._by_word: defaultdict[str, set[Sentence]] = defaultdict(set)
        self._values: set[str] = set()

    def add(self, sentence: Sentence) -> None:
        """Add a sentence."""
        self._numbers[sentence] = len(self._numbers)
        self._by_form[sentence.normal_form] = sentence
        self._values |= {fact.value for fact in sentence.facts}
        for word in sentence.words:
            self._by_word[word].add(sentence)

    def remove(self, sentence: Sentence) -> None:
        """Remove a sentence of which another one says all."""
        self._by_form.pop(sentence.normal_form, None)
        for word in sentence.words:
            self._by_word[word].discard(sentence)

    def __contains__(self, sentence: Sentence) -> bool:
        """Return True if a sentence has the same normal form."""
        return sentence.normal_form in self._by_form

    def compare(self, sentence: Sentence) -> Comparison:
        """Compare a new sentence with the most similar ones."""
        if sentence in self:
            return Comparison(is_said=True)
        shorter, contradicted = [], None
        for other in self._find_similar(sentence):
            found = explain_readings(sentence.reading, other.reading)
            if found.may_merge and not any(difference.a for difference in found.differences):
                return Comparison(is_said=True)
            if found.may_merge and not any(difference.b for difference in found.differences):
                shorter.append(other)
            elif (
                not contradicted and (contradiction := _find_contradiction(found)) and _is_same_matter(sentence, other)
            ):
                contradicted = other, contradiction
        return Comparison(False, tuple(shorter), contradicted)

    def has_literal(self, literal: Literal) -> bool:
        """Return True if a sentence holds the literal, maybe in another spelling."""
        if literal.value in self._values:
            return True
        return literal.kind not in EXACT_KINDS and any(stands_in(literal, one.text) for one in self._by_form.values())

    def _find_similar(self, sentence: Sentence) -> list[Sentence]:
        shared = Counter(one for word in sentence.words for one in self._by_word.get(word, ()))
        ranked = []
        for one, count in shared.items():
            sizes = len(sentence.words), len(one.words)
            overlap = 2 * count / sum(sizes)
            if overlap >= _SAME_MATTER or count >= _MIN_SHARED * min(sizes):
                ranked.append((-overlap, self._numbers[one], one))
        return [one for *_, one in sorted(ranked)[:_MAX_COMPARED]]


def _is_same_matter(one: Sentence, other: Sentence) -> bool:
    return 2 * len(one.words & other.words) >= _SAME_MATTER * (len(one.words) + len(other.words))


def _find_contradiction(explanation: Explanation) -> Difference | None:
    """Return the difference by which two sentences about one matter contradict each other; None if there is none.

    The rest of the sentences must say the same, but for a few added words.
    """
    found = explanation.differences
    kinds = {one.kind for one in found}
    added = [word for one in found if one.kind == "addition" for word in f"{one.a} {one.b}".split()]
    contradicting = next((one for one in found if PROOFS[one.kind] == "contradicts"), None)
    if contradicting is None or kinds & _OTHER_MATTERS or len(kinds & _SUBJECTS) > 1 or len(added) > _MAX_ADDED:
        return None
    one, other = contradicting.a.split(), contradicting.b.split()
    if contradicting.kind in _SUBJECTS:  # a value for a value, a date for a date
        return contradicting if len(one) == len(other) and _has_digit(one) == _has_digit(other) else None
    # What a negation denies, and what changed its place, must be in both.
    return None if (added and contradicting.kind == "order") or not {*one, *other}.isdisjoint(added) else contradicting


def _has_digit(words: Sequence[str]) -> bool:
    return any(letter.isdigit() for word in words for letter in word)
