"""In what texts about one thing differ, word by word, and where their literals stand against each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

# A word with what holds it together (``v2.1``, ``don't``, ``a_b``), white space, or one other character.
_TOKEN = re.compile(r"\w+(?:[.'’:/-]\w+)*|\s+|.", re.DOTALL)
# Tokens that are aligned; finding the best alignment takes time with the product of the lengths.
MOST_TOKENS = 2_000

_DIFFERS, _CONFLICTS = 1, 2

Span = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """A stretch of a text: whether other texts lack it, and whether it is a literal that another contradicts."""

    text: str
    differs: bool = False
    conflicts: bool = False


def compare_texts(
    texts: Sequence[str], conflicts: Sequence[Iterable[Span]] = (), clauses: Sequence[Iterable[Span]] = ()
) -> list[tuple[Piece, ...]]:
    """Each text as pieces, in order and complete; ``differs`` marks the words that are not in all of them.

    The first text is aligned with each other one: of the first a word differs when one of the others lacks it there, of
    another one when the first lacks it. Letter case counts for nothing. ``conflicts``: for each text the spans (start,
    end) of its literals that stand against another's; ``clauses``: of its clauses that do, of which only the words that
    differ are marked so, if any does. Beyond ``MOST_TOKENS`` tokens, words are compared as a set.
    """
    marks = [bytearray(len(text)) for text in texts]
    for at in range(1, len(texts)):
        for side, span in _apart(texts[0], texts[at]):
            _mark(marks[at if side else 0], span, _DIFFERS)
    for mark, spans in zip(marks, conflicts, strict=False):
        for span in spans:
            _mark(mark, span, _CONFLICTS)
    for mark, spans in zip(marks, clauses, strict=False):
        for span in spans:
            _mark_clause(mark, span)
    return [_pieces(text, mark) for text, mark in zip(texts, marks, strict=True)]


def mark_new(text: str, sources: Iterable[str]) -> tuple[Piece, ...]:
    """``text`` as pieces; ``differs`` marks the words that stand in none of the sources."""
    known = {word for source in sources for word in _words(_TOKEN.findall(source))}
    mark = bytearray(len(text))
    for found in _TOKEN.finditer(text):
        if _is_word(found[0]) and found[0].casefold() not in known:
            _mark(mark, found.span(), _DIFFERS)
    return _pieces(text, mark)


def _apart(a: str, b: str) -> list[tuple[int, Span]]:
    """Where two texts differ: (0 for ``a`` or 1 for ``b``, span)."""
    ours, theirs = list(_TOKEN.finditer(a)), list(_TOKEN.finditer(b))
    if max(len(ours), len(theirs)) > MOST_TOKENS:
        return _apart_as_sets((ours, theirs))
    matcher = SequenceMatcher(None, [_key(one) for one in ours], [_key(one) for one in theirs], autojunk=False)
    found = []
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag != "equal":
            found += [(0, ours[at].span()) for at in range(i, i_end)]
            found += [(1, theirs[at].span()) for at in range(j, j_end)]
    return found


def _apart_as_sets(sides: tuple[list[re.Match[str]], list[re.Match[str]]]) -> list[tuple[int, Span]]:
    words = [set(_words(one[0] for one in side)) for side in sides]
    return [
        (at, one.span())
        for at, side in enumerate(sides)
        for one in side
        if _is_word(one[0]) and one[0].casefold() not in words[1 - at]
    ]


def _key(token: re.Match[str]) -> str:
    return " " if token[0].isspace() else token[0].casefold()


def _is_word(token: str) -> bool:
    return token[0].isalnum() or token[0] == "_"


def _words(tokens: Iterable[str]) -> Iterable[str]:
    return (token.casefold() for token in tokens if _is_word(token))


def _mark(mark: bytearray, span: Span, flag: int) -> None:
    for at in _inside(mark, span):
        mark[at] |= flag


def _inside(mark: bytearray, span: Span) -> range:
    return range(max(span[0], 0), min(span[1], len(mark)))


def _mark_clause(mark: bytearray, span: Span) -> None:
    inside = _inside(mark, span)
    for at in [at for at in inside if mark[at] & _DIFFERS] or inside:
        mark[at] |= _CONFLICTS


def _pieces(text: str, mark: bytearray) -> tuple[Piece, ...]:
    """Runs of equal marks; white space between two marked words belongs to them, at an edge it is not marked."""
    for found in re.finditer(r"\s+", text):
        around = mark[found.start() - 1 : found.start()] + mark[found.end() : found.end() + 1]
        joined = around[0] & around[1] if len(around) == 2 and "\n" not in found[0] else 0
        mark[found.start() : found.end()] = bytes([joined]) * len(found[0])
    pieces, start = [], 0
    for value, run in groupby(mark):
        end = start + sum(1 for _ in run)
        pieces.append(Piece(text[start:end], bool(value & _DIFFERS), bool(value & _CONFLICTS)))
        start = end
    return tuple(pieces)
