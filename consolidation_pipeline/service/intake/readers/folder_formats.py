"""Formats of memory folders: which files of a folder hold memories, and by which marks a format is recognised."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.front_matter import flatten_metadata, read_front_matter

MARKDOWN_ENDINGS = (".md", ".markdown")
SKIPPED_FOLDERS = {".git", ".consolidated", "node_modules", ".venv", "venv", "__pycache__", ".trash"}
# Enough to recognise a folder, and few enough for a home directory.
_MAX_LOOKED_AT = 20_000
_SAMPLE = 50
_HEAD_CHARS = 4_000

DATED_NAME = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T_ -](\d\d)[-:]?(\d\d)(?:[-:]?(\d\d))?(?![\d-]))?")


class Part(Enum):
    """Content of a file of a memory folder.

    ``NOTE``: one memory if it has front matter, else as ``RULES``. ``WHOLE``: one memory. ``RULES``: a memory for each
    section and each item of a list.
    """

    NOTE = "note"
    WHOLE = "whole"
    RULES = "rules"


@dataclass(frozen=True)
class FolderFormat:
    """A format of memory folders.

    ``find_part``: what a file holds, by its path: some folders above the imported one, then the path below it. A text
    is the reason why the file holds no memories; None = it is none of this format.
    """

    title: str
    find_part: Callable[[tuple[str, ...]], Part | str | None]


def list_files(folder: Path) -> Iterator[Path]:
    """Yield the files below ``folder``, sorted, without those of git and installed packages.

    A link to a file of the folder is left out: that file is read under its own name.
    """
    root = folder.resolve()
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for path in (Path(parent, name) for name in sorted(files)):
            if not (path.is_symlink() and path.resolve().is_relative_to(root)):
                yield path


def name_file(path: Path, root: Path) -> str:
    """Return the path of a file below ``root``.

    Raises:
        UsageError: It holds bytes that are no text, or control characters, which could forge lines of the output.
    """
    name = path.relative_to(root).as_posix()
    if not name.isprintable():
        raise UsageError(f"{name!a}: the name holds characters that cannot be shown; rename the file")
    return name


def find_parts(path: Path, root: Path) -> tuple[str, ...]:
    """Return the names of the last three folders above ``root`` and of itself, then of the path below it."""
    above = root.resolve().parts[-4:]
    return ("",) * (4 - len(above)) + above + path.relative_to(root).parts


def _is_markdown(name: str) -> bool:
    return name.lower().endswith(MARKDOWN_ENDINGS)


def _find_claude_part(parts: tuple[str, ...]) -> Part | str | None:
    *folders, name = parts
    if name in ("CLAUDE.md", "CLAUDE.local.md"):
        return Part.RULES
    if not _is_markdown(name):
        return None
    if ".claude" in folders and "rules" in folders[folders.index(".claude") :]:
        return Part.RULES
    return Part.NOTE if {"memory", "agent-memory", "agent-memory-local"} & set(folders) else None


_CODEX_COPIES = {
    "memory_summary.md": "a summary of MEMORY.md",
    "raw_memories.md": "notes that Codex has taken into MEMORY.md and rollout_summaries",
}


def _find_codex_part(parts: tuple[str, ...]) -> Part | str | None:
    *folders, name = parts
    if name in ("AGENTS.md", "AGENTS.override.md"):
        return Part.RULES
    if not _is_markdown(name) or {"skills", "extensions", "prompts", "sessions"} & set(folders):
        return None
    if "rollout_summaries" in folders:
        return Part.WHOLE
    if name == "MEMORY.md":
        return Part.RULES
    return _CODEX_COPIES.get(name)


def _find_cursor_part(parts: tuple[str, ...]) -> Part | str | None:
    *folders, name = parts
    is_rule = ".cursor" in folders and "rules" in folders and _is_markdown(name)
    return Part.RULES if name == ".cursorrules" or name.endswith(".mdc") or is_rule else None


_OPENCLAW_AGENT = {
    *("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md", "HEARTBEAT.md", "BOOTSTRAP.md", "BOOT.md", "DREAMS.md")
}


def _find_openclaw_part(parts: tuple[str, ...]) -> Part | str | None:
    *folders, name = parts
    if not _is_markdown(name):
        return None
    if name in _OPENCLAW_AGENT:
        return "instructions of the agent, no memories"
    if name in ("MEMORY.md", "memory.md", "USER.md"):
        return Part.RULES
    return Part.NOTE if "memory" in folders or DATED_NAME.match(name) else None


def _find_note_part(parts: tuple[str, ...]) -> Part | str | None:
    is_hidden = any(name.startswith(".") for name in parts[4:])
    return Part.NOTE if _is_markdown(parts[-1]) and not is_hidden else None


FOLDER_FORMATS = {
    "claude-code": FolderFormat("Claude Code memory folder", _find_claude_part),
    "codex": FolderFormat("Codex memory folder", _find_codex_part),
    "cursor": FolderFormat("Cursor rules", _find_cursor_part),
    "openclaw": FolderFormat("OpenClaw workspace", _find_openclaw_part),
    "notes": FolderFormat("folder of notes with front matter", _find_note_part),
}


def recognize_folder(folder: Path) -> list[str]:
    """Return the formats whose marks ``folder`` shows, the most certain first; empty if it shows none."""
    files = list(islice(list_files(folder), _MAX_LOOKED_AT))
    below = [path.relative_to(folder).parts for path in files]
    markdown = [path for path in files if _is_markdown(path.name) and path.name.lower() != "readme.md"]
    names = {path.name for path in markdown}
    found = [name for name, is_shown in _MARKS.items() if is_shown(folder, below)]
    found += [name for name, rules in _RULE_FILES.items() if name not in found and names == {rules}]
    found = [name for name in found if any(isinstance(find_part(name, path, folder), Part) for path in files)]
    sample = [path for path in markdown if find_part("notes", path, folder)][:_SAMPLE]
    if not found and sample and 2 * sum(map(has_front_matter, sample)) >= len(sample):
        found.append("notes")
    return found


def find_part(format: str, path: Path, root: Path) -> Part | str | None:
    """Return what the file ``path`` below ``root`` holds, as a memory folder of this format."""
    parts = find_parts(path, root)
    is_project = any((root / name).exists() for name in _CLAUDE_PROJECT) or ".claude" in root.resolve().parts
    # A memory folder may be a git repository of its own.
    is_project = is_project or ((root / ".git").exists() and not (root / "MEMORY.md").exists())
    if format == "claude-code" and not is_project:
        parts = ("memory", *parts)  # a copy of a memory folder, under any name
    return FOLDER_FORMATS[format].find_part(parts)


def has_front_matter(path: Path) -> bool:
    """Return True if a file begins with front matter."""
    return read_front_matter(_read_head(path)).lines > 0


def _read_head(path: Path) -> str:
    """Return the beginning of a file; empty if it is no regular file or cannot be read."""
    try:
        if path.is_symlink() or not path.is_file():
            return ""
        with path.open("rb") as stream:
            return stream.read(_HEAD_CHARS).decode("utf-8-sig", "replace").replace("\r\n", "\n")
    except OSError:
        return ""


_RULE_FILES = {"claude-code": "CLAUDE.md", "codex": "AGENTS.md"}
_CLAUDE_PROJECT = (".claude", "CLAUDE.md", "projects")
CLAUDE_TYPES = ("user", "feedback", "project", "reference")


def _shows_codex(_folder: Path, below: list[tuple[str, ...]]) -> bool:
    marks = {"memory_summary.md", "raw_memories.md", "rollout_summaries"}
    return any(parts[parts[0] == "memories" and len(parts) > 1] in marks for parts in below)


def _shows_claude(folder: Path, below: list[tuple[str, ...]]) -> bool:
    if ".claude" in folder.resolve().parts:
        return True
    if any((parts[0] == "projects" and parts[2:3] == ("memory",)) or _is_claude_rule(parts) for parts in below):
        return True
    top = [parts[0] for parts in below if len(parts) == 1 and _is_markdown(parts[0])]
    return any(_is_claude_note(_read_head(folder / name)) for name in top[:_SAMPLE])


def _is_claude_rule(parts: tuple[str, ...]) -> bool:
    return parts[0] == ".claude" and (parts[-1] == "CLAUDE.md" or parts[1:2] == ("rules",))


def _is_claude_note(head: str) -> bool:
    values = flatten_metadata(read_front_matter(head).values)
    return {"name", "description"} <= set(values) and values.get("type") in CLAUDE_TYPES


def _shows_cursor(_folder: Path, below: list[tuple[str, ...]]) -> bool:
    return any(parts[-1] == ".cursorrules" or parts[-1].endswith(".mdc") for parts in below)


def _shows_openclaw(folder: Path, below: list[tuple[str, ...]]) -> bool:
    if folder.resolve().name == "memory":
        below = [("memory", *parts) for parts in below]
    top = {parts[0] for parts in below if len(parts) == 1}
    has_days = any(parts[0] == "memory" and DATED_NAME.match(parts[-1]) for parts in below)
    has_memory = bool({"MEMORY.md", "memory.md", "USER.md"} & top)
    has_agent = bool({"SOUL.md", "IDENTITY.md", "HEARTBEAT.md"} & top)
    return has_days + has_memory + has_agent > 1 or (has_days and not any(map(_is_markdown, top)))


_MARKS: dict[str, Callable[[Path, list[tuple[str, ...]]], bool]] = {
    "codex": _shows_codex,
    "openclaw": _shows_openclaw,
    "claude-code": _shows_claude,
    "cursor": _shows_cursor,
}
