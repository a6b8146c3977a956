"""Differences and contradictions of texts word by word, as pieces to highlight."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

# A word with its inner signs (``v2.1``, ``don't``, ``a_b``), white space, or one other character.
_TOKEN = re.compile(r"\w+(?:[.'’:/-]\w+)*|\s+|.", re.DOTALL)
# Longer texts are not aligned, because the time grows with the product of their lengths.
MAX_TOKENS = 2_000

_DIFFERS, _CONFLICTS = 1, 2

Span = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """Piece of a text. ``differs``: it is missing in another text. ``conflicts``: another text contradicts it."""

    text: str
    differs: bool = False
    conflicts: bool = False


def compare_texts(texts: Sequence[str], conflicts: Sequence[Iterable[Span]] = ()) -> list[tuple[Piece, ...]]:
    """Split each text completely into pieces; ``differs`` marks the words that are not in all texts.

    The first text is aligned with each other text. A word of the first differs if it is missing in another text, a word
    of another text if it is missing in the first. Case is ignored. Texts with more than ``MAX_TOKENS`` tokens are
    compared as sets of words.

    Args:
        texts: Texts to compare.
        conflicts: For each text, spans (start, end) of what contradicts another text.
    """
    marks = [bytearray(len(text)) for text in texts]
    for at in range(1, len(texts)):
        for side, span in _find_differences(texts[0], texts[at]):
            _mark(marks[at if side else 0], span, _DIFFERS)
    for mark, spans in zip(marks, conflicts, strict=False):
        for span in spans:
            _mark(mark, span, _CONFLICTS)
    return [_split_pieces(text, mark) for text, mark in zip(texts, marks, strict=True)]


def mark_new(text: str, sources: Iterable[str]) -> tuple[Piece, ...]:
    """Split ``text`` into pieces; ``differs`` marks the words that none of the sources has."""
    known = {word for source in sources for word in _words(_TOKEN.findall(source))}
    mark = bytearray(len(text))
    for found in _TOKEN.finditer(text):
        if _is_word(found[0]) and found[0].casefold() not in known:
            _mark(mark, found.span(), _DIFFERS)
    return _split_pieces(text, mark)


def _find_differences(a: str, b: str) -> list[tuple[int, Span]]:
    """Return the spans that differ: (0 for ``a`` or 1 for ``b``, span)."""
    left, right = list(_TOKEN.finditer(a)), list(_TOKEN.finditer(b))
    if max(len(left), len(right)) > MAX_TOKENS:
        return _find_set_differences((left, right))
    matcher = SequenceMatcher(None, [_key(one) for one in left], [_key(one) for one in right], autojunk=False)
    found = []
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag != "equal":
            found += [(0, left[at].span()) for at in range(i, i_end)]
            found += [(1, right[at].span()) for at in range(j, j_end)]
    return found


def _find_set_differences(sides: tuple[list[re.Match[str]], list[re.Match[str]]]) -> list[tuple[int, Span]]:
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
    for at in range(max(span[0], 0), min(span[1], len(mark))):
        mark[at] |= flag


def _split_pieces(text: str, mark: bytearray) -> tuple[Piece, ...]:
    """Split ``text`` into runs of equal marks. White space is marked only between two marked words."""
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
