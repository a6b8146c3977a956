"""Lines of a file, of a gzip file or of standard input, one at a time, with a bound on their length."""

from __future__ import annotations

import gzip
import math
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.rows import BadRow

STDIN = "-"
# Far longer than any memory, and short enough that a broken file cannot exhaust the process's memory.
MAX_LINE_BYTES = 20_000_000
TOO_LONG = f"longer than {MAX_LINE_BYTES // 1_000_000} MB"

# gzip packs text to a tenth and repeated lines to a fiftieth, but a bomb to a thousandth.
_MAX_EXPANSION, _FREE_EXPANSION = 100, 16_000_000

_BOM = b"\xef\xbb\xbf"
_SKIPPED_BYTES = 1 << 20

_Stream = BinaryIO | gzip.GzipFile
_Item = TypeVar("_Item")


class _ExpansionError(Exception):
    """Packed data unpacks to far more than text does."""


class LineReader(Iterator[bytes]):
    """Iterator of lines with their line ends, without a byte order mark.

    ``number``: number of the last line read, from 1. A line of more than ``MAX_LINE_BYTES`` bytes, its end included, is
    cut to one byte more than that, so that ``is_too_long`` holds for it.
    """

    def __init__(self, stream: _Stream, name: str, *, max_bytes: float = math.inf) -> None:
        self.name = name
        self.number = 0
        self._stream = stream
        self._left = max_bytes

    def __next__(self) -> bytes:
        line = self._read(MAX_LINE_BYTES + 1)
        if not line:
            raise StopIteration
        self.number += 1
        rest = line if is_too_long(line) else b""
        while rest and not rest.endswith(b"\n"):
            rest = self._read(_SKIPPED_BYTES)
        return line.removeprefix(_BOM) if self.number == 1 else line

    def _read(self, limit: int) -> bytes:
        line = self._stream.readline(limit)
        self._left -= len(line)
        if self._left < 0:
            raise _ExpansionError
        return line


def is_too_long(line: bytes) -> bool:
    """Return True for a line that ``LineReader`` cut."""
    return len(line) > MAX_LINE_BYTES


def read_lines(
    path: str | Path, parse: Callable[[LineReader], Iterator[_Item]], *, in_folder: bool = False
) -> Iterator[_Item | BadRow]:
    """Yield the rows that ``parse`` makes of the lines of ``path``.

    ``path`` is a file, gzip if it ends in .gz, or ``-`` for standard input. gzip data that is damaged, or that unpacks
    to more than 100 times its size, is a BadRow after the rows that could be read.

    Args:
        in_folder: The file was found in a folder, so it must be a regular file: a link could lead anywhere.

    Raises:
        UsageError: The file cannot be opened.
    """
    with _open_stream(path, in_folder=in_folder) as stream:
        packed = isinstance(stream, gzip.GzipFile)
        limit = _FREE_EXPANSION + _MAX_EXPANSION * os.stat(path).st_size if packed else math.inf
        lines = LineReader(stream, str(path), max_bytes=limit)
        try:
            yield from parse(lines)
        except _ExpansionError:
            yield BadRow(
                lines.number + 1,
                f"unpacks to more than {_MAX_EXPANSION} times its size, nothing is read from here on; "
                "if that is right, unpack it first",
            )
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield BadRow(lines.number + 1, f"the gzip data is damaged, nothing can be read from here on: {error}")


@contextmanager
def _open_stream(path: str | Path, *, in_folder: bool) -> Iterator[_Stream]:
    if str(path) == STDIN:
        yield sys.stdin.buffer
        return
    open_bytes: Callable[[str | Path, Literal["rb"]], _Stream] = (
        gzip.open if Path(path).suffix.lower() == ".gz" else open
    )
    try:
        if in_folder and not stat.S_ISREG(os.lstat(path).st_mode):
            raise UsageError(f"cannot read {path}: in a folder, links and whatever is no regular file are left out")
        stream = os.fdopen(_open_no_link(path), "rb") if in_folder else open_bytes(path, "rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    with stream:
        yield stream


def _open_no_link(path: str | Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
