"""Readers behind ``consolidation import``: they stream rows and report bad ones, and leave judging them to others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.csv_rows import read_csv
from consolidation_pipeline.service.intake.readers.git_log import read_git
from consolidation_pipeline.service.intake.readers.jsonl import read_jsonl
from consolidation_pipeline.service.intake.readers.line_reader import STDIN
from consolidation_pipeline.service.intake.readers.markdown import ENDINGS, read_markdown
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

READERS = {"jsonl": read_jsonl, "csv": read_csv, "markdown": read_markdown, "git": read_git}
_ENDINGS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys(ENDINGS, "markdown"),
}
_FORMATS = (
    "jsonl (.jsonl, .ndjson, .json), csv (.csv, .tsv), markdown (.md, .markdown, or a folder with such files), "
    "git (a repository's folder)"
)


def read(path: str | Path, format: str) -> Iterator[Row | BadRow]:
    """Rows of ``path``, streamed in the source's order; ``format`` is a key of ``READERS``.

    Raises UsageError for an unknown format, and while iterating for a source that cannot be read at all.
    """
    if format not in READERS:
        raise UsageError(f"unknown format {format!r}; known formats: {_FORMATS}")
    return READERS[format](path)


def guess_format(path: str | Path) -> str:
    """The format that a path's ending (before .gz) or what a folder holds tells; standard input is taken for jsonl.

    Raises UsageError, listing the formats, where nothing tells.
    """
    path = Path(path)
    if str(path) == STDIN:
        return "jsonl"
    if path.is_dir():
        return _format_of_folder(path)
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    ending = name.suffix.lower()
    if ending not in _ENDINGS:
        raise _untold(path)
    return _ENDINGS[ending]


def source_of(path: str | Path, format: str) -> str:
    """The default ``source`` of memories: the name, ``stdin`` for standard input, ``git`` for a repository."""
    if format == "git":
        return "git"
    return "stdin" if str(path) == STDIN else Path(path).name or Path(path).resolve().name


def _format_of_folder(folder: Path) -> str:
    if _is_repository(folder):
        return "git"
    if any(path.suffix.lower() in ENDINGS for path in folder.iterdir()):
        return "markdown"
    raise _untold(folder)


def _untold(path: Path) -> UsageError:
    return UsageError(f"cannot tell the format of {path}; name one of: {_FORMATS}")


def _is_repository(folder: Path) -> bool:
    bare = (folder / "HEAD").is_file() and (folder / "objects").is_dir()
    return bare or (folder / ".git").exists()
