"""Literals: the facts of a text that a merge must keep, and the conflicts of two texts in them.

A literal is a number with its unit, a version, a date, a path, a URL, an identifier, an error code, a quotation or a
negation. Every literal lies on one line and inside one sentence, so the literals of a text are those of its sentences.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from consolidation_pipeline.core.conflicts.clause_reader import read_clauses
from consolidation_pipeline.core.conflicts.clauses import Clause
from consolidation_pipeline.core.conflicts.polarity import disputes
from consolidation_pipeline.core.literals.literal_scanner import Literal, scan
from consolidation_pipeline.core.literals.negation import negations
from consolidation_pipeline.core.memories.memories import normalize_text

KINDS = ("number", "version", "date", "path", "url", "identifier", "error_code", "quoted")
# A literal of these kinds stands in a text only as a literal; others may be marked up differently or given in part.
EXACT_KINDS = frozenset(("number", "version"))
_BARE_NUMBER = re.compile(r"[\d.]+")
# Next to these, a value is a part of something longer; one pattern per value would cost more to compile than to search.
_JOINED_BEFORE = re.compile(r"[\w-]")
_JOINED_AFTER = re.compile(r"[\w-]|[./:]\w")
# A reason shows this many values of a side, each in this many characters.
_SHOWN = 4
_SHOWN_CHARS = 60


@dataclass(frozen=True)
class Conflict:
    """Literals that only text ``a`` has, against literals of the same kind that only text ``b`` has.

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
    """Return all literals of ``text``.

    Kinds: number, version, date, path, url, identifier, error_code, quoted, negation. Units are normalised (``30 s`` =
    ``30 seconds`` = ``30s``, ``1,000`` = ``1000``, ``24 hours`` = ``1 day``), dates are ISO where they are unambiguous,
    letter case counts for nothing. A bare name and integer (``CentOS 8``) is a number; an ordinal is its number. ``not
    only``, ``don't forget`` and their like are no negations.
    """
    denials = (Literal("negation", "not", match[0], match.start()) for match in negations(text))
    return frozenset((*scan(text), *denials))


class Facts:
    """The parts of a text that are compared with another text. Each is read when it is first needed, and kept."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def by_kind(self) -> dict[str, tuple[Literal, ...]]:
        """The literals of each of ``KINDS`` that the text has, sorted by value."""
        found: dict[str, list[Literal]] = {}
        for literal in sorted(dict.fromkeys(scan(self.text)), key=lambda literal: literal.value):
            found.setdefault(literal.kind, []).append(literal)
        return {kind: tuple(items) for kind, items in found.items()}

    @cached_property
    def values(self) -> frozenset[str]:
        """The values of these literals."""
        return frozenset(literal.value for items in self.by_kind.values() for literal in items)

    @cached_property
    def is_negated(self) -> bool:
        """True if the text has a negation."""
        return any(True for _ in negations(self.text))

    @cached_property
    def normalized(self) -> str:
        """The text in its normal form, in which literals are searched as plain words."""
        return normalize_text(self.text)

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        """The distinct clauses."""
        return read_clauses(self.text)


_facts = lru_cache(maxsize=1024)(Facts)


def stands_in(literal: Literal, text: str) -> bool:
    """Return True if ``text`` holds the literal, also if marked up differently: ``a.py`` stands in "see src/a.py"."""
    return _stands_in(literal, _facts(text))


def _stands_in(literal: Literal, facts: Facts) -> bool:
    if literal.kind == "negation":
        return facts.is_negated
    return literal.value in facts.values or (literal.kind not in EXACT_KINDS and _stands_otherwise(literal, facts))


def _stands_otherwise(literal: Literal, facts: Facts) -> bool:
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


def conflicts(a: str, b: str) -> tuple[Conflict, ...]:
    """Return why two texts must not become one without a person; empty if nothing speaks against it.

    A kind conflicts when each text has a literal of it that does not stand in the other: what only one side adds is no
    contradiction. Polarity conflicts when matching clauses differ in the parity of their negations, or in which of two
    opposites (enable, disable) they name. Symmetric but for the sides' order. For many pairs of many texts, see
    ``screening.find_conflicting``.
    """
    return tuple(_find_conflicts(_facts(a), _facts(b)))


def contradict(a: str, b: str) -> bool:
    """Return True if ``conflicts`` finds any, without looking for what follows the first."""
    return facts_contradict(_facts(a), _facts(b))


def facts_contradict(a: Facts, b: Facts) -> bool:
    """Return what ``contradict`` says of the texts that ``a`` and ``b`` were read from."""
    return next(_find_conflicts(a, b), None) is not None


def _find_conflicts(a: Facts, b: Facts) -> Iterator[Conflict]:
    found = False
    for kind in KINDS:
        if kind in a.by_kind and kind in b.by_kind:
            ours = _lacking(a, b, kind)
            theirs = _lacking(b, a, kind) if ours else ()
            if theirs:
                found = True
                yield Conflict(kind, ours, theirs)
    if not found and ("version" in a.by_kind or "version" in b.by_kind):
        yield from _version_against_number(a, b)
    for x, y in disputes(a.clauses, b.clauses):
        yield Conflict("polarity", (_quoted(x, a.text),), (_quoted(y, b.text),))


def _quoted(clause: Clause, text: str) -> Literal:
    written = text[clause.start : clause.end]
    return Literal("polarity", " ".join(written.split()), written, clause.start)


def _lacking(facts: Facts, other: Facts, kind: str) -> tuple[Literal, ...]:
    """Return the literals of one kind and text that do not stand in the other, sorted by value."""
    return tuple(literal for literal in facts.by_kind.get(kind, ()) if not _stands_in(literal, other))


def _version_against_number(a: Facts, b: Facts) -> Iterator[Conflict]:
    """Yield the conflict of ``CentOS 7.9`` with ``CentOS 8``: next to a version, a bare number may be one too."""
    our_versions, their_versions = _lacking(a, b, "version"), _lacking(b, a, "version")
    our_numbers, their_numbers = _lacking_bare_numbers(a, b), _lacking_bare_numbers(b, a)
    if (our_versions and their_numbers) or (our_numbers and their_versions):
        yield Conflict("version", our_versions or our_numbers, their_versions or their_numbers)


def _lacking_bare_numbers(facts: Facts, other: Facts) -> tuple[Literal, ...]:
    """Return the missing numbers that could be versions: no sign, no unit."""
    return tuple(number for number in _lacking(facts, other, "number") if _BARE_NUMBER.fullmatch(number.value))
