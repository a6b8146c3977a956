"""Differences of the cues of two texts: the words that change what is claimed, and where they stand."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from consolidation_pipeline.core.differences.alignment import Alignment
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import ONLY, may_be_subject
from consolidation_pipeline.core.differences.phrase_order import PERSON, TIMES
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token

# A kind of difference and the words of each text.
Finding = tuple[str, Sequence[Token | Cue], Sequence[Token | Cue]]
# Markers that one text alone may have: "the request fails if ..", "the request fails: ..".
_OPTIONAL_MARKERS = frozenset(
    "to by through against above during because result although if between from object".split()
)
# Cues of what is not done yet.
_UNDONE = {
    *(("modality", pole) for pole in ("required", "advised", "missed")),
    ("tense", "future"),
    ("tense", "will"),
    ("tense", "soon"),
    ("request", "action"),
}
# Poles of a category that say the same in one place: "may park", "can park"; "once it is green", "when it is green".
# "May" is both "is allowed to" and "maybe", which are two claims.
_ALIKE = {
    ("modality", "able", "permitted"),
    ("modality", "able", "possible"),
    ("modality", "advised", "intended"),
    ("modality", "advised", "missed"),
    ("modality", "intended", "required"),
    ("modality", "missed", "required"),
    ("modality", "permitted", "possible"),
    ("modality", "possible", "uncertain"),
    ("quantity", "all", "any"),
    ("tense", "future", "habit"),
    ("tense", "future", "will"),
    ("tense", "habit", "present"),
    ("marker", "if", "once"),
    ("marker", "after", "once"),
    ("polarity", "ended", "negative"),
    ("polarity", "negative", "pending"),
}
# Markers of clauses in which "any" is not "all".
_OPEN_CONDITIONS = {("marker", pole) for pole in ("if", "unless", "once", "until")}
# Markers that contradict each other, though either may be missing.
_OPPOSED = {
    frozenset(pair)
    for pair in (("from", "to"), ("by", "to"), ("above", "below"), ("by", "object"), ("until", "deadline"))
}
# Markers of clauses of which none stands for another one: "because it failed", "although it failed".
_CLAUSES = frozenset("if because although before after until".split())
# Adverbs that either text may lack, but that do not stand for each other: "still finishes", "finally finishes".
_ADVERBS = frozenset(
    {("tense", "still"), ("progress", "done"), ("progress", "ended"), ("order", "final"), ("order", "again")}
)
# Auxiliaries that put one clause before another one: "we had signed it when it came", "we signed it when it had come".
_PLUPERFECTS = frozenset(("had", "had been"))
# Categories of words that are no opposites of one content.
GRAMMAR = frozenset(
    "marker question request polarity need quantity restriction bound modality tense order voice progress".split()
)
# Cues of different categories that say the same: "old but good", "although old, good"; "only now", "just now".
_ALIKE_CUES = {
    (("restriction", "contrast"), ("marker", "although")),
    (("restriction", "contrast"), ("contrast", "however")),
    (("restriction", "only"), ("filler", "just")),
    (("tense", "will"), ("marker", "object")),
}
# Words of a noun that "all" may stand on either side of, and what is in none.
_LONGEST_NOUN = 3
_PARTS_NOUN = re.compile("[的了把将被在后前时就会可要能才都,，。、]")
# The end of a Japanese verb before a noun.
_PRENOMINAL = re.compile("[るたいうくすつぬぶむぐ](?=[\u30a1-\u30ff\u4e00-\u9fff])")
# A clause that one text alone has is plain detail if it has at least this many tokens.
_SMALLEST_CLAUSE = 2


@dataclass(frozen=True)
class _Side:
    """Cues of one text, the tokens next to each (as positions in the second text), and the tokens it has alone.

    ``pairs``: position in the other text of each token that has one.
    """

    text: str
    tokens: Sequence[Token]
    cues: Sequence[Cue]
    frame: Sequence[int | str]
    scopes: Sequence[frozenset[int]]
    left: Sequence[Token]
    pairs: Mapping[int, int]

    @cached_property
    def new_clauses(self) -> set[int]:
        """The clauses of which nothing is in the other text."""
        sizes, missing = Counter(token.clause for token in self.tokens), Counter(token.clause for token in self.left)
        return {clause for clause, size in missing.items() if size == sizes[clause] >= _SMALLEST_CLAUSE}

    @cached_property
    def tails(self) -> dict[int, int]:
        """Place of the first token that an "and" adds at the end of a clause, if no token from there is shared."""
        shared = defaultdict[int, int](int)
        for at in self.pairs:
            shared[self.tokens[at].clause] = max(shared[self.tokens[at].clause], self.tokens[at].place + 1)
        tails = defaultdict[int, list[Token]](list)
        for token in sorted(self.left, key=lambda token: token.place):
            if token.place >= shared[token.clause] > 0:
                tails[token.clause].append(token)
        long = {clause: tail[0] for clause, tail in tails.items() if len(tail) >= _SMALLEST_CLAUSE}
        return {clause: first.place for clause, first in long.items() if first.gap == "and"}

    def is_new(self, cue: Cue) -> bool:
        """Return True if a cue stands in a clause of which nothing is in the other text."""
        return cue.clause in self.new_clauses or cue.place >= self.tails.get(cue.clause, cue.place + 1)


def find_cue_differences(a: Reading, b: Reading, alignment: Alignment, language: Language) -> Iterator[Finding]:
    """Yield the cues that changed, moved to other words, or stand in one text alone."""
    if not a.cues and not b.cues:
        return
    one = _build_side(a, alignment.of_a, alignment.left_a, alignment.of_a)
    other = _build_side(b, {at: at for at in alignment.of_b}, alignment.left_b, alignment.of_b)
    paired_a: set[int] = set()
    paired_b: set[int] = set()
    pairs: list[tuple[int, int]] = []
    for has_changed, is_apart, _, i, j in sorted(
        (x.pole != y.pole, not one.scopes[i] & other.scopes[j], abs(x.place - y.place), i, j)
        for i, x in enumerate(a.cues)
        for j, y in enumerate(b.cues)
        if x.category == y.category
    ):
        x, y = a.cues[i], b.cues[j]
        if i in paired_a or j in paired_b:
            continue
        is_alike = not is_apart and _are_alike(x, y, a.cues, b.cues)
        is_opposed = _are_opposed(x, y, a.cues, b.cues)
        is_free = x.category == "question" or (x.category == "marker" and not is_opposed)
        if has_changed and not is_alike and (is_apart or is_free):
            continue
        # "It was not declined", "it was declined and did not go through"; but 接続できないときは and 接続できない時は、
        is_alone = language.stemmer is None and x.pole == y.pole and x.place == y.place
        if is_apart and not is_alone and x.category == "polarity" and bool(one.scopes[i]) != bool(other.scopes[j]):
            continue
        if any(_have_turned(x, y, a.cues[k], b.cues[m], language) for k, m in pairs):
            yield "moved cue", _quote(x, one.tokens), _quote(y, other.tokens)
        pairs.append((i, j))
        paired_a.add(i)
        paired_b.add(j)
        if has_changed and not is_alike:
            yield ("added cue" if {x.pole, y.pole} <= _CLAUSES else "cue"), [x], [y]
        elif not alignment.is_rearranged and _has_moved(one, i, other, j, language):
            yield "moved cue", _quote(x, one.tokens), _quote(y, other.tokens)
    for i, j in _find_alike(one, paired_a, other, paired_b):
        paired_a.add(i)
        paired_b.add(j)
    yield from _find_other_adverbs(one, paired_a, other, paired_b)
    if alignment.is_rearranged:
        paired_a |= {i for i, cue in enumerate(a.cues) if cue.category == "voice"}
        paired_b |= {j for j, cue in enumerate(b.cues) if cue.category == "voice"}
    for kind, words in _find_added(one, paired_a, other, language):
        yield kind, words, ()
    for kind, words in _find_added(other, paired_b, one, language):
        yield kind, (), words
    for cue in _find_demands(one, paired_a, other, paired_b, language):
        yield "added cue", _quote(cue, one.tokens), ()
    for cue in _find_demands(other, paired_b, one, paired_a, language):
        yield "added cue", (), _quote(cue, other.tokens)


def _find_other_adverbs(one: _Side, paired: set[int], other: _Side, paired_other: set[int]) -> Iterator[Finding]:
    """Yield the adverbs in one place that do not stand for each other."""
    left = [cue for at, cue in enumerate(one.cues) if at not in paired and (cue.category, cue.pole) in _ADVERBS]
    for j, y in enumerate(other.cues):
        if j not in paired_other and (y.category, y.pole) in _ADVERBS:
            yield from (("added cue", [x], [y]) for x in left if (x.category, x.pole) != (y.category, y.pole))


def _have_turned(x: Cue, y: Cue, other_x: Cue, other_y: Cue, language: Language) -> bool:
    """Return True if two cues changed sides: "not all tests pass", "all tests do not pass".

    In a German clause the verb and its denial may stand on either side of each other.
    """
    turning = {"quantity"} if language.has_late_participles else {"quantity", "modality"}
    categories = {x.category, other_x.category}
    is_pair = "polarity" in categories and bool(categories & turning)
    # Opposites in scripts without blanks: "production slower than staging".
    is_content = not language.stemmer and len(categories) == 1 and not categories & GRAMMAR and x.pole != other_x.pole
    is_clause = x.clause == other_x.clause and y.clause == other_y.clause
    return (is_pair or is_content) and is_clause and (x.start < other_x.start) != (y.start < other_y.start)


def _has_moved(one: _Side, i: int, other: _Side, j: int, language: Language) -> bool:
    """Return True if a cue of both texts stands beside other words."""
    x, y = one.cues[i], other.cues[j]
    is_placed = (x.category, x.pole) in _ADVERBS or {x.text.lower(), y.text.lower()} <= _PLUPERFECTS
    if is_placed and _is_in_new_clause(one, x, other, y):
        return True
    if _is_neutral(x, language):
        return False
    if x.category == "polarity" and _denies_other_verb(one, x, other, y):
        return True
    if (
        x.category == "stance"
        and x.text.lower() == y.text.lower()
        and not _has_clauses(one)
        and not _has_clauses(other)
    ):
        return False  # "probably the valve caused it", "it was caused probably by the valve"
    if language.has_late_focus and x.category in TIMES and _crosses_verb(one, x, other, y, language):
        return True
    if x.category == "quantity" and _tells_part_of_other(one, x, other, y, language):
        return True
    is_adverb = x.category == "polarity" and {x.text.lower(), y.text.lower()} <= language.adverbial_negations
    if (is_adverb or f"cue {x.category} {x.pole}" == ONLY) and _has_new_focus(one, x, other, y, language):
        return True
    if (x.category, x.pole) == ("marker", "if") and _is_joined(one, x, language) != _is_joined(other, y, language):
        return bool(one.scopes[i] & other.scopes[j])
    # The clause that 先 opens may have no words but cues.
    has_words = bool(one.scopes[i]) and bool(other.scopes[j])
    if one.scopes[i] & other.scopes[j] or not (has_words or x.category == "order"):
        return False
    if language.stemmer:
        return True
    is_free = _stands_alike(one, x, other, y) or _is_free_time(one, x, other, y, language)
    return not (is_free or _is_floated(one, x, other, y))


def _has_clauses(side: _Side) -> bool:
    return len({token.segment for token in side.tokens}) > 1


def _stands_alike(one: _Side, x: Cue, other: _Side, y: Cue) -> bool:
    """Return True if the same shared words stand before a cue of both texts, one of them beside it: a comma differs."""
    (before, beside), (before_there, beside_there) = _find_both_sides(one, x, other, y)
    return before == before_there and any(
        here is not None and here == there for here, there in zip(beside, beside_there, strict=True)
    )


# The shared words before a cue, and those directly before and behind it, as positions in the second text.
_Sides = tuple[set[int], tuple[int | None, int | None]]


def _find_both_sides(one: _Side, x: Cue, other: _Side, y: Cue) -> tuple[_Sides, _Sides]:
    """Return what stands on the sides of a cue of both texts."""
    return _find_sides(one, x, one.pairs), _find_sides(other, y, {at: at for at in other.pairs})


def _find_sides(side: _Side, cue: Cue, shared: Mapping[int, int]) -> _Sides:
    """Return what stands on the sides of a cue. ``shared``: position in the second text of each shared word."""
    order = sorted(range(len(side.tokens)), key=lambda at: side.tokens[at].start)
    before = [at for at in order if side.tokens[at].start < cue.start]
    behind = order[len(before)] if len(before) < len(order) else -1
    beside = shared.get(before[-1]) if before else None, shared.get(behind)
    return {shared[at] for at in before if at in shared}, beside


def _is_floated(one: _Side, x: Cue, other: _Side, y: Cue) -> bool:
    """Return True if "all" stands on the other side of its noun, and nothing is denied: 航班全部取消, 所有航班取消."""
    if (x.category, x.pole) != ("quantity", "all") or any(
        cue.category == "polarity" for cue in (*one.cues, *other.cues)
    ):
        return False
    (_, beside), (_, beside_there) = _find_both_sides(one, x, other, y)
    if any(here is not None and here == there for here, there in zip(beside, reversed(beside_there), strict=True)):
        return True
    words = _list_crossed(one, x, other, y)  # 所有旧钥匙都收回了, 旧钥匙全部收回了
    if not 0 < len(words) <= _LONGEST_NOUN:
        return False
    start, end = words[0].start, max(word.start + len(word.text) for word in words)
    return _PARTS_NOUN.search(other.text, start, end) is None


def _is_free_time(one: _Side, x: Cue, other: _Side, y: Cue, language: Language) -> bool:
    """Return True if a time stands elsewhere in the clause: 周末公园人多, 公园周末人多, not in a phrase of a noun."""
    is_usual = (x.category, x.pole) == ("quantity", "most")
    if not (x.category in TIMES or is_usual) or any(
        sum(cue.category == x.category for cue in side.cues) > 1 for side in (one, other)
    ):
        return False
    return not any(
        side.text[cue.start + len(cue.text) :].startswith(tuple(language.genitives))
        for side, cue in ((one, x), (other, y))
    ) and not _crosses_attribute(one, x, other, y, language)


def _list_crossed(one: _Side, x: Cue, other: _Side, y: Cue) -> list[Token]:
    """Return the shared words that stand before a cue in one text and behind it in the other."""
    (before, _), (before_there, _) = _find_both_sides(one, x, other, y)
    return [other.tokens[at] for at in before ^ before_there]


def _crosses_attribute(one: _Side, x: Cue, other: _Side, y: Cue, language: Language) -> bool:
    """Return True if a time moved across a word of another clause or a genitive, or a verb before a noun."""
    clauses = {word.clause for word in other.tokens}
    is_far = len(clauses) > 1 + (y.clause not in clauses)
    return (is_far and bool(_list_crossed(one, x, other, y))) or _crosses_verb(one, x, other, y, language)


def _crosses_verb(one: _Side, x: Cue, other: _Side, y: Cue, language: Language) -> bool:
    """Return True if a cue moved across a genitive, or a verb before a noun: 昨日届いた荷物, 届いた荷物を昨日."""
    words = _list_crossed(one, x, other, y)
    if not words:
        return False
    start, end = min(word.start for word in words), max(word.start + len(word.text) for word in words)
    between = other.text[start : end + 1]
    if language.has_late_focus:
        return _PRENOMINAL.search(between) is not None
    return any(genitive in between for genitive in language.genitives)


def _denies_other_verb(one: _Side, x: Cue, other: _Side, y: Cue) -> bool:
    """Return True if a denial is of another verb: "jobs that were not new were run", ".. were new were not run"."""
    here, there = _find_denied(one, x), _find_denied(other, y)
    if here is None or there is None or one.pairs.get(here, there) == there:
        return False
    verbs, verbs_there = ([cue.start for cue in side.cues if cue.category == "tense"] for side in (one, other))
    before, before_there = sum(start < x.start for start in verbs), sum(start < y.start for start in verbs_there)
    return len(verbs) == len(verbs_there) and before != before_there


def _find_denied(side: _Side, cue: Cue) -> int | None:
    """Return the position of the token behind a denial."""
    return next((at for at, token in enumerate(side.tokens) if token.place == cue.place), None)


def _is_in_new_clause(one: _Side, x: Cue, other: _Side, y: Cue) -> bool:
    """Return True if an adverb stands among other words: "call if it leaks again", "call again if it leaks"."""
    here, there = _find_segment(one, x), _find_segment(other, y)
    pairs = {one.pairs[at] for at in here if at in one.pairs}
    shared = there & set(one.pairs.values())
    return bool(pairs and shared) and pairs.isdisjoint(there)


def _find_segment(side: _Side, cue: Cue) -> set[int]:
    """Return the positions of the tokens of the segment in which a cue stands."""
    before = [token for token in side.tokens if token.clause == cue.clause and token.place < cue.place]
    after = [token for token in side.tokens if token.clause == cue.clause and token.place >= cue.place]
    last = max(before, key=lambda token: token.place, default=None)
    is_opened = last and any(
        one.category == "marker" and one.place == cue.place and one.start < cue.start for one in side.cues
    )
    word = min(after, key=lambda token: token.place, default=last) if is_opened or last is None else last
    return {at for at, token in enumerate(side.tokens) if word and token.segment == word.segment}


def _tells_part_of_other(one: _Side, x: Cue, other: _Side, y: Cue, language: Language) -> bool:
    """Return True if a part is one of another thing: "most of the money on a trip", "money on most of a trip"."""
    at, there = _find_whole(one, x, language), _find_whole(other, y, language)
    if at is None or there is None or at not in one.pairs or there not in one.pairs.values():
        return False
    phrase = {place for i, place in one.pairs.items() if one.tokens[i].phrase == one.tokens[at].phrase}
    return phrase.isdisjoint(i for i, token in enumerate(other.tokens) if token.phrase == other.tokens[there].phrase)


def _find_whole(side: _Side, cue: Cue, language: Language) -> int | None:
    """Return the position of the token behind "most of" or "some of"."""
    following = side.text[cue.start + len(cue.text) :].lower().split()[:1]
    if not language.genitives.intersection((cue.text.lower().split()[-1], *following)):
        return None
    return next((at for at, token in enumerate(side.tokens) if token.place == cue.place), None)


def _is_joined(side: _Side, cue: Cue, language: Language) -> bool:
    """Return True if a condition is of what follows alone: "restart it and, if it fails, page Ann"."""
    words = side.text[: cue.start].rstrip(" ,").lower().split()
    return bool(words) and words[-1] in language.coordinators


def _has_new_focus(one: _Side, x: Cue, other: _Side, y: Cue, language: Language) -> bool:
    """Return True if "only" restricts another word: "only admins may delete posts", "admins may only delete posts".

    Before a verb it may restrict any word behind it: "Ann only eats at home", "Ann eats only at home". A denial denies
    another word if it moved across one: "Kim tries not to cry", "Kim does not try to cry".
    """
    at, there = _find_focus(one, x, language), _find_focus(other, y, language)
    if at is None or there is None or at not in one.pairs or one.pairs[at] == there:
        return False
    if language.has_late_focus and x.category == "restriction":
        return True
    origins = {place: origin for origin, place in one.pairs.items()}
    is_behind = one.tokens[at].place < x.place or other.tokens[there].place < y.place
    in_phrase = _is_phrase(other, one.pairs[at], there) or (there in origins and _is_phrase(one, at, origins[there]))
    if is_behind and in_phrase:  # "only in the cold room", "in the cold room only"
        return False
    is_new = there in origins and _stood_before(other, there, one, origins[there], x)
    return is_new or _stood_before(one, at, other, one.pairs[at], y)


def _is_phrase(side: _Side, at: int, other: int) -> bool:
    """Return True if two words are in one phrase with a preposition."""
    one, two = side.tokens[at], side.tokens[other]
    return bool(one.governor) and one.phrase == two.phrase


def _stood_before(side: _Side, at: int, other: _Side, there: int, cue: Cue) -> bool:
    """Return True if a word behind "only", the subject or in a phrase, stands before ``cue`` in the other text."""
    word, same = side.tokens[at], other.tokens[there]
    if cue.category == "polarity":
        return same.place < cue.place and not word.governor and not same.governor
    is_phrase = bool(word.governor) and bool(same.governor)
    return same.place < cue.place and (is_phrase or may_be_subject(word, side.tokens, side.frame))


def _find_focus(side: _Side, cue: Cue, language: Language) -> int | None:
    """Return the position of the word behind "only", or else before it."""
    places = {token.place: at for at, token in enumerate(side.tokens) if token.clause == cue.clause}
    after = min((place for place in places if place >= cue.place), default=None)
    before = max((place for place in places if place < cue.place), default=None)
    first, second = (before, after) if language.has_late_focus else (after, before)
    place = second if first is None else first
    return None if place is None else places[place]


def _are_opposed(x: Cue, y: Cue, cues: Sequence[Cue], others: Sequence[Cue]) -> bool:
    """Return True if one text has only the first and the other one only the second of two opposed markers."""
    poles = frozenset((x.pole, y.pole))
    is_pair = x.category == "marker" and (poles in _OPPOSED or (len(poles) == 2 and poles <= _CLAUSES))
    return is_pair and all(cue.pole != y.pole for cue in cues) and all(cue.pole != x.pole for cue in others)


def _are_alike(x: Cue, y: Cue, cues: Sequence[Cue], others: Sequence[Cue]) -> bool:
    """Return True if two cues of one category say the same.

    A denial makes "any" and "all" different claims, and so does a condition: "once any probe fails".
    """
    if (x.category, *sorted((x.pole, y.pole))) not in _ALIKE:
        return False
    if {x.pole, y.pole} == {"able", "permitted"}:
        written = f"{x.text} {y.text}".lower()
        return not ("able" in written and any(word in written for word in ("allow", "permit")))
    if {x.pole, y.pole} == {"missed", "required"}:
        # "It should have run", "it must have run"
        side, demand = (cues, x) if x.pole == "required" else (others, y)
        return all((one.category, one.pole, one.clause) != ("tense", "past", demand.clause) for one in side)
    if x.category != "quantity":
        return True
    is_open = any(
        (one.category, one.pole) in _OPEN_CONDITIONS and one.clause == cue.clause
        for side, cue in ((cues, x), (others, y))
        for one in side
    )
    return not is_open and all(cue.category != "polarity" for cue in (*cues, *others))


def _find_alike(one: _Side, paired: set[int], other: _Side, paired_other: set[int]) -> list[tuple[int, int]]:
    """Return the positions of cues of different categories that say the same, of those that have no other one."""
    left = [at for at in range(len(one.cues)) if at not in paired]
    found: list[tuple[int, int]] = []
    for j, y in enumerate(other.cues):
        if j in paired_other:
            continue
        for i in left:
            x = one.cues[i]
            poles = (x.category, x.pole), (y.category, y.pole)
            is_same = poles in _ALIKE_CUES or poles[::-1] in _ALIKE_CUES
            is_near = "filler" not in (x.category, y.category) or one.scopes[i] & other.scopes[j]
            if is_same and is_near:
                found.append((i, j))
                left.remove(i)
                break
    return found


def _build_side(reading: Reading, places: Mapping[int, int], left: Sequence[Token], pairs: Mapping[int, int]) -> _Side:
    scopes = [frozenset(places[at] for at in near if at in places) for near in reading.scopes]
    return _Side(reading.source, reading.tokens, reading.cues, reading.frame, scopes, left, pairs)


def _find_demands(
    side: _Side, paired: set[int], other: _Side, paired_other: set[int], language: Language
) -> Iterator[Cue]:
    """Yield the cues by which one text demands or announces what the other one tells as done: "must send", "sent".

    Done is what an auxiliary of the past tells that the demand lacks, or a verb in another form than the demand's.
    """
    demands = [cue for at, cue in enumerate(side.cues) if at not in paired and (cue.category, cue.pole) in _UNDONE]
    if not demands:
        return
    here, there = (f" {one.text.lower()} " for one in (side, other))
    says_done = any(word in there and word not in here for word in language.done)
    for cue in demands:
        own = [i for i, token in enumerate(side.tokens) if token.clause == cue.clause and i in side.pairs]
        clauses = {other.tokens[side.pairs[i]].clause for i in own}
        if any((one.category, one.pole) in _UNDONE and one.clause in clauses for one in other.cues):
            continue  # "I will open it", "I should have opened it"
        forms = ((side.tokens[i].text.lower(), other.tokens[side.pairs[i]].text.lower()) for i in own)
        # "We should have paused it", "we paused it"
        may_be_equal = says_done or cue.pole == "missed"
        has_verb = any(language.is_past(theirs) and (may_be_equal or mine != theirs) for mine, theirs in forms)
        has_auxiliary = any(
            (one.category, one.pole) == ("tense", "past") and one.clause in clauses and j not in paired_other
            for j, one in enumerate(other.cues)
        )
        if has_verb or has_auxiliary or (says_done and not language.stemmer):
            yield cue


def _find_added(
    side: _Side, paired: set[int], other: _Side, language: Language
) -> Iterator[tuple[str, list[Token | Cue]]]:
    """Yield the cues that one text has alone."""
    for at, cue in enumerate(side.cues):
        if at not in paired and (kind := _judge_added(cue, side, other, not side.scopes[at], language)):
            # "CI stops at the check" denies nothing of "CI is red at the check".
            is_verb = kind == "polarity" and bool(other.left) and cue.text.lower() in language.denying_verbs
            # "coffee with sugar", "coffee without sugar"
            is_reverse = (cue.category, cue.pole) == ("marker", "without") and _has_with(cue, side, other, language)
            is_apart = kind == "polarity" and not _denies_shared(cue, side)
            found = "polarity" if is_reverse else "added cue" if is_verb or is_apart else kind
            yield found, _quote(cue, side.tokens)


def _denies_shared(cue: Cue, side: _Side) -> bool:
    """Return True if the other text has what is denied: not "their indentation is not consistent" without that word."""
    clause = [at for at, token in enumerate(side.tokens) if token.clause == cue.clause]
    denied = min((at for at in clause if side.tokens[at].place >= cue.place), default=max(clause, default=-1))
    return denied in side.pairs


def _has_with(cue: Cue, side: _Side, other: _Side, language: Language) -> bool:
    """Return True if the other text has, by "with", what this one is without."""
    at = next((i for i in side.pairs if side.tokens[i].place == cue.place), None)
    return at is not None and other.tokens[side.pairs[at]].governor in language.attributes - {cue.pole}


def _judge_added(cue: Cue, side: _Side, other: _Side, is_free: bool, language: Language) -> str:
    """Return the kind of difference that a cue of one text alone is; empty if it is none.

    Args:
        is_free: No token next to it is in the other text.
    """
    if cue.category == "restriction" or (cue.category, cue.pole) == ("marker", "unless"):
        return "exception"
    if cue.category == "stance" and _governs_shared(cue, side):
        return "added cue"
    if side.is_new(cue) or _is_neutral(cue, language) or (not other.left and _is_undergone(cue, side, language)):
        return ""
    if cue.category == "marker":
        if cue.pole == "instead" and language.has_late_focus and _follows_shared(cue, side):
            return "polarity"  # "S3 ではなく R2 に", "S3 に"
        is_optional = cue.pole in _OPTIONAL_MARKERS and not (cue.pole == "if" and _is_condition_of_all(cue, side))
        return "" if is_free or is_optional else "added cue"
    return "polarity" if cue.category == "polarity" else "added cue"


def _is_undergone(cue: Cue, side: _Side, language: Language) -> bool:
    """Return True if a passive tells of a thing what things do not do: 旧文件被删除, 旧文件删除."""
    end = cue.start + len(cue.text)
    done = next((end + len(word) for word in language.passing if side.text.startswith(word, end)), end)
    if cue.category != "voice" or not side.text.startswith(language.undergone, done):
        return False
    return PERSON.search(side.text[: cue.start][-_LONGEST_NOUN:]) is None


def _governs_shared(cue: Cue, side: _Side) -> bool:
    """Return True if a stance is on what both texts say: in a clause of both or before one, or if it tells a source."""
    clauses = {side.tokens[at].clause for at in side.pairs}
    return not clauses.isdisjoint((cue.clause, cue.clause + 1)) or cue.pole == "source"


def _follows_shared(cue: Cue, side: _Side) -> bool:
    """Return True if the word before a cue is in both texts."""
    before = [at for at, token in enumerate(side.tokens) if token.clause == cue.clause and token.place < cue.place]
    return max(before, key=lambda at: side.tokens[at].place, default=-1) in side.pairs


def _is_condition_of_all(cue: Cue, side: _Side) -> bool:
    """Return True if all that the texts share follows an "if" of one: "the card is lost", "if the card is lost, .."."""
    governed = {token.segment for token in side.tokens if token.place == cue.place}
    return {side.tokens[at].segment for at in side.pairs} == governed


def _is_neutral(cue: Cue, language: Language) -> bool:
    return (cue.category, cue.pole) in language.neutral


def _quote(cue: Cue, tokens: Sequence[Token]) -> list[Token | Cue]:
    """Return a cue with the two tokens after it."""
    return [cue, *(token for token in tokens if token.clause == cue.clause and 0 <= token.place - cue.place < 2)]
