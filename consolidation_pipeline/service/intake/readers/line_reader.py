"""Lines of a file, of a gzip file or of standard input, one at a time, with a bound on their length."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

STDIN = "-"
# Far longer than any memory, and short enough that a broken file cannot exhaust the process's memory.
MAX_LINE_BYTES = 20_000_000
TOO_LONG = f"longer than {MAX_LINE_BYTES // 1_000_000} MB"

_BOM = b"\xef\xbb\xbf"
_SKIPPED_BYTES = 1 << 20

_Stream = BinaryIO | gzip.GzipFile


class LineReader(Iterator[bytes]):
    """Iterator of lines with their line ends, without a byte order mark.

    ``number``: number of the last line read, from 1. A line of more than ``MAX_LINE_BYTES`` bytes, its end included, is
    cut to one byte more than that, so that ``is_too_long`` holds for it.
    """

    def __init__(self, stream: _Stream, name: str) -> None:
        self.name = name
        self.number = 0
        self._stream = stream

    def __next__(self) -> bytes:
        line = self._stream.readline(MAX_LINE_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        rest = line if is_too_long(line) else b""
        while rest and not rest.endswith(b"\n"):
            rest = self._stream.readline(_SKIPPED_BYTES)
        return line.removeprefix(_BOM) if self.number == 1 else line


def is_too_long(line: bytes) -> bool:
    """Return True for a line that ``LineReader`` cut."""
    return len(line) > MAX_LINE_BYTES


def read_lines(path: str | Path, parse: Callable[[LineReader], Iterator[Row | BadRow]]) -> Iterator[Row | BadRow]:
    """Yield the rows that ``parse`` makes of the lines of ``path``.

    ``path`` is a file, gzip if it ends in .gz, or ``-`` for standard input. Damaged gzip data is a BadRow after the
    rows that could be read.

    Raises:
        UsageError: The file cannot be opened.
    """
    with _open_stream(path) as stream:
        lines = LineReader(stream, str(path))
        try:
            yield from parse(lines)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield BadRow(lines.number + 1, f"the gzip data is damaged, nothing can be read from here on: {error}")


@contextmanager
def _open_stream(path: str | Path) -> Iterator[_Stream]:
    if str(path) == STDIN:
        yield sys.stdin.buffer
        return
    open_bytes: Callable[[str | Path, Literal["rb"]], _Stream] = (
        gzip.open if Path(path).suffix.lower() == ".gz" else open
    )
    try:
        stream = open_bytes(path, "rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    with stream:
        yield stream
