"""Physical lines of a file, of a gzip file or of standard input, one at a time."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

STDIN = "-"
# Far above any memory an agent wrote, and little enough that one broken file cannot take the process's memory.
MAX_LINE_BYTES = 20_000_000
TOO_LONG = f"longer than {MAX_LINE_BYTES // 1_000_000} MB"

_BOM = b"\xef\xbb\xbf"
_SKIPPED_BYTES = 1 << 20


class _Stream(Protocol):
    def readline(self, size: int = -1, /) -> bytes: ...


class Lines(Iterator[bytes]):
    """Lines with their ends, without a byte order mark; ``number`` is that of the last one, from 1.

    A line longer than ``MAX_LINE_BYTES`` (its end included) comes cut off at one byte more: see ``is_too_long``.
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
        if is_too_long(line):
            self._skip_rest(line)
        return line.removeprefix(_BOM) if self.number == 1 else line

    def _skip_rest(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self._stream.readline(_SKIPPED_BYTES)


def is_too_long(line: bytes) -> bool:
    """True for a line that ``Lines`` cut off."""
    return len(line) > MAX_LINE_BYTES


def read_lines(path: str | Path, parse: Callable[[Lines], Iterator[Row | BadRow]]) -> Iterator[Row | BadRow]:
    """Rows that ``parse`` makes of the lines of ``path``: a file, gzip if it ends in .gz, or ``-`` for standard input.

    Compressed data that breaks off ends in a BadRow; what came before it is kept. Raises UsageError for a file that
    cannot be opened.
    """
    with _opened(path) as stream:
        lines = Lines(stream, str(path))
        try:
            yield from parse(lines)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield BadRow(lines.number + 1, f"the gzip data is damaged, nothing can be read from here on: {error}")


@contextmanager
def _opened(path: str | Path) -> Iterator[_Stream]:
    if str(path) == STDIN:
        yield sys.stdin.buffer
        return
    open_bytes: Callable[[str | Path, Literal["rb"]], BinaryIO | gzip.GzipFile] = (
        gzip.open if Path(path).suffix.lower() == ".gz" else open
    )
    try:
        stream = open_bytes(path, "rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    with stream:
        yield stream
