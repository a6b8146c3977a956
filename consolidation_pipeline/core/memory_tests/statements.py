"""Statements of texts: does one say what another claims, by the engine that explains differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from consolidation_pipeline.core.differences.explanation import PROOFS, explain
from consolidation_pipeline.core.differences.language import LATIN, Language, split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.differences.reading import Cue, Reading, Token
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentences import extract_sentences

_AGAIN = ("order", "again")
# Cues that a merge may lose but a claim may not: "accepts cards again", "will move", "rehearses above the crypt".
_TOLD = {
    *(("tense", pole) for pole in ("future", "still", "unreal", "former")),
    _AGAIN,
    *(("order", pole) for pole in ("last", "final", "later")),
}
# Places that are no others: "above the crypt" is not "in the crypt", whichever text has it.
_PLACES = {("marker", pole) for pole in ("above", "below", "against", "between")}
# Poles that are one: "must be", "should be".
_DEMANDS = frozenset(("required", "advised"))
# Endings of infinitives that are orders at the end of a sentence.
_LATE_INFINITIVES = {"de": "n"}
# Words without a meaning for a merge that a claim tells, by language: any of a group will do.
_LIGHT: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "en": (("also", "too", "as well", "in addition", "additionally", "plus", "furthermore", "moreover", "both"),),
    "de": (("auch", "ebenfalls", "ebenso", "zudem", "außerdem", "zusätzlich", "sowohl", "beide"),),
    "es": (("también", "además", "asimismo", "igualmente", "ambos", "ambas"),),
    "fr": (("aussi", "également", "de plus", "en plus", "en outre", "les deux"),),
}


@lru_cache(20_000)
def says(text: str, claim: str, *, in_full: bool = True) -> bool:
    """Return True if ``text`` says all that ``claim`` says.

    Each sentence of the claim has to be said by one sentence of the text, which may say more but contradicts none of
    it. The words of several sentences together do not count: they may speak of different things.

    Args:
        in_full: The text has to hold also what the engine that explains differences takes for no difference between
            memories that may become one: "also", "again", "should".
    """
    if normalize_text(text) == normalize_text(claim):
        return True
    claims, said = _split(claim), _split(text)
    return all(any(_contains(sentence, one, in_full) for sentence in said) for one in claims)


def _split(text: str) -> list[str]:
    return [sentence.text for sentence in extract_sentences(text)] or [text]


def _contains(sentence: str, claim: str, in_full: bool) -> bool:
    said, asked = read(sentence), read(claim)
    # What is so again is so: ``_leaves_out`` tells which of both texts needs the word.
    again = {cue.text for cue in (*said.cues, *asked.cues) if (cue.category, cue.pole) == _AGAIN}
    found = [one for one in explain(sentence, claim).differences if (one.a or one.b) not in again]
    if any(one.b or PROOFS[one.kind] != "contains" for one in found):
        return False
    return not (in_full and _leaves_out(said, asked))


def _leaves_out(said: Reading, claim: Reading) -> bool:
    """Return True if a text lacks a small word that the claim has, or has one that makes it say less."""
    if claim.language not in LATIN or said.normalized == claim.normalized:
        return not _TOLD.isdisjoint(_list_poles(claim) - _list_poles(said))
    told, asked = _list_poles(said), _list_poles(claim)
    if not _TOLD.isdisjoint(asked - told) or _is_elsewhere(said, claim) or _is_elsewhere(claim, said):
        return True
    if (
        _list_modalities(said, claim) != _list_modalities(claim, said)
        and not _is_order(said, claim)
        and not _is_order(claim, said)
    ):
        return True
    return any(_tells(claim, group) and not any(_has(said, word) for word in group) for group in _LIGHT[claim.language])


def _list_poles(reading: Reading) -> set[tuple[str, str]]:
    return {(cue.category, cue.pole) for cue in reading.cues}


def _list_modalities(reading: Reading, other: Reading) -> set[str]:
    """Return the modalities that a text has before a word of both, or before none.

    What must be and what should be are one, as are what can be and may be.
    """
    cues = ((cue, _find_next(reading.tokens, cue)) for cue in reading.cues if cue.category == "modality")
    poles = (cue.pole for cue, token in cues if token is None or token.key in other.key_set)
    return {"demand" if pole in _DEMANDS else "able" if pole == "permitted" else pole for pole in poles}


def _is_elsewhere(one: Reading, other: Reading) -> bool:
    """Return True if a text tells a place of a word of both texts by a preposition that the other one lacks.

    So does one that tells from where, "from the hospital", what is at a place in the other one.
    """
    language = load_language(one.language or "en")
    places = language.prepositions - language.genitives
    governors = {token.key: token.governor for token in other.tokens}
    if any(token.governor == "from" and governors.get(token.key) in places for token in one.tokens):
        return True
    poles = _list_poles(other)
    cues = (cue for cue in one.cues if (cue.category, cue.pole) in _PLACES)
    nexts = ((cue, _find_next(one.tokens, cue)) for cue in cues)
    return any((cue.category, cue.pole) not in poles and token and token.key in other.key_set for cue, token in nexts)


def _is_order(one: Reading, other: Reading) -> bool:
    """Return True if a text opens with the verb that the other one demands: "Run it", "you must run it".

    So does one that ends with the infinitive, "Backups prüfen".
    """
    language = load_language(one.language or "en")
    demands = [cue for cue in other.cues if cue.category == "modality"]
    if not one.tokens or not demands or any(cue.category == "modality" for cue in one.cues):
        return False
    if any(cue.category == "modality" and cue.pole not in _DEMANDS for cue in demands):
        return False
    first, *_, last = sorted((*one.tokens, *one.tokens[:1]), key=lambda token: token.place)
    opening = {*split_words(one.source[one.begin : first.start])}
    nouns = {*language.subjects, *language.owners, *language.articles, *language.determiners}
    demanded = [token for cue in demands if (token := _find_next(other.tokens, cue))]
    if not opening & nouns and any(_is_command(first.text.lower(), token, first.key, language) for token in demanded):
        return True
    has_tense = any(cue.category == "tense" for cue in one.cues)
    return language.code in _LATE_INFINITIVES and last.text.endswith(_LATE_INFINITIVES[language.code]) and not has_tense


def _is_command(form: str, demanded: Token, key: str, language: Language) -> bool:
    return key == demanded.key and (form == demanded.text.lower() or not language.is_past(form))


def _find_next(tokens: Iterable[Token], cue: Cue) -> Token | None:
    return next((token for token in tokens if token.place == cue.place), None)


def _has(reading: Reading, phrase: str) -> bool:
    return f" {phrase} " in f" {' '.join(split_words(reading.text))} "


def _tells(claim: Reading, group: Iterable[str]) -> bool:
    """Return True if a claim has one of the phrases behind its first word."""
    behind = f" {' '.join(split_words(claim.text)[1:])} "
    return any(f" {phrase} " in behind for phrase in group)
