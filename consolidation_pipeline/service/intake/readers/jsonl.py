"""Reader of JSON Lines files: one object per line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from consolidation_pipeline.service.intake.readers.line_reader import TOO_LONG, LineReader, is_too_long, read_lines
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

_JSON_TYPES = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


class _InvalidLineError(ValueError):
    """A line that is not accepted; the message is the reason."""


def read_jsonl(path: str | Path) -> Iterator[Row | BadRow]:
    """Yield the rows of a JSON Lines file (UTF-8; ``-`` = standard input; .gz is unpacked). Blank lines are skipped.

    A line that is not UTF-8, JSON or an object, is too long, or has a key twice, is a BadRow.

    Raises:
        UsageError: The file cannot be opened.
    """
    return read_lines(path, _read_rows)


def _read_rows(lines: LineReader) -> Iterator[Row | BadRow]:
    for line in lines:
        if not line.strip():
            continue
        try:
            yield Row(lines.number, _parse_object(line))
        except _InvalidLineError as error:
            yield BadRow(lines.number, str(error))


def _parse_object(line: bytes) -> dict[str, object]:
    if is_too_long(line):
        raise _InvalidLineError(TOO_LONG)
    try:
        text = line.rstrip(b"\r\n").decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_reject_repeated_keys, parse_constant=_reject_constant, parse_int=_parse_whole
        )
    except UnicodeDecodeError as error:
        raise _InvalidLineError(f"not valid UTF-8: byte 0x{line[error.start]:02x} at byte {error.start + 1}") from error
    except json.JSONDecodeError as error:
        raise _InvalidLineError(f"not valid JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise _InvalidLineError("nested too deeply") from error
    if not isinstance(value, dict):
        raise _InvalidLineError(f"an object is needed, not {_JSON_TYPES.get(type(value), 'null')}")
    return value


def _reject_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _InvalidLineError(f"the key {twice[:80]!r} occurs twice")
    return fields


def _reject_constant(name: str) -> NoReturn:
    raise _InvalidLineError(f"{name} is not a JSON number")


def _parse_whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:
        raise _InvalidLineError(f"a number of {len(digits)} digits is too large") from error
