"""Explanation of the differences of two texts: may they become one?"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from textwrap import shorten

from consolidation_pipeline.core.differences.alignment import (
    FEWEST_COMMON,
    Alignment,
    Similarity,
    find_longer,
    has_enough,
)
from consolidation_pipeline.core.differences.attachment import find_new_place
from consolidation_pipeline.core.differences.closer_values import find_closer_value
from consolidation_pipeline.core.differences.consequences import find_turned_consequence
from consolidation_pipeline.core.differences.cue_differences import Finding, find_cue_differences
from consolidation_pipeline.core.differences.exchanged_clauses import are_joined_anew, is_turned_in_time
from consolidation_pipeline.core.differences.language import Language, split_words
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.language_loader import load_function_words, load_language
from consolidation_pipeline.core.differences.order import (
    find_exchange,
    find_new_side,
    find_reordered,
    is_same_as_written,
    is_turned,
    leave_out_verbs,
)
from consolidation_pipeline.core.differences.particles import differ_in_particles
from consolidation_pipeline.core.differences.reader import read, read_in
from consolidation_pipeline.core.differences.reading import VALUE_KINDS, Cue, Reading, Token, sort_as_written
from consolidation_pipeline.core.differences.roles import read_before
from consolidation_pipeline.core.differences.sentence_proof import SentenceProof
from consolidation_pipeline.core.differences.steps import find_new_step
from consolidation_pipeline.core.differences.subtle_differences import find_subtle
from consolidation_pipeline.core.differences.tenses import differ_in_time

Spans = tuple[tuple[int, int], ...]
# Verdict that a kind of difference proves. Words of both texts are additions only if they stand in different places.
PROOFS = {
    "polarity": "contradicts",
    "opposite": "contradicts",
    "cue": "contradicts",
    "value": "contradicts",
    "name": "contradicts",
    "code": "contradicts",
    "exchange": "contradicts",
    "exception": "unexplained",
    "added cue": "unexplained",
    "moved cue": "unexplained",
    "order": "unexplained",
    "modifier": "unexplained",
    "word": "unexplained",
    "language": "unexplained",
    "addition": "contains",
}
# Texts that both add details have this many times the words in common that one of them has alone.
MIN_COMMON = 2
# A clause may be found in this many clauses of the other text.
_MOST_CLAUSES = 4
# Texts with more tokens are not compared, as the time grows with the product of their lengths.
_MOST_TOKENS = 2_000
# Characters of each side that a reason shows.
_SHOWN_CHARS = 80


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
        one, other = (shorten(side, _SHOWN_CHARS, placeholder=" …") or "-" for side in (self.a, self.b))
        return f"{self.kind}: {one} / {other}"


@dataclass(frozen=True)
class Explanation:
    """Verdict on two texts, and the differences that prove it.

    ``verdict``: same, contains (one text, or each in another place, adds plain detail), contradicts or unexplained.
    """

    verdict: str
    differences: tuple[Difference, ...] = ()

    @property
    def may_merge(self) -> bool:
        """True if every difference is harmless."""
        return self.verdict in ("same", "contains")

    def list_obstacles(self) -> tuple[Difference, ...]:
        """Return the differences that keep the texts apart, contradictions first."""
        found = [one for one in self.differences if PROOFS[one.kind] != "contains"]
        # The same words elsewhere tell little beside other differences.
        telling = [one for one in found if one.kind != "order" or one.a.casefold() != one.b.casefold()]
        return tuple(sorted(telling or found, key=lambda one: PROOFS[one.kind]))


def explain(a: str, b: str, similarity: Similarity | None = None) -> Explanation:
    """Return how two texts differ. The verdict is the same for ``b`` and ``a``.

    Texts in an unknown language, in two languages or without any content are the same only if they are equal after
    normalization. So are texts of more than 2,000 words.

    Args:
        similarity: Without it, only words of one family or of a synonym group may stand for each other.
    """
    return explain_readings(read(a), read(b), similarity)


def explain_readings(
    a: Reading, b: Reading, similarity: Similarity | None = None, *, is_brief: bool = False
) -> Explanation:
    """As ``explain``, for texts that were read.

    Args:
        is_brief: Leave out a difference of the kind order where another one keeps the texts apart. The verdict is the
            same, and takes less time.
    """
    a, b = _read_in_one_language(a, b)
    if explained := _explain_whole_texts(a, b):
        return explained
    first, second = sorted((a, b), key=_rank)
    alignment = Alignment(first, second, similarity)
    found = tuple(
        _build_difference(kind, *((one, other) if first is a else (other, one)))
        for kind, one, other in _find_differences(first, second, alignment, is_brief)
    )
    by_words = Explanation(_judge(found), found)
    return _explain_by_sentences(a, b, alignment, by_words.may_merge, similarity) or by_words


def may_merge_readings(a: Reading, b: Reading, similarity: Similarity | None = None) -> bool:
    """Return ``explain_readings(a, b, similarity).may_merge``. Most pairs are decided without all differences."""
    a, b = _read_in_one_language(a, b)
    if explained := _explain_whole_texts(a, b):
        return explained.may_merge
    if _shares_too_little(a, b):
        return False
    first, second = sorted((a, b), key=_rank)
    alignment = Alignment(first, second, similarity)
    may_merge = _is_harmless(first, second, alignment)
    by_sentences = _explain_by_sentences(a, b, alignment, may_merge, similarity)
    return by_sentences.may_merge if by_sentences else may_merge


def _read_in_one_language(a: Reading, b: Reading) -> tuple[Reading, Reading]:
    """Return two readings in the language of both texts, if they share so many words that it is one language."""
    if a.language == b.language or 2 * len(a.words & b.words) < min(len(a.words), len(b.words)):
        return a, b
    code = detect_language(f"{a.text}\n{b.text}")
    return (read_in(a.text, code), read_in(b.text, code)) if code in (a.language, b.language) and code else (a, b)


def _is_harmless(a: Reading, b: Reading, alignment: Alignment) -> bool:
    """Return True if no difference of the words of two texts keeps them apart. It stops at the first one that does."""
    if is_turned_in_time(a, b, alignment.of_a, alignment.language):
        return not _find_subtle_but_order(a, b, alignment)
    found = chain(
        _compare_rest(a, b, alignment),
        find_cue_differences(a, b, alignment, alignment.language),
        _find_orders(a, b, alignment),
    )
    is_harmless = all(PROOFS[kind] == "contains" for kind, *_ in found)
    return is_harmless and next(find_subtle(a, b, alignment), None) is None


def _explain_by_sentences(
    a: Reading, b: Reading, alignment: Alignment, may_merge: bool, similarity: Similarity | None
) -> Explanation | None:
    """Return the explanation of two texts by their sentences, None if these prove nothing else than their words.

    Args:
        alignment: Of the whole texts, in the order of ``_rank``.
        may_merge: By their words, the texts may become one. Then sentences that contradict each other may refuse it.
    """
    if len(a.sentences) + len(b.sentences) <= 2 or (not may_merge and _shares_too_little(a, b)):
        return None
    first, second = sorted((a, b), key=_rank)
    step = 1 if first is a else -1
    proof = SentenceProof(first, second, lambda x, y: _find_sentence_details(x, y, similarity))
    if may_merge:
        conflict = proof.find_conflict()
        if conflict is None:
            return None
        return Explanation("unexplained", (_build_difference("word", *(one.tokens for one in conflict[::step])),))
    details = proof.find_details()
    if details is None or find_new_place(first, second, alignment.of_a, alignment.language):
        return None
    if find_new_step(first, second, alignment.of_a):
        return None
    if find_turned_consequence(first, second, alignment.of_a, alignment.language):
        return None
    if not any(details):
        return Explanation("same")
    return Explanation("contains", (_build_difference("addition", *details[::step]),))


def _find_sentence_details(
    a: Reading, b: Reading, similarity: Similarity | None
) -> tuple[list[Token], list[Token]] | None:
    """Return what each of two sentences says alone, None if they may not become one."""
    if explained := _explain_whole_texts(a, b):
        return ([], []) if explained.may_merge else None
    first, second = sorted((a, b), key=_rank)
    alignment = Alignment(first, second, similarity)
    if not _is_harmless(first, second, alignment):
        return None
    return (alignment.left_a, alignment.left_b) if first is a else (alignment.left_b, alignment.left_a)


def _explain_whole_texts(a: Reading, b: Reading) -> Explanation | None:
    """Return the explanation of two texts that are equal or cannot be compared word by word, None for others."""
    if a.normalized == b.normalized and not _differ_in_capitals(a, b):
        return Explanation("same")
    if a.language is None or a.language != b.language:
        return Explanation("unexplained", (_of_whole_texts("language", a, b),))
    is_long = max(len(a.tokens), len(b.tokens)) > _MOST_TOKENS
    is_other = a.bare_claims and b.bare_claims and a.bare_claims != b.bare_claims
    if _claim_the_same(a, b):
        return Explanation("same")
    if not a.tokens or not b.tokens or is_long or is_other:
        return Explanation("unexplained", (_of_whole_texts("word", a, b),))
    return None


def _claim_the_same(a: Reading, b: Reading) -> bool:
    """Return True if two texts of no tokens, in a script without blanks, have the same cues: 今天是周五, 今天周五."""
    language = load_language(a.language or "en")
    if language.stemmer or a.tokens or b.tokens or not a.claims or a.claims != b.claims:
        return False
    persons = [{who for word, who in language.subjects.items() if word in one.source} for one in (a, b)]
    is_other_person = all(persons) and persons[0] != persons[1]
    return not (is_other_person or differ_in_particles(a, b, language) or differ_in_time(a, b, language))


def _differ_in_capitals(a: Reading, b: Reading) -> bool:
    """Return True if a function word in capitals is a name in one text alone: "IT approves it", "it approves it"."""
    is_light = load_function_words(a.language or "en").is_light
    if a.text.isupper() or b.text.isupper() or a.keys == b.keys:
        return False
    return any(
        token.kind == "name" and token.text.isupper() and token.key not in other.key_set and is_light(token.key)
        for one, other in ((a, b), (b, a))
        for token in one.tokens
    )


def _shares_too_little(a: Reading, b: Reading) -> bool:
    """Return True if so few tokens can be aligned that each text has words that may stand in the place of the other's.

    Below, no similar words are aligned, and each text has more words alone than in common.
    """
    shorter, longer = sorted((a, b), key=lambda one: len(one.tokens))
    equal = sum(key in longer.key_set for key in shorter.keys)
    language = load_language(a.language or "en")
    return not has_enough(equal + a.names + b.names + len(a.partial), len(shorter.tokens), language)


def _rank(reading: Reading) -> tuple[int, str]:
    """Return the order of the texts. It decides ties of the alignment, whichever text is given first."""
    return len(reading.tokens), reading.text


def _judge(found: Sequence[Difference]) -> str:
    proofs = {PROOFS[difference.kind] for difference in found}
    for verdict in ("contradicts", "unexplained"):
        if verdict in proofs:
            return verdict
    return "contains" if found else "same"


def _find_differences(a: Reading, b: Reading, alignment: Alignment, is_brief: bool) -> list[Finding]:
    """Return the differences of two texts of one language; ``is_brief``: as in ``explain_readings``."""
    if is_turned_in_time(a, b, alignment.of_a, alignment.language):
        return _find_subtle_but_order(a, b, alignment)
    found = [*find_cue_differences(a, b, alignment, alignment.language), *_compare_rest(a, b, alignment)]
    is_apart = any(PROOFS[kind] != "contains" for kind, *_ in found)
    orders = list(_find_orders(a, b, alignment, is_brief=is_brief and is_apart))
    if not is_apart and not orders:
        found += find_subtle(a, b, alignment)
    return [*orders, *found]


def _find_subtle_but_order(a: Reading, b: Reading, alignment: Alignment) -> list[Finding]:
    return [found for found in find_subtle(a, b, alignment) if found[0] != "order"]


def _find_orders(a: Reading, b: Reading, alignment: Alignment, *, is_brief: bool = False) -> Iterator[Finding]:
    """Yield the difference in the order of words, if there is one; ``is_brief``: only an exchange of two words."""
    if is_turned(a, b, alignment.of_a, alignment.language) or is_same_as_written(a, b, alignment.of_a):
        return
    if alignment.is_rearranged or are_joined_anew(a, b, alignment.of_a, alignment.language):
        return
    tokens, tokens_there, places = leave_out_verbs(a, b, alignment.of_a, alignment.language)
    if order := find_exchange(tokens, tokens_there):
        yield "exchange", *order
    elif is_brief:
        return
    elif order := find_new_side(a, b, alignment.of_a, alignment.language) or find_reordered(
        tokens, tokens_there, places, alignment.language
    ):
        yield "order", *order
    elif order := find_reordered(tokens_there, tokens, {there: at for at, there in places.items()}, alignment.language):
        yield "order", *order[::-1]


def _asks_more(one: Reading, other: Reading, language: Language) -> bool:
    """Return True if one text has a word such as "what" that the other one lacks: a clause stands for a word."""
    words, others = ({*split_words(reading.text)} for reading in (one, other))
    return any(language.questions.get(word) == "thing" for word in words - others - language.relatives)


def _asks_for(reading: Reading, words: Sequence[Token], language: Language) -> bool:
    """Return True if a question asks for one of the words: "what percentage", not "which causes"."""
    before = {read_before(reading, token) for token in words} - language.relatives
    return any(language.questions.get(word) == "thing" for word in before)


def _compare_rest(a: Reading, b: Reading, alignment: Alignment) -> Iterator[Finding]:
    """Yield the tokens that one text has alone."""
    left_a, left_b = alignment.left_a, alignment.left_b
    for i, j in alignment.of_a.items():
        first, second = alignment.a[i], alignment.b[j]
        if first.key != second.key and (longer := find_longer(first, second)):
            yield "addition", [first] if longer is first else [], [second] if longer is second else []
    for kind in VALUE_KINDS:
        one, other = ([token for token in left if token.kind == kind] for left in (left_a, left_b))
        if not one or not other:
            continue
        # A name that one text repeats is none of the other one's in its place.
        is_repeated = [all(token.key in there.key_set for token in side) for side, there in ((one, b), (other, a))]
        if is_repeated[0] != is_repeated[1]:
            continue
        if _stand_in_one_place(alignment, a.select_sure(one, b), b.select_sure(other, a)):
            yield kind, one, other
            left_a, left_b = ([token for token in left if token.kind != kind] for left in (left_a, left_b))
    if left_a and (pair := find_closer_value(alignment, is_longer_a=True)):
        yield _name_kind(a, b, *pair), [pair[0]], [pair[1]]
    if left_b and (pair := find_closer_value(alignment, is_longer_a=False)):
        yield _name_kind(b, a, *pair), [pair[1]], [pair[0]]
    keys = {token.key: token for token in left_b}
    for token in left_a:
        if opposite := alignment.language.opposites.get(token.key, frozenset()) & keys.keys():
            yield "opposite", [token], [keys[min(opposite)]]
            break
    if left_a or left_b:
        if left_a and left_b:
            is_addition = not _replaces(alignment, left_a, left_b)
        else:
            is_addition = len(alignment.of_a) > 1 and not _is_scattered(alignment, bool(left_a))
            # "With a noun", "with what they are".
            is_addition &= not _asks_more(*((b, a) if left_a else (a, b)), alignment.language)
        is_addition &= not any(_asks_for(*side, alignment.language) for side in ((a, left_a), (b, left_b)))
        yield "addition" if is_addition else "word", left_a, left_b


def _name_class(token: Token) -> str:
    """Return what kind of value a token is: number, date, identifier, ..; one of the kinds of tokens for others."""
    return token.key.partition(":")[0] if token.kind == "value" and ":" in token.key else token.kind


def _name_kind(one: Reading, other: Reading, value: Token, closer: Token) -> str:
    """Return the kind of difference that two values are: "word" if one may be none, or if both texts have the name."""
    is_shared = value.kind == "name" and value.key in other.key_set
    is_sure = not is_shared and one.select_sure([value], other) and other.select_sure([closer], one)
    return value.kind if is_sure and _name_class(value) == _name_class(closer) else "word"


def _replaces(alignment: Alignment, left_a: Sequence[Token], left_b: Sequence[Token]) -> bool:
    """Return True if words of one text may stand in the place of words of the other, or if each has much alone.

    Words that stand in different places are details that both texts add to what they have in common.
    """
    if len(alignment.of_a) < max(FEWEST_COMMON, MIN_COMMON * max(len(left_a), len(left_b))):
        return True
    if all(any(token.kind != "word" for token in left) for left in (left_a, left_b)):
        return True
    # "Coming from Chicago on flight AB 12", "on flight AB 12 from Detroit".
    led_a, led_b = ({token.governor for token in left if token.gap == "link"} for left in (left_a, left_b))
    if (led_a & led_b) - alignment.language.genitives - {"time"}:
        return True
    return _stand_in_one_place(alignment, left_a, left_b)


def _stand_in_one_place(alignment: Alignment, of_a: Sequence[Token], of_b: Sequence[Token]) -> bool:
    """Return True if words that one text has alone stand beside the same word as some of the other one's."""
    here = {at: at for at in alignment.of_b}
    orders_a, orders_b = ((range(len(side)), sort_as_written(side)) for side in (alignment.a, alignment.b))
    for order_a, order_b in zip(orders_a, orders_b, strict=True):
        slots_a = _find_slots(alignment.a, order_a, alignment.of_a, {*of_a})
        slots_b = _find_slots(alignment.b, order_b, here, {*of_b})
        if any(x[0] == y[0] or x[1] == y[1] for x in slots_a for y in slots_b):
            return True
    return False


def _find_slots(
    tokens: Sequence[Token], order: Sequence[int], places: Mapping[int, int], chosen: Collection[Token]
) -> set[tuple[int, int]]:
    """Return the aligned neighbours, as positions in the second text, of ``chosen`` words that one text has alone."""
    slots, before = set(), -1
    ends = [places.get(at, -2) for at in order]
    for at, place in enumerate(ends):
        if place >= 0:
            before = place
        elif tokens[order[at]] in chosen:
            slots.add((before, next((one for one in ends[at:] if one >= 0), -1)))
    return slots


def _is_scattered(alignment: Alignment, is_longer_a: bool) -> bool:
    """Return True if a clause of the shorter text is made of words of many clauses, or of few words of a long one.

    Its words are all in the longer text, but that does not say the same: "the payment is pending" beside a story of
    which one clause has "payment" and another one "pending".
    """
    a, b = alignment.a, alignment.b
    longer, shorter, places = (a, b, alignment.of_b) if is_longer_a else (b, a, alignment.of_a)
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


def _build_difference(kind: str, a: Sequence[Token | Cue], b: Sequence[Token | Cue]) -> Difference:
    """Return a difference with the words of some tokens and cues."""
    one, other = (" ".join(token.text for token in side) for side in (a, b))
    spans_a, spans_b = (tuple((token.start, token.start + len(token.text)) for token in side) for side in (a, b))
    return Difference(kind, one, other, spans_a, spans_b)


def _of_whole_texts(kind: str, a: Reading, b: Reading) -> Difference:
    return Difference(kind, a.text, b.text, ((0, len(a.text)),), ((0, len(b.text)),))
