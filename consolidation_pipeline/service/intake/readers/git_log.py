"""A git repository's history: one row per commit, oldest first."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import IO

from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.intake.readers.commit_message import (
    memory_type_of,
    scopes_of,
    split_trailers,
    without_addresses,
)
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

# sha, author by .mailmap, author date, decoration, subject, body: no part can hold a NUL, so each ends with one.
_FORMAT = "format:" + "".join(f"{part}%x00" for part in ("%H", "%aN", "%aI", "%D", "%s", "%b"))
_PARTS = 6
_LOG = (
    *("--no-pager", "-c", "log.showSignature=false", "-c", "log.showRoot=true", "-c", "diff.relative=false", "log"),
    *("--reverse", "--no-merges", "--name-only", "--no-renames", "--no-ext-diff", "--no-color", "-z"),
    *("--encoding=UTF-8", "--decorate-refs-exclude=*", f"--format={_FORMAT}"),
)
# Set while git runs a hook, they would point it at another repository than the one asked for.
_REPOSITORY_VARIABLES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_GRAFT_FILE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_CONFIG_PARAMETERS"),
}
_CHUNK_BYTES = 1 << 16


def read_git(path: str | Path) -> Iterator[Row | BadRow]:
    """One row per commit of the repository at ``path`` that is no merge; ``line`` is its ordinal, 1 = the oldest.

    Streams ``git log``, which ends with the generator. History that breaks off ends in a BadRow.
    Raises UsageError when git is not installed, ``path`` is no repository, or it has no commits.
    """
    line = 0
    with tempfile.TemporaryFile() as complaints, _start_log(Path(path), complaints) as log:
        try:
            for line, (parts, files) in enumerate(_split_commits(_tokens(log.stdout)), start=1):
                yield Row(line, _fields(parts, files))
            failed = log.wait() != 0
        finally:
            log.kill()
        reason = f"git cannot read the history of {path}: {_complaint(complaints)}" if failed else None
    if reason and not line:
        raise UsageError(reason)
    if reason:
        yield BadRow(line + 1, reason)


def _start_log(path: Path, complaints: IO[bytes]) -> subprocess.Popen[bytes]:
    # Complaints go to a file: a pipe that nobody reads while rows are consumed would fill up and stop git.
    try:
        return subprocess.Popen(
            ["git", "-C", str(path), *_LOG],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=_environment(path),
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed or not on PATH; it is needed to read a repository's history") from error


def _environment(path: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _REPOSITORY_VARIABLES}
    return inherited | {
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        # Reading a colleague's or a mounted repository is legitimate: nothing of it is executed ..
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": str(path.resolve()),
        # .. as long as a partial clone does not fetch what it lacks with commands from its own configuration.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _tokens(stream: IO[bytes] | None) -> Iterator[str]:
    rest = b""
    while stream and (chunk := stream.read(_CHUNK_BYTES)):
        *complete, rest = (rest + chunk).split(b"\0")
        yield from (token.decode("utf-8", "replace") for token in complete)


def _split_commits(tokens: Iterator[str]) -> Iterator[tuple[list[str], list[str]]]:
    # Of each commit come its parts, its files (the first behind a line feed) and an empty token, which the last lacks.
    while len(parts := list(islice(tokens, _PARTS))) == _PARTS:
        files = list(takewhile(bool, tokens))
        yield parts, [files[0].removeprefix("\n"), *files[1:]] if files else []


def _fields(parts: list[str], files: list[str]) -> dict[str, object]:
    sha, author, authored_at, decoration, subject, body = parts
    text, trailers = split_trailers(body)
    metadata: dict[str, object] = {"commit": sha}
    return {
        "id": sha,
        "content": f"{subject}\n\n{text}".strip(),
        "memory_type": memory_type_of(subject),
        "tags": scopes_of(subject),
        # Where a shallow clone ends, git lists the whole tree as if that commit had written it.
        "files": [] if "grafted" in decoration.split(", ") else files,
        "success": True,
        "user_id": without_addresses(author),
        "session_id": None,
        "created_at": authored_at,
        "metadata": metadata | {"trailers": trailers} if trailers else metadata,
    }


def _complaint(complaints: IO[bytes]) -> str:
    complaints.seek(0)
    text = complaints.read().decode("utf-8", "replace")
    fatal = re.search(r"^(?:fatal|error): (.+)", text, re.M)
    return fatal[1] if fatal else text.strip() or "git ended without saying why"
