"""Words of one text that say which thing is meant: the virtual card, the card."""

from collections.abc import Mapping
from itertools import pairwise

from consolidation_pipeline.core.differences.alignment import FEWEST_COMMON
from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.reading import Reading, Token, sort_as_written


def find_modifier(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> list[Token]:
    """Return a word that ``a`` has directly before a word of both, with that word; empty if there is none.

    A word that ``b`` has elsewhere says nothing new, but in a short text.

    Args:
        places: positions of the tokens of ``a`` that ``b`` has too.
    """
    for at, following in pairwise(sort_as_written(a.tokens)):
        one, other = a.tokens[at], a.tokens[following]
        is_near = one.phrase == other.phrase and other.words_before == 0 and other.kind == "word"
        is_known = one.key in b.key_set and len(places) >= FEWEST_COMMON
        is_plain = is_known or language.is_adverb(one.text.lower())
        if at not in places and following in places and is_near and not is_plain:
            return [one, other]
    return []


def find_head(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> list[Token]:
    """Return a word that ``a`` has alone and on which a word of both depends, with that word; empty if there is none.

    In a short text it makes another claim. "The card" is not "the card payment", and to ask for "my score" is not to
    ask for "the point of my score". A word in a clause of its own, an adverb, or a detail with a preposition of its own
    is no such word.

    Args:
        places: Position in ``b`` of each position in ``a`` that has one.
    """
    tokens, order = a.tokens, sort_as_written(a.tokens)
    shared = {tokens[at].segment for at in places}
    is_question = any(cue.category == "question" for cue in (*a.cues, *b.cues))
    for step, at in enumerate(order):
        one = tokens[at]
        is_plain = one.kind == "code" or one.key in b.key_set or language.is_adverb(one.text.lower())
        if at in places or is_plain or one.segment not in shared:
            continue
        before = order[step - 1] if step else -1
        if before in places and one.words_before == 0 and one.phrase == tokens[before].phrase:
            return [tokens[before], one]
        following = next((later for later in order[step:] if later in places), None)
        if following is None or tokens[following].segment != one.segment or not is_question:
            continue
        if not one.governor or one.governor == b.tokens[places[following]].governor != tokens[following].governor:
            return [one, tokens[following]]
    return []
