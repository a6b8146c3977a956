"""Explanation of the differences of two texts: may they become one?"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import chain, islice

from consolidation_pipeline.core.differences.language import Language, load_language
from consolidation_pipeline.core.differences.order import find_reordered
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token, read
from consolidation_pipeline.core.memories.memories import normalize_text

# Returns the cosine of the vectors of two words.
Similarity = Callable[[str, str], float]
Spans = tuple[tuple[int, int], ...]
# Words with at least this cosine may stand for each other. At 0.5 of the default model, opposites have 0.2 and less.
MIN_WORD_SIMILARITY = 0.5
# Words of one family begin alike, for this length and this share of the longer one: deploy, deployment.
_FAMILY_LENGTH, _FAMILY_SHARE = 4, 0.6
# Pairs of words left that are compared one by one. Texts with more have nothing in common.
_MOST_WORD_PAIRS = 10_000

# Verdict that a kind of difference proves. Additions prove ``contains`` only if one text alone has some.
PROOFS = {
    "polarity": "contradicts",
    "opposite": "contradicts",
    "cue": "contradicts",
    "value": "contradicts",
    "name": "contradicts",
    "code": "contradicts",
    "order": "contradicts",
    "exception": "unexplained",
    "added cue": "unexplained",
    "moved cue": "unexplained",
    "word": "unexplained",
    "language": "unexplained",
    "addition": "contains",
}
# Texts with more words in the place of others are compared as reworded ones.
_MOST_REPLACED = 2
# Markers that one text alone may have: "the request fails if ..", "the request fails: ..".
_OPTIONAL_MARKERS = frozenset("to by through against above during because result although if between from".split())
# A clause that one text alone has is plain detail if it has at least this many tokens.
_SMALLEST_CLAUSE = 2
# A clause may be found in this many clauses of the other text.
_MOST_CLAUSES = 4


@dataclass(frozen=True)
class Difference:
    """One difference: ``kind`` is a key of ``PROOFS``, ``a`` and ``b`` are the words of each text.

    ``spans_a`` and ``spans_b`` tell where these words stand: the offsets of their beginnings and ends.
    """

    kind: str
    a: str = ""
    b: str = ""
    spans_a: Spans = field(default=(), compare=False)
    spans_b: Spans = field(default=(), compare=False)

    def __str__(self) -> str:
        """Return the reason in one line, such as ``value: 30 min / 60 min``."""
        return f"{self.kind}: {self.a or '-'} / {self.b or '-'}"


@dataclass(frozen=True)
class Explanation:
    """Verdict on two texts, and the differences that prove it.

    ``verdict``: same, contains (one text adds plain detail), contradicts or unexplained.
    """

    verdict: str
    differences: tuple[Difference, ...] = ()

    @property
    def may_merge(self) -> bool:
        """True if every difference is harmless."""
        return self.verdict in ("same", "contains")


def explain(a: str, b: str, similarity: Similarity | None = None) -> Explanation:
    """Return how two texts differ. The verdict is the same for ``b`` and ``a``.

    Texts in an unknown language, in two languages or without any content are the same only if they are equal after
    normalization.

    Args:
        similarity: Without it, only words of one family or of a synonym group may stand for each other.
    """
    return explain_readings(read(a), read(b), similarity)


def explain_readings(a: Reading, b: Reading, similarity: Similarity | None = None) -> Explanation:
    """As ``explain``, for texts that were read."""
    if normalize_text(a.text) == normalize_text(b.text):
        return Explanation("same")
    if a.language is None or a.language != b.language:
        return Explanation("unexplained", (_of_whole_texts("language", a, b),))
    if not a.tokens or not b.tokens:
        return Explanation("unexplained", (_of_whole_texts("word", a, b),))
    found = tuple(_Comparison(a, b, load_language(a.language), similarity).find_differences())
    return Explanation(_judge(found), found)


def _judge(found: Sequence[Difference]) -> str:
    proofs = {PROOFS[difference.kind] for difference in found}
    for verdict in ("contradicts", "unexplained"):
        if verdict in proofs:
            return verdict
    return "contains" if found else "same"


class _Comparison:
    """Alignment of the tokens of two texts, and what it leaves."""

    def __init__(self, a: Reading, b: Reading, language: Language, similarity: Similarity | None) -> None:
        # The order of the texts decides ties of the alignment; it must not depend on which is the first.
        self.swapped = (len(b.tokens), b.text) < (len(a.tokens), a.text)
        first, second = (b, a) if self.swapped else (a, b)
        self.a, self.b = first.tokens, second.tokens
        self.cues_a, self.cues_b = first.cues, second.cues
        self.frame_a, self.frame_b = first.frame, second.frame
        self.at_a, self.at_b = ({token.place: at for at, token in enumerate(side)} for side in (self.a, self.b))
        self.language = language
        self.similarity = similarity
        self.of_a: dict[int, int] = {}
        self.of_b: dict[int, int] = {}

    def find_differences(self) -> Iterator[Difference]:
        """Yield all differences."""
        self._align()
        left_a = [token for at, token in enumerate(self.a) if at not in self.of_a]
        left_b = [token for at, token in enumerate(self.b) if at not in self.of_b]
        compared = self._compare_order(), self._compare_cues(left_a, left_b), self._compare_rest(left_a, left_b)
        found = list(chain.from_iterable(compared))
        if all(PROOFS[one.kind] == "contains" for one in found) and (replaced := self._find_replaced()):
            found.append(_difference("order", *replaced))
        for one in found:
            yield Difference(one.kind, one.b, one.a, one.spans_b, one.spans_a) if self.swapped else one

    # Alignment

    def _align(self) -> None:
        """Pair equal tokens, first in order, then anywhere; then words that may stand for each other."""
        a, b = [token.key for token in self.a], [token.key for token in self.b]
        for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
            for offset in range(block.size):
                self._pair(block.a + offset, block.b + offset)
        # A word at the beginning of a sentence and a name may be the same: both have a key as words.
        for keys_a, keys_b in ((a, b), (self._read_as_words(self.a), self._read_as_words(self.b))):
            places = defaultdict(list)
            for at, key in enumerate(keys_b):
                if at not in self.of_b:
                    places[key].append(at)
            for at, key in enumerate(keys_a):
                if at not in self.of_a and places.get(key):
                    best = min(places[key], key=lambda other: abs(other - at))
                    places[key].remove(best)
                    self._pair(at, best)
        rest_a = [at for at in range(len(a)) if at not in self.of_a and self.a[at].kind == "word"]
        rest_b = [at for at in range(len(b)) if at not in self.of_b and self.b[at].kind == "word"]
        if len(rest_a) * len(rest_b) > _MOST_WORD_PAIRS:
            return
        scores = ((self._resemblance(self.a[i], self.b[j]), i, j) for i in rest_a for j in rest_b)
        candidates = [(-score - self._is_same_slot(i, j), i, j) for score, i, j in scores if score]
        for _, i, j in sorted(candidates):
            if i not in self.of_a and j not in self.of_b:
                self._pair(i, j)

    def _read_as_words(self, tokens: Sequence[Token]) -> list[str]:
        """Return the keys of tokens with names as words, so that a name equals a word but no other name."""
        return [self.language.read_word(token.key) if token.kind == "name" else token.key for token in tokens]

    def _pair(self, i: int, j: int) -> None:
        self.of_a[i], self.of_b[j] = j, i

    def _is_same_slot(self, i: int, j: int) -> bool:
        return self.of_a.get(i - 1) == j - 1 or self.of_a.get(i + 1) == j + 1

    def _resemblance(self, one: Token, other: Token) -> float:
        """Return how alike two words of different stems are, 0 if they may not stand for each other."""
        x, y = one.key, other.key
        if not self.language.stemmer or frozenset((x, y)) in self.language.antonyms:
            return 0.0
        if x.endswith(y) or y.endswith(x):  # lock and unlock, order and reorder
            return 0.0
        common = next((at for at, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y)))
        if common >= max(_FAMILY_LENGTH, _FAMILY_SHARE * max(len(x), len(y))):
            return 0.9
        value = self.similarity(one.text.lower(), other.text.lower()) if self.similarity else 0.0
        return value if value >= MIN_WORD_SIMILARITY else 0.0

    # Order

    def _compare_order(self) -> Iterator[Difference]:
        if found := find_reordered(self.a, self.b, self.of_a, self.language):
            yield _difference("order", *found)
        elif found := find_reordered(self.b, self.a, self.of_b, self.language):
            yield _difference("order", *found[::-1])

    def _find_replaced(self) -> tuple[list[Token], list[Token]] | None:
        """Return tokens that stand where the other text has function words, or two words that changed places.

        All else must be as it was: with more differences, a text is a reworded one.
        """
        if len(self.frame_a) != len(self.frame_b):
            return None
        a, b = (
            [self._name_word(word, side) for word in frame] for side, frame in enumerate((self.frame_a, self.frame_b))
        )
        changed = [at for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
        if not changed or len(changed) > _MOST_REPLACED:
            return None
        has_exchanged = len(changed) == 2 and sorted(a[at] for at in changed) == sorted(b[at] for at in changed)
        if not has_exchanged and all(a[at][0] == b[at][0] for at in changed):
            return None
        tokens_a = [self.a[self.at_a[x]] for at in changed if isinstance(x := self.frame_a[at], int)]
        tokens_b = [self.b[self.at_b[y]] for at in changed if isinstance(y := self.frame_b[at], int)]
        is_adverb = any(token.text.lower().endswith(self.language.adverb_endings) for token in (*tokens_a, *tokens_b))
        return None if has_exchanged and is_adverb and changed[1] - changed[0] == 1 else (tokens_a, tokens_b)

    def _name_word(self, word: int | str, side: int) -> tuple[bool, str]:
        """Return a name of a word of a frame that is equal for aligned tokens."""
        if isinstance(word, str):
            return False, word
        at = self.at_b[word] if side else self.of_a.get(self.at_a[word], -1 - word)
        return True, str(at)

    # Cues

    def _compare_cues(self, left_a: Sequence[Token], left_b: Sequence[Token]) -> Iterator[Difference]:
        scopes_a = [self._find_scope(cue, self.a, self.of_a) for cue in self.cues_a]
        scopes_b = [self._find_scope(cue, self.b, {at: at for at in self.of_b}) for cue in self.cues_b]
        paired_a: set[int] = set()
        paired_b: set[int] = set()
        for has_changed, is_apart, _, i, j in sorted(
            (one.pole != other.pole, not scopes_a[i] & scopes_b[j], abs(one.place - other.place), i, j)
            for i, one in enumerate(self.cues_a)
            for j, other in enumerate(self.cues_b)
            if one.category == other.category
        ):
            one, other = self.cues_a[i], self.cues_b[j]
            if i in paired_a or j in paired_b:
                continue
            if has_changed and (is_apart or one.category in ("marker", "question")):
                continue
            paired_a.add(i)
            paired_b.add(j)
            if has_changed:
                yield _difference("cue", [one], [other])
            elif is_apart and scopes_a[i] and scopes_b[j] and not self._is_neutral(one):
                yield _difference("moved cue", _quote(one, self.a), _quote(other, self.b))
        new_a, new_b = _find_new_clauses(self.a, left_a), _find_new_clauses(self.b, left_b)
        for i, cue in enumerate(self.cues_a):
            if i not in paired_a and (kind := self._judge_added(cue, cue.clause in new_a, not scopes_a[i])):
                yield _difference(kind, _quote(cue, self.a), ())
        for j, cue in enumerate(self.cues_b):
            if j not in paired_b and (kind := self._judge_added(cue, cue.clause in new_b, not scopes_b[j])):
                yield _difference(kind, (), _quote(cue, self.b))

    def _find_scope(self, cue: Cue, tokens: Sequence[Token], places: dict[int, int]) -> frozenset[int]:
        """Return the aligned tokens next to a cue, as positions in ``b``.

        Next to a marker is the phrase after it, next to another cue are the two tokens after it, or else before it.
        """
        distance = {at: token.place - cue.place for at, token in enumerate(tokens) if token.clause == cue.clause}
        if cue.category == "marker":
            heads = {tokens[at].phrase for at in distance if distance[at] == 0}
            near = [at for at in distance if distance[at] >= 0 and tokens[at].phrase in heads]
        else:
            near = [at for at in distance if 0 <= distance[at] < 2] or [at for at in distance if -2 <= distance[at] < 0]
        return frozenset(places[at] for at in near if at in places)

    def _is_neutral(self, cue: Cue) -> bool:
        return (cue.category, cue.pole) in self.language.neutral

    def _judge_added(self, cue: Cue, is_new_clause: bool, is_free: bool) -> str:
        """Return the kind of difference that a cue of one text alone is; empty if it is none.

        Args:
            is_new_clause: Nothing of its clause is in the other text.
            is_free: No token next to it is in the other text.
        """
        if cue.category == "restriction" or (cue.category, cue.pole) == ("marker", "unless"):
            return "exception"
        if is_new_clause or self._is_neutral(cue):
            return ""
        if cue.category == "marker":
            return "" if is_free or cue.pole in _OPTIONAL_MARKERS else "added cue"
        return "polarity" if cue.category == "polarity" else "added cue"

    # Tokens of one text alone

    def _compare_rest(self, left_a: Sequence[Token], left_b: Sequence[Token]) -> Iterator[Difference]:
        for kind in ("value", "name", "code"):
            one, other = ([token for token in left if token.kind == kind] for left in (left_a, left_b))
            if one and other:
                yield _difference(kind, one, other)
                left_a, left_b = ([token for token in left if token.kind != kind] for left in (left_a, left_b))
        opposites = ((x, y) for x in left_a for y in left_b if {x.key, y.key} in self.language.antonyms)
        for x, y in islice(opposites, 1):
            yield _difference("opposite", [x], [y])
        if left_a or left_b:
            is_addition = not (left_a and left_b) and not self._replaces_word(bool(left_a))
            is_addition = is_addition and not self._is_scattered(bool(left_a))
            yield _difference("addition" if is_addition else "word", left_a, left_b)

    def _is_scattered(self, is_longer_a: bool) -> bool:
        """Return True if a clause of the shorter text is made of words of many clauses, or of few words of a long one.

        Its words are all in the longer text, but that does not say the same: "the payment is pending" beside a story of
        which one clause has "payment" and another one "pending".
        """
        longer, shorter, places = (self.a, self.b, self.of_b) if is_longer_a else (self.b, self.a, self.of_a)
        sizes = Counter(token.clause for token in longer)
        shared = Counter(longer[place].clause for place in places.values())
        clauses = defaultdict[int, set[int]](set)
        for at, place in places.items():
            clauses[shorter[at].clause].add(longer[place].clause)
        for found in clauses.values():
            size, common = sum(sizes[one] for one in found), sum(shared[one] for one in found)
            if len(found) > _MOST_CLAUSES or size > common * min(max(common, 2), 4):
                return True
        return False

    def _replaces_word(self, is_in_a: bool) -> bool:
        """Return True if a token of one text stands where the other text has more function words instead."""
        tokens, others, places = (self.a, self.b, self.of_a) if is_in_a else (self.b, self.a, self.of_b)
        there = {token.place: others[places[at]] for at, token in enumerate(tokens) if at in places}
        words, is_after_new, before = 0, False, -1
        for token in sorted(tokens, key=lambda token: token.place):
            words += token.words_before
            other = there.get(token.place)
            if other is None:
                is_after_new = True
                continue
            if is_after_new and other.place == before + 1 and words < other.words_before:
                return True
            words, is_after_new, before = 0, False, other.place
        return False


def _find_new_clauses(tokens: Sequence[Token], left: Sequence[Token]) -> set[int]:
    """Return the clauses of which nothing is in the other text."""
    sizes, missing = Counter(token.clause for token in tokens), Counter(token.clause for token in left)
    return {clause for clause, size in missing.items() if size == sizes[clause] >= _SMALLEST_CLAUSE}


def _difference(kind: str, a: Sequence[Token | Cue], b: Sequence[Token | Cue]) -> Difference:
    """Return a difference with the words of some tokens and cues."""
    words = (" ".join(one.text for one in side) for side in (a, b))
    spans = (tuple((one.start, one.start + len(one.text)) for one in side) for side in (a, b))
    return Difference(kind, *words, *spans)


def _of_whole_texts(kind: str, a: Reading, b: Reading) -> Difference:
    return Difference(kind, a.text, b.text, ((0, len(a.text)),), ((0, len(b.text)),))


def _quote(cue: Cue, tokens: Sequence[Token]) -> list[Token | Cue]:
    """Return a cue with the two tokens after it."""
    return [cue, *(token for token in tokens if token.clause == cue.clause and 0 <= token.place - cue.place < 2)]
