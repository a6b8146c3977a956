"""Markdown: the notes that agents keep, in a file or in all files below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.line_reader import MAX_LINE_BYTES, TOO_LONG, Lines, read_lines
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

ENDINGS = (".md", ".markdown")
_FOREIGN = {".git", "node_modules", ".venv"}


def read_markdown(path: str | Path) -> Iterator[Row | BadRow]:
    """One row per note of a Markdown file (UTF-8; ``-`` is standard input; .gz is unpacked) or of all below a folder.

    A file is held in memory while it is read, a folder's files one at a time. Rows of a folder have the file's relative
    path as their ``source``; a file in it that cannot be read is a BadRow.
    Raises UsageError for what cannot be read, is no text, is longer than 20 MB, or holds no note.
    """
    rows = _read_folder(Path(path)) if Path(path).is_dir() else read_lines(path, _rows)
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise UsageError(f"{path} holds no notes: a heading with text under it, a list or a paragraph is needed")


def find_files(folder: Path) -> Iterator[Path]:
    """Markdown files below ``folder``, sorted; those of other people's packages and of git itself are left out."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _FOREIGN)
        yield from (Path(parent, name) for name in sorted(files) if name.lower().endswith(ENDINGS))


def _read_folder(folder: Path) -> Iterator[Row | BadRow]:
    for path in find_files(folder):
        name = path.relative_to(folder).as_posix()
        try:
            for row in read_lines(path, _rows):
                yield _of_file(row, name)
        except UsageError as error:
            yield BadRow(1, str(error))


def _of_file(row: Row | BadRow, name: str) -> Row | BadRow:
    if isinstance(row, BadRow):
        return replace(row, reason=f"{name}: {row.reason}")
    return Row(row.line, row.fields | {"source": name})


def _rows(lines: Lines) -> Iterator[Row | BadRow]:
    from consolidation_pipeline.service.intake.readers.markdown_notes import read_notes

    yield from read_notes(_text(lines))


def _text(lines: Lines) -> str:
    parts, size = [], 0
    for line in lines:
        size += len(line)
        if size > MAX_LINE_BYTES:
            raise UsageError(f"{lines.name} is {TOO_LONG}; divide it")
        if b"\0" in line:
            raise UsageError(f"{lines.name} is no text: line {lines.number} has a NUL byte; save it as UTF-8")
        parts.append(line)
    # Bytes that are not UTF-8 become lone surrogates, by which the note is known that they belong to.
    return b"".join(parts).decode("utf-8", "surrogateescape")
