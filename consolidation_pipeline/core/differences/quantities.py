"""Amounts in words and with units: "forty-five minutes", "two hundred", 二十三, "2 GB"."""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import takewhile

from consolidation_pipeline.core.differences.language import Language, is_unspaced
from consolidation_pipeline.core.differences.lexer import Piece
from consolidation_pipeline.core.literals.measurements import plain, with_unit

_YEARS = re.compile(r"number:([\d.]+) year")
_DATA = re.compile(r"number:(-?[\d.]+) ([kmgt])(i?b)")


def add_numbers(pieces: Sequence[Piece], at: int, language: Language) -> tuple[int, Decimal]:
    """Return how many pieces write a number in words, and the number: forty-five, two hundred, half a.

    One of ``language.numbers`` stands at the piece.
    """
    numbers, first = language.numbers, pieces[at].lower
    total, last = Decimal(0), Decimal(str(numbers[first]))
    size = 1
    for piece in pieces[at + 1 :]:
        following = Decimal(str(numbers.get(piece.lower, 0))) if piece.kind == "word" else Decimal(0)
        if following >= 100 or (following == 10 and is_unspaced(first)):
            last *= following
        elif last >= 10 and 0 < following < 10 and last % 10 == 0:
            total, last = total + last, following
        else:
            break
        size += 1
    is_part = size == 1 and last < 1 and at + 1 < len(pieces) and pieces[at + 1].lower in language.articles
    return size + is_part, total + last


def measure(number: Decimal, pieces: Sequence[Piece], at: int, language: Language) -> tuple[int, str]:
    """Return the number of pieces of a number with its unit, if one follows the last piece of it, and its key."""
    words = [piece.lower for piece in takewhile(lambda piece: piece.kind == "word", pieces[at + 1 : at + 3])]
    if (unit := language.units.get(" ".join(words))) and len(words) > 1:  # "por ciento"
        return 3, f"number:{with_unit(number, ' ', unit)}"
    if words[:2] in (["s", "il"], ["s", "ils"]):  # "l'erreur 429 s'il pleut"
        words = []
    words = [] if words and words[0] in language.determiners else words  # "desde 2019 mi hermana"
    measured = with_unit(number, " ", language.units.get(words[0], words[0])) if words else None
    return (2 if measured else 1), f"number:{measured or plain(number)}"


def in_small_units(key: str) -> str:
    """Return the key of an amount of data in bytes, of years in months: 2 GB is 2048 MB. GiB and GB are two units."""
    if years := _YEARS.fullmatch(key):
        return f"number:{plain(Decimal(years[1]) * 12)} month"
    match = _DATA.fullmatch(key) if key.startswith("number:") else None
    if not match:
        return key
    return f"number:{plain(Decimal(match[1]) * 1024 ** (' kmgt'.index(match[2])))} {match[3]}"
