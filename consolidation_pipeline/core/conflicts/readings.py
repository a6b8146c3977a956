"""What texts are compared by, as arrays of numbers: their literals and their clauses."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.conflicts.clause_reader import read_clauses
from consolidation_pipeline.core.conflicts.clauses import Clause
from consolidation_pipeline.core.conflicts.literal_scanner import scan
from consolidation_pipeline.core.conflicts.literals import KINDS, is_bare_number
from consolidation_pipeline.core.conflicts.polarity import FAULTS

BITS = {kind: 1 << at for at, kind in enumerate(KINDS)}
# Also set for a number without a unit, which may be a version that nothing marks.
BARE = 1 << len(KINDS)
# What a word is in its clause.
LOW, HIGH, LEFT, FAULT, BEFORE = 1, 2, 4, 8, 16

_Ints = NDArray[np.int32]
_Places = NDArray[np.int64]


class Readings(NamedTuple):
    """Texts, their literals (``values``, ``kinds``) and clauses (``moods``, ``charged``), and the words of these.

    Each ``.._starts`` says where the parts of one thing begin, with one entry more than there are things. Values are
    numbered, and in each text sorted; so are words, in each clause. ``vocabulary``: how many words a text has, at most
    2. ``flags`` belongs to ``words``; ``leads`` to ``denied``.
    """

    value_starts: _Places
    values: _Ints
    kinds: _Ints
    vocabulary: _Ints
    clause_starts: _Places
    moods: _Ints
    charged: _Ints
    word_starts: _Places
    words: _Ints
    flags: _Ints
    denial_starts: _Places
    denied: _Ints
    leads: _Ints


class LiteralReadings(NamedTuple):
    """What ``Readings`` says of literals."""

    value_starts: _Places
    values: _Ints
    kinds: _Ints


class Reader:
    """Reads texts in two steps, for most pairs are decided by their literals and clauses take longer to read.

    ``literals`` are those of all texts; ``read_clauses_of`` reads those that are needed, the others have none then.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self.values: dict[str, int] = {}
        self.words: dict[str, int] = {}
        self.columns = {name: array("q" if name.endswith("starts") else "i") for name in Readings._fields}
        for name, column in self.columns.items():
            if name.endswith("starts"):
                column.append(0)
        for text in texts:
            self._add_literals(text)
        self.literals = LiteralReadings(*(np.array(self.columns[name]) for name in LiteralReadings._fields))

    def read_clauses_of(self, needed: NDArray[np.bool_]) -> Readings:
        """The readings, with the clauses of the texts that are ``needed`` (n,)."""
        for text, is_needed in zip(self._texts, needed.tolist(), strict=True):
            self._add_clauses(read_clauses(text) if is_needed else ())
        return Readings(**{name: np.array(column) for name, column in self.columns.items()})

    def _add_literals(self, text: str) -> None:
        kinds: dict[tuple[int, int], None] = {}
        for literal in scan(text):
            kind = BITS[literal.kind]
            if literal.kind == "number" and is_bare_number(literal.value):
                kind |= BARE
            kinds[self.values.setdefault(literal.value, len(self.values)), kind] = None
        for value, kind in sorted(kinds):
            self.columns["values"].append(value)
            self.columns["kinds"].append(kind)
        self.columns["value_starts"].append(len(self.columns["values"]))

    def _add_clauses(self, clauses: Sequence[Clause]) -> None:
        for clause in clauses:
            self._add_clause(clause)
        self.columns["clause_starts"].append(len(self.columns["moods"]))
        self.columns["vocabulary"].append(min(2, len(set().union(*(clause.words for clause in clauses)))))

    def _add_clause(self, clause: Clause) -> None:
        columns = self.columns
        columns["moods"].append(clause.mood)
        columns["charged"].append(clause.is_charged)
        known, words = self.words, {}
        for word in clause.words:
            words[known.setdefault(word, len(known))] = word
        numbers = sorted(words)
        columns["words"].extend(numbers)
        plain = not (clause.low or clause.high or clause.left)
        columns["flags"].extend([0] * len(numbers) if plain else [_flags(words[at], clause) for at in numbers])
        columns["word_starts"].append(len(columns["words"]))
        for word, lead in clause.denied:
            columns["denied"].append(self._number(word))
            columns["leads"].append(self._number(lead))
        columns["denial_starts"].append(len(columns["denied"]))

    def _number(self, word: str) -> int:
        return self.words.setdefault(word, len(self.words))


def _flags(word: str, clause: Clause) -> int:
    low = word in clause.low
    flags = LOW if low else HIGH if word in clause.high else 0
    if low and word in FAULTS:
        flags |= FAULT
    if word in clause.left:
        flags |= LEFT
    return flags | BEFORE if word == "before" else flags
