"""Formats of ``consolidation import``: their readers, and the format and source of a path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.csv_rows import read_csv
from consolidation_pipeline.service.intake.readers.folder_formats import (
    FOLDER_FORMATS,
    MARKDOWN_ENDINGS,
    has_front_matter,
    recognize_folder,
)
from consolidation_pipeline.service.intake.readers.folder_notes import read_memory_folder
from consolidation_pipeline.service.intake.readers.git_log import read_git
from consolidation_pipeline.service.intake.readers.jsonl import read_jsonl
from consolidation_pipeline.service.intake.readers.line_reader import STDIN
from consolidation_pipeline.service.intake.readers.markdown import read_markdown
from consolidation_pipeline.service.intake.readers.rows import Item

READERS: dict[str, Callable[[str | Path], Iterator[Item]]] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "markdown": read_markdown,
    "git": read_git,
    **{name: partial(read_memory_folder, format=name) for name in FOLDER_FORMATS},
}
_ENDING_FORMATS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys(MARKDOWN_ENDINGS, "markdown"),
    ".mdc": "cursor",
}
# Folders whose own name says little: the one above says whose they are.
_COMMON_NAMES = {"memory", "memories", "rules", "workspace", "notes", ".claude", ".codex", ".cursor"}
_FORMAT_LIST = (
    "jsonl (.jsonl, .ndjson, .json), csv (.csv, .tsv), markdown (.md, .markdown, or a folder with such files), "
    "git (a repository's folder), claude-code, codex, cursor (.mdc, .cursorrules), openclaw, notes (with front matter)"
)


def read_rows(path: str | Path, format: str) -> Iterator[Item]:
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
    found = _guess_folder_format(path) if path.is_dir() else _guess_file_format(path)
    if found is None:
        if not path.exists():
            raise UsageError(f"cannot read {path}: No such file or directory")
        raise UsageError(f"cannot tell the format of {path}; name one of: {_FORMAT_LIST}")
    return found


def find_other_formats(path: str | Path, format: str) -> list[str]:
    """Return the other formats of memory folders that a folder shows."""
    return [name for name in recognize_folder(Path(path)) if name != format] if Path(path).is_dir() else []


def _guess_file_format(path: Path) -> str | None:
    if path.name == ".cursorrules":
        return "cursor"
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    found = _ENDING_FORMATS.get(name.suffix.lower())
    return "notes" if found == "markdown" and has_front_matter(path) else found


def _guess_folder_format(path: Path) -> str | None:
    is_bare_repository = (path / "HEAD").is_file() and (path / "objects").is_dir()
    shown = [] if is_bare_repository else recognize_folder(path)
    if is_bare_repository or (path / ".git").exists():
        # Agents keep their memory in git too; the rules for agents in a repository are not what it is about.
        return next((name for name in shown if name in ("codex", "openclaw")), "git")
    holds_markdown = any(file.suffix.lower() in MARKDOWN_ENDINGS for file in path.iterdir())
    return shown[0] if shown else "markdown" if holds_markdown else None


def default_source(path: str | Path, format: str) -> str:
    """Return the default source of memories: the file name; ``stdin`` for standard input, ``git`` for a repository.

    That of a memory folder is its format and the name of the folder, for Claude Code that of the project.
    """
    if format == "git":
        return "git"
    if str(path) == STDIN:
        return "stdin"
    path = Path(path)
    if format not in FOLDER_FORMATS:
        return path.name or path.resolve().name
    folder = (path if path.is_dir() else path.parent).resolve()
    names = [name for name in folder.parts[-2:] if name != folder.root]
    if folder.name not in _COMMON_NAMES:
        names = names[-1:]
    return f"{format}:{'/'.join(names)}"
