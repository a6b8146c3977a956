"""Front matter of Markdown files: YAML between two lines of three hyphens."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import yaml

# Longer front matter is no description of a note.
MAX_CHARS = 20_000

_LINE = re.compile(r"([A-Za-z][\w .-]{0,60}?)[ \t]*:(?:[ \t]+(.*))?")
_HEADER = re.compile(r"(?:[a-z_]+:[ \t][^\n]*\n)+\n*")
_PATTERN = re.compile(r"^([\w-]+:[ \t]+)(\*[^\n\"\\]*)$", re.M)
_KEY = re.compile(r"[\w .-]{1,60}:(\s|$)|#")


@dataclass(frozen=True)
class FrontMatter:
    """Front matter of a text. ``lines``: its length with both marks, 0 without any; ``problem``: why it is no YAML."""

    values: dict[str, Any]
    lines: int = 0
    problem: str | None = None


def read_front_matter(text: str) -> FrontMatter:
    """Return the front matter of ``text``, whose lines end in line feeds.

    What is not YAML is told as ``problem`` and read line by line as ``key: value``. A text that begins with a rule of
    three hyphens has no front matter.
    """
    lines = text.split("\n", 1 + MAX_CHARS // 2)
    if lines[0].rstrip() != "---":
        return FrontMatter({})
    inside = next((line for line in lines[1:] if line.strip()), "")
    marks = (number for number, line in enumerate(lines[1:], start=1) if line.rstrip() in ("---", "..."))
    end = next(marks, 0)
    if not end or (inside != lines[end] and not _KEY.match(inside)):
        return FrontMatter({})
    block = "\n".join(lines[1:end])
    if len(block) > MAX_CHARS:
        return FrontMatter({}, end + 1, f"is longer than {MAX_CHARS:,} characters and was left out")
    return _parse(block, end + 1)


def read_header(text: str) -> FrontMatter:
    """Return the lines ``key: value`` at the beginning of a text as front matter, as Codex writes them."""
    header = _HEADER.match(text)
    if not header:
        return FrontMatter({})
    pairs = [line.partition(":") for line in header[0].split("\n") if line.strip()]
    return FrontMatter({key: value.strip() for key, _, value in pairs}, header[0].count("\n"))


def _parse(block: str, count: int) -> FrontMatter:
    try:
        # Cursor writes patterns such as ``globs: *.ts`` without quotes.
        values = _load(_PATTERN.sub(r'\1"\2"', block))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 2})" if mark else ""
        problem = f"is no YAML{where}; its lines of the form key: value were read"
        found = (_LINE.fullmatch(line.rstrip()) for line in block.split("\n"))
        plain = {match[1]: (match[2] or "").strip().strip("\"'") for match in found if match}
        return FrontMatter(plain, count, problem)
    if values is None:
        return FrontMatter({}, count)
    if not isinstance(values, dict):
        return FrontMatter({}, count, "is no list of keys and values and was left out")
    return FrontMatter({str(key): _to_json(value) for key, value in values.items()}, count)


def _load(block: str) -> Any:
    # An alias is short and may stand for an endless text.
    if "*" in block and any(isinstance(one, yaml.AliasEvent) for one in yaml.parse(block, yaml.SafeLoader)):
        raise ValueError("names of anchors are not allowed")
    return yaml.safe_load(block)


def _to_json(value: Any) -> Any:
    """Return a value of YAML as one of JSON: times as ISO 8601, whatever else JSON lacks as text."""
    if isinstance(value, dict):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_to_json(item) for item in value]
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def flatten_metadata(values: dict[str, Any]) -> dict[str, Any]:
    """Return front matter with the keys below ``metadata`` on the level of the others, as Claude Code writes it."""
    inner = values.get("metadata")
    if not isinstance(inner, dict):
        return values
    return {**inner, **{key: value for key, value in values.items() if key != "metadata"}}


def take_first(values: dict[str, Any], keys: tuple[str, ...], read: Callable[[Any], Any]) -> Any:
    """Remove from ``values`` the first of ``keys`` whose value ``read`` accepts, and return it; None if none is."""
    for key in keys:
        if key in values and (found := read(values[key])) is not None:
            del values[key]
            return found
    return None
