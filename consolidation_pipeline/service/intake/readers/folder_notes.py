"""Reader of memory folders: notes and rules of coding agents, and notes with front matter.

Each row has an id that stays when its file is edited, if the file is one note, and in ``metadata`` the folder, the path
and the SHA-256 of the file, by which an import knows that it was edited.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from consolidation_pipeline.core.memories.row_fields import MAX_ID_CHARS
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.folder_formats import (
    CLAUDE_TYPES,
    DATED_NAME,
    FOLDER_FORMATS,
    Part,
    find_part,
    list_files,
    name_file,
)
from consolidation_pipeline.service.intake.readers.front_matter import (
    FrontMatter,
    flatten_metadata,
    read_front_matter,
    read_header,
    take_first,
)
from consolidation_pipeline.service.intake.readers.line_reader import LineReader, read_lines
from consolidation_pipeline.service.intake.readers.note_attributes import guess_type, valid_time
from consolidation_pipeline.service.intake.readers.rows import BadRow, Item, Remark, Row

# A larger file is a log or a dump, not a note.
MAX_FILE_BYTES = 2_000_000
# An index may say in a few words what it is.
_MAX_INDEX_TEXT = 400
_UTF16 = (b"\xff\xfe", b"\xfe\xff")

_LINK = re.compile(
    r"\s*(?:[-*+]\s+|\d+[.)]\s+)?(?:\*\*|`)*\[[^\]]*\]\(<?([^)>\s]+)>?\)|\s*(?:[-*+]\s+)?@?([\w./~-]+\.md)\b"
)
_WIKI_LINK = re.compile(r"\s*(?:[-*+]\s+)?\[\[([^\]|#]+)")
_HAS_LINK = re.compile(r"\]\(|\[\[|\.md\b")
_SESSION = re.compile(r"\s*# Session: (\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_SESSION_ID = re.compile(r"^- \*\*Session ID\*\*: *(\S+)", re.M)
_SESSION_TEXT = re.compile(r"^## ", re.M)
_CODEX_PARTS = {"rollout_summary_files", "keywords"}
_CODEX_GROUP = re.compile(r"Task Group:[^\n]*\n+(?:(?:scope|applies_to):[^\n]*\n*)+")

_DATE_KEYS = ("created", "created_at", "date", "learned_at", "modified", "updated", "updated_at", "last_updated")
_TITLE_KEYS = ("description", "title", "name", "summary")
_TAG_KEYS = ("tags", "keywords", "categories", "category")
_SESSION_KEYS = ("originSessionId", "session_id", "thread_id")
_GLOB_KEYS = ("globs", "paths", "applyTo")


def read_memory_folder(path: str | Path, *, format: str) -> Iterator[Item]:
    """Yield the memories of a memory folder, or of one file of it. ``format`` is a key of ``FOLDER_FORMATS``.

    A file that cannot be read, or is no text, is a BadRow. Files that hold no memories are remarks.

    Raises:
        UsageError: There is no such folder, or no file of this format in it.
    """
    path = Path(path)
    root = path if path.is_dir() else path.parent
    files = list_files(path) if path.is_dir() else [path] if path.is_file() else []
    any_file = False
    for file in files:
        part = find_part(format, file, root)
        if part is None and path.is_dir():
            continue
        any_file = True
        try:
            name = name_file(file, root)
        except UsageError as error:
            yield BadRow(1, str(error))
            continue
        if isinstance(part, str):
            yield Remark(name, part)
        else:
            yield from _read_file(file, _File(root, name, format, part or Part.NOTE), in_folder=path.is_dir())
    if not any_file:
        raise UsageError(f"{path} holds no file of a {FOLDER_FORMATS[format].title}")


def read_note(root: Path, name: str, part: Part, data: bytes, *, format: str) -> Iterator[Item]:
    """Yield the memories of a file of a memory folder, given its path below ``root`` and its content."""
    return _File(root, name, format, part).read(data.removeprefix(codecs.BOM_UTF8))


class _File:
    """A file of a memory folder: its fields for all rows, and its rows."""

    def __init__(self, root: Path, name: str, format: str, part: Part) -> None:
        self.name, self._root, self._format, self._part = name, root, format, part
        self._path = root / name

    def read(self, data: bytes) -> Iterator[Item]:
        try:
            text = data.decode("utf-16" if data[:2] in _UTF16 else "utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            yield BadRow(line, f"{self.name}: not valid UTF-8: byte 0x{data[error.start]:02x}; save the file as UTF-8")
            return
        if "\0" in text:
            yield BadRow(1, f"{self.name}: no text: it has NUL bytes")
            return
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        front = read_header(text) if self._part is Part.WHOLE else read_front_matter(text)
        if front.problem:
            yield Remark(self.name, f"its front matter {front.problem}", is_skipped=False)
        body = text.split("\n", front.lines)[-1] if front.lines else text
        fields = self._describe(front, body, sha256(data).hexdigest())
        if self._part is Part.WHOLE or (self._part is Part.NOTE and (front.lines or _SESSION.match(body))):
            # A saved session begins with its ids.
            start = _SESSION_TEXT.search(body) if _SESSION.match(body) else None
            yield from self._read_whole(front, body[start.start() :] if start else body, fields)
        else:
            yield from self._read_sections(front, body, fields)

    def _read_whole(self, front: FrontMatter, body: str, fields: dict[str, Any]) -> Iterator[Item]:
        content = body.strip() or str(fields.get("goal", "")).strip()
        if not content:
            yield Remark(self.name, "empty")
        elif _HAS_LINK.search(body) and _is_index(_find_rows(body)):
            yield Remark(self.name, "an index: a list of links")
        else:
            start = front.lines + len(body) - len(body.lstrip("\n")) + 1
            yield Row(start, {"id": _shorten(self.name), "content": content, **fields}, self.name)

    def _read_sections(self, front: FrontMatter, body: str, fields: dict[str, Any]) -> Iterator[Item]:
        # Other formats need no Markdown parser.
        from consolidation_pipeline.service.intake.readers.markdown_notes import merge_fields

        rows = _find_rows(body)
        if not rows:
            yield Remark(self.name, "empty")
        if _is_index(rows):
            yield Remark(self.name, "an index: a list of links")
            return
        links = 0
        for row in rows:
            if isinstance(row, BadRow):
                yield BadRow(row.line + front.lines, f"{self.name}: {row.reason}")
            elif self._format == "codex" and _is_codex_part(row):
                continue
            elif _is_link(row):
                links += 1
            else:
                merged = merge_fields(fields, row.fields)
                goals = [str(one["goal"]) for one in (fields, row.fields) if one.get("goal")]
                id_ = f"{_shorten(self.name)}#{str(row.fields['id']).removeprefix('markdown:')[:32]}"
                own = {"id": id_} | ({"goal": " > ".join(goals)} if goals else {})
                yield Row(row.line + front.lines, merged | own, self.name)
        if links:
            noun = "link to another file was" if links == 1 else "links to other files were"
            yield Remark(self.name, f"{links} {noun} left out", is_skipped=False)

    def _describe(self, front: FrontMatter, body: str, stamp: str) -> dict[str, Any]:
        """Return the fields of all rows of the file: from front matter, name and time of the file."""
        values = flatten_metadata(dict(front.values))
        session = _SESSION.match(body)
        instant = take_first(values, _DATE_KEYS, _read_time)
        if session:
            instant = f"{session[1]}T{session[2]}"
        kind = values.get("type")
        tags = take_first(values, _TAG_KEYS, _read_names) or []
        globs = take_first(values, _GLOB_KEYS, _read_names)
        session_id = take_first(values, _SESSION_KEYS, _read_text)
        if session and (found := _SESSION_ID.search(body)):
            session_id = found[1]
        title = take_first(values, _TITLE_KEYS, _read_text)
        fields: dict[str, Any] = {
            "created_at": instant or self._date_of_name() or self._modified(),
            "tags": [*tags, kind] if kind in CLAUDE_TYPES else tags,
            "memory_type": guess_type(kind) if isinstance(kind, str) else None,
            "session_id": session_id,
            "goal": title,
        }
        metadata = {key: value for key, value in values.items() if value not in (None, "", [], {})}
        metadata |= {"folder": str(self._root.resolve()), "path": self.name, "sha256": stamp}
        if globs:
            metadata["globs"] = globs
        return {key: value for key, value in fields.items() if value} | {"metadata": metadata}

    def _date_of_name(self) -> str | None:
        found = DATED_NAME.match(self._path.name)
        if not found:
            return None
        day, hour, minute, second = found.groups()
        return valid_time(f"{day}T{hour}:{minute}:{second or '00'}" if hour else day) or valid_time(day)

    def _modified(self) -> str:
        return datetime.fromtimestamp(int(self._path.stat().st_mtime), UTC).isoformat()


def _read_file(path: Path, file: _File, *, in_folder: bool) -> Iterator[Item]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            size = path.stat().st_size / 1_000_000
            limit = MAX_FILE_BYTES // 1_000_000
            yield BadRow(1, f"{file.name}: {size:.1f} MB is no note: at most {limit} MB; divide it")
            return
        yield from read_lines(path, partial(_read_bytes, file), in_folder=in_folder)
    except UsageError as error:
        yield BadRow(1, str(error))
    except OSError as error:
        yield BadRow(1, f"{file.name}: {error.strerror}")


def _read_bytes(file: _File, lines: LineReader) -> Iterator[Item]:
    yield from file.read(b"".join(lines))


def _find_rows(body: str) -> list[Row | BadRow]:
    # Other formats need no Markdown parser.
    from consolidation_pipeline.service.intake.readers.markdown_notes import parse_notes

    return list(parse_notes(body))


def _is_index(rows: list[Row | BadRow]) -> bool:
    """Return True if the rows are links to other files, and little text."""
    rest = [row for row in rows if isinstance(row, BadRow) or not _is_link(row)]
    text = sum(len(str(row.fields["content"])) for row in rest if isinstance(row, Row))
    return len(rest) < len(rows) and len(rest) <= (len(rows) - len(rest)) / 2 and text <= _MAX_INDEX_TEXT


def _is_link(row: Row) -> bool:
    """Return True if a row only points at another file: it begins with a link to one, and is one line."""
    text = str(row.fields["content"])
    if "\n" in text.strip():
        return all(_leads_to_file(line) for line in text.split("\n")[1:] if line.strip()) and "\n\n" in text
    return _leads_to_file(text)


def _leads_to_file(line: str) -> bool:
    link = _LINK.match(line)
    target = link and (link[1] or link[2])
    is_file = bool(target) and "://" not in str(target) and str(target).split("#")[0].endswith((".md", ".mdc"))
    return is_file or bool(_WIKI_LINK.match(line))


def _is_codex_part(row: Row) -> bool:
    """Return True for lines of Codex's MEMORY.md that say where a lesson is from, not the lesson."""
    headings = {
        str(row.fields.get("goal", "")).split(" > ")[-1],
        str(row.fields["content"]).split("\n", 1)[0].strip("# "),
    }
    return bool(_CODEX_PARTS & headings) or bool(_CODEX_GROUP.fullmatch(str(row.fields["content"]) + "\n"))


def _shorten(name: str) -> str:
    """Return a path as the id of its memory: the hash of a very long one."""
    limit = MAX_ID_CHARS - 100
    return name if len(name) <= limit else f"{name[: limit - 40]}..{sha256(name.encode()).hexdigest()[:32]}"


def _read_time(value: Any) -> str | None:
    return valid_time(str(value).strip()) if isinstance(value, str | int) and str(value).strip() else None


def _read_text(value: Any) -> str | None:
    return str(value).strip() or None if isinstance(value, str | int | float) else None


def _read_names(value: Any) -> list[str] | None:
    items = value if isinstance(value, list) else re.split(r",(?![^{]*\})", value) if isinstance(value, str) else []
    names = [str(item).strip().strip("#\"'").strip() for item in items]
    return list(dict.fromkeys(name for name in names if name)) or None
