"""Coverage: which of several texts or sentences say all that another one says."""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from consolidation_pipeline.core.differences.explanation import explain_readings
from consolidation_pipeline.core.differences.language import split_words
from consolidation_pipeline.core.differences.language_loader import load_language
from consolidation_pipeline.core.differences.reader import read
from consolidation_pipeline.core.differences.reading import Reading
from consolidation_pipeline.core.literals.literal_scanner import Literal
from consolidation_pipeline.core.literals.literals import literals
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentence_splitter import BULLET, close_code_block, has_code_block

# Without meaning: bullets and bold type.
_MARKUP = re.compile(rf"(?m)^\s*{BULLET.pattern}|\*\*|__")
_NEGATION = Literal("negation", "not")
_QUESTION = re.compile(r"[?？](?!\w)")
# Words of one family share their first letters.
_FAMILY_PREFIX = 4
# Lowest share of the words of a sentence that one in other words has too.
_MIN_SHARED = 0.6
# Most words of a sentence that others may stand for: "leaves", "departs".
_MAX_REPLACED = 1


@dataclass(frozen=True)
class Statement:
    """A text or sentence that is compared with others. Each part of it is read when it is first needed, and kept."""

    text: str

    @cached_property
    def form(self) -> str:
        """The normal form; of code the text itself, in which a missing fence is closed."""
        return close_code_block(self.text) if self.is_code else normalize_text(self.text)

    @cached_property
    def literals(self) -> frozenset[Literal]:
        """The facts that a text must have to cover this one. All negations are one: "not" and "never"."""
        return frozenset(_NEGATION if literal.kind == _NEGATION.kind else literal for literal in literals(self.text))

    @cached_property
    def is_code(self) -> bool:
        """True if it holds a fenced code block, in which white space has a meaning."""
        return has_code_block(self.text)

    @cached_property
    def asks(self) -> bool:
        """True if it holds a question."""
        return _QUESTION.search(self.text) is not None

    @cached_property
    def words(self) -> frozenset[str]:
        """The first letters of its words, which are found faster than ``keys``."""
        return frozenset(word[:_FAMILY_PREFIX] for word in split_words(self.text))

    @cached_property
    def reading(self) -> Reading:
        """Tokens and cues, without markup."""
        return read(_MARKUP.sub("", self.text))

    @cached_property
    def keys(self) -> frozenset[str]:
        """The tokens, words by their first letters. A text covers only those whose keys it has."""
        language = load_language(self.reading.language or "en")
        keys = set[str]()
        for token in self.reading.tokens:
            # A name and a word may be the same: it begins the sentence.
            key = language.read_word(token.key) if token.kind == "name" else token.key
            keys.add(key if token.kind in ("value", "code") else key[:_FAMILY_PREFIX])
        return frozenset(keys)

    def covers(self, other: "Statement") -> bool:
        """Return True if this says all that the other says: every difference is an addition of this one.

        Questions and statements do not cover each other, and a code block covers only the same block.
        """
        if self.form == other.form:
            return self._has_literals(other)
        if len(self.words & other.words) < _MIN_SHARED * len(other.words) or self.asks != other.asks:
            return False
        if self.is_code or other.is_code or len(other.keys - self.keys) > _MAX_REPLACED:
            return False
        found = explain_readings(self.reading, other.reading)
        return found.may_merge and not any(one.b for one in found.differences) and self._has_literals(other)

    def equals(self, other: "Statement") -> bool:
        """Return True if this has the normal form of the other, and its literals."""
        return self.form == other.form and self._has_literals(other)

    def _has_literals(self, other: "Statement") -> bool:
        return other.literals <= self.literals


# Groups of one project repeat each other's sentences.
as_statement = lru_cache(maxsize=4096)(Statement)
