"""Changes of files as a patch that ``git apply`` and ``patch -p1`` accept."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class FileChange:
    """Content of a file before and after a change; None = there is no file. ``mode``: its permission bits."""

    before: bytes | None
    after: bytes | None
    mode: int = 0o644


def format_patch(changes: Mapping[str, FileChange], prefix: str) -> bytes:
    """Return the changes by path as a patch.

    Args:
        prefix: Path of the folder in its git work tree, with a slash at the end.
    """
    return b"".join(_format(prefix + path, change) for path, change in sorted(changes.items()))


def _format(path: str, change: FileChange) -> bytes:
    old, new = _quote(f"a/{path}"), _quote(f"b/{path}")
    mode = f"100{0o755 if change.mode & 0o100 else 0o644:o}"
    lines = [f"diff --git {old} {new}"]
    if change.before is None:
        lines.append(f"new file mode {mode}")
        old = "/dev/null"
    if change.after is None:
        lines.append(f"deleted file mode {mode}")
        new = "/dev/null"
    head = "\n".join(lines).encode() + b"\n"
    body = difflib.diff_bytes(
        difflib.unified_diff,
        _split(change.before),
        _split(change.after),
        _end(old).encode(),
        _end(new).encode(),
        lineterm=b"\n",
    )
    marked = (line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in body)
    return head + b"".join(marked)


def _split(data: bytes | None) -> list[bytes]:
    parts = (data or b"").split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _quote(path: str) -> str:
    """Return a path in the quotes of git if it has signs that need them."""
    if not any(sign in path for sign in '"\\'):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _end(path: str) -> str:
    """Return a path with a tab after it if it has spaces, so that its end is seen."""
    return path + "\t" if " " in path else path
