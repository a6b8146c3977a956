"""Times of day and dates in words, read as those in digits: "half past seven", "a las cuatro y media", "3. Oktober"."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from consolidation_pipeline.core.differences.language import Language, PhraseMeanings
from consolidation_pipeline.core.differences.lexer import Piece
from consolidation_pipeline.core.differences.quantities import add_numbers

_WHOLE = re.compile(r"number:(\d{1,2})(?: h)?")
_CLOCK = re.compile(r"(?:date:(\d\d):(\d\d)|number:(\d{1,2})h(\d\d))")  # 18:30, 18h30
_DOTTED = re.compile(r"number:(\d{1,2})\.(\d{1,2})")  # "17.30 Uhr", "am 3.10."
_ORDINAL = re.compile(r"(\d{1,2})(?:er|º)")
_NUMERIC_DATE = re.compile(r"date:(\d{1,2})[./](\d{1,2})[./](\d{4})")
_MONTH_OF_YEAR = re.compile(r"date:(\d{4})-(\d\d)")
# Languages in which 7/11 is a day of November.
_DAY_FIRST = frozenset(("de", "es", "fr"))
_YEAR = re.compile(r"(?:19|20)\d\d")
_LONGEST_PHRASE = 4  # "de l'après-midi"
_LAST_HOUR, _LAST_MONTH, _LAST_DAY = 23, 12, 31
# Less needs the unit: 三点五 is a number.
_FEWEST_MINUTES = 10
# From this hour on, "at night" is the end of a day.
_FIRST_HOUR_OF_NIGHT = 6


class _Found(NamedTuple):
    """Literal that ``size`` pieces are read as. ``value``: in the form of the scanner, as "19:30"."""

    size: int
    value: str


def join_times(pieces: Sequence[Piece], language: Language, text: str) -> list[Piece]:
    """Return the pieces of a text with each time of day and date in words as one literal."""
    kept: list[Piece] = []
    at = 0
    while at < len(pieces):
        found = None
        if _may_begin(pieces[at], language):
            found = _read_time(pieces, at, language) or _read_date(pieces, at, language)
        if found:
            first, last = pieces[at], pieces[at + found.size - 1]
            written = text[first.start : last.start + len(last.text)]
            kept.append(Piece("literal", written, written.lower(), f"date:{found.value}", first.start))
        else:
            kept.append(pieces[at])
        at += found.size if found else 1
    return kept


def _may_begin(piece: Piece, language: Language) -> bool:
    """Return True if a time or date may begin at a piece."""
    if piece.kind == "word":
        return piece.lower in language.numbers or piece.lower in language.clock.openings
    return piece.kind == "literal" and piece.key.startswith(("number:", "date:"))


def _read_time(pieces: Sequence[Piece], start: int, language: Language) -> _Found | None:
    """Return the time that begins at a piece: "half past seven in the evening", 下午三点半."""
    clock = language.clock
    half, at = _match(pieces, start, clock.halves_before)
    before, at = _match(pieces, at, clock.before)
    hour, minute, at = _read_hour(pieces, at, language)
    if hour is None or _match(pieces, at, clock.durations)[0]:
        return None
    after, at = _match(pieces, _match(pieces, at, clock.hours)[1], clock.after)
    if after == "0" and not language.stemmer:
        minute, at = _read_minute(pieces, at, language)
    # "Takes two in the morning" tells no time: the number of an hour is behind a word such as "at".
    is_hour = before or after or minute or (start > 0 and (pieces[start - 1].lower,) in language.phrases)
    if not half and is_hour:
        half, at = _match(pieces, at, clock.halves)
    is_half = 1 <= hour <= 12 and (half, hour) != ("am", 12)  # 12 in the morning is noon or midnight
    if not (half or before or after) or (half and not is_half):
        return None
    late = half == "pm" or (half == "night" and hour >= _FIRST_HOUR_OF_NIGHT and hour < 12)
    total = 60 * (hour % 12 + 12 * late if half else hour) + minute + int(before or 0) + int(after or 0)
    return _Found(at - start, f"{total // 60 % 24:02}:{total % 60:02}")


def _read_hour(pieces: Sequence[Piece], at: int, language: Language) -> tuple[int | None, int, int]:
    """Return an hour of the day with its minute, and the position behind it; None if there is none at a piece."""
    piece = pieces[at] if at < len(pieces) else None
    if piece and piece.kind == "literal":
        clock = _CLOCK.fullmatch(piece.key)
        if clock is None and _match(pieces, at + 1, language.clock.after)[0]:
            clock = _DOTTED.fullmatch(piece.key)
        if clock:
            hour, minute = (int(part) for part in clock.groups() if part)
            return (hour if hour <= _LAST_HOUR else None), minute, at + 1
    number, end = _read_whole(pieces, at, language)
    return (number if number is not None and number <= _LAST_HOUR else None), 0, end


def _read_minute(pieces: Sequence[Piece], at: int, language: Language) -> tuple[int, int]:
    """Return the minute that stands behind an hour, 0 = none, and the position behind it: 9時30分, 九点二十."""
    number, end = _read_whole(pieces, at, language) if at < len(pieces) else (None, at)
    if number is None:
        return 0, at
    has_unit = _is_written(pieces, end, "分") and not (_is_written(pieces, end + 1, "钟"))
    return (number, end + has_unit) if has_unit or number >= _FEWEST_MINUTES else (0, at)


def _read_date(pieces: Sequence[Piece], start: int, language: Language) -> _Found | None:
    """Return the date that begins at a piece: "3. Oktober 2026", "3 de octubre", "3.10.", 2026年10月3日."""
    if numeric := _NUMERIC_DATE.fullmatch(pieces[start].key) if language.code in _DAY_FIRST else None:
        return _to_date(1, int(numeric[2]), int(numeric[1]), f"{numeric[3]}-")
    if (year := _YEAR.fullmatch(pieces[start].text)) and _is_written(pieces, start + 1, "年"):
        found = _read_date(pieces, start + 2, language) if start + 2 < len(pieces) else None
        return _Found(found.size + 2, f"{year[0]}-{found.value}") if found else None
    if (piece := pieces[start]).kind == "literal" and language.has_ordinal_dots and start > 0:
        numbers = _DOTTED.fullmatch(piece.key)
        has_dot = start + 1 < len(pieces) and pieces[start + 1].text == "."
        if numbers and has_dot and (pieces[start - 1].lower,) in language.phrases:
            is_last = start + 2 == len(pieces)
            return _to_date(2 - is_last, int(numbers[2]), int(numbers[1]))
    first, at = _read_whole(pieces, start, language)
    if first is None:
        return None
    # "7. November 2025", of which the scanner reads the month and year.
    if language.has_ordinal_dots and at < len(pieces) and (of_year := _MONTH_OF_YEAR.fullmatch(pieces[at].key)):
        return _to_date(at + 1 - start, int(of_year[2]), first, f"{of_year[1]}-")
    month, end = _read_month(pieces, _skip(pieces, at, language), language)
    if month:
        year_at = _skip(pieces, end, language)
        has_year = year_at < len(pieces) and _YEAR.fullmatch(pieces[year_at].text)
        end = year_at + 1 if has_year else end
        return _to_date(end - start, month, first, f"{pieces[year_at].text}-" if has_year else "")
    if _is_written(pieces, at, "月"):
        day, at = _read_whole(pieces, at + 1, language)
        if day is not None and (_is_written(pieces, at, "日") or _is_written(pieces, at, "号")):
            return _to_date(at + 1 - start, first, day)
    return None


def _to_date(size: int, month: int, day: int, year: str = "") -> _Found | None:
    is_date = 1 <= month <= _LAST_MONTH and 1 <= day <= _LAST_DAY
    return _Found(size, f"{year}{month:02}-{day:02}") if is_date else None


def _read_month(pieces: Sequence[Piece], at: int, language: Language) -> tuple[int, int]:
    """Return the number of the month that is named at a piece, 0 = none, and the position behind it."""
    if at >= len(pieces) or pieces[at].kind != "word":
        return 0, at
    if pieces[at].text.islower() and (pieces[at].lower,) in language.phrases:  # "nurse 2 may order it"
        return 0, at
    kind, _, number = language.calendar.get(pieces[at].lower, "").partition("-")
    return (int(number), at + 1) if kind == "months" else (0, at)


def _read_whole(pieces: Sequence[Piece], at: int, language: Language) -> tuple[int | None, int]:
    """Return a number below 100 in digits or words, and the position behind it; None if there is none at a piece."""
    if at >= len(pieces):
        return None, at
    piece = pieces[at]
    if piece.kind == "literal":
        whole = _WHOLE.fullmatch(piece.key) or _ORDINAL.fullmatch(piece.lower)
        return (int(whole[1]) if whole else None), at + 1
    if piece.kind != "word" or piece.lower not in language.numbers:
        return None, at
    size, number = add_numbers(pieces, at, language)
    return (int(number) if number == int(number) and number < 100 else None), at + size


def _skip(pieces: Sequence[Piece], at: int, language: Language) -> int:
    """Return the position behind a genitive: "3 de octubre de 2026"."""
    return at + (at < len(pieces) and pieces[at].lower in language.genitives)


def _is_written(pieces: Sequence[Piece], at: int, text: str) -> bool:
    return at < len(pieces) and pieces[at].text == text


def _match(pieces: Sequence[Piece], at: int, phrases: PhraseMeanings) -> tuple[str, int]:
    """Return the meaning of the longest phrase that begins at a piece, "" = none, and the position behind it."""
    if not phrases:
        return "", at
    words = [piece.lower if piece.kind == "word" else "" for piece in pieces[at : at + _LONGEST_PHRASE]]
    for size in range(len(words), 0, -1):
        if meaning := phrases.get(tuple(words[:size])):
            return meaning, at + size
    return "", at
