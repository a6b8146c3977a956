"""Words that one text adds and that restrict what both claim: "never restart it", "never restart it on weekdays"."""

from collections.abc import Mapping, Sequence

from consolidation_pipeline.core.differences.language import Language, split_words
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token, sort_as_written

# Cues under which an added phrase makes the claim a narrower one.
_NARROWED = {("polarity", "negative"), ("modality", "permitted"), ("restriction", "only")}


def find_restriction(a: Reading, b: Reading, places: Mapping[int, int], language: Language) -> list[Token]:
    """Return a word that ``a`` adds to a clause of both, and that restricts it; empty if there is none.

    It stands in a phrase of a clause that denies, permits, or claims something of all, or right behind the subject:
    "customers in France get it". Or it is a place or time that has an opposite: "in staging", "on weekends".

    Args:
        places: Positions of the tokens of ``a`` that ``b`` has too.
    """
    tokens = a.tokens
    shared = {tokens[at].segment for at in places}
    written = sort_as_written(tokens)
    for before, at in zip([-1, *written], written, strict=False):
        one = tokens[at]
        if at in places or one.segment not in shared or not _is_phrase(one, language):
            continue
        cues = [cue for cue in a.cues if _has(b, cue) and _stands_beside(cue, one, tokens)]
        if any((cue.category, cue.pole) in _NARROWED for cue in cues):
            return [one]
        is_head = all(other.place <= one.place for other in tokens if other.phrase == one.phrase)
        if is_head and one.governor in language.circumstances and language.opposites.get(one.key):
            return [one]
        if before not in places:
            continue
        if any(cue.pole == "all" and cue.place == tokens[before].place for cue in cues):
            return [tokens[before], one]
        if _is_generic(a, before, language) and _is_subject(a, before, at, places):
            return [tokens[before], one]
    return []


def _is_phrase(token: Token, language: Language) -> bool:
    """Return True for a word behind a preposition, and for any word of a script without blanks."""
    return token.governor not in ("", "time") or not language.stemmer


def _stands_beside(cue: Cue, word: Token, tokens: Sequence[Token]) -> bool:
    """Return True if a cue is of the segment and conjunct of a word."""
    clause = sorted((token for token in tokens if token.clause == cue.clause), key=lambda token: token.place)
    near = next((token for token in clause if token.place >= cue.place), clause[-1] if clause else None)
    return near is not None and (near.segment, near.conjunct) == (word.segment, word.conjunct)


def _has(reading: Reading, cue: Cue) -> bool:
    return any((one.category, one.pole) == (cue.category, cue.pole) for one in reading.cues)


def _is_generic(a: Reading, at: int, language: Language) -> bool:
    """Return True if a noun may stand for all of its kind: it has no article, or one such as "les"."""
    before = split_words(a.source[: a.tokens[at].start])[-1:]
    return not before or before[0] not in language.determiners or before[0] in language.generic_articles


def _is_subject(a: Reading, at: int, added: int, places: Mapping[int, int]) -> bool:
    """Return True if a word opens its clause, and what it claims follows behind the ``added`` phrase."""
    word, phrase = a.tokens[at], a.tokens[added].phrase
    clause = [(token.place, i) for i, token in enumerate(a.tokens) if token.clause == word.clause]
    is_first = all(place >= word.place for place, _ in clause)
    behind = (a.tokens[i] for place, i in clause if place > a.tokens[added].place and i in places)
    return is_first and not word.governor and any(one.phrase != phrase or one.words_before for one in behind)
