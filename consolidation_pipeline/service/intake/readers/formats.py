"""Formats of ``consolidation import``: their readers, and the format and source of a path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.csv_rows import read_csv
from consolidation_pipeline.service.intake.readers.git_log import read_git
from consolidation_pipeline.service.intake.readers.jsonl import read_jsonl
from consolidation_pipeline.service.intake.readers.line_reader import STDIN
from consolidation_pipeline.service.intake.readers.markdown import MARKDOWN_ENDINGS, read_markdown
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

READERS = {"jsonl": read_jsonl, "csv": read_csv, "markdown": read_markdown, "git": read_git}
_ENDING_FORMATS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys(MARKDOWN_ENDINGS, "markdown"),
}
_FORMAT_LIST = (
    "jsonl (.jsonl, .ndjson, .json), csv (.csv, .tsv), markdown (.md, .markdown, or a folder with such files), "
    "git (a repository's folder)"
)


def read_rows(path: str | Path, format: str) -> Iterator[Row | BadRow]:
    """Return an iterator of the rows of ``path`` in their order. ``format`` is a key of ``READERS``.

    Raises:
        UsageError: The format is unknown. While iterating: the source cannot be read at all.
    """
    if format not in READERS:
        raise UsageError(f"unknown format {format!r}; known formats: {_FORMAT_LIST}")
    return READERS[format](path)


def guess_format(path: str | Path) -> str:
    """Return the format by the ending of a file (before .gz) or by what a folder holds; jsonl for standard input.

    Raise UsageError, which lists the formats, if there is no such format.
    """
    path = Path(path)
    if str(path) == STDIN:
        return "jsonl"
    if path.is_dir():
        is_bare_repository = (path / "HEAD").is_file() and (path / "objects").is_dir()
        if is_bare_repository or (path / ".git").exists():
            return "git"
        found = "markdown" if any(file.suffix.lower() in MARKDOWN_ENDINGS for file in path.iterdir()) else None
    else:
        name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
        found = _ENDING_FORMATS.get(name.suffix.lower())
    if found is None:
        raise UsageError(f"cannot tell the format of {path}; name one of: {_FORMAT_LIST}")
    return found


def default_source(path: str | Path, format: str) -> str:
    """Return the default source of memories: the file name; ``stdin`` for standard input, ``git`` for a repository."""
    if format == "git":
        return "git"
    return "stdin" if str(path) == STDIN else Path(path).name or Path(path).resolve().name
