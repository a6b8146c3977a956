"""Finds the literals of a text, all but its negations, and brings each into its normal form."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from consolidation_pipeline.core.literals.hyphenated_words import is_everyday
from consolidation_pipeline.core.literals.literal_patterns import LITERAL, MONTH, MONTHS, NUMBER_WORDS
from consolidation_pipeline.core.literals.measurements import (
    AFTER_NUMBER,
    THOUSANDS,
    UNITS,
    plain,
    read_rate,
    unitless,
    with_unit,
)
from consolidation_pipeline.core.memories.memories import normalize_text

_HALF_DAY = re.compile(r"(\d?\d)(:.*)?([ap])m")
_BARE_DECIMAL = re.compile(r"\d+\.\d+")
# A bare decimal is a version after "branch-", "python", "==", or a name with a capital.
_VERSIONED = re.compile(
    r"(?:[A-Za-z][-_@]?|[=~><!]=|[A-Z]\w*[ ]|\b(?:python|java|node|jdk|ruby|go|rust|php|postgres|mysql|spark)[ ])\Z"
)
_ROOTS = frozenset(
    "src lib libs test tests docs doc app apps bin pkg cmd etc usr var opt scripts config packages".split()
)
_SUFFIXED = re.compile(r"\.[A-Za-z]\w*$")


@dataclass(frozen=True)
class Literal:
    """One fact: ``value`` is normalised, ``text`` as written, ``start`` its offset. Equal by kind and value alone."""

    kind: str
    value: str
    text: str = field(default="", compare=False)
    start: int = field(default=0, compare=False)


def scan(text: str, base: int = 0) -> Iterator[Literal]:
    """Return the literals of ``text`` in order, without its negations; ``base`` is added to their offsets."""
    end = base
    for match in LITERAL.finditer(text):
        if match.lastgroup and base + match.start() >= end:
            for literal in _READERS[match.lastgroup](match, base):
                end = max(end, literal.start + len(literal.text))
                yield literal


def _made(kind: str, value: str, match: re.Match[str], base: int) -> Literal:
    return Literal(kind, value, match[0], base + match.start())


def _read_url(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _made("url", match[0].casefold().rstrip("/"), match, base)


def _read_wrapped(match: re.Match[str], base: int) -> Iterator[Literal]:
    """Code and quotations: the wrapping adds nothing to what is a literal by itself, else both count."""
    code = match.lastgroup == "code"
    width = len(match["ticks"]) if code else 1
    inner = match[0][width:-width]
    found = list(scan(inner, base + match.start() + width))
    if not (len(found) == 1 and found[0].text == inner.strip()):
        yield _made("identifier" if code else "quoted", normalize_text(inner), match, base)
    yield from found


def _read_iso_date(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _made("date", "-".join(part.zfill(2) for part in re.split("[-/]", match[0])), match, base)


def _read_numeric_date(match: re.Match[str], base: int) -> Iterator[Literal]:
    """``05.03.2024`` and ``13/3/2024`` are read, ``3/5/2024`` is one day in Europe and another in America."""
    day, month, year = re.split("[./]", match[0])
    if "/" in match[0] and int(month) > 12:
        day, month = month, day
    ambiguous = "/" in match[0] and int(day) <= 12
    yield _made("date", match[0] if ambiguous else f"{year}-{month:0>2}-{day:0>2}", match, base)


def _read_worded_date(match: re.Match[str], base: int) -> Iterator[Literal]:
    name = re.search(MONTH, match[0])
    month = MONTHS.index(name[0][:3].lower()) + 1 if name else 0
    numbers = sorted(re.findall(r"\d+", match[0]), key=len, reverse=True)
    year = [number for number in numbers if len(number) == 4]
    day = [f"{number:0>2}" for number in numbers if len(number) < 4]
    yield _made("date", "-".join((*year, f"{month:02}", *day)), match, base)


def _read_time(match: re.Match[str], base: int) -> Iterator[Literal]:
    """``4:30 pm`` is 16:30, ``2 pm`` is 14:00."""
    clock = re.sub(r"\s|z$|(?<=[ap])\.|\.$", "", match[0].casefold())
    if half := _HALF_DAY.fullmatch(clock):
        hour = int(half[1]) % 12 + (12 if half[3] == "p" else 0)
        clock = f"{hour}{half[2] or ':00'}"
    yield _made("date", "0" + clock if clock[1] == ":" else clock, match, base)


def _read_path(match: re.Match[str], base: int) -> Iterator[Literal]:
    path = match[0].replace("\\", "/").casefold().removeprefix("./")
    yield _made("path", path.rstrip("/") or path, match, base)


_BRANCH = re.compile(r"[a-z][a-z-]*/v?\d[\w.-]*")


def _read_slashed(match: re.Match[str], base: int) -> Iterator[Literal]:
    """``src/store/rows`` and ``release/2.4`` are paths, ``add/remove`` and ``30s/60s`` are alternatives."""
    parts = match[0].split("/")
    is_path = (
        _BRANCH.fullmatch(match[0])
        or parts[0].casefold() in _ROOTS
        or not parts[-1]
        or _SUFFIXED.search(parts[-1])
        or parts[0].startswith("@")
    )
    if (is_path or len(parts) > 2) and re.search("[A-Za-z]", match[0]):
        yield from _read_path(match, base)
        return
    start = base + match.start()
    for part in parts:
        yield from scan(part, start)
        start += len(part) + 1


def _read_flag(match: re.Match[str], base: int) -> Iterator[Literal]:
    # -v and -V are two switches, --Flag and --flag hardly are.
    yield _made("identifier", match[0].casefold() if match[0].startswith("--") else match[0], match, base)


def _read_version(match: re.Match[str], base: int) -> Iterator[Literal]:
    version = re.sub(r"^\D*", "", match[0].casefold()).replace("*", "x")
    yield _made("version", re.sub(r"[-_.+]+(?=[a-wyz])|(?<=^\d)\.0$", "", version), match, base)


def _read_identifier(match: re.Match[str], base: int) -> Iterator[Literal]:
    value = match[0].casefold().strip("_${}").removesuffix("()")
    if value not in UNITS:
        yield _made("identifier", value, match, base)


def _read_package(match: re.Match[str], base: int) -> Iterator[Literal]:
    if not is_everyday(match[0].split("-")):
        yield _made("identifier", match[0], match, base)


def _read_error_code(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _made("error_code", match[0].casefold(), match, base)


def _read_hexadecimal(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _made("number", str(int(match[0], 16)), match, base)


_SCALE = re.compile(r"[kKM](?!\w)")  # $12.5k


def _read_number(match: re.Match[str], base: int) -> Iterator[Literal]:
    written = re.sub(r"[\s,_]", "", match[0]).replace("−", "-")
    if written[0] in "$€£¥":
        scale = _SCALE.match(match.string, match.end())
        amount = Decimal(written[1:]) * (THOUSANDS[scale[0]] if scale else 1)
        text = match[0] + (scale[0] if scale else "")
        yield Literal("number", f"{plain(amount)} {written[0]}", text, base + match.start())
    else:
        yield _measured(written, match, base)


def _read_number_word(match: re.Match[str], base: int) -> Iterator[Literal]:
    yield _measured(str(NUMBER_WORDS.index(match[0].casefold())), match, base)


def _measured(written: str, match: re.Match[str], base: int) -> Literal:
    """The number with the unit that follows it, if one does."""
    text, start, end = match.string, match.start(), match.end()
    after = AFTER_NUMBER.match(text, end)
    value = with_unit(Decimal(written), after["gap"], after["name"]) if after else None
    if after and value:
        value, end = read_rate(value, text, after.end())
        return Literal("number", value, text[start:end], base + start)
    versioned = _BARE_DECIMAL.fullmatch(written) and _VERSIONED.search(text[max(0, start - 24) : start])
    return _made("version" if versioned else "number", unitless(written), match, base)


_READERS: dict[str, Callable[[re.Match[str], int], Iterable[Literal]]] = {
    "url": _read_url,
    "code": _read_wrapped,
    "quoted": _read_wrapped,
    "iso_date": _read_iso_date,
    "numeric_date": _read_numeric_date,
    "worded_date": _read_worded_date,
    "time": _read_time,
    "path": _read_path,
    "slashed": _read_slashed,
    "address": _read_identifier,
    "flag": _read_flag,
    "version": _read_version,
    "hexadecimal": _read_hexadecimal,
    "hash": _read_identifier,
    "error_code": _read_error_code,
    "identifier": _read_identifier,
    "package": _read_package,
    "number": _read_number,
    "number_word": _read_number_word,
}
