"""Amounts in words and with units: "forty-five minutes", "two hundred", 二十三, "2 GB"."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import takewhile

from consolidation_pipeline.core.differences.language import Language, is_unspaced
from consolidation_pipeline.core.differences.lexer import Piece
from consolidation_pipeline.core.literals.measurements import plain, with_unit

_NUMBER = re.compile(r"number:(\d+(?:\.\d+)?)")
_MINUTES = ("分钟", "分間", "分")
_HALF = Decimal("0.5")
# From here on, a number multiplies all that stands before it: 二十五万.
_THOUSAND = 1_000
_YEARS = re.compile(r"number:([\d.]+) year")
_DATA = re.compile(r"number:(-?[\d.]+) ([kmgt])(i?b)")


def add_numbers(pieces: Sequence[Piece], at: int, language: Language) -> tuple[int, Decimal]:
    """Return how many pieces write a number in words, and the number: forty-five, two hundred, half a.

    One of ``language.numbers`` stands at the piece.
    """
    numbers, first = language.numbers, pieces[at].lower
    total, last = Decimal(0), Decimal(str(numbers[first]))
    size = 1
    while at + size < len(pieces):
        link, following = _read_next(pieces, at + size, last, language)
        if following >= _THOUSAND:  # 二十五万, 一亿两千万, "two hundred fifty thousand"
            higher = total if total >= following else Decimal(0)
            total, last = higher, (total - higher + last) * following
        elif following >= 100 or (following == 10 and is_unspaced(first)):
            last *= following
        elif following == _HALF and last >= 1 and is_unspaced(first):  # 一个半小时
            last += following
        elif 0 < following < _limit_next(last, language):
            total, last = total + last, following
        else:
            break
        size += 1 + link
    is_part = size == 1 and last < 1 and at + 1 < len(pieces) and pieces[at + 1].lower in language.articles
    return size + is_part, total + last


def _read_next(pieces: Sequence[Piece], at: int, last: Decimal, language: Language) -> tuple[bool, Decimal]:
    """Return the number that a piece writes, 0 = none, and if "and" stands before it: "treinta y cinco", "vingt et un".

    Args:
        last: Number before the piece.
    """
    ahead, numbers = [piece.lower if piece.kind == "word" else "" for piece in pieces[at : at + 2]], language.numbers
    if len(ahead) > 1 and last >= language.number_links.get(ahead[0], math.inf):
        following = Decimal(str(numbers.get(ahead[1], int(language.counts.get(ahead[1]) == "a"))))
        if 0 < following < _limit_next(last, language):
            return True, following
    return False, Decimal(str(numbers.get(ahead[0], 0)))


def _limit_next(number: Decimal, language: Language) -> int:
    """Return below which number another one is added to one: 10 behind 40, 100 behind 200, 20 behind "soixante"."""
    if number >= 100 and number % 100 == 0:
        return 100
    if language.has_scores and number in (60, 80):
        return 20
    return 10 if number >= 10 and number % 10 == 0 else 0


def scale(number: Decimal, pieces: Sequence[Piece], at: int, language: Language) -> tuple[int, Decimal]:
    """Return how many pieces write a number in digits and the words that are parts of it: 8万, 1億2000万, 1半.

    For scripts without blanks. The digits are the piece at a position.
    """
    size = 1
    for piece in pieces[at + 1 :] if not language.stemmer else ():
        following = Decimal(str(language.numbers.get(piece.lower, 0))) if piece.kind == "word" else Decimal(0)
        if following < 100 and following != _HALF:
            break
        number, size = (number + following if following == _HALF else number * following), size + 1
        if following >= _THOUSAND and (lower := _read_digits(pieces, at + size)) is not None:
            words, rest = scale(lower, pieces, at + size, language)
            return (size + words, number + rest) if rest < following else (size, number)
    return size, number


def _read_digits(pieces: Sequence[Piece], at: int) -> Decimal | None:
    found = _NUMBER.fullmatch(pieces[at].key) if at < len(pieces) and pieces[at].kind == "literal" else None
    return Decimal(found[1]) if found else None


def measure(number: Decimal, pieces: Sequence[Piece], at: int, language: Language) -> tuple[int, str]:
    """Return the number of pieces of a number with its unit, if one follows the last piece of it, and its key."""
    behind = takewhile(lambda piece: piece.kind == "word" and piece.text[0] != "'", pieces[at + 1 : at + 3])
    words = [piece.lower for piece in behind]
    is_other = words[:2] in (["s", "il"], ["s", "ils"]) or (words and words[0] in language.determiners)
    if is_other and " ".join(words) not in language.units:
        words = []  # "l'erreur 429 s'il pleut", "desde 2019 mi hermana"
    size = len(words) if " ".join(words) in language.units else min(len(words), 1)  # "por ciento"
    if not size:
        return 1, f"number:{plain(number)}"
    name = " ".join(words[:size])
    # A unit of others: 割 is "10 %".
    factor, _, unit = language.units.get(name, name).rpartition(" ")
    number *= Decimal(factor or 1)
    if unit == "h" and not language.stemmer:  # 1時間30分
        minutes, words_behind = _read_minutes(pieces, at + 1 + size, language)
        number, size = number + minutes / 60, size + words_behind
    measured = with_unit(number, " ", unit) if name in language.units or size == 1 else None
    return (size + 1, f"number:{measured}") if measured else (1, f"number:{plain(number)}")


def _read_minutes(pieces: Sequence[Piece], at: int, language: Language) -> tuple[Decimal, int]:
    """Return the minutes that stand at a position, and the number of their pieces; 0 if there are none."""
    number, size = _read_digits(pieces, at), 1
    if number is None and at < len(pieces) and pieces[at].kind == "word" and pieces[at].lower in language.numbers:
        size, number = add_numbers(pieces, at, language)
    words = "".join(piece.lower for piece in pieces[at + size : at + size + 2])
    unit = next((unit for unit in _MINUTES if words.startswith(unit)), "")
    return (number, size + len(unit)) if number is not None and unit else (Decimal(0), 0)


def in_small_units(key: str) -> str:
    """Return the key of an amount of data in bytes, of years in months: 2 GB is 2048 MB. GiB and GB are two units."""
    if not key.startswith("number:"):
        return key
    if years := _YEARS.fullmatch(key):
        return f"number:{plain(Decimal(years[1]) * 12)} month"
    match = _DATA.fullmatch(key)
    if not match:
        return key
    return f"number:{plain(Decimal(match[1]) * 1024 ** (' kmgt'.index(match[2])))} {match[3]}"
