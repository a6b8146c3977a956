"""Attributes of notes: lines such as ``**Logged**: 2026-01-02``, and dates, ids and types in headings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.row_fields import FIELD_READERS
from consolidation_pipeline.errors import InvalidMemoryError

_LINE = re.compile(r"\s*(?:[-*+]\s+)?(\*\*|__)?([A-Za-z][\w -]{0,30}?)(\*\*|__)?\s*:\s*(\*\*|__)?\s*(\S.*?)[\s\\]*")
_ID = re.compile(r"\s*\[([A-Z]{2,8}-[\w-]*\d[\w-]*)\]\s*[:–—-]?\s*")
_DATE = re.compile(r"[\[(]?\b(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?Z?))?(?![\w-])[\])]?\s*[:|–—-]?\s*")
_NOT_WORDS = re.compile(r"[^\w]+|_")
# A longer heading is a sentence, which may mention a bug without being about one.
_MAX_TITLE_WORDS = 4
_MAX_LINE_CHARS = 300
_MAX_VALUE_WORDS = 3
_TYPE_WORDS = {
    "decision": "decision decisions decided adr adrs",
    "warning": "gotcha gotchas warning warnings pitfall pitfalls caveat caveats beware",
    "bugfix": "bug bugs bugfix bugfixes",
    "error_fix": "error errors failure failures fix fixes troubleshooting debugging",
    "discovery": "discovery discoveries finding findings insight insights til",
    "codebase_knowledge": "architecture codebase structure layout conventions",
    "feature": "feature features",
    "refactor": "refactor refactoring refactorings",
    "change": "change changes changelog",
}
_TYPES = {word: kind for kind, words in _TYPE_WORDS.items() for word in words.split()}
_IMPORTANCE = {"critical": 0.9, "high": 0.7, "medium": 0.5, "low": 0.3}


def guess_type(title: str) -> str | None:
    """Return the memory type of a short heading by its first known word; None if there is none."""
    if title.strip().lower() in MEMORY_TYPES:
        return title.strip().lower()
    words = _NOT_WORDS.sub(" ", title).lower().split()
    found = (_TYPES[word] for word in words if word in _TYPES)
    return next(found, None) if len(words) <= _MAX_TITLE_WORDS else None


def parse_title(title: str) -> tuple[str, dict[str, object]]:
    """Return a heading without its id in brackets and its date, and as fields these two and the memory type.

    Ids and dates differ between notes of the same text. If they stayed in the text, such notes would not be merged.
    """
    fields: dict[str, object] = {}
    if found := _ID.match(title):
        fields["metadata"] = {"note_id": found[1]}
        title = title[found.end() :]
    if dated := _DATE.search(title):
        instant = dated[1] + (f"T{dated[2]}" if dated[2] else "")
        if valid_time(instant) is not None:
            fields["created_at"] = instant
            title = title[: dated.start()] + title[dated.end() :]
    title = title.strip().rstrip(":").strip()
    if kind := guess_type(title):
        fields["memory_type"] = kind
    return title, fields


def extract_attributes(
    lines: Iterable[tuple[str, bool]], *, keep_unknown: bool = False
) -> tuple[list[tuple[str, bool]], dict[str, object]]:
    """Return the lines that are no attributes, and the fields that the others give.

    A line stays if its value is not legal, or if a line before it gave the same field. Tags of all lines are joined.

    Args:
        lines: Each line with True if it is code; code holds no attributes.
        keep_unknown: Also take unknown keys, as keys of ``metadata``.
    """
    kept: list[tuple[str, bool]] = []
    fields: dict[str, Any] = {}
    for line, is_code in lines:
        found = None if is_code or len(line) > _MAX_LINE_CHARS else _LINE.fullmatch(line)
        if not found or not _take_attribute(fields, found[2].strip().lower(), found[5], keep_unknown=keep_unknown):
            kept.append((line, is_code))
    return kept, fields


def _take_attribute(fields: dict[str, Any], key: str, value: str, *, keep_unknown: bool) -> bool:
    """Add an attribute to ``fields``; return False if its line stays in the text."""
    if key not in _FIELDS and not keep_unknown:
        return False
    field, parse = _FIELDS.get(key, (f"metadata.{key}", str))
    parsed = parse(value.strip().strip("`").strip())
    if key == "category" and (kind := guess_type(value)) is not None:
        fields.setdefault("memory_type", kind)
    if parsed is None:
        return False
    if field == "tags":
        fields["tags"] = list(dict.fromkeys([*fields.get("tags", ()), *parsed]))
        return True
    target = fields
    if field.startswith("metadata."):
        target, field = fields.setdefault("metadata", {}), field.removeprefix("metadata.")
    if field in target:
        return False
    target[field] = parsed
    return True


def valid_time(value: str) -> str | None:
    """Return ``value`` if it is a time that an import reads, else None."""
    try:
        FIELD_READERS["learned_at"]("learned_at", value)
    except InvalidMemoryError:
        return None
    return value


def _short_names(value: str) -> list[str] | None:
    """Return texts separated by commas if each is short enough for a name, else None."""
    names = [name.strip().strip("`#").strip() for name in value.strip("[]").split(",")]
    short = all(len(name.split()) <= _MAX_VALUE_WORDS for name in names)
    return [name for name in names if name] if short else None


def _single_paths(value: str) -> list[str] | None:
    paths = [path.strip().strip("`") for path in value.split(",")]
    return None if any(len(path.split()) != 1 for path in paths) else paths


def _short_text(value: str) -> str | None:
    return value if len(value.split()) <= _MAX_VALUE_WORDS else None


_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("date", "logged", "created", "learned", "recorded"), ("created_at", valid_time)),
    **dict.fromkeys(("type", "memory type", "memory_type", "kind"), ("memory_type", guess_type)),
    **dict.fromkeys(("tags", "tag", "keywords", "area", "category"), ("tags", _short_names)),
    **dict.fromkeys(
        ("priority", "severity", "importance"), ("importance", lambda value: _IMPORTANCE.get(value.lower()))
    ),
    **dict.fromkeys(("files", "file", "related files"), ("files", _single_paths)),
    "status": ("metadata.status", _short_text),
}
