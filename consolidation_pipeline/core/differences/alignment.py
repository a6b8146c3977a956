"""Alignment of two texts: which tokens of one stand for which of the other."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache

from consolidation_pipeline.core.differences.language import Language, is_unspaced
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.phrase_order import is_rearranged
from consolidation_pipeline.core.differences.reading import PATH, Reading, Token

# Returns the cosine of the vectors of two words.
Similarity = Callable[[str, str], float]
# Words with at least this cosine may stand for each other. At 0.5 of the default model, opposites have 0.2 and less.
MIN_WORD_SIMILARITY = 0.65
# Words of one family begin alike, for at least this length.
_FAMILY_LENGTH = 4
# Texts with a smaller part of equal words have too little in common to look for similar ones.
MIN_EQUAL = 0.4
_FEW_WORDS = 3
# Texts that both add details have this many words in common: "a fee for topping up" and "a limit to topping up": two.
FEWEST_COMMON = 6
# Prepositions of what a compound names first: "the key to the shed", "the code for the locker".
OF_COMPOUNDS = frozenset("of for to in on at für von vom zu zum zur des im am bei beim de del du para pour".split())
_DATE = re.compile(r"date:\d{4}-(\d\d-\d\d)")
# A verb behind its particle: "gedruckt", "zudrucken", "drucken".
_ROOT = re.compile(r"(?:ge|zu)?(\w{4,}?)(?:t|et|te|ten|en|n)")
_ERROR = re.compile(r"[A-Z][a-z]+(?:Error|Exception|Warning)")
# Pairs of words left that are compared one by one. Texts with more have nothing in common.
_MOST_WORD_PAIRS = 10_000


class Alignment:
    """Pairs of tokens of two texts.

    Attributes:
        of_a: Position in ``b`` of each position in ``a`` that has one.
        of_b: Position in ``a`` of each position in ``b`` that has one.
    """

    def __init__(self, a: Reading, b: Reading, similarity: Similarity | None) -> None:
        self.a, self.b, self.readings = a.tokens, b.tokens, (a, b)
        self.language = load_language(a.language or "en")
        self.similarity = similarity
        self.of_a: dict[int, int] = {}
        self.of_b: dict[int, int] = {}
        self._align(a, b)
        self.left_a = [token for at, token in enumerate(self.a) if at not in self.of_a]
        self.left_b = [token for at, token in enumerate(self.b) if at not in self.of_b]

    @cached_property
    def is_rearranged(self) -> bool:
        """True if the texts have the same phrases in another order that changes nothing."""
        return is_rearranged(*self.readings, self.of_a, self.language)

    def _align(self, first: Reading, second: Reading) -> None:
        """Pair equal tokens, first in order, then anywhere; then words that may stand for each other."""
        a, b = first.keys, second.keys
        for i, j in match_in_order(a, b):
            self._pair(i, j)
        for i, j in list(self.of_a.items()):
            # A synonym in place comes before the same word elsewhere.
            if i + 1 not in self.of_a and j + 1 not in self.of_b and self._may_replace(i + 1, j + 1):
                self._pair(i + 1, j + 1)
        forms = [(a, b)] if len(self.of_a) < len(a) and len(self.of_b) < len(b) else []
        # A word at the beginning of a sentence and a name may be the same: both have a key as words.
        if forms and (first.names or second.names):
            forms.append((self._read_as_words(self.a), self._read_as_words(self.b)))
        for keys_a, keys_b in forms:
            places = defaultdict(list)
            for at, key in enumerate(keys_b):
                if at not in self.of_b:
                    places[key].append(at)
            for at, key in enumerate(keys_a):
                found = places.get(key, ()) if at not in self.of_a else ()
                if self.a[at].kind == "name":
                    found = [other for other in found if self.b[other].kind != "name" or a[at] == b[other]]
                if found:
                    expected = self._expect_place(at)
                    best = min(found, key=lambda other: abs(other - expected))
                    places[key].remove(best)
                    self._pair(at, best)
        if first.partial and second.partial:
            self._pair_longer(first.partial, second.partial)
        if has_enough(len(self.of_a), min(len(a), len(b)), self.language):
            if self.language.stemmer or self.language.compound_links:
                self._pair_compounds(self.a, self.of_a, self.b, self.of_b)
                self._pair_compounds(self.b, self.of_b, self.a, self.of_a)
            self._pair_similar_words()
        if not self.language.stemmer:
            self._part_words()

    def _part_words(self) -> None:
        """Part the pairs of which one is a part of a word that the lists do not know: 修 of 修订, and 修理."""
        for i, j in list(self.of_a.items()):
            is_part = _is_part(self.a, i, self.of_a) or _is_part(self.b, j, self.of_b)
            if is_part and self.a[i].key != self.b[j].key:
                del self.of_a[i], self.of_b[j]

    def _pair_longer(self, rest_a: Sequence[int], rest_b: Sequence[int]) -> None:
        """Pair a path with the only one that ends with it, "a.py" and "src/a.py", and a date with that of a year."""
        ends = [(i, j) for i in rest_a for j in rest_b if find_longer(self.a[i], self.b[j])]
        for i, j in ends:
            if sum(i == x or j == y for x, y in ends) == 1 and i not in self.of_a and j not in self.of_b:
                self._pair(i, j)

    def _pair_compounds(
        self, words: Sequence[Token], of_words: dict[int, int], parts: Sequence[Token], of_parts: dict[int, int]
    ) -> None:
        """Pair a word with the two that it is made of in the other text: SyntaxError, "Treiber für Drucker"."""
        left = [at for at, token in enumerate(words) if at not in of_words and _may_be_compound(token)]
        for j in range(len(parts) - 1) if left else ():
            if j in of_parts or j + 1 in of_parts:
                continue
            joined = self._join_words(parts[j], parts[j + 1])
            same = next((at for at in left if at not in of_words and words[at].text.lower() in joined), None)
            if same is not None:
                of_words[same], of_parts[j], of_parts[j + 1] = j, same, same

    def _join_words(self, first: Token, second: Token) -> set[str]:
        """Return the words that two words may be written as: "Drucker", "Treiber", or "Treiber für Drucker"."""
        one, other = first.text.lower(), second.text.lower()
        if second.gap == "tight" or (second.gap == "s" and self.language.has_late_focus):  # デプロイのスクリプト
            return {one + other}
        if second.governor in OF_COMPOUNDS or second.gap == "of":
            own = {other, *(other.removesuffix(end) for end in self.language.compound_links if second.gap == "of")}
            return {bare + link + one for link in self.language.compound_links for bare in own}
        return set()

    def _pair_similar_words(self) -> None:
        words_a, words_b = self._list_words(self.a, self.of_a), self._list_words(self.b, self.of_b)
        if len(words_a) * len(words_b) > _MOST_WORD_PAIRS:
            return
        scores = (
            (_compare_words(x, y, one, other, self.language.code, self.similarity), i, j)
            for x, one, i in words_a
            for y, other, j in words_b
            if one or other or not self._have_one_stem(i, j)
        )
        candidates = [(-score - self._is_same_slot(i, j), i, j) for score, i, j in scores if score]
        for _, i, j in sorted(candidates):
            if i not in self.of_a and j not in self.of_b:
                self._pair(i, j)

    def _list_words(self, tokens: Sequence[Token], places: Mapping[int, int]) -> list[tuple[str, str, int]]:
        """Return key, word and position of the words without a place; of names, those that have synonyms, as ""."""
        found = []
        for at, token in enumerate(tokens):
            if at in places:
                continue
            if token.kind == "word":
                found.append((token.key, token.text.lower(), at))
            elif token.kind == "name" and (key := self.language.read_word(token.key)) in self.language.groups:
                found.append((key, "", at))
        return found

    def _read_as_words(self, tokens: Sequence[Token]) -> list[str]:
        """Return the keys of tokens with names as words, so that a name equals a word but no other name."""
        return [self.language.read_word(token.key) if token.kind == "name" else token.key for token in tokens]

    def _expect_place(self, at: int) -> int:
        """Return where a token would stand in ``b``, beside the nearest token that has a place there."""
        for distance in range(len(self.a)):
            for near in (at - distance, at + distance):
                if near in self.of_a:
                    return self.of_a[near] + at - near
        return at

    def _pair(self, i: int, j: int) -> None:
        self.of_a[i], self.of_b[j] = j, i

    def _may_replace(self, i: int, j: int) -> bool:
        """Return True if there are words at both positions, and the one may stand for the other."""
        if i >= len(self.a) or j >= len(self.b):
            return False
        is_word = self.a[i].kind == self.b[j].kind == "word"
        return is_word and self.language.may_replace(self.a[i].key, self.b[j].key)

    def _have_one_stem(self, i: int, j: int) -> bool:
        """Return True if two names differ in an ending alone: Brook and Brooks, unlike Professor and Prof."""
        stem = self.language.stem
        return stem(self.a[i].key) == stem(self.b[j].key)

    def _is_same_slot(self, i: int, j: int) -> bool:
        return self.of_a.get(i - 1) == j - 1 or self.of_a.get(i + 1) == j + 1


def _may_be_compound(token: Token) -> bool:
    """Return True for a word, and for the name of an error, which may be written as two words: SyntaxError."""
    return token.kind == "word" or (token.kind == "name" and _ERROR.fullmatch(token.text) is not None)


def has_enough(equal: int, size: int, language: Language) -> bool:
    """Return True if so many of the words of the shorter text are equal that others may be similar ones.

    In scripts without blanks, many words are cues: texts of few others may have no equal ones.
    """
    return equal >= MIN_EQUAL * size or (not language.stemmer and size <= _FEW_WORDS)


def _is_part(tokens: Sequence[Token], at: int, places: Mapping[int, int]) -> bool:
    """Return True for one ideograph beside another one that has no place in the other text."""
    sides = (side for side in (at - 1, at + 1) if 0 <= side < len(tokens) and side not in places)
    return _is_sign(tokens[at]) and any(
        _is_sign(tokens[side]) and abs(tokens[side].start - tokens[at].start) == 1 for side in sides
    )


def _is_sign(token: Token) -> bool:
    return token.kind == "word" and len(token.text) == 1 and is_unspaced(token.text)


def match_in_order(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of equal keys in ``a`` and ``b``, in order: the longest run first, then beside it.

    The pairs are those of ``difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()``.
    """
    places: dict[str, list[int]] = {}
    for at, key in enumerate(b):
        places.setdefault(key, []).append(at)
    there = [places.get(key) for key in a]
    pairs: list[tuple[int, int]] = []
    open_parts = [(0, len(a), 0, len(b))] if any(there) else []
    while open_parts:
        start, end, low, high = open_parts.pop()
        first, first_there, size = start, low, 0
        runs: dict[int, int] = {}  # length of the run of equal keys that ends at the position before, by its end in b
        for at in range(start, end):
            longer: dict[int, int] = {}
            for place in there[at] or ():
                if place >= high:
                    break
                if place >= low:
                    length = longer[place] = runs.get(place - 1, 0) + 1
                    if length > size:
                        first, first_there, size = at - length + 1, place - length + 1, length
            runs = longer
        if size:
            pairs += [(first + step, first_there + step) for step in range(size)]
            last, last_there = first + size, first_there + size
            if start < first and low < first_there:
                open_parts.append((start, first, low, first_there))
            if last < end and last_there < high:
                open_parts.append((last, end, last_there, high))
    return sorted(pairs)


def shorten(key: str) -> str:
    """Return the key of a path without its folders, of a date without its year, any other key as it is."""
    if key.startswith(PATH):
        return PATH + key.removeprefix(PATH).rpartition("/")[2]
    return f"date:{date[1]}" if (date := _DATE.fullmatch(key)) else key


def find_longer(one: Token, other: Token) -> Token | None:
    """Return the one of two tokens that tells more: "src/a.py" of "a.py" and "src/a.py", the date with a year."""
    shorter, longer = sorted((one, other), key=lambda token: len(token.key))
    if (date := _DATE.fullmatch(longer.key)) and shorter.key == f"date:{date[1]}":
        return longer
    is_end = shorter.key.startswith(PATH) and longer.key.startswith(PATH)
    if shorter.text.startswith("./") and longer.key.startswith(f"{PATH}/"):  # ./tmp, /tmp
        return None
    return longer if is_end and longer.key.endswith(f"/{shorter.key.removeprefix(PATH)}") else None


def _find_root(word: str, language: Language) -> tuple[str, str] | None:
    """Return the particle and the root of a German verb: "ausgedruckt", "auszudrucken" and "ausdrucken" have one."""
    particle = max((one for one in language.particles if word.startswith(one)), key=len, default="")
    found = _ROOT.fullmatch(word.removeprefix(particle)) if particle else None
    return (particle, found[1]) if found else None


@lru_cache(maxsize=200_000)
def _compare_words(x: str, y: str, one: str, other: str, code: str, similarity: Similarity | None) -> float:
    """Return how alike two words are, 0 if they may not stand for each other.

    Args:
        x: key of the first word.
        y: key of the second word.
        one: the first word in lower case; empty for a name, which only a synonym may stand for.
        other: the second word, as ``one``.
    """
    language = load_language(code)
    if frozenset((x, y)) in language.antonyms:
        return 0.0
    if language.may_replace(x, y):
        return 1.0
    if not language.stemmer or not one or not other:
        return 0.0
    if x.endswith(y) or y.endswith(x):  # lock and unlock, order and reorder
        return 0.0
    common = next((at for at, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y)))
    if common >= _FAMILY_LENGTH and x[common:] in language.family_endings and y[common:] in language.family_endings:
        return 0.9
    if language.has_prefixes and (root := _find_root(one, language)) and root == _find_root(other, language):
        return 0.9
    # The vectors of "sign in" and "sign off", "year" and "once a year" are alike because of the word that they share.
    is_phrase = " " in one or " " in other
    value = similarity(one, other) if similarity and not is_phrase else 0.0
    return value if value >= MIN_WORD_SIMILARITY else 0.0
