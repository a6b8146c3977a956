"""Words of both texts that belong to another clause or sentence: "jobs that fail quickly are retried"."""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache
from itertools import groupby, pairwise

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import PATH, Reading, Token, sort_as_written
from consolidation_pipeline.core.differences.roles import read_before

# Classes of markers of conditions.
_CONDITIONS = frozenset(("if", "unless"))
# Beginnings of the keys of paths and other literal names.
_LITERAL_NAMES = (PATH, "url:", "identifier:")
# Signs at which a sentence may go on.
_WEAK_STOPS = ";:-–—"
_STOPS = tuple(".!?;:")
# French relative pronoun of a subject.
_SUBJECT = "qui"
# Words before a Spanish relative pronoun of an object.
_OBJECT = re.compile(r"(?<!\w)(?:al|a (?:la|los|las))$", re.IGNORECASE)
# Relative pronouns of two texts.
Relatives = tuple[list[re.Match[str]], list[re.Match[str]]]


def find_new_place(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return words of both texts that belong to other words in each; None if there are none.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    if not places:
        return None
    relatives = _find_relatives(a, language), _find_relatives(b, language)
    at = _find_in_list(a, b, places, language)
    if at is None:
        at = _find_new_sentence(a, b, places)
    if at is None:
        at = _find_new_doer(a, b, places, language)
    if at is None:
        reverse = {there: here for here, there in places.items()}
        there = _find_new_doer(b, a, reverse, language)
        at = None if there is None else reverse[there]
    if at is None and all(relatives):
        at = _find_across_relative(a, b, places, relatives, language)
    if at is None and all(relatives):
        begins = [found[0].end() for found in relatives]
        at = next((one for one in places if _tells_of_other_verb(a, b, one, places, begins, language)), None)
    if at is None and all(relatives):
        at = _find_other_relative(a, b, places, relatives)
    if at is None:
        at = _find_joined(a, b, places, relatives, language)
    if at is None and bool(relatives[0]) != bool(relatives[1]):
        at = _find_stated(a, b, places, relatives)
    if at is None and _differ_in_relatives(relatives, language):
        at = min(places)
    return None if at is None else ([a.tokens[at]], [b.tokens[places[at]]])


def _find_in_list(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> int | None:
    """Return a word of a list whose order is referred to: "Redis and Memcached: the former stays"."""
    if language.list_references.isdisjoint(a.words | b.words):
        return None
    there = [(b.tokens[places[at]].place, at) for at in sort_as_written(a.tokens) if at in places]
    return next((at for (before, _), (place, at) in pairwise(there) if place < before), None)


def _find_new_sentence(a: Reading, b: Reading, places: Mapping[int, int]) -> int | None:
    """Return a word whose phrase went to another sentence: "Wait. At night restart it", "Wait at night. Restart it".

    Or one that left the sentence of a condition: "if it rains, we train inside and the match is off", ".. inside. The
    match is off". A path or another literal name may stand in any sentence.
    """
    ends, new_ends = _list_ends(a), _list_ends(b)
    if max(len(ends), len(new_ends)) < 2:
        return None
    sentences, new_sentences = _number_sentences(a, ends), _number_sentences(b, new_ends)
    conditions, new_conditions = _find_conditions(a, ends), _find_conditions(b, new_ends)
    both_open = bool(conditions and new_conditions)
    members, new_members, phrases = (defaultdict[int, set[int]](set) for _ in range(3))
    moves: dict[tuple[int, int, int], int] = {}  # by phrase and sentences, a word
    for at, there in places.items():
        move = a.tokens[at].phrase, sentences[at], new_sentences[there]
        for found, number in zip((phrases, members, new_members), move, strict=True):
            found[number].add(at)
        moves.setdefault(move, at)
    for (number, sentence, new_sentence), at in moves.items():
        phrase, here, new = phrases[number], members[sentence], new_members[new_sentence]
        is_literal = a.tokens[at].kind == "code" or a.tokens[at].key.startswith(_LITERAL_NAMES)
        if here & new <= phrase and here - phrase and new - phrase and not is_literal:
            return at
        is_condition = sentence in conditions, new_sentence in new_conditions
        if both_open and is_condition[0] != is_condition[1] and (here < new or new < here):
            return at
    return None


def _find_new_doer(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> int | None:
    """Return a word that somebody or something else does in ``b``: "A runs it", "A is ill, and it is run by B".

    Its clause of ``a`` is spread over clauses of ``b``: one has what the clause of ``a`` is about, another one has more
    of its words beside one that ``b`` has alone and that no preposition governs.
    """
    parts, taken = [(token.segment, token.conjunct) for token in b.tokens], {*places.values()}
    clauses = defaultdict[tuple[int, int], list[int]](list)
    for at in sorted(places):
        clauses[a.tokens[at].segment, a.tokens[at].conjunct].append(at)
    for words in clauses.values():
        own, beginning = next(groupby(words, key=lambda at: parts[places[at]]))
        subject = list(beginning)
        rest = {parts[places[at]] for at in words[len(subject) :]} - {own}
        if not rest or any(token.governor for at in subject for token in (a.tokens[at], b.tokens[places[at]])):
            continue
        is_phrase = len({b.tokens[places[at]].phrase for at in subject}) == 1
        # "Drive to Ulm, load the crate" is "load the crate in Ulm".
        has_verb = any(not a.tokens[at].governor for at in words[len(subject) :] if parts[places[at]] in rest)
        if not is_phrase or not (has_verb or min(rest) > own):
            continue
        doers = (parts[i] for i in range(len(parts)) if parts[i] in rest and i not in taken and _may_do(b, i, language))
        if (part := next(doers, None)) is not None:
            return next(at for at in words if parts[places[at]] == part)
    return None


def _may_do(reading: Reading, at: int, language: Language) -> bool:
    """Return True if a word may be who does something: it is in no phrase, and no adverb, predicate or value."""
    word = reading.tokens[at]
    is_plain = word.kind != "value" and not word.governor and word.gap != "and" and at not in reading.predicates
    return is_plain and not language.is_adverb(word.text.lower())


def _list_ends(reading: Reading) -> list[tuple[int, int]]:
    """Return the number of tokens and of cues before each full stop and the end of the text."""
    last = len(reading.ends) - 1
    return [
        (tokens, cues)
        for at, (end, tokens, cues, _) in enumerate(reading.ends)
        if at == last or reading.text[end - 1] not in _WEAK_STOPS
    ]


def _number_sentences(reading: Reading, ends: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of the sentence of each token."""
    tokens = [end for end, _ in ends]
    return [bisect_right(tokens, at) for at in range(len(reading.tokens))]


def _find_conditions(reading: Reading, ends: Sequence[tuple[int, int]]) -> set[int]:
    """Return the numbers of the sentences that open with a condition."""
    conditions = set()
    for number, (start, cues) in enumerate([(0, 0), *ends[:-1]]):
        place = min((token.place for token in reading.tokens[start:]), default=-1)
        cue = reading.cues[cues] if cues < len(reading.cues) else None
        if cue and cue.pole in _CONDITIONS and cue.place == place:
            conditions.add(number)
    return conditions


def _find_across_relative(
    a: Reading, b: Reading, places: Mapping[int, int], relatives: Relatives, language: Language
) -> int | None:
    """Return a phrase or adverb on the other side of "that": "today we agreed that it runs", "that it runs today"."""
    words = [[one["word"].lower() for one in found] for found in relatives]
    if words[0] != words[1] or len(words[0]) != 1:
        return None
    start, start_there = (found[0].start() for found in relatives)
    sides = {at: (a.tokens[at].start > start, b.tokens[there].start > start_there) for at, there in places.items()}
    stays = {side[0] for side in sides.values() if side[0] == side[1]}
    moved = [at for at, side in sides.items() if side[0] != side[1]]
    is_phrase = len({a.tokens[at].phrase for at in moved}) == 1 and all(
        token.governor or token.text.lower().endswith(language.adverb_endings)
        for at in moved
        for token in (a.tokens[at], b.tokens[places[at]])
    )
    return moved[0] if is_phrase and len(stays) == 2 else None


def _find_other_relative(a: Reading, b: Reading, places: Mapping[int, int], relatives: Relatives) -> int | None:
    """Return the first word of the only relative clause of one text that stands before that of the other one.

    "Ann, who works with Bob, fixed it", "Ann works with Bob, who fixed it".
    """
    if len(relatives[0]) != 1 or len(relatives[1]) != 1:
        return None
    (start,), (start_there,) = ([found.start() for found in one] for one in relatives)
    for at, there in places.items():
        one, other = a.tokens[at].start, b.tokens[there].start
        if (_opens_clause(a, at, start) and other < start_there) or (
            _opens_clause(b, there, start_there) and one < start
        ):
            return at
    return None


def _opens_clause(reading: Reading, at: int, start: int) -> bool:
    """Return True if a token is the first one behind an offset."""
    token = reading.tokens[at].start
    return start < token == min(other.start for other in reading.tokens if other.start > start)


def _find_joined(
    a: Reading, b: Reading, places: Mapping[int, int], relatives: Relatives, language: Language
) -> int | None:
    """Return a verb of a relative clause that "and" joins in the other text: ".., which reads it", "and reads it".

    What "and this" joins has the same subject as the relative clause, if it has the same words.
    """
    ends, ends_there = ({found.end() for found in one if found["comma"]} for one in relatives)
    if bool(ends) == bool(ends_there):
        return None
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        opens, opens_there = (
            _opens(reading, token, begins) for reading, token, begins in ((a, one, ends), (b, other, ends_there))
        )
        if (opens and other.gap == "and") or (opens_there and one.gap == "and"):
            joined = read_before(b, other) if opens else read_before(a, one)
            sides = ((a.tokens[x].start < one.start, b.tokens[y].start < other.start) for x, y in places.items())
            if joined not in language.demonstratives or any(here != there for here, there in sides):
                return at
    return None


def _find_stated(a: Reading, b: Reading, places: Mapping[int, int], relatives: Relatives) -> int | None:
    """Return a word behind a relative clause that "and" joins to it in the other text.

    "The switch that is red stops the pump", "the switch is red and stops the pump".
    """
    if relatives[1]:
        pairs = {there: at for at, there in places.items()}
        found = _find_stated(b, a, pairs, (relatives[1], relatives[0]))
        return None if found is None else pairs[found]
    first = min((at for at in places if a.tokens[at].start > relatives[0][0].end()), key=_by_start(a), default=None)
    if first is None:
        return None
    opening, opening_there = a.tokens[first], b.tokens[places[first]]
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        is_joined = one.conjunct - opening.conjunct != one.clause - opening.clause
        is_joined_there = other.conjunct - opening_there.conjunct != other.clause - opening_there.clause
        is_behind = one.start > opening.start and a.find_sentence(one.start) == a.find_sentence(opening.start)
        if is_behind and is_joined_there and not is_joined:
            return at
    return None


def _by_start(reading: Reading) -> Callable[[int], int]:
    return lambda at: reading.tokens[at].start


def _opens(reading: Reading, token: Token, begins: Set[int]) -> bool:
    """Return True if only blanks stand between one of the offsets and a token."""
    return any(begin <= token.start and not reading.source[begin : token.start].strip() for begin in begins)


def _differ_in_relatives(relatives: Relatives, language: Language) -> bool:
    """Return True if a relative clause tells which one in one text, and of all in the other: "tests, which fail, ..".

    Or if the clause tells of a noun of another gender: "der Freund der Mieterin, der", "der Freund der Mieterin, die".
    """
    if len(relatives[0]) != len(relatives[1]):
        return False
    words, words_there = ([one["word"].lower() for one in found] for found in relatives)
    if language.has_gendered_relatives:
        return words != words_there
    # "Le service qui appelle la passerelle", "que la passerelle appelle"
    if [word == _SUBJECT for word in words] != [word == _SUBJECT for word in words_there]:
        return True
    # "El monitor que vigila al orquestador", "al que vigila el orquestador"
    objects, objects_there = (
        [_OBJECT.search(one.string[: one.start()]) is None for one in found] for found in relatives
    )
    if objects != objects_there:
        return True
    commas, commas_there = ([bool(one["comma"]) for one in found] for found in relatives)
    following, following_there = ([_read_behind(one) for one in found] for found in relatives)
    is_same_clause = following == following_there and "" not in following
    return commas != commas_there and (words == words_there or is_same_clause)


def _read_behind(found: re.Match[str]) -> str:
    """Return the word behind a relative pronoun."""
    word, _, rest = found.string[found.end() :].lstrip().partition(" ")
    return "" if rest.startswith("why ") else word  # "which is why" tells of no noun


def _find_relatives(reading: Reading, language: Language) -> list[re.Match[str]]:
    """Return the relative pronouns of a text, each with the comma before it."""
    pattern, end = _compile(language.relatives, language.has_gendered_relatives), reading.begin + len(reading.text)
    found = pattern.finditer(reading.source, reading.begin, end)
    # "That makes it slow" opens a sentence.
    return [one for one in found if reading.source[: one.start()].rstrip()[-1:] not in _STOPS]


@cache
def _compile(words: frozenset[str], has_comma: bool) -> re.Pattern[str]:
    """Return the pattern of the relative pronouns; ``has_comma``: only those behind one."""
    alternatives = "|".join(sorted(words)) or "(?!)"
    return re.compile(rf"(?P<comma>,{'' if has_comma else '?'})\s+(?P<word>{alternatives})\b", re.IGNORECASE)


def _tells_of_other_verb(
    a: Reading, b: Reading, at: int, places: Mapping[int, int], begins: Sequence[int], language: Language
) -> bool:
    """Return True if an adverb tells of another verb: "jobs that fail quickly are retried", "are quickly retried".

    Only a relative clause before it in both texts, which begins at ``begins``, tells that there are two verbs.
    """
    one, other = a.tokens[at], b.tokens[places[at]]
    if not one.text.lower().endswith(language.adverb_endings) or one.governor:
        return False
    if one.start <= begins[0] or other.start <= begins[1]:
        return False
    beside, beside_there = _find_beside(a, one), _find_beside(b, other)
    beside = {places[word] for word in beside if word in places}
    return bool(beside and beside_there) and beside.isdisjoint(beside_there)


def _find_beside(reading: Reading, word: Token) -> set[int]:
    """Return the positions of the tokens directly before and behind a token as written."""
    frame, at = reading.frame, reading.frame.index(word.place)
    places = {entry for entry in (*frame[max(at - 1, 0) : at], *frame[at + 1 : at + 2]) if isinstance(entry, int)}
    return {i for i, token in enumerate(reading.tokens) if token.place in places}
