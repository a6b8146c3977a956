"""The facts of a text that must not be blurred, and when two texts contradict each other in them.

A literal is a number with its unit, a version, a date, a path, a URL, an identifier, an error code, a quotation or a
negation. Every literal lies on one line and inside one sentence, so the literals of a text are those of its sentences.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from consolidation_pipeline.core.conflicts.clause_reader import read_clauses
from consolidation_pipeline.core.conflicts.clauses import Clause
from consolidation_pipeline.core.conflicts.literal_scanner import Literal, scan
from consolidation_pipeline.core.conflicts.negation import negations
from consolidation_pipeline.core.conflicts.polarity import disputes
from consolidation_pipeline.core.memories.memories import normalize_text

KINDS = ("number", "version", "date", "path", "url", "identifier", "error_code", "quoted")
# A literal of these kinds stands in a text only as a literal; others may be marked up differently or given in part.
EXACT_KINDS = frozenset(("number", "version"))
_BARE_NUMBER = re.compile(r"[\d.]+")
# What makes of a value a part of something longer; one pattern per value would cost more to compile than to search.
_JOINED_BEFORE = re.compile(r"[\w-]")
_JOINED_AFTER = re.compile(r"[\w-]|[./:]\w")
# A reason shows this many values of a side, each in this many characters.
_SHOWN = 4
_SHOWN_CHARS = 60

_Lacking = dict[str, tuple[Literal, ...]]


@dataclass(frozen=True)
class Conflict:
    """What stands against each other: literals that only ``a`` has, and literals of that kind that only ``b`` has.

    Of the kind ``polarity`` the literals are whole clauses. Where a text names a literal more than once, its ``text``
    and ``start`` are those of the first time.
    """

    kind: str
    a: tuple[Literal, ...]
    b: tuple[Literal, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {_shown(self.a)} / {_shown(self.b)}"


def _shown(side: tuple[Literal, ...]) -> str:
    values = [v if len(v) <= _SHOWN_CHARS else v[: _SHOWN_CHARS - 1] + "…" for v in (item.value for item in side)]
    return ", ".join(values[:_SHOWN]) + (", …" if len(values) > _SHOWN else "")


def literals(text: str) -> frozenset[Literal]:
    """All literals of ``text``.

    Kinds: number, version, date, path, url, identifier, error_code, quoted, negation. Units are normalised (``30 s`` =
    ``30 seconds`` = ``30s``, ``1,000`` = ``1000``, ``24 hours`` = ``1 day``), dates are ISO where they are unambiguous,
    letter case counts for nothing. A bare name and integer (``CentOS 8``) is a number; an ordinal is its number. ``not
    only``, ``don't forget`` and their like are no negations.
    """
    denials = (Literal("negation", "not", match[0], match.start()) for match in negations(text))
    return frozenset((*scan(text), *denials))


class _Facts:
    """What two texts are compared by, each part read when it is first asked for."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def literals(self) -> frozenset[Literal]:
        return literals(self.text)

    @cached_property
    def values(self) -> frozenset[str]:
        return frozenset(literal.value for literal in self.literals)

    @cached_property
    def normalized(self) -> str:
        return normalize_text(self.text)

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        return read_clauses(self.text)


_facts = lru_cache(maxsize=1024)(_Facts)


def stands_in(literal: Literal, text: str) -> bool:
    """Whether ``text`` holds the literal, be it marked up differently: ``a.py`` stands in "see src/a.py"."""
    return _stands_in(literal, _facts(text))


def _stands_in(literal: Literal, facts: _Facts) -> bool:
    if literal.kind == "negation":
        return literal in facts.literals
    return literal.value in facts.values or (
        literal.kind not in EXACT_KINDS
        and stands_otherwise(literal.kind, literal.value, facts.values, facts.normalized)
    )


def stands_otherwise(kind: str, value: str, values: Collection[str], normalized: str) -> bool:
    """Whether a text with these literal values, and this normal form, holds one that it writes in another way."""
    if kind == "date":
        return any(other.endswith("-" + value) for other in values)
    start = normalized.find(value)
    while start >= 0:
        inside = start > 0 and _JOINED_BEFORE.match(normalized, start - 1)
        if not (inside or _JOINED_AFTER.match(normalized, start + len(value))):
            return True
        start = normalized.find(value, start + 1)
    return False


def conflicts(a: str, b: str) -> tuple[Conflict, ...]:
    """Why two texts must not become one without a person; empty if nothing speaks against it.

    A kind conflicts when each text has a literal of it that does not stand in the other: what only one side adds is no
    contradiction. Polarity conflicts when matching clauses differ in the parity of their negations, or in which of two
    opposites (enable, disable) they name. Symmetric but for the sides' order. For many pairs of many texts, see
    ``screening.find_conflicting``.
    """
    return tuple(_find_conflicts(a, b))


def contradict(a: str, b: str) -> bool:
    """Whether ``conflicts`` finds any; what follows the first is not looked for."""
    return next(_find_conflicts(a, b), None) is not None


def _find_conflicts(a: str, b: str) -> Iterator[Conflict]:
    one, other = _facts(a), _facts(b)
    ours, theirs = _lacking(one, other), _lacking(other, one)
    found = [Conflict(kind, ours[kind], theirs[kind]) for kind in KINDS if kind in ours and kind in theirs]
    yield from found or _version_against_number(ours, theirs)
    for x, y in disputes(one.clauses, other.clauses):
        yield Conflict("polarity", (_quoted(x, a),), (_quoted(y, b),))


def _quoted(clause: Clause, text: str) -> Literal:
    written = text[clause.start : clause.end]
    return Literal("polarity", " ".join(written.split()), written, clause.start)


def _lacking(facts: _Facts, other: _Facts) -> _Lacking:
    """By kind, the literals of one text that do not stand in the other, by value."""
    found: dict[str, list[Literal]] = {}
    for literal in sorted(facts.literals, key=lambda literal: literal.value):
        if literal.kind in KINDS and not _stands_in(literal, other):
            found.setdefault(literal.kind, []).append(literal)
    return {kind: tuple(items) for kind, items in found.items()}


def is_bare_number(value: str) -> bool:
    """Whether the value of a number could be that of a version: no sign, no unit."""
    return _BARE_NUMBER.fullmatch(value) is not None


def _version_against_number(ours: _Lacking, theirs: _Lacking) -> list[Conflict]:
    """``CentOS 7.9`` and ``CentOS 8``: the second does not look like a version until one sees the first."""
    sides = [
        (side.get("version", ()), tuple(item for item in side.get("number", ()) if is_bare_number(item.value)))
        for side in (ours, theirs)
    ]
    (our_versions, our_numbers), (their_versions, their_numbers) = sides
    if (our_versions and their_numbers) or (our_numbers and their_versions):
        return [Conflict("version", our_versions or our_numbers, their_versions or their_numbers)]
    return []
