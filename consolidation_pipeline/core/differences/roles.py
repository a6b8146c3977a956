"""Words that both texts have in another role: "by Friday", "on Friday"; "is blocking", "is blocked"."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice

from consolidation_pipeline.core.differences.alignment import OF_COMPOUNDS
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading, Token

_TIME = re.compile(r"date:.*|days-\d+|months-\d+|number:[\d.]+ (?:s|min|h|d|month|year)")
# Classes of markers that no other preposition stands for before a time.
_BOUNDS = frozenset(("by", "from"))
# A particle, behind a title: 田中さんが.
_PARTICLE = re.compile("(?:さん|様|君|くん|ちゃん|氏)?(より|[がをに])")
# Characters before a word among which its article or preposition is.
_LONGEST_ARTICLE = 16
_WORD_BEFORE = re.compile(r"(\w+)\W+\Z")


def find_new_role(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a word of both texts, with the one before it, that has another role; None if there is none.

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    if steps := _find_new_step(a, b, places, language):
        return steps
    if _differ_in_copula(a, b, language):
        found: Sequence[int] = list(places)[:1]
    else:
        found = list(islice((at for at in places if _has_new_role(a, b, at, places, language)), 1))
    found = found or _find_new_cases(a, b, places, language) or _find_exchanged_governors(a, b, places, language)
    if not found:
        return None
    return (
        [_with_word_before(a.text, a.tokens[at]) for at in found],
        [_with_word_before(b.text, b.tokens[places[at]]) for at in found],
    )


def _has_new_role(a: Reading, b: Reading, at: int, places: Mapping[int, int], language: Language) -> bool:
    """Return True if the word at a position in ``a`` has another role in ``b``, whatever the other words have."""
    one, other = a.tokens[at], b.tokens[places[at]]
    return (
        frozenset((one.governor, other.governor)) in language.opposed_prepositions
        or _differ_in_time(one, other, language)
        or _differ_in_amount(one, other, language)
        or _differ_in_voice(a, b, at, places[at], language)
        or _differ_in_agent(a, b, one, other, language)
        or _differ_in_owner(a, b, one, other, language)
        or _differ_in_host(a, b, at, places[at], places, language)
    )


def _find_new_step(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return two words of steps that stand in the other order: "drain it, then stop it", "stop it, then drain it"."""
    if any(language.sequence_words.isdisjoint(one.words) for one in (a, b)):
        return None
    steps = sorted((a.tokens[at].conjunct, b.tokens[there].conjunct, at) for at, there in places.items())
    last = (-1, -1, -1)
    for step in steps:
        if step[1] < last[1] and step[0] > last[0]:
            words = [last[2], step[2]]
            return [a.tokens[at] for at in words], [b.tokens[places[at]] for at in words]
        last = max(last, step, key=lambda one: one[1])
    return None


def _differ_in_copula(a: Reading, b: Reading, language: Language) -> bool:
    """Return True if the texts have other verbs for "be": "es callado", "está callado"."""
    if not language.copula_kinds:
        return False
    kinds = [{language.copula_kinds[word] for word in one.words & language.copula_kinds.keys()} for one in (a, b)]
    return all(kinds) and kinds[0].isdisjoint(kinds[1])


def _differ_in_time(one: Token, other: Token, language: Language) -> bool:
    """Return True if two prepositions before a time tell other things of it: by and on, for and in."""
    governors = {one.governor, other.governor} - {"", "time"}
    if len(governors) < 2 or not _TIME.fullmatch(one.key):
        return False
    spans = governors & language.spans
    return not governors.isdisjoint(_BOUNDS) or (len(spans) == 1 and governors - spans <= language.prepositions)


def _differ_in_amount(one: Token, other: Token, language: Language) -> bool:
    """Return True if a number is a change in one text, "um 5 %", and its result in the other one, "auf 5 %"."""
    amounts = language.amounts.get(one.governor), language.amounts.get(other.governor)
    return one.key.startswith("number:") and all(amounts) and amounts[0] != amounts[1]


def _differ_in_owner(a: Reading, b: Reading, one: Token, other: Token, language: Language) -> bool:
    """Return True if a thing has another owner: "his car", "her car"."""
    if not language.owners:
        return False
    words = _match_before(a.text, one), _match_before(b.text, other)
    owners = [language.owners.get(word[1].lower()) if word else None for word in words]
    return None not in owners and owners[0] != owners[1]


def _differ_in_voice(a: Reading, b: Reading, at: int, there: int, language: Language) -> bool:
    """Return True if a verb after "be" is active in one text, "is blocking", and passive in the other, "is blocked"."""
    if at not in a.predicates or there not in b.predicates or not language.gerund_endings:
        return False
    words = [reading.tokens[place].text.lower() for reading, place in ((a, at), (b, there))]
    is_active = [word.endswith(language.gerund_endings) for word in words]
    return is_active[0] != is_active[1] and language.is_participle(words[is_active[0]])


def _differ_in_agent(a: Reading, b: Reading, one: Token, other: Token, language: Language) -> bool:
    """Return True if a word is the agent of one text, "by the team", and in another phrase in the other one."""
    is_agent = one.place in a.agents, other.place in b.agents
    governor = other.governor if is_agent[0] else one.governor
    is_other = governor not in ("", "time") and governor not in language.agents | language.genitives
    return is_agent[0] != is_agent[1] and is_other


def _differ_in_host(a: Reading, b: Reading, at: int, there: int, places: Mapping[int, int], language: Language) -> bool:
    """Return True if a phrase tells of another noun: "the man with a key calls Ann", "the man calls Ann with a key"."""
    if a.tokens[at].governor not in language.attributes or a.tokens[at].governor != b.tokens[there].governor:
        return False
    (one, is_inside), (other, is_inside_there) = _find_host(a, at), _find_host(b, there)
    if one is None or other is None or one not in places:
        return False
    return (is_inside or is_inside_there) and places[one] != other


def _find_host(reading: Reading, at: int) -> tuple[int | None, bool]:
    """Return the position of the last word before a phrase that is in none, and True if another one follows it."""
    word = reading.tokens[at]
    free = {
        one.place: i
        for i, one in enumerate(reading.tokens)
        if one.conjunct == word.conjunct and not one.governor and one.place not in reading.agents
    }
    before = max((place for place in free if place < word.place), default=None)
    return None if before is None else free[before], any(place > word.place for place in free)


def _find_exchanged_governors(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Sequence[int]:
    """Return two words of which one lost the preposition that the other one gained: "Rosa llamó a Diego"."""
    lost: dict[str, int] = {}
    gained: dict[str, int] = {}
    for at, there in places.items():
        one, other = a.tokens[at], b.tokens[there]
        if bool(one.governor) != bool(other.governor) and one.place not in a.agents and other.place not in b.agents:
            (lost if one.governor else gained)[one.governor or other.governor] = at
    both = lost.keys() & gained.keys() - {"time"} - language.genitives - OF_COMPOUNDS
    return [lost[min(both)], gained[min(both)]] if both else ()


def _find_new_cases(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Sequence[int]:
    """Return the words that exchanged their cases: "der Job ruft den Worker", "den Job ruft der Worker".

    One word is enough in clauses of one form, where particles mark the cases, and behind a relative pronoun.
    """
    changed: dict[tuple[str, str], int] = {}
    for at, there in places.items() if language.cases else ():
        cases = _find_case(a, a.tokens[at], language), _find_case(b, b.tokens[there], language)
        is_same_form = len(a.frame) == len(b.frame) or "relative" in cases[0] + cases[1]
        is_known = all(cases) and (language.has_late_focus or is_same_form)
        if cases[0] != cases[1] and (is_known or "than" in cases):
            return [at]
        if all(cases) and cases[0] != cases[1]:
            changed[cases] = at
    pair = next((pair for pair in changed if pair[::-1] in changed), None)
    return [changed[pair], changed[pair[::-1]]] if pair else ()


def _find_case(reading: Reading, word: Token, language: Language) -> str:
    """Return the case of a word by its article, relative pronoun or particle, "" = not known."""
    if language.has_late_focus:
        found = _PARTICLE.match(reading.text, word.start + len(word.text))
        return language.cases.get(found[1], "") if found else ""
    found = _match_before(reading.text, word)
    case = language.cases.get(found[1].lower(), "") if found else ""
    return f"relative {case}" if case and found and reading.text[: found.start()].rstrip().endswith(",") else case


def _match_before(text: str, word: Token) -> re.Match[str] | None:
    """Return the match of the word before a token, with what is between them."""
    return _WORD_BEFORE.search(text, max(0, word.start - _LONGEST_ARTICLE), word.start)


def _with_word_before(text: str, word: Token) -> Token:
    """Return a token with the word before it."""
    found = _match_before(text, word)
    start = found.start() if found else word.start
    return word._replace(text=text[start : word.start + len(word.text)], start=start)
