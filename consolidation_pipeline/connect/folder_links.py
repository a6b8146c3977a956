"""Links of an index to notes: changed when notes are replaced by one, and changed back line by line."""

from __future__ import annotations

import os.path
import re
from collections.abc import Collection
from difflib import SequenceMatcher
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

# [title](path), [title](<path with spaces>), [[name]], or a path that stands alone.
_LINK = re.compile(
    r"(?<=\]\()(?:<(?P<bracketed>[^<>\n]+)>|(?P<path>[^)>\s]+))|(?<=\[\[)(?P<name>[^\]|#]+)"
    r"|(?<![\w/.~-])(?P<bare>[\w./~-]+\.md)\b"
)


def find_links(text: str, index: str, paths: Collection[str]) -> set[str]:
    """Return those of ``paths`` that an index links to. Paths are relative to the connected folder."""
    return {found for match in _LINK.finditer(text) if (found := _resolve(match, index, paths)) is not None}


def relink(text: str, index: str, hidden: Collection[str], successor: str | None) -> str:
    """Return an index whose links to hidden notes lead to their successor; one line for it is enough.

    Args:
        successor: None = lines with links to hidden notes are removed.
    """
    lines = split_lines(text)
    touched = [bool(find_links(line, index, hidden)) for line in lines]
    if successor is None:
        return "".join(line for line, is_touched in zip(lines, touched, strict=True) if not is_touched)
    has_line = any(
        find_links(line, index, [successor]) for line, is_touched in zip(lines, touched, strict=True) if not is_touched
    )
    kept = []
    for line, is_touched in zip(lines, touched, strict=True):
        if not is_touched:
            kept.append(line)
            continue
        others = [each for each in _LINK.finditer(line) if _resolve(each, index, hidden) is None]
        if has_line and not others:
            continue
        kept.append(_LINK.sub(lambda match: _replace(match, index, hidden, successor), line))
        has_line = True
    return "".join(kept)


def _resolve(match: re.Match[str], index: str, paths: Collection[str]) -> str | None:
    """Return which of ``paths`` a link leads to; None = to something else."""
    if match["name"] is not None:
        name = match["name"].strip()
        return next((path for path in sorted(paths) if name in (path, PurePosixPath(path).stem)), None)
    target = unquote((match["bracketed"] or match["path"] or match["bare"]).partition("#")[0])
    path = os.path.normpath(str(PurePosixPath(index).parent / target))
    return path if path in paths else None


def _replace(match: re.Match[str], index: str, hidden: Collection[str], successor: str) -> str:
    if _resolve(match, index, hidden) is None:
        return match[0]
    if match["name"] is not None:
        return PurePosixPath(successor).stem
    path = os.path.relpath(successor, PurePosixPath(index).parent)
    if match["bracketed"] is not None:
        return f"<{re.sub('[<>%]', lambda each: quote(each[0]), path)}>"
    return quote(path, safe="/~") if match["path"] is not None else path


def merge_lines(present: str, after: str, before: str) -> str:
    """Return ``present`` with the lines that a change from ``before`` to ``after`` touched put back.

    Lines that somebody else added, removed or edited since stay as they are.
    """
    old, new, now = split_lines(after), split_lines(before), split_lines(present)
    place = {}
    for start, at, size in SequenceMatcher(None, old, now, autojunk=False).get_matching_blocks():
        place.update({start + step: at + step for step in range(size)})
    edits = []
    for tag, start, end, first, last in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            gone = [place[number] for number in range(start, end) if number in place]
            following = gone[0] if gone else place.get(end)
            if following is None:
                following = place[start - 1] + 1 if start - 1 in place else len(now)
            edits.append((following, gone, new[first:last]))
    for at, gone, lines in sorted(edits, key=lambda edit: edit[0], reverse=True):
        for number in sorted(gone, reverse=True):
            del now[number]
        now[at:at] = lines
    return "".join(line if line.endswith("\n") or line is now[-1] else f"{line}\n" for line in now)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their line feeds."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
