"""Rewriting of phrases that say one thing in several forms, in scripts without blanks: 5名 is 5人, 五名成员 五个成员.

A rule of a language is a pattern of the signs of a text and what stands in its place. A sign is what one piece has: a
word of one sign, a digit, ``#`` for a longer number, ``,`` for the end of a clause, ``.`` for that of a sentence, ``_``
for others.
"""

import re
from collections.abc import Sequence

from consolidation_pipeline.core.differences.language import Language, Template
from consolidation_pipeline.core.differences.lexer import Piece


def rewrite(pieces: list[Piece], language: Language) -> list[Piece]:
    """Return the pieces with one form in place of the others that say the same."""
    signs = "".join(map(_sign, pieces)) if language.rewriting else ""
    for pattern, template in language.rewriting:
        matches = list(pattern.finditer(signs))
        for match in reversed(matches):
            pieces[match.start() : match.end()] = _fill(template, match, pieces)
        if matches:
            signs = "".join(map(_sign, pieces))
    return pieces


def _sign(piece: Piece) -> str:
    if piece.kind in ("stop", "comma"):
        return "." if piece.kind == "stop" else ","
    text = piece.lower
    if piece.kind == "literal":
        number = piece.key.removeprefix("number:")  # also of the sign １
        return "_" if number == piece.key else number if len(number) == 1 else "#"
    return text if len(text) == 1 else "_"


def _fill(template: Template, match: re.Match[str], pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces that stand in the place of a match."""
    filled: list[Piece] = []
    first = pieces[match.start()] if match.end() > match.start() else None
    for part in template:
        if isinstance(part, int):
            start, end = match.span(part)
            filled += pieces[start:end] if start >= 0 else []
        elif first is not None:
            filled += [Piece("word", sign, sign, "", first.start) for sign in part]
    return filled
