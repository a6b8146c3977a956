"""Novelty filter: the sentences of a text that earlier texts do not say already."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import EXACT_KINDS, KINDS, conflicts, literals, stands_in
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.text_merge import split_sentences
from consolidation_pipeline.core.text.word_overlap import extract_content_words

# A sentence covers another if it has all its content words. Of _LONG words and more, the share _MISSING may be absent,
# such as "note to self" or "seen again today". In a shorter sentence, each word may matter.
_LONG, _MISSING = 14, 0.15
# A text is worth adding if this share of its content words is new.
_MIN_NEW_SHARE = 0.5
# Sentences with at least this Dice overlap of content words are about one matter: their differences are conflicts.
_SAME_MATTER = 0.6

# Words that connect or stress and state nothing.
_CONNECTIVES = extract_content_words(
    """
    actually already although always anyway basically besides but else even finally furthermore hence here however
    indeed instead just likewise moreover namely nevertheless now otherwise please really simply since still therefore
    though thus whereas whether while yet
    """
)

_BULLET = re.compile(r"(?:(?:[>•*+–—-]|#{1,6}|\d{1,3}[.)])\s+)+")


class Sentence:
    """Sentence with the features by which it is compared, each computed on first use."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def normal_form(self) -> str:
        """Normal form of the text without its bullet."""
        return normalize_text(_BULLET.sub("", self.text, count=1))

    @cached_property
    def words(self) -> frozenset[str]:
        """Stems of the content words, without connectives."""
        return extract_content_words(self.text) - _CONNECTIVES

    @cached_property
    def facts(self) -> frozenset[Literal]:
        """Literals, including negations."""
        return literals(self.text)

    def shares_fact(self, text: str) -> bool:
        """Return True if ``text`` contains one of the sentence's literals."""
        return any(fact.kind in KINDS and stands_in(fact, text) for fact in self.facts)

    def covers(self, other: Sentence) -> bool:
        """Return True if this sentence says all that ``other`` says and does not conflict with it.

        It has all literals of ``other``, and all its words or most of them if there are many.
        """
        if self.normal_form == other.normal_form:
            return True
        if len(self.words & other.words) < _count_required(other):
            return False
        return all(stands_in(fact, self.text) for fact in other.facts) and not conflicts(self.text, other.text)

    def find_conflict(self, other: Sentence) -> str | None:
        """Return the first difference of two sentences about one matter, in words; None if there is none."""
        overlap = 2 * len(self.words & other.words) / max(1, len(self.words) + len(other.words))
        return next(map(str, conflicts(self.text, other.text)), None) if overlap >= _SAME_MATTER else None


def _count_required(sentence: Sentence) -> int:
    """Return the number of content words that a sentence must share to cover ``sentence``."""
    count = len(sentence.words)
    return count - int(count * _MISSING) if count >= _LONG else max(1, count)


def parse_sentences(text: str) -> list[Sentence]:
    """Return the sentences of a text that have content words or literals, in order."""
    sentences = [Sentence(part) for part in split_sentences(text)]
    return [sentence for sentence in sentences if sentence.words or sentence.facts]


class NoveltyFilter:
    """Index of the selected sentences, which finds the sentences that say something new."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._by_form: dict[str, set[Sentence]] = defaultdict(set)
        self._by_word: dict[str, set[Sentence]] = defaultdict(set)

    def add(self, sentences: Iterable[Sentence]) -> None:
        """Add sentences to the index."""
        for sentence in sentences:
            self._values |= {fact.value for fact in sentence.facts}
            self._by_form[sentence.normal_form].add(sentence)
            for word in sentence.words:
                self._by_word[word].add(sentence)

    def remove(self, sentences: Iterable[Sentence]) -> None:
        """Remove sentences from the index."""
        for sentence in sentences:
            self._by_form[sentence.normal_form].discard(sentence)
            for word in sentence.words:
                self._by_word[word].discard(sentence)

    def is_covered(self, sentence: Sentence, *, ignore: Sequence[Sentence] = ()) -> bool:
        """Return True if an indexed sentence that is not in ``ignore`` says all that ``sentence`` says."""
        if self._by_form.get(sentence.normal_form, set()) - set(ignore):
            return True
        shared = Counter(one for word in sentence.words for one in self._by_word.get(word, ()))
        candidates = [one for one, count in shared.items() if count >= _count_required(sentence) and one not in ignore]
        return any(one.covers(sentence) for one in candidates)

    def select_new(self, sentences: Sequence[Sentence], *, needs_literal: bool = False) -> list[Sentence]:
        """Return the new sentences of one text in order; none if they are not worth adding.

        They are worth adding if they have a new literal or, unless ``needs_literal``, half of the text's words.
        ``needs_literal`` is for texts from which an indexed text was made.
        """
        new: list[Sentence] = []
        for sentence in sentences:
            if not self.is_covered(sentence) and not any(one.covers(sentence) for one in new):
                new.append(sentence)
        if not new or self._has_new_literal(new):
            return new
        share = len(_all_words(new)) / max(1, len(_all_words(sentences)))
        return [] if needs_literal or share < _MIN_NEW_SHARE else new

    def _has_new_literal(self, sentences: Iterable[Sentence]) -> bool:
        facts = {fact for sentence in sentences for fact in sentence.facts if fact.kind in KINDS}
        return any(fact.value not in self._values and not self._has_variant(fact) for fact in facts)

    def _has_variant(self, fact: Literal) -> bool:
        """Return True if an indexed sentence holds the literal in another spelling."""
        indexed = (one for same in self._by_form.values() for one in same)
        return fact.kind not in EXACT_KINDS and any(stands_in(fact, one.text) for one in indexed)


def _all_words(sentences: Iterable[Sentence]) -> frozenset[str]:
    return frozenset().union(*(sentence.words for sentence in sentences))
