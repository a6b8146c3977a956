"""Proof by sentences: what one text says is said by the other one, or each says it beside details of its own."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise, product

from consolidation_pipeline.core.differences.alignment import FEWEST_COMMON
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reading import Reading, Token

# Sentences and details with this share of the words of the shorter one may tell of one matter.
_RELATED = 0.5
# Sentences with this share of the words of the longer one are versions of one sentence.
_SAME = 0.65
# Pairs of sentences that are compared one by one.
_MOST_PAIRS = 400
# Returns what each of two sentences says alone, None if they may not become one.
Judge = Callable[[Reading, Reading], tuple[list[Token], list[Token]] | None]


class SentenceProof:
    """Sentences of two texts, and what each says that no sentence of the other text says.

    Attributes:
        own: Details of each sentence of ``a``; all of its tokens if no sentence of ``b`` says the same.
        own_there: Details of each sentence of ``b``.
    """

    def __init__(self, a: Reading, b: Reading, judge: Judge) -> None:
        self.ones, self.others = a.sentences, b.sentences
        self.own, self.own_there = ([list(one.tokens) for one in side] for side in (self.ones, self.others))
        self._places: dict[int, int] = {}
        self._places_there: dict[int, int] = {}
        self._refused: set[tuple[int, int]] = set()
        is_long = len(self.ones) * len(self.others) > _MOST_PAIRS
        if len(self.ones) + len(self.others) > 2 and not is_long and self._may_match():
            self._match(judge)

    def _may_match(self) -> bool:
        """Return False if so many sentences share few words with any other that the rest cannot prove anything."""
        for side, there in ((self.ones, self.others), (self.others, self.ones)):
            alone = [one for one in side if not any(_covers(other, one) for other in there) and not _name_relation(one)]
            if 2 * sum(len(one.tokens) for one in alone) <= sum(len(one.tokens) for one in side):
                return True
        return False

    def _match(self, judge: Judge) -> None:
        for (i, one), (j, other) in product(enumerate(self.ones), enumerate(self.others)):
            if not _are_related(one.key_set, other.key_set):
                continue
            found = judge(one, other)
            if found is None:
                self._refused.add((i, j))
                continue
            if i not in self._places or len(found[0]) < len(self.own[i]):
                self._places[i], self.own[i] = j, found[0]
            if j not in self._places_there or len(found[1]) < len(self.own_there[j]):
                self._places_there[j], self.own_there[j] = i, found[1]

    def find_conflict(self) -> tuple[Reading, Reading] | None:
        """Return two sentences that may not become one, None if there are none or no sentence has moved.

        Sentences are compared that share the most. In one order, the words of the whole texts tell more.
        """
        shared = [[len(one.key_set & other.key_set) for other in self.others] for one in self.ones]
        most_there = [max(column) for column in zip(*shared, strict=True)]
        nearest = [
            (i, j) for i, row in enumerate(shared) for j, n in enumerate(row) if n and n == max(row) == most_there[j]
        ]
        if all(j <= k for (_, j), (_, k) in pairwise(nearest)):
            return None
        refused = (pair for pair in nearest if pair in self._refused)
        return next(((self.ones[i], self.others[j]) for i, j in refused if self.own[i] and self.own_there[j]), None)

    def find_details(self) -> tuple[list[Token], list[Token]] | None:
        """Return what each text says alone, None if the sentences prove nothing.

        Only one text may have details, or both if they stand in different places, tell of different matters, and are
        not more than the rest. No sentence of one text alone may except something, or be of another language.
        """
        if not self._places or any(
            self._is_version(i, j) for i, j in self._refused if self.own[i] or self.own_there[j]
        ):
            return None
        sides = (self.ones, self.own, self._places), (self.others, self.own_there, self._places_there)
        if all(any(own) for _, own, _ in sides) and (
            self._replace() or any(_are_most(own, of) for of, own, _ in sides)
        ):
            return None
        for sentences, own, places in sides:
            if any(
                _is_foreign(one) or (_excepts(one) and at not in places) for at, one in enumerate(sentences) if own[at]
            ):
                return None
        details, details_there = ([token for tokens in own for token in tokens] for _, own, _ in sides)
        return details, details_there

    def _is_version(self, i: int, j: int) -> bool:
        """Return True if two sentences share so much that one is a changed version of the other."""
        one, other = self.ones[i].key_set, self.others[j].key_set
        longer = max(len(one), len(other))
        return len(one & other) >= min(_SAME * longer, longer - 1)

    def _replace(self) -> bool:
        """Return True if details of one text may replace details of the other."""
        keys, keys_there = (
            [frozenset(token.key for token in tokens) for tokens in side if tokens]
            for side in (self.own, self.own_there)
        )
        if any(_are_related(x, y) for x, y in product(keys, keys_there)):
            return True
        opposites = load_language(self.ones[0].language or "en").opposites
        if any(opposites.get(key, frozenset()) & there for one in keys for key in one for there in keys_there):
            return True
        kinds, kinds_there = ({token.kind for one in side for token in one} for side in (self.own, self.own_there))
        if (kinds & kinds_there) - {"word"}:
            return True
        slots = _find_slots(self.ones, self._places)
        slots_there = _find_slots(self.others, {at: at for at in self._places_there})
        return any((x[0] == y[0] or x[1] == y[1]) and x[2] == y[2] != "addition" for x in slots for y in slots_there)


def _covers(one: Reading, other: Reading) -> bool:
    return 2 * len(one.key_set & other.key_set) >= len(other.key_set)


def _are_related(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= max(_RELATED * min(len(one), len(other)), 1)


def _are_most(details: Sequence[Sequence[Token]], sentences: Sequence[Reading]) -> bool:
    """Return True if details are more than the rest of a text, or the rest is short.

    Sentences that say themselves that they add something do not count.
    """
    rest = sum(len(one.tokens) - len(own) for one, own in zip(sentences, details, strict=True))
    alone = sum(len(own) for one, own in zip(sentences, details, strict=True) if not _name_relation(one))
    return rest < max(alone, FEWEST_COMMON)


def _excepts(sentence: Reading) -> bool:
    return any(cue.category == "restriction" or cue.pole == "unless" for cue in sentence.cues)


def _is_foreign(sentence: Reading) -> bool:
    return detect_language(sentence.text) not in (sentence.language, None)


def _find_slots(sentences: Sequence[Reading], places: Mapping[int, int]) -> set[tuple[int, int, str]]:
    """Return the neighbours, as positions in the second text, and the relation of the sentences of one text alone."""
    size = len(sentences)
    return {
        (
            next((places[near] for near in range(at, -1, -1) if near in places), -1),
            next((places[near] for near in range(at, size) if near in places), -1),
            _name_relation(one),
        )
        for at, one in enumerate(sentences)
        if at not in places
    }


def _name_relation(sentence: Reading) -> str:
    """Return what a sentence is to the one before it by its opening: "Additionally, ..", "This leads to .."; or ""."""
    found = _compile_relations(sentence.language or "en").match(sentence.text)
    return "" if found is None else str(found.lastgroup)


@cache
def _compile_relations(code: str) -> re.Pattern[str]:
    language = load_language(code)
    kinds = (("addition", language.additives), ("consequence", language.consequences | language.effects))
    groups = "|".join(f"(?P<{kind}>{'|'.join(sorted(words))})" for kind, words in kinds if words)
    return re.compile(rf"\W*(?:{groups or '(?!)'})\b", re.IGNORECASE)
