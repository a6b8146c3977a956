"""Reader of CSV files: a header, then one record per row, separated by commas, semicolons or tabs."""

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
    LineReader,
    is_too_long,
    read_lines,
)
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

_TEXT_COLUMNS = ("content", "execution_summary")
_METADATA_PREFIX = "metadata."


def read_csv(path: str | Path) -> Iterator[Row | BadRow]:
    """Yield the rows of a CSV file (UTF-8; ``-`` = standard input; .gz is unpacked).

    Values are text; empty cells are left out. The separator is a comma, semicolon or tab: the one that splits the
    header into most names. Column ``metadata.x`` becomes key ``x`` of ``metadata``. Columns without a name and empty
    records are skipped. A record with a wrong number of cells, broken quotes or bytes that are not UTF-8 is a BadRow.

    Raises:
        UsageError: The file cannot be opened, or the header has neither ``content`` nor ``execution_summary``.
    """
    # The first of these wins a tie: a header of one name does not show the separator, but the file's ending may.
    delimiters = "\t,;" if ".tsv" in Path(str(path).lower()).suffixes else ",;\t"
    return read_lines(path, partial(_read_rows, delimiters=delimiters))


def _read_rows(lines: LineReader, delimiters: str) -> Iterator[Row | BadRow]:
    # The csv module's process-wide limit of 131,072 characters is too small for a long note.
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
            yield _build_row(start, columns, cells)


def _open_table(lines: LineReader, delimiters: str) -> tuple[Iterator[list[str]], list[str]]:
    """Return the records after the header, and the names in the header."""
    try:
        first = next((_decode_line(line) for line in lines if line.strip()), "")
        delimiter = max(delimiters, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
        # Unlike a generator, map() goes on after an error of _decode_line: a line that is too long spoils one record.
        records = csv.reader(chain([first], map(_decode_line, lines)), delimiter=delimiter, strict=True)
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
    if "metadata" in columns and any(column.startswith(_METADATA_PREFIX) for column in columns):
        raise UsageError(f"{name}: the header row names both metadata and {_METADATA_PREFIX}* columns; use one of them")


def _decode_line(line: bytes) -> str:
    if is_too_long(line):
        raise csv.Error(f"a line is {TOO_LONG}")
    # Bytes that are not UTF-8 become lone surrogates, so that _build_row finds the record with them.
    return line.decode("utf-8", "surrogateescape")


def _build_row(start: int, columns: list[str], cells: list[str]) -> Row | BadRow:
    if len(cells) != len(columns):
        return BadRow(start, f"{len(cells)} cells where the header has {len(columns)}; are quotes missing?")
    try:
        "".join(cells).encode("utf-8")
    except UnicodeEncodeError as error:
        byte = ord(error.object[error.start]) & 0xFF
        return BadRow(start, f"not valid UTF-8: byte 0x{byte:02x}; save the file as UTF-8")
    fields: dict[str, object] = {}
    metadata: dict[str, str] = {}
    for column, cell in zip(columns, cells, strict=True):
        # CSV has no null: an empty cell is missing, so the defaults apply.
        if not column or not cell.strip():
            continue
        if column.startswith(_METADATA_PREFIX):
            metadata[column.removeprefix(_METADATA_PREFIX)] = cell
        else:
            fields[column] = cell
    return Row(start, fields | {"metadata": metadata} if metadata else fields)
