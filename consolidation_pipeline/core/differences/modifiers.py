"""Words of one text that say which thing is meant: the virtual card, the card."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from consolidation_pipeline.core.differences.alignment import FEWEST_COMMON
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.order import Reordered
from consolidation_pipeline.core.differences.reading import Reading, Token, sort_as_written


def find_modifier(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> list[Token]:
    """Return a word that ``a`` has directly before a word of both, with that word; empty if there is none.

    A word that ``b`` has elsewhere says nothing new, but in a short text.

    Args:
        places: positions of the tokens of ``a`` that ``b`` has too.
    """
    before = -1
    for at, following in pairwise(sort_as_written(a.tokens)):
        one, other = a.tokens[at], a.tokens[following]
        is_near = one.phrase == other.phrase and other.words_before == 0
        # "Ann wants to buy a car" is not "Ann bought a car".
        is_infinitive = other.governor == "to" and other.words_before == 1 and one.clause == other.clause
        is_near = is_near or (is_infinitive and places.get(before, -1) == places.get(following, 0) - 1)
        # "The mayor of the town called", "the mayor called".
        is_genitive = one.gap == "of" and before in places
        before, is_near = at, is_near and other.kind == "word" and not is_genitive
        is_known = one.key in b.key_set and len(places) >= FEWEST_COMMON
        is_plain = is_known or language.is_adverb(one.text.lower()) or b.has_light_verb(one.key)
        # "Do not use tabs" is "avoid tabs".
        is_denied = any((cue.category, cue.place) == ("polarity", one.place) for cue in a.cues)
        is_plain = is_plain or (one.text.lower() in language.tools and is_denied)
        if at not in places and following in places and is_near and not is_plain:
            return [one, other]
    return []


def find_narrowing(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> list[Token]:
    """Return a word of a short text ``a`` that makes it tell or ask of another thing; empty if there is none.

    It is directly after a word of both ("the card payment", "the card"), or anywhere in a question or request: "the
    point of my score", "my score for Ann". A word in a segment of its own or an adverb is a detail.

    Args:
        places: positions of the tokens of ``a`` that ``b`` has too.
    """
    tokens, before = a.tokens, -1
    shared = {tokens[at].segment for at in places}
    is_request = any(cue.category in ("question", "request") for cue in (*a.cues, *b.cues))
    for at in sort_as_written(tokens):
        one = tokens[at]
        is_plain = one.kind == "code" or one.key in b.key_set or language.is_adverb(one.text.lower())
        is_plain = is_plain or b.has_light_verb(one.key)
        if at not in places and not is_plain and one.segment in shared:
            is_beside = one.phrase == tokens[before].phrase or (language.has_noun_capitals and one.gap == "tight")
            if before in places and one.words_before == 0 and is_beside:
                return [tokens[before], one]
            if is_request:
                return [one]
        before = at
    return []


def find_new_head(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> Reordered | None:
    """Return a noun that ``a`` has before or behind a genitive of a word of both: "the roof of the barn", "the barn".

    Args:
        places: Position in ``b`` of each aligned position in ``a``.
    """
    order = sort_as_written(a.tokens)
    for number, (at, following) in enumerate(pairwise(order)):
        one, other = a.tokens[at], a.tokens[following]
        if one.clause != other.clause:
            continue
        if at not in places and following in places:
            there = b.tokens[places[following]]
            is_joined = other.gap == "of" or other.governor in language.attributes - {there.governor}
            heads = _list_heads(a, order[: number + 1], places) if is_joined else []
        elif other.gap == "s" and at in places and following not in places:
            heads = [a.tokens[place] for place in order[number + 1 :] if a.tokens[place].phrase == other.phrase]
        else:
            continue
        is_noun = all(
            head.kind == "word" and (head.text[0].isupper() or not language.has_noun_capitals) for head in heads[:1]
        )
        is_known = all(head.key in b.key_set for head in heads) or _stands_for_genitive(heads, language)
        if is_noun and not is_known:
            return [one, other], []
    return None


def _list_heads(a: Reading, order: Sequence[int], places: Mapping[int, int]) -> list[Token]:
    """Return the last word of ``order``, and those that are joined to it by genitives: "mode d'emploi"."""
    heads = [a.tokens[order[-1]]]
    for at in reversed(order[:-1]):
        if heads[-1].gap != "of" or at in places or a.tokens[at].clause != heads[0].clause:
            break
        heads.append(a.tokens[at])
    return heads


def _stands_for_genitive(heads: Sequence[Token], language: Language) -> bool:
    stem = language.stem("".join(head.text.lower() for head in heads))
    return any(language.stem(word) == stem for word in language.genitive_heads)
