"""The facts of a text that must not be blurred, and when two texts contradict each other in them.

A literal is a number with its unit, a version, a date, a path, a URL, an identifier, an error code, a quotation or a
negation. Every literal lies on one line and inside one sentence, so the literals of a text are those of its sentences.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from consolidation_pipeline.core.memories import normalize_text
from consolidation_pipeline.core.polarity import disputes, negations
from consolidation_pipeline.core.scanning import Literal, scan

__all__ = ["Conflict", "Literal", "conflicts", "literals", "stands_in"]

_KINDS = ("number", "version", "date", "path", "url", "identifier", "error_code", "quoted")
_WORDED_KINDS = frozenset(("path", "url", "identifier", "error_code", "quoted"))
_BARE_NUMBER = re.compile(r"[\d.]+")


@dataclass(frozen=True)
class Conflict:
    """What stands against each other: values that only ``a`` has, and values of that kind that only ``b`` has."""

    kind: str
    a: tuple[str, ...]
    b: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {', '.join(self.a)} / {', '.join(self.b)}"


def literals(text: str) -> frozenset[Literal]:
    """All literals of ``text``.

    Kinds: number, version, date, path, url, identifier, error_code, quoted, negation. Units are normalised (``30 s`` =
    ``30 seconds`` = ``30s``, ``1,000`` = ``1000``, ``24 hours`` = ``1 day``), dates are ISO where they are unambiguous,
    letter case counts for nothing. A bare name and integer (``CentOS 8``) is a number; an ordinal is its number. ``not
    only``, ``don't forget`` and their like are no negations.
    """
    denials = (Literal("negation", "not", match[0], match.start()) for match in negations(text))
    return frozenset((*scan(text), *denials))


_literals = lru_cache(maxsize=1024)(literals)


def stands_in(literal: Literal, text: str) -> bool:
    """Whether ``text`` holds the literal, be it marked up differently: ``a.py`` stands in "see src/a.py"."""
    if literal.kind == "negation":
        return literal in _literals(text)
    values = _values(text)
    if literal.value in values:
        return True
    if literal.kind == "date":
        return any(value.endswith("-" + literal.value) for value in values)
    if literal.kind not in _WORDED_KINDS or literal.value not in _normalized(text):
        return False
    return re.search(rf"(?<![\w-]){re.escape(literal.value)}(?![\w-]|[./:]\w)", _normalized(text)) is not None


def conflicts(a: str, b: str) -> tuple[Conflict, ...]:
    """Why two texts must not become one without a person; empty if nothing speaks against it.

    A kind conflicts when each text has a literal of it that does not stand in the other: what only one side adds is no
    contradiction. Polarity conflicts when matching clauses differ in the parity of their negations, or in which of two
    opposites (enable, disable) they name. Symmetric but for the sides' order.
    """
    ours, theirs = _lacking(a, b), _lacking(b, a)
    found = [Conflict(kind, ours[kind], theirs[kind]) for kind in _KINDS if kind in ours and kind in theirs]
    denied = (Conflict("polarity", (our_clause,), (their_clause,)) for our_clause, their_clause in disputes(a, b))
    return (*(found or _version_against_number(ours, theirs)), *denied)


def _lacking(a: str, b: str) -> dict[str, tuple[str, ...]]:
    """By kind, the sorted values of ``a`` that do not stand in ``b``."""
    found: dict[str, list[str]] = {}
    for literal in sorted(_literals(a), key=lambda literal: literal.value):
        if literal.kind in _KINDS and not stands_in(literal, b):
            found.setdefault(literal.kind, []).append(literal.value)
    return {kind: tuple(values) for kind, values in found.items()}


def _version_against_number(ours: dict[str, tuple[str, ...]], theirs: dict[str, tuple[str, ...]]) -> list[Conflict]:
    """``CentOS 7.9`` and ``CentOS 8``: the second does not look like a version until one sees the first."""
    sides = [
        (side.get("version", ()), tuple(filter(_BARE_NUMBER.fullmatch, side.get("number", ()))))
        for side in (ours, theirs)
    ]
    (our_versions, our_numbers), (their_versions, their_numbers) = sides
    if (our_versions and their_numbers) or (our_numbers and their_versions):
        return [Conflict("version", our_versions or our_numbers, their_versions or their_numbers)]
    return []


@lru_cache(maxsize=1024)
def _values(text: str) -> frozenset[str]:
    return frozenset(literal.value for literal in _literals(text))


_normalized = lru_cache(maxsize=1024)(normalize_text)
