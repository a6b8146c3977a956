"""Literals: the facts of a text that a merge must keep.

A literal is a number with its unit, a version, a date, a path, a URL, an identifier, an error code, a quotation or a
negation. Every literal lies on one line and inside one sentence, so the literals of a text are those of its sentences.
"""

import re
from functools import cached_property, lru_cache

from consolidation_pipeline.core.literals.literal_scanner import Literal, scan
from consolidation_pipeline.core.literals.negation import negations
from consolidation_pipeline.core.memories.memories import normalize_text

KINDS = ("number", "version", "date", "path", "url", "identifier", "error_code", "quoted")
# A literal of these kinds stands in a text only as a literal; others may be marked up differently or given in part.
EXACT_KINDS = frozenset(("number", "version"))
# Next to these, a value is a part of something longer; one pattern per value would cost more to compile than to search.
_JOINED_BEFORE = re.compile(r"[\w-]")
_JOINED_AFTER = re.compile(r"[\w-]|[./:]\w")


# Sentences are read by each group that they are in, as a text and as its sentence.
@lru_cache(maxsize=1 << 13)
def literals(text: str) -> frozenset[Literal]:
    """Return all literals of ``text``.

    Kinds: number, version, date, path, url, identifier, error_code, quoted, negation. Units are normalised (``30 s`` =
    ``30 seconds`` = ``30s``, ``1,000`` = ``1000``, ``24 hours`` = ``1 day``), dates are ISO where they are unambiguous,
    letter case counts for nothing. A bare name and integer (``CentOS 8``) is a number; an ordinal is its number. ``not
    only``, ``don't forget`` and their like are no negations.
    """
    denials = (Literal("negation", "not", match[0], match.start()) for match in negations(text))
    return frozenset((*scan(text), *denials))


class _Facts:
    """The parts of a text in which literals are searched. Each is read when it is first needed, and kept."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def values(self) -> frozenset[str]:
        """The values of its literals."""
        return frozenset(literal.value for literal in scan(self.text))

    @cached_property
    def is_negated(self) -> bool:
        """True if the text has a negation."""
        return any(True for _ in negations(self.text))

    @cached_property
    def normalized(self) -> str:
        """The text in its normal form, in which literals are searched as plain words."""
        return normalize_text(self.text)


_facts = lru_cache(maxsize=1024)(_Facts)


def stands_in(literal: Literal, text: str) -> bool:
    """Return True if ``text`` holds the literal, also if marked up differently: ``a.py`` stands in "see src/a.py"."""
    facts = _facts(text)
    if literal.kind == "negation":
        return facts.is_negated
    return literal.value in facts.values or (literal.kind not in EXACT_KINDS and _stands_otherwise(literal, facts))


def _stands_otherwise(literal: Literal, facts: _Facts) -> bool:
    """Return True if the text writes the literal in another way: a date with its year, a name as plain words."""
    value, normalized = literal.value, facts.normalized
    if literal.kind == "date":
        return any(other.endswith("-" + value) for other in facts.values)
    start = normalized.find(value)
    while start >= 0:
        inside = start > 0 and _JOINED_BEFORE.match(normalized, start - 1)
        if not (inside or _JOINED_AFTER.match(normalized, start + len(value))):
            return True
        start = normalized.find(value, start + 1)
    return False
