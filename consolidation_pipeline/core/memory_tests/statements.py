"""Statements of texts: does one say what another claims, by the engine that explains differences."""

from __future__ import annotations

from functools import lru_cache

from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentences import extract_sentences


@lru_cache(20_000)
def says(text: str, claim: str) -> bool:
    """Return True if ``text`` says all that ``claim`` says.

    Each sentence of the claim has to be said by one sentence of the text, which may say more but contradicts none of
    it. The words of several sentences together do not count: they may speak of different things.
    """
    if normalize_text(text) == normalize_text(claim):
        return True
    claims, said = _split(claim), _split(text)
    return all(any(_contains(sentence, one) for sentence in said) for one in claims)


def _split(text: str) -> list[str]:
    return [sentence.text for sentence in extract_sentences(text)] or [text]


def _contains(sentence: str, claim: str) -> bool:
    explanation = explain(sentence, claim)
    return explanation.may_merge and not any(difference.b for difference in explanation.differences)
