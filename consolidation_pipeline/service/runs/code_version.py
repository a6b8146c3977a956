"""Version of the program: that of the package, and a digest of its sources."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[2]
# Code, and the word lists and labelled pairs that decisions follow.
_SUFFIXES = {".py", ".toml", ".jsonl"}


@cache
def describe_code() -> dict[str, str]:
    """Return ``version`` of the package and ``digest``, the SHA-256 of its source files."""
    digest = sha256()
    for path in sorted(_PACKAGE.rglob("*")):
        if path.suffix in _SUFFIXES and "installed" not in path.relative_to(_PACKAGE).parts:
            digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0".encode())
            digest.update(sha256(path.read_bytes()).digest())
    return {"version": version("consolidation-pipeline"), "digest": digest.hexdigest()}
