"""Words of one text that say which thing is meant: the virtual card, the card."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from consolidation_pipeline.core.differences.language import Language
from consolidation_pipeline.core.differences.reading import Token, sort_as_written


def find_modifier(tokens: Sequence[Token], places: Mapping[int, int], language: Language) -> list[Token]:
    """Return a word that one text has directly before a word of both, with that word; empty if there is none.

    Args:
        tokens: tokens of the text.
        places: positions of the tokens that the other text has too.
    """
    for at, following in pairwise(sort_as_written(tokens)):
        one, other = tokens[at], tokens[following]
        is_near = one.phrase == other.phrase and other.words_before == 0 and other.kind == "word"
        is_adverb = one.text.lower().endswith(language.adverb_endings)
        if at not in places and following in places and is_near and not is_adverb:
            return [one, other]
    return []
