"""Telling each thing once: what a text adds to what was told before, sentence by sentence."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from consolidation_pipeline.core.conflicts.literal_scanner import Literal
from consolidation_pipeline.core.conflicts.literals import EXACT_KINDS, KINDS, conflicts, literals, stands_in
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.text_merge import split_sentences
from consolidation_pipeline.core.text.word_overlap import content_words

# Sentences with fewer content words may differ in the only one that matters (`profiles.SHORT_WORDS`, function words
# taken off); of longer ones this share may be missing: "note to self", "seen again today".
_LONG, _MISSING = 14, 0.15
# What remains of a text when it is told without the sentences that were told before, at least, in content words.
_WORTH_TELLING = 0.5
# Of sentences on one matter; those on one topic share fewer of their words (`playbook.contradicts_itself`).
_ONE_MATTER = 0.6

# What joins or stresses and states nothing.
_JOINING = content_words(
    """
    actually already although always anyway basically besides but else even finally furthermore hence here however
    indeed instead just likewise moreover namely nevertheless now otherwise please really simply since still therefore
    though thus whereas whether while yet
    """
)

_BULLET = re.compile(r"(?:(?:[>•*+–—-]|#{1,6}|\d{1,3}[.)])\s+)+")


class Sentence:
    """A sentence and what it is compared by, each part read when it is first asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def form(self) -> str:
        """What sentences that say the same word for word have in common, bulleted or not."""
        return normalize_text(_BULLET.sub("", self.text, count=1))

    @cached_property
    def words(self) -> frozenset[str]:
        """Stems of its content words, without those that only join or stress."""
        return content_words(self.text) - _JOINING

    @cached_property
    def facts(self) -> frozenset[Literal]:
        """Its literals, negations among them."""
        return literals(self.text)

    def shares_fact(self, text: str) -> bool:
        """Whether ``text`` has one of its literals."""
        return any(fact.kind in KINDS and stands_in(fact, text) for fact in self.facts)

    def says(self, other: Sentence) -> bool:
        """Whether this sentence says all that ``other`` does: its words, but for some of many, and all its literals."""
        if self.form == other.form:
            return True
        if len(self.words & other.words) < _needed(other):
            return False
        return all(stands_in(fact, self.text) for fact in other.facts) and not conflicts(self.text, other.text)

    def disputes(self, other: Sentence) -> str | None:
        """What two sentences on one matter differ in; None if nothing, or they are on different ones."""
        shared = 2 * len(self.words & other.words) / max(1, len(self.words) + len(other.words))
        return next(map(str, conflicts(self.text, other.text)), None) if shared >= _ONE_MATTER else None


def _needed(sentence: Sentence) -> int:
    count = len(sentence.words)
    return count - int(count * _MISSING) if count >= _LONG else max(1, count)


def read_sentences(text: str) -> list[Sentence]:
    """The sentences of a text that say anything, in order."""
    read = [Sentence(part) for part in split_sentences(text)]
    return [sentence for sentence in read if sentence.words or sentence.facts]


class Told:
    """What was told so far."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._forms: dict[str, set[Sentence]] = defaultdict(set)
        self._holders: dict[str, set[Sentence]] = defaultdict(set)

    def take(self, sentences: Iterable[Sentence]) -> None:
        """Remember sentences as told."""
        for sentence in sentences:
            self._values |= {fact.value for fact in sentence.facts}
            self._forms[sentence.form].add(sentence)
            for word in sentence.words:
                self._holders[word].add(sentence)

    def forget(self, sentences: Iterable[Sentence]) -> None:
        """Take sentences back."""
        for sentence in sentences:
            self._forms[sentence.form].discard(sentence)
            for word in sentence.words:
                self._holders[word].discard(sentence)

    def knows(self, sentence: Sentence, *, beside: Sequence[Sentence] = ()) -> bool:
        """Whether one sentence that was told, ``beside`` these, says all that this one does."""
        if self._forms.get(sentence.form, set()) - set(beside):
            return True
        counted = Counter(one for word in sentence.words for one in self._holders.get(word, ()))
        likely = [one for one, count in counted.items() if count >= _needed(sentence) and one not in beside]
        return any(one.says(sentence) for one in likely)

    def added(self, sentences: Sequence[Sentence], *, is_covered: bool = False) -> list[Sentence]:
        """The sentences that add something, in order; none where what they add is not worth telling.

        ``is_covered``: what they come from was told already, in other words; then only a new literal is worth it, and
        else half of the words.
        """
        new: list[Sentence] = []
        for sentence in sentences:
            if not self.knows(sentence) and not any(one.says(sentence) for one in new):
                new.append(sentence)
        if not new or self._has_news(new):
            return new
        share = len(_words(new)) / max(1, len(_words(sentences)))
        return [] if is_covered or share < _WORTH_TELLING else new

    def _has_news(self, sentences: Iterable[Sentence]) -> bool:
        """Whether they hold a literal that stands nowhere in what was told."""
        facts = {fact for sentence in sentences for fact in sentence.facts if fact.kind in KINDS}
        return any(fact.value not in self._values and not self._has_written(fact) for fact in facts)

    def _has_written(self, fact: Literal) -> bool:
        """Whether a sentence that was told holds the literal otherwise written."""
        told = (one for same in self._forms.values() for one in same)
        return fact.kind not in EXACT_KINDS and any(stands_in(fact, one.text) for one in told)


def _words(sentences: Iterable[Sentence]) -> frozenset[str]:
    return frozenset().union(*(sentence.words for sentence in sentences))
