"""Support of a sentence by the texts it was made from: the share of its content words that these texts have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from consolidation_pipeline.core.differences.language import LATIN
from consolidation_pipeline.core.differences.language_detection import detect_language
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.knowledge.disputes import read_sentence
from consolidation_pipeline.core.knowledge.risky_text import find_injection_kinds
from consolidation_pipeline.core.text.sentence_splitter import split_sentences

# Fewest content words of a sentence that is judged.
_FEWEST_WORDS = 3
# Lowest share of supported words in a sentence with a sign of an injection that no source has, such as to pass on data.
_INJECTION_SHARE = 0.5
# Two words are of one family if this many letters at their beginning are the same, or one contains the other:
# "deployment" and "deployed", "Kundendaten" and "Kunde".
_FAMILY_LETTERS = 5

IsNear = Callable[[str, Sequence[str]], bool]
"""Tells if an English sentence is on the subject of one of some texts, though it has none of their words."""


class SourceWords:
    """Content words of texts, by which sentences about them are judged.

    Args:
        sources: The texts.
        others: Texts whose words count too, in any language.
        is_near: Tells which English sentences without a word of the texts are supported; None = no one is.
    """

    def __init__(self, sources: Sequence[str], others: Iterable[str] = (), is_near: IsNear | None = None) -> None:
        self._sources = [*sources]
        self._others = [*others]
        self._is_near = is_near

    def find_unsupported(self, text: str, *, is_abstract: bool = False) -> list[str]:
        """Return the sentences of a text that nothing in the sources supports.

        No content word of such a sentence is one of the sources, and in English it is not near one of them. If it has
        a sign of an injection that they do not have, fewer than half of its words are. Of 100 sentences that told what
        four to eight memories say in other words, two were refused so, and of 88 invented ones 69. More memories
        support more: of 43 invented ones beside 27 memories, 15 were refused.

        A text in another language than one of its sources is not judged, nor one in a language without function words.
        Where such a language is taken for a similar one, as Portuguese for Spanish, its own function words count as
        content words, so that few sentences are refused.

        Args:
            is_abstract: The text may use words of its own alone, as a principle does; only sentences with a sign of an
                injection are judged.
        """
        language = detect_language(text)
        if language not in LATIN or not self._languages <= {language, None}:
            return []
        return [
            sentence
            for sentence in split_sentences(text)
            if not self._supports(sentence, language, is_abstract=is_abstract)
        ]

    def _supports(self, sentence: str, language: str, *, is_abstract: bool) -> bool:
        words = {token.key: token.text.lower() for token in read_sentence(sentence, language).tokens}
        if len(words) < _FEWEST_WORDS:
            return True
        known = sum(self._has(key, word) for key, word in words.items())
        if known == 0 and not is_abstract and not (language == "en" and self._is_near_sources(sentence)):
            return False
        return known >= _INJECTION_SHARE * len(words) or find_injection_kinds(sentence) <= self._injections

    def _is_near_sources(self, sentence: str) -> bool:
        return self._is_near is not None and self._is_near(sentence, [*self._sources, *self._others])

    def _has(self, key: str, word: str) -> bool:
        if key in self._words or word in self._words:
            return True
        if len(word) < _FAMILY_LETTERS:
            return False
        first = word[:_FAMILY_LETTERS]
        return any(other.startswith(first) or word[:-1] in other or other[:-1] in word for other in self._long_words)

    @cached_property
    def _words(self) -> frozenset[str]:
        tokens = [token for text in (*self._sources, *self._others) for token in read(text).tokens]
        return frozenset(form for token in tokens for form in (token.key, token.text.lower()))

    @cached_property
    def _long_words(self) -> list[str]:
        return [word for word in self._words if len(word) >= _FAMILY_LETTERS]

    @cached_property
    def _languages(self) -> set[str | None]:
        return {detect_language(source) for source in self._sources}

    @cached_property
    def _injections(self) -> frozenset[str]:
        return frozenset().union(*map(find_injection_kinds, (*self._sources, *self._others)))
