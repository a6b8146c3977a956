"""JSON Lines: one object per line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from consolidation_pipeline.service.intake.readers.line_reader import TOO_LONG, Lines, is_too_long, read_lines
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

_KINDS = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


class _RefusedError(ValueError):
    """Legal for Python's parser, not for JSON or not for us; the message is the reason."""


def read_jsonl(path: str | Path) -> Iterator[Row | BadRow]:
    """Rows of a JSON Lines file (UTF-8; ``-`` is standard input; .gz is unpacked). Blank lines are skipped.

    BadRow for a line that is not UTF-8, not JSON, not an object, too long, or that names a key twice.
    Raises UsageError for a file that cannot be opened.
    """
    return read_lines(path, _rows)


def _rows(lines: Lines) -> Iterator[Row | BadRow]:
    for line in lines:
        if not line.strip():
            continue
        try:
            yield Row(lines.number, _parse(line))
        except _RefusedError as error:
            yield BadRow(lines.number, str(error))


def _parse(line: bytes) -> dict[str, object]:
    if is_too_long(line):
        raise _RefusedError(TOO_LONG)
    try:
        text = line.rstrip(b"\r\n").decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_parse_whole)
    except UnicodeDecodeError as error:
        raise _RefusedError(f"not valid UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1}") from error
    except json.JSONDecodeError as error:
        raise _RefusedError(f"not valid JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise _RefusedError("nested too deeply") from error
    if not isinstance(value, dict):
        raise _RefusedError(f"an object is needed, not {_KINDS.get(type(value), 'null')}")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _RefusedError(f"the key {twice[:80]!r} occurs twice")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not a JSON number")


def _parse_whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:
        raise _RefusedError(f"a number of {len(digits)} digits is too large") from error
