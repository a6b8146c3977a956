"""Reader of Markdown: notes of agents, in a file or in all files below a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.folder_formats import MARKDOWN_ENDINGS, list_files, name_file
from consolidation_pipeline.service.intake.readers.line_reader import MAX_LINE_BYTES, TOO_LONG, LineReader, read_lines
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row


def read_markdown(path: str | Path) -> Iterator[Row | BadRow]:
    """Yield one row per note of a Markdown file, or of all Markdown files below a folder.

    Files are UTF-8; ``-`` is standard input; .gz is unpacked. One file at a time is held in memory. In a folder, the
    ``source`` of a row is the relative path of its file. A file that cannot be read is a BadRow, and so is a link that
    leads out of it.

    Raises:
        UsageError: A file cannot be read, is not text or is longer than 20 MB, or there is no note.
    """
    rows = _read_folder(Path(path)) if Path(path).is_dir() else read_lines(path, _read_rows)
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise UsageError(f"{path} holds no notes: a heading with text under it, a list or a paragraph is needed")


def _read_folder(folder: Path) -> Iterator[Row | BadRow]:
    for path in list_files(folder):
        if not path.name.lower().endswith(MARKDOWN_ENDINGS):
            continue
        try:
            name = name_file(path, folder)
            for row in read_lines(path, _read_rows, in_folder=True):
                if isinstance(row, BadRow):
                    yield replace(row, reason=f"{name}: {row.reason}")
                else:
                    yield Row(row.line, row.fields | {"source": name}, name)
        except UsageError as error:
            yield BadRow(1, str(error))


def _read_rows(lines: LineReader) -> Iterator[Row | BadRow]:
    # Other formats need no Markdown parser.
    from consolidation_pipeline.service.intake.readers.markdown_notes import parse_notes

    yield from parse_notes(_read_text(lines))


def _read_text(lines: LineReader) -> str:
    parts, size = [], 0
    for line in lines:
        size += len(line)
        if size > MAX_LINE_BYTES:
            raise UsageError(f"{lines.name} is {TOO_LONG}; divide it")
        if b"\0" in line:
            raise UsageError(f"{lines.name} is no text: line {lines.number} has a NUL byte; save it as UTF-8")
        parts.append(line)
    # Bytes that are not UTF-8 become lone surrogates, so that parse_notes finds the note with them.
    return b"".join(parts).decode("utf-8", "surrogateescape")
