"""Order of aligned tokens: may the words of one text stand as they do in the other?"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise, product

from consolidation_pipeline.core.differences.alignment import OF_COMPOUNDS
from consolidation_pipeline.core.differences.language import Language, split_words
from consolidation_pipeline.core.differences.reading import DONE, VERB, Reading, Token, sort_as_written

# Words of an item of a list, or of the last item with the phrase behind it.
_LONGEST_ITEM = 4
# Words of each part of an exchange: "the web app".
_LONGEST_EXCHANGED = 3
# Governors that set the words on their sides in order.
_IN_TIME = ("before", "after")
# Texts with more words in the place of others are compared as reworded ones.
_MOST_REPLACED = 2
# Classes of function words of which none stands in the place of the other.
_FOREIGN_CLASSES = ({"determiner", "clause"}, {"determiner", "cue"}, {"determiner", "link"}, {"link", "cue"})
# Poles of quantities that are a part of the words before "is".
_PARTS = frozenset(("most", "some", "few", "half"))
# A German participle.
_PARTICIPLE = re.compile(r"[a-zäöüß]*ge[a-zäöüß]{2,}(?:t|en)|[a-zäöüß]+iert")
# Words before a verb among which its auxiliaries and pronouns are.
_MOST_BEFORE = 3
# Endings of participles before a noun: "der gestartete Dienst".
_ATTRIBUTE_ENDINGS = ("te", "ten", "ter", "tes", "tem", "ene", "enen", "ener", "enes", "enem")
# Frame entry of "only".
ONLY = "cue restriction only"
# Words of two texts, in the order of each.
Reordered = tuple[list[Token], list[Token]]


def leave_out_verbs(
    a: Reading, b: Reading, places: Mapping[int, int], language: Language
) -> tuple[Sequence[Token], Sequence[Token], dict[int, int]]:
    """Return the tokens of two texts, and the places, without verbs whose place grammar alone decides.

    In German a verb stands second or last: "er brach nach zehn Minuten ab", "er ist nach zehn Minuten abgebrochen".
    """
    verbs, verbs_there = find_verbs(a, language), find_verbs(b, language)
    is_free = _is_last if language.nominatives else partial(_is_impersonal, language=language)
    judge = any if language.nominatives else all
    free = {at for at in verbs if places.get(at) in verbs_there and judge((is_free(a, at), is_free(b, places[at])))}
    free |= _find_antecedents(a, b, places, language)
    if not free:
        return a.tokens, b.tokens, dict(places)
    free_there = {places[at] for at in free}
    kept = [at for at in range(len(a.tokens)) if at not in free]
    kept_there = [at for at in range(len(b.tokens)) if at not in free_there]
    new = {at: number for number, at in enumerate(kept_there)}
    tokens, tokens_there = (
        [one.tokens[at]._replace(gap="loose") if at - 1 in left else one.tokens[at] for at in rest]
        for one, rest, left in ((a, kept, free), (b, kept_there, free_there))
    )
    return tokens, tokens_there, {n: new[places[at]] for n, at in enumerate(kept) if places.get(at) in new}


def _find_antecedents(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> set[int]:
    """Return the noun that the only pronoun of two texts stands for, if they changed places.

    "If he is ill, the nurse calls", "if the nurse is ill, he calls".
    """
    persons = {**language.objects, **language.subjects}
    third = [word for word in persons if persons[word] not in ("we", "you", "they")]
    pronouns = [[word for word in split_words(one.source) if word in third] for one in (a, b)]
    segments = [{token.segment for token in one.tokens} for one in (a, b)]
    if [len(found) for found in pronouns] != [1, 1] or [len(found) for found in segments] != [2, 2]:
        return set()
    moves = Counter((a.tokens[at].segment, b.tokens[there].segment) for at, there in places.items())
    (here, new), _ = moves.most_common(1)[0]
    moved = {at for at, there in places.items() if (a.tokens[at].segment == here) != (b.tokens[there].segment == new)}
    is_noun = len(moved) == 1 and not a.tokens[min(moved)].governor and a.tokens[min(moved)].kind == "word"
    return moved if is_noun else set()


def _is_impersonal(reading: Reading, at: int, language: Language) -> bool:
    """Return True for a verb that names no one who does it, so that a noun may stand on either side of it.

    "Se corta el césped", "hay que cortar el césped", "ha llegado el técnico".
    """
    token = reading.tokens[at]
    form = token.text.lower()
    start, _ = reading.find_sentence(token.start)
    before = split_words(reading.source[start : token.start])[-_MOST_BEFORE:]
    if not (language.determiners | language.prepositions | language.genitives).isdisjoint(before[-1:]):
        return False
    if language.read_word(form) in language.intransitives or form.endswith(("arse", "erse", "irse")):
        return True
    if language.is_participle(form) and not language.passive_auxiliaries.isdisjoint(before):
        return True
    is_near = bool(before) and (before[-1],) in language.phrases and before[-1] not in language.determiners
    return not language.impersonals.isdisjoint(before[-2:] if is_near else before[-1:])


def _is_last(reading: Reading, at: int) -> bool:
    """Return True for the last token of a clause, but for "Ana ruft an"."""
    token = reading.tokens[at]
    places = [other.place for other in reading.tokens if other.clause == token.clause]
    is_finite = token.text.endswith("t") and not _PARTICIPLE.fullmatch(token.text)
    return max(places) == token.place and (len(places) > 2 or not is_finite)


def find_verbs(reading: Reading, language: Language) -> set[int]:
    """Return the positions of the verbs that are the only one of their clause, in a language with verbs at the end."""
    if not (language.nominatives or language.impersonals):
        return set()
    clauses = defaultdict[int, list[int]](list)
    for at, token in enumerate(reading.tokens):
        if _is_clause_verb(reading, at, language):
            clauses[token.clause].append(at)
    return {verbs[0] for verbs in clauses.values() if len(verbs) == 1}


def _is_clause_verb(reading: Reading, at: int, language: Language) -> bool:
    """Return True for a verb that is no attribute: "startet", "gestartet", not "der gestartete Dienst"."""
    token = reading.tokens[at]
    form = token.text.lower().split()[-1]
    if token.kind != "word" or not (token.text[0].islower() or reading.frame[:1] == (token.place,)):
        return False
    if language.impersonals:
        return _is_impersonal(reading, at, language)
    if not (language.is_verb(form) or token.key in language.verbs):
        return False
    following = next((one for one in reading.tokens if one.place == token.place + 1), None)
    is_before_noun = following is not None and following.gap == "tight" and following.text[0].isupper()
    return not (is_before_noun and form.endswith(_ATTRIBUTE_ENDINGS) and token.gap != "tight")


def find_exchange(a: Sequence[Token], b: Sequence[Token]) -> Reordered | None:
    """Return words that changed places in texts that are equal else: "A calls B", "B calls A"."""
    if len(a) != len(b):
        return None
    moved = [at for at, (one, other) in enumerate(zip(a, b, strict=True)) if one.key != other.key]
    if not 2 <= len(moved) <= 2 * _LONGEST_EXCHANGED:
        return None
    # What stands before and behind the exchanged words is equal.
    part = slice(moved[0], moved[-1] + 1)
    a, b = a[part], b[part]
    keys, others = [token.key for token in a], [token.key for token in b]
    for size, size_there in product(range(1, _LONGEST_EXCHANGED + 1), repeat=2):
        end, end_there = len(a) - size_there, len(b) - size
        if size <= end and keys == [*others[end_there:], *others[size_there:end_there], *others[:size_there]]:
            first, last, there, last_there = a[:size], a[end:], b[:size_there], b[end_there:]
            is_exchange = (
                _are_in_time(last, last_there) if size == end else not _are_moved(first, last, there, last_there)
            )
            is_exchange &= all(
                len({token.phrase for token in words}) == 1 for words in (first, last, there, last_there)
            )
            return ([*first, *last], [*there, *last_there]) if is_exchange else None
    return None


def _are_in_time(words: Sequence[Token], others: Sequence[Token]) -> bool:
    """Return True if words of two texts stand behind "before", or behind "after"."""
    return words[0].governor == others[0].governor in _IN_TIME


def _are_moved(
    first: Sequence[Token], last: Sequence[Token], there: Sequence[Token], last_there: Sequence[Token]
) -> bool:
    """Return True if one of the words moved with its preposition.

    Args:
        first, last: Words of one text.
        there, last_there: The words in their places in the other text.
    """
    return first[0].governor != last[0].governor and any(
        one.governor == other.governor not in ("", "of", "s")
        for one, other in ((first[0], last_there[0]), (last[0], there[0]))
    )


def is_turned(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> bool:
    """Return True if two names of one thing changed sides: "our vet is Ann", "Ann is our vet"."""
    if not len(places) == len(a.tokens) == len(b.tokens) or any(token.clause for token in (*a.tokens, *b.tokens)):
        return False
    size, start = (_find_copula(one, language) for one in (a, b))
    others = (
        cue for cue in (*a.cues, *b.cues) if cue.category != "marker" and cue.text.lower() not in language.copulas
    )
    if size < 0 or start < 0 or any(others):
        return False
    written = [a.tokens[at] for at in sort_as_written(a.tokens)]
    there = [b.tokens[places[at]] for at in sort_as_written(a.tokens)]
    moved = [token.place for token in there]
    is_named = any(token.kind == "name" for token in (*written, *there))
    if not is_named or sorted(moved[:size]) != [*range(start, len(moved))]:
        return False
    return all(_is_same_name(written[part], there[part]) for part in (slice(0, size), slice(size, None)))


def find_new_sequence(a: Reading, b: Reading, language: Language) -> Reordered | None:
    """Return words in another order beside words such as "first", or on the other side of "than".

    In a script without blanks, many words are cues: 先停止写入再切换主库, 先切换主库再停止写入.
    """
    if language.stemmer:
        return None
    items, items_there = _list_items(a), _list_items(b)
    shared = [key for key in items if key in items_there]
    there = sorted(shared, key=items_there.__getitem__)
    moved = next(((one, other) for one, other in zip(shared, there, strict=True) if one != other), None)
    has_steps = all(any(cue.category == "order" for cue in one.cues) for one in (a, b))
    ends, ends_there = ([cue.start for cue in one.cues if cue.pole == "than"] for one in (a, b))
    if len(ends) == len(ends_there) == 1:
        turned = (key for key in shared if (items[key] < ends[0]) != (items_there[key] < ends_there[0]))
        moved = next(((key, key) for key in turned), moved if has_steps else None)
    elif not has_steps:
        moved = None
    if moved is None:
        return None
    tokens, tokens_there = ([token for token in one.tokens if token.key in moved] for one in (a, b))
    return tokens, tokens_there


def _list_items(reading: Reading) -> dict[str, int]:
    """Return where the words and cues of a text stand that it has once, by their keys, in order."""
    found = [(token.start, token.key) for token in reading.tokens]
    found += [(cue.start, f"{cue.category} {cue.pole}") for cue in reading.cues if cue.category != "order"]
    counts = Counter(key for _, key in found)
    return {key: start for start, key in sorted(found) if counts[key] == 1}


def find_new_subject(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return the subject of "is" that is no subject in ``b``: "Tom is head", "Nina succeeds Tom as head"."""
    if not places or _find_copula(a, language) < 1 or _find_copula(b, language) >= 0:
        return None
    subject = sort_as_written(a.tokens)[0]
    if subject not in places:
        return None
    order, aligned = sort_as_written(b.tokens), {*places.values()}
    clause = b.tokens[places[subject]].clause
    before = [at for at in order[: order.index(places[subject])] if b.tokens[at].clause == clause]
    is_new = len(before) > 1 and not any(at in aligned or b.tokens[at].governor for at in before)
    return ([a.tokens[subject]], [b.tokens[at] for at in before]) if is_new else None


def _find_copula(reading: Reading, language: Language) -> int:
    """Return the number of tokens before the only form of "be" of a text, -1 if there is none or several."""
    copulas = {f"{VERB}{language.read_word(word)}" for word in language.copulas}
    found = [at for at, word in enumerate(reading.frame) if isinstance(word, str) and word.split()[0] in copulas]
    return len({word for word in reading.frame[: found[0]] if isinstance(word, int)}) if len(found) == 1 else -1


def _is_same_name(words: Sequence[Token], there: Sequence[Token]) -> bool:
    """Return True if words stand in the same order, or behind a genitive: "the shop's owner", "owner of the shop"."""
    places = [token.place for token in there]
    split = next((at for at in range(1, len(places)) if places[at] < places[at - 1]), 0)
    is_genitive = not split or {words[split].gap, there[0].gap} == {"of", "s"}
    return is_genitive and places[split:] + places[:split] == sorted(places)


def find_new_side(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return two words of which one changed the side of "is": "Ann is the head of Bob", "Ann's head is Bob".

    Phrases and adverbs may stand on any side, and a clause may open with "is".
    """
    if any(token.clause for token in (*a.tokens, *b.tokens)):
        return None
    middle, other = (_find_copula(one, language) for one in (a, b))
    if middle < 0 or other < 0 or any(cue.category == "question" for cue in (*a.cues, *b.cues)):
        return None
    free = [at for at in _in_order(a.tokens, b.tokens, places, language) if not _is_governed(a, b, at, places)]
    sides = [(a.tokens[at].place < middle, b.tokens[places[at]].place < other, at) for at in free]
    is_one_sided = any(len({side[text] for side in sides}) < 2 for text in (0, 1))
    # "Most of the new tests are slow", "most of the slow tests are new"
    if is_one_sided and not all(any(cue.pole in _PARTS for cue in one.cues) for one in (a, b)):
        return None
    stays, turns = ([at for one, two, at in sides if (one == two) is same] for same in (True, False))
    if not stays or not turns:
        return None
    moved = [stays[0], turns[0]]
    return [a.tokens[at] for at in moved], [b.tokens[places[at]] for at in moved]


def _is_governed(a: Reading, b: Reading, at: int, places: Mapping[int, int]) -> bool:
    """Return True if a word is in a phrase with a preposition that is no genitive, in one of two texts."""
    return any(
        token.governor and not any(one.gap in ("of", "s") and one.phrase == token.phrase for one in tokens)
        for token, tokens in ((a.tokens[at], a.tokens), (b.tokens[places[at]], b.tokens))
    )


def is_same_as_written(a: Reading, b: Reading, places: Mapping[int, int]) -> bool:
    """Return True if two texts say the same words after "is" in one order: "is scared of", "is afraid of".

    A passive is put into the order of the active clause, but a participle without an agent may be an adjective.
    """
    after_be, after_be_there = a.predicates, b.predicates
    written = sorted((a.tokens[at].place, at) for at in places)
    there = [b.tokens[places[at]].place for _, at in written]
    is_aligned = {places.get(at) for at in after_be} == after_be_there
    return bool(after_be) and is_aligned and there == sorted(there) and not (a.has_agent or b.has_agent)


def find_reordered(
    a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int], language: Language
) -> Reordered | None:
    """Return words whose order changes what is claimed, None if there are none.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    places = {at: place for at, place in places.items() if a[at].text.lower() not in language.alternatives}
    return (
        _find_exchanged(a, b, places, language)
        or _find_turned(a, b, places, language)
        or _find_new_neighbour(a, b, places, language)
        or _find_new_first(a, b, places)
        or _find_moved_away(a, b, places, language)
        or _find_exchanged_values(a, b, places)
    )


def _in_order(a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int], language: Language) -> list[int]:
    """Return the aligned positions of ``a`` but those of adverbs, which may stand anywhere in a clause."""
    endings = language.adverb_endings
    return [
        at
        for at, place in sorted(places.items())
        if not a[at].text.lower().endswith(endings) and not a[at].governor == b[place].governor == "time"
    ]


def _find_exchanged(
    a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int], language: Language
) -> Reordered | None:
    """Return two words that stand on the other side of a third: "A calls B", "B calls A"."""
    segments = defaultdict[int, list[int]](list)
    for at in _in_order(a, b, places, language):
        segments[a[at].segment].append(at)
    for aligned in segments.values():
        there = [places[at] for at in aligned]
        # A phrase that moved with its preposition may stand on any side: "for each order A calls B".
        is_fixed = [not _is_phrase(a[at], b[places[at]], language) for at in aligned]
        highest = list(accumulate((one if fixed else -1 for one, fixed in zip(there, is_fixed, strict=True)), max))
        last = reversed([one if fixed else len(b) for one, fixed in zip(there, is_fixed, strict=True)])
        lowest = list(accumulate(last, min))[::-1]
        for at in range(1, len(there) - 1):
            if highest[at - 1] > there[at] > lowest[at + 1]:
                words = aligned[there.index(highest[at - 1])], aligned[at], aligned[there.index(lowest[at + 1])]
                return [a[word] for word in words], [b[place] for place in sorted(places[word] for word in words)]
    return None


def _is_phrase(one: Token, other: Token, language: Language) -> bool:
    """Return True if a token is governed by the same preposition, which is no genitive, in both texts."""
    return bool(one.governor) and one.governor == other.governor and one.governor not in language.genitives


def _find_turned(
    a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int], language: Language
) -> Reordered | None:
    """Return two neighbours, or ends of phrases, that changed sides around the same kind of words."""
    aligned = _in_order(a, b, places, language)
    origins = {places[at]: at for at in aligned}
    order = sorted(origins)
    falls = [(x, y) for x, y in pairwise(order) if origins[x] > origins[y]]
    for left, right in pairwise(aligned):
        if places[left] < places[right]:
            continue
        for x, y in falls:
            if not places[right] <= x < y <= places[left]:
                continue
            if _are_listed(a, left, right) and _are_listed(b, x, y):
                continue
            if (places[left], places[right]) == (y, x) and _are_inverted(a[left], a[right], language):
                continue
            if any(_is_phrase(a[at], b[places[at]], language) and not _is_order_adverb(a[at]) for at in (left, right)):
                continue
            gap, other = _gap(a, left, right), _gap(b, x, y)
            if gap != other or gap == "clause":
                continue
            if gap == "link" and a[right].governor == b[places[right]].governor:
                continue
            return [a[left], a[right]], [b[x], b[y]]
    return None


def _are_inverted(one: Token, other: Token, language: Language) -> bool:
    """Return True for a verb and its subject, which follows it behind a phrase in front: "nachts liest Ana"."""
    verb, noun = (one, other) if _is_verb(one, language) else (other, one)
    return _is_verb(verb, language) and noun.text[0].isupper() and not noun.governor


def _is_verb(token: Token, language: Language) -> bool:
    """Return True for a finite verb, in a language that writes nouns with a capital and may put subjects behind it."""
    return token.kind == "word" and token.text[0].islower() and token.text.endswith(language.inverted_endings)


def _are_listed(tokens: Sequence[Token], left: int, right: int) -> bool:
    """Return True if two names are joined by "and": they may stand in any order, but for "Ann first and then Bob"."""
    is_list = right == left + 1 and tokens[right].gap == "and" and tokens[left].kind == tokens[right].kind == "name"
    return is_list and not any(_is_order_adverb(token) for token in tokens)


def _is_order_adverb(token: Token) -> bool:
    return token.governor == "time" and token.key.startswith("ordinal:")


def _gap(tokens: Sequence[Token], left: int, right: int) -> str:
    """Return what stands between two tokens: tight (nothing), link, a genitive, loose or clause (they stand in two)."""
    if tokens[left].segment != tokens[right].segment:
        return "clause"
    between = [token for token in tokens[left + 1 : right + 1] if not _is_order_adverb(token)]
    gaps = {"loose" if token.gap == "and" else token.gap for token in between}
    return min(gaps, key=lambda gap: {"link": 0, "loose": 2, "tight": 3}.get(gap, 1), default="loose")


def _find_new_neighbour(
    a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int], language: Language
) -> Reordered | None:
    """Return a word that stands directly before another word of both texts than it did: "red lamp", "red door"."""
    for left, right in pairwise(range(len(a))):
        if a[right].gap != "tight" or a[left].clause != a[right].clause or left not in places or right not in places:
            continue
        there = places[left] + 1
        if there >= len(b) or there == places[right] or b[there].gap != "tight":
            continue
        if b[there].clause != b[there - 1].clause or there not in places.values():
            continue
        if any(_is_verb(token, language) for token in (a[right], b[there])) and (
            _are_inverted(a[left], a[right], language)
            or (left and places.get(left - 1) == there and _are_inverted(a[left - 1], a[left], language))
            or _is_phrase(a[left], b[there - 1], language)
        ):
            continue
        if abs(places[right] - there) > 1 and not _is_compound(a, b, places, right):
            return [a[left], a[right]], [b[there - 1], b[there]]
    return None


def _find_new_first(a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int]) -> Reordered | None:
    """Return a "first" that tells of another part of a text: "retry it first and page Ann", "and first page Ann"."""
    for at, there in places.items():
        if _is_order_adverb(a[at]) or _is_order_adverb(b[there]):
            one = {place for place, token in enumerate(a) if token.conjunct == a[at].conjunct and place in places}
            other = {place for place, to in places.items() if b[to].conjunct == b[there].conjunct}
            if not (one <= other or other <= one):
                return [a[at]], [b[there]]
    return None


def _is_compound(a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int], head: int) -> bool:
    """Return True if a noun and those before it are the noun and a phrase after it: "shed key", "key to the shed"."""
    place, size = places[head], 0
    while head > size and a[head - size].gap == "tight" and places.get(head - size - 1, -1) > place:
        size += 1
    there = [places[at] for at in range(head - size, head)]
    if not size or there != list(range(place + 1, place + size + 1)) or b[place + 1].governor not in OF_COMPOUNDS:
        return False
    return all(b[at].gap == "tight" for at in there[1:])


def _find_moved_away(
    a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int], language: Language
) -> Reordered | None:
    """Return a word that is in a clause with none of the words of its clause in the other text.

    A phrase that opens one text and ends the other may have a list between: "for lunch we need bread, butter and tea".
    """
    clauses, new_clauses = defaultdict[int, set[int]](set), defaultdict[int, set[int]](set)
    for at, there in places.items():
        clauses[a[at].segment].add(at)
        new_clauses[b[there].segment].add(at)
    for at, there in places.items():
        clause, new_clause = clauses[a[at].segment], new_clauses[b[there].segment]
        is_phrase = _is_phrase(a[at], b[there], language) and not _is_order_adverb(a[at])
        if is_phrase and (_opens_list(a, at, b, there) or _opens_list(b, there, a, at)):
            continue
        if len(clause) > 1 and len(new_clause) > 1 and len(clause & new_clause) == 1:
            return [a[at]], [b[there]]
    return None


def _find_exchanged_values(a: Sequence[Token], b: Sequence[Token], places: Mapping[int, int]) -> Reordered | None:
    """Return two values that changed places around a word: "A at 10:12 and B at 10:09", "A at 10:09 and B at 10:12"."""
    values = defaultdict[str, list[int]](list)
    for at in sorted(places):
        if a[at].kind == "value":
            values[a[at].governor].append(at)
    pairs = (pair for alike in values.values() for pair in pairwise(alike) if places[pair[0]] > places[pair[1]])
    for left, right in pairs:
        here, there = (left, right), (places[right], places[left])
        free = (at for at, place in places.items() if not a[at].governor and not b[place].governor)
        sides = {(_find_side(at, *here), _find_side(places[at], *there)) for at in free}
        if (0, 0) in sides and sides & {(-1, -1), (1, 1)}:
            return [a[left], a[right]], [b[place] for place in there]
    return None


def _find_side(at: int, left: int, right: int) -> int:
    """Return -1 for a position before two others, 0 between them, 1 behind them."""
    return (at > left) + (at > right) - 1


def _opens_list(a: Sequence[Token], at: int, b: Sequence[Token], there: int) -> bool:
    """Return True if a phrase before all other words is behind a list of short items in the other text."""
    is_first = all(token.phrase >= a[at].phrase for token in a)
    is_last = all(token.phrase <= b[there].phrase for token in b)
    items = sorted(Counter(token.clause for token in b).items())[1:]
    return is_first and is_last and 0 < max((size for _, size in items), default=0) <= _LONGEST_ITEM


def find_replaced(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return tokens that stand where the other text has function words, or two words that changed places.

    All else must be as it was: with more differences, a text is a reworded one.
    """
    if len(a.frame) != len(b.frame):
        return None
    at_a, at_b = ({token.place: at for at, token in enumerate(one.tokens)} for one in (a, b))
    # Names of the words that are equal for aligned tokens, and a sign whether they are tokens.
    words_a = [(True, str(places.get(at_a[x], -1 - x))) if isinstance(x, int) else (False, x) for x in a.frame]
    words_b = [(True, str(at_b[y])) if isinstance(y, int) else (False, y) for y in b.frame]
    changed = [at for at, (x, y) in enumerate(zip(words_a, words_b, strict=True)) if x != y]
    if not changed or len(changed) > _MOST_REPLACED:
        return None
    has_exchanged = sorted(words_a[at] for at in changed) == sorted(words_b[at] for at in changed)
    if not has_exchanged and all(
        _is_interchangeable(words_a[at], words_b[at]) or _may_stand_for(a.frame[at], b.frame[at], a, b)
        for at in changed
    ):
        return None
    tokens_a = [a.tokens[at_a[x]] for at in changed if isinstance(x := a.frame[at], int)]
    tokens_b = [b.tokens[at_b[y]] for at in changed if isinstance(y := b.frame[at], int)]
    if has_exchanged and changed[1] - changed[0] == 1 and _is_only(a, changed):
        return None
    if has_exchanged and changed[1] - changed[0] == 1 and _is_time_beside(a, changed, language):
        return None
    if has_exchanged and changed[1] - changed[0] == 1 and _are_free([a.frame[at] for at in changed], language):
        return None
    if (
        has_exchanged
        and len(tokens_a) == 2
        and _are_listed(tokens_a, 0, 1)
        and not any(map(_is_order_adverb, a.tokens))
    ):
        return None
    is_adverb = any(token.text.lower().endswith(language.adverb_endings) for token in (*tokens_a, *tokens_b))
    if has_exchanged and any(map(_is_sole_verb, (a, b), (tokens_a, tokens_b), (language, language))):
        return None
    return None if has_exchanged and is_adverb and changed[1] - changed[0] == 1 else (tokens_a, tokens_b)


def _is_sole_verb(reading: Reading, words: Sequence[Token], language: Language) -> bool:
    """Return True if one of some words is a verb whose place grammar alone decides."""
    return any(reading.tokens[at] in words for at in find_verbs(reading, language))


def _is_only(a: Reading, changed: Sequence[int]) -> bool:
    """Return True if a verb and "only" changed places: "Ann only eats fish", "Ann eats only fish"."""
    words = [a.frame[at] for at in changed]
    tokens = [token for token in a.tokens if token.place in words and token.kind == "word"]
    return ONLY in words and len(tokens) == 1 and not may_be_subject(tokens[0], a.tokens, a.frame)


def _is_time_beside(a: Reading, changed: Sequence[int], language: Language) -> bool:
    """Return True if a time and a function word changed places: 他去年, 去年他."""
    entries = [a.frame[at] for at in changed]
    times = [token for token in a.tokens if token.place in entries and token.text in language.time_adverbs]
    return len(times) == 1 and "other  " in entries and not language.stemmer


def _are_free(entries: Sequence[int | str], language: Language) -> bool:
    """Return True if one of two words may stand on either side of the other one: 要先, 先要; 忘了加油, 忘记加油了.

    It is 了, or it says nothing and the other one is a function word that neither denies, counts nor restricts.
    """
    words = [entry for entry in entries if isinstance(entry, str)]
    if language.stemmer or not words:
        return False
    claims = {word for entry in words for word in entry.split()[1:2]}
    if "other quantity all" in words and "polarity" not in claims:  # 航班全部取消, 所有航班取消
        return True
    fixed = {"quantity", "restriction", *(() if language.has_late_focus else ("polarity",))}
    is_plain = len(words) == len(entries) and claims.isdisjoint(fixed)
    neutral = {f"cue {category} {pole}" for category, pole in language.neutral}  # 至少要, 需要至少
    return f"{DONE}  " in words or (is_plain and not neutral.union(("other  ",)).isdisjoint(words))


def may_be_subject(word: Token, tokens: Sequence[Token], frame: Sequence[int | str]) -> bool:
    """Return True if a word opens its clause, but for phrases, articles and "only", and is no verb.

    A verb that opens a clause has no "s": "only deploy on Fridays", "only admins deploy on Fridays".
    """
    before = [token for token in tokens if token.clause == word.clause and token.place < word.place]
    if word.governor or any(not token.governor for token in before):
        return False
    # Tokens before it are of phrases.
    openings = [entry for entry in frame[: frame.index(word.place)] if isinstance(entry, str) and entry != ONLY]
    if not before and any(not entry.startswith("determiner") for entry in openings):
        return False  # "we eat", "is open"
    is_noun = word.text[0].isupper() and ONLY in frame[frame.index(word.place) - 1 :][:1]  # "Nur Eva"
    return bool(before or openings) or word.kind != "word" or word.text.endswith("s") or is_noun


def _may_stand_for(one: int | str, other: int | str, a: Reading, b: Reading) -> bool:
    """Return True if one is a light verb and the other one a verb that says the same: has, owns."""
    for verb, word, there, here in ((one, other, a, b), (other, one, b, a)):
        if isinstance(verb, str) and isinstance(word, int):
            return there.has_light_verb(next(token.key for token in here.tokens if token.place == word))
    return False


def _is_interchangeable(one: tuple[bool, str], other: tuple[bool, str]) -> bool:
    """Return True if both are tokens, or function words that may stand for each other."""
    if one[0] or other[0]:
        return one[0] == other[0]
    return {one[1].split()[0], other[1].split()[0]} not in _FOREIGN_CLASSES
