"""CSV: one record per row under a header, separated by commas, semicolons or tabs."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.line_reader import (
    MAX_LINE_BYTES,
    TOO_LONG,
    Lines,
    is_too_long,
    read_lines,
)
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

_TEXT_COLUMNS = ("content", "execution_summary")
_METADATA = "metadata."


def read_csv(path: str | Path) -> Iterator[Row | BadRow]:
    """Rows of a CSV file (UTF-8; ``-`` is standard input; .gz is unpacked), all cells as text, empty ones left out.

    The separator is the one of ``, ; tab`` that splits the header into most names. ``metadata.x`` becomes key ``x`` of
    ``metadata``; columns without a name (a spreadsheet's row numbers) are left out; empty records are skipped.
    BadRow for a record with more or fewer cells than the header, broken quotes, or bytes that are not UTF-8.
    Raises UsageError for a file that cannot be opened or whose header lacks ``content`` and ``execution_summary``.
    """
    # A header of one name decides nothing: then the file's ending does.
    delimiters = "\t,;" if ".tsv" in Path(str(path).lower()).suffixes else ",;\t"
    return read_lines(path, partial(_rows, delimiters=delimiters))


def _rows(lines: Lines, delimiters: str) -> Iterator[Row | BadRow]:
    # The csv module's own limit of 131,072 characters is process-wide and too small for a long note.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))
    records, columns = _open_table(lines, delimiters)
    while True:
        start = lines.number + 1
        try:
            cells = next(records)
        except StopIteration:
            return
        except csv.Error as error:
            yield BadRow(start, f"not valid CSV: {error}")
            continue
        if any(cell.strip() for cell in cells):
            yield _row(start, columns, cells)


def _open_table(lines: Lines, delimiters: str) -> tuple[Iterator[list[str]], list[str]]:
    try:
        first = next((_text(line) for line in lines if line.strip()), "")
        delimiter = max(delimiters, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
        # map() survives an error of _text, so that one line too long does not end the file.
        records = csv.reader(chain([first], map(_text, lines)), delimiter=delimiter, strict=True)
        columns = [name.strip() for name in next(records, [])]
    except csv.Error as error:
        raise UsageError(f"{lines.name}: the header row is not valid CSV: {error}") from error
    _check_columns(columns, lines.name)
    return records, columns


def _check_columns(columns: list[str], name: str) -> None:
    if not set(columns) & set(_TEXT_COLUMNS):
        found = ", ".join(repr(column[:80]) for column in columns[:50]) or "none, the file is empty"
        raise UsageError(f"{name}: the header row needs a column {' or '.join(_TEXT_COLUMNS)}; found: {found}")
    twice = [column for column, count in Counter(columns).items() if column and count > 1]
    if twice:
        raise UsageError(f"{name}: the header row names {', '.join(map(repr, twice))} twice; columns must differ")
    if "metadata" in columns and any(column.startswith(_METADATA) for column in columns):
        raise UsageError(f"{name}: the header row names both metadata and {_METADATA}* columns; one of them is right")


def _text(line: bytes) -> str:
    if is_too_long(line):
        raise csv.Error(f"a line is {TOO_LONG}")
    # Bytes that are not UTF-8 become lone surrogates, by which _row knows the record that they belong to.
    return line.decode("utf-8", "surrogateescape")


def _row(start: int, columns: list[str], cells: list[str]) -> Row | BadRow:
    if len(cells) != len(columns):
        return BadRow(start, f"{len(cells)} cells where the header has {len(columns)}; are quotes missing?")
    try:
        "".join(cells).encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(error.object[error.start]) & 0xFF
        return BadRow(start, f"not valid UTF-8: byte 0x{byte:02x}; save the file as UTF-8")
    return Row(start, _fields(columns, cells))


def _fields(columns: list[str], cells: list[str]) -> dict[str, object]:
    # CSV knows no null: an empty cell says nothing, so that the defaults apply.
    filled = {column: cell for column, cell in zip(columns, cells, strict=True) if column and cell.strip()}
    metadata = {key.removeprefix(_METADATA): cell for key, cell in filled.items() if key.startswith(_METADATA)}
    fields: dict[str, object] = {key: cell for key, cell in filled.items() if not key.startswith(_METADATA)}
    return fields | {"metadata": metadata} if metadata else fields
