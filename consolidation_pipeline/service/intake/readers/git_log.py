"""Reader of a git repository's history: one row per commit, oldest first."""

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
from consolidation_pipeline.service.intake.readers.rows import BadRow, Row

# sha, author by .mailmap, author date, decoration, subject, body. A NUL ends each, as no part can hold one.
_FORMAT = "format:" + "".join(f"{part}%x00" for part in ("%H", "%aN", "%aI", "%D", "%s", "%b"))
_PARTS = 6
_LOG = (
    *("--no-pager", "-c", "log.showSignature=false", "-c", "log.showRoot=true", "-c", "diff.relative=false", "log"),
    *("--reverse", "--no-merges", "--name-only", "--no-renames", "--no-ext-diff", "--no-color", "-z"),
    *("--encoding=UTF-8", "--decorate-refs-exclude=*", f"--format={_FORMAT}"),
)
# git sets these variables while it runs a hook. They would make it read another repository.
_REPOSITORY_VARIABLES = {
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_GRAFT_FILE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_SHALLOW_FILE", "GIT_CONFIG_PARAMETERS"),
}
_CHUNK_BYTES = 1 << 16

# Lines that tools and reviewers add. Only these keys: a paragraph such as "Note: ..." is the author's text.
_TRAILER = re.compile(
    r"((?:[a-z]+-)+by|cc|change-id|git-svn-id|[a-z]+-revid|reviewed-on|commit-queue|auto-submit)\s*:\s*(\S.*)", re.I
)
_ADDRESS = re.compile(r"<?([^\s<>@/]+)@[^\s<>@/]+>?[,;]?")
_SCOPE = re.compile(r"\w+\(([^()]+)\)!?:\s")
_CHORE = re.compile(r"(?:build|chore|ci|perf|release|style|tests?|wip)(?:\([^()]*\))?!?:", re.I)
_TYPE_WORDS = {
    "bugfix": r"(?:bug-?|hot-?)?fix(?:e[sd]|ing)?|bugs?",
    "feature": r"feat|features?|add(?:s|ed|ing)?|implement(?:s|ed|ing|ation)?|introduc(?:e[sd]?|ing)",
    "refactor": r"refactor(?:s|ed|ing)?|clean(?:s|ed|ing)?[ -]?up|renam(?:e[sd]?|ing)|simplif(?:y|ies|ied|ying)",
    "warning": r"revert(?:s|ed|ing)?|deprecat(?:e[sd]?|ing|ion)|warn(?:s|ed|ings?)?",
    "codebase_knowledge": r"docs?|document(?:s|ed|ing|ation)?|explain(?:s|ed|ing)?",
    "decision": r"decid(?:e[sd]?|ing)|choos(?:es?|ing)|chose|switch(?:es|ed|ing)? to|uses?\b.+\binstead of",
}
_TYPES = re.compile(
    r"(?<![\w-])(?:" + "|".join(f"(?P<{kind}>{words})" for kind, words in _TYPE_WORDS.items()) + r")(?![\w-])", re.I
)
_SUBJECT_CHARS = 200


def read_git(path: str | Path) -> Iterator[Row | BadRow]:
    """Yield one row per commit of the repository at ``path``, without merges; ``line`` counts from 1, the oldest.

    ``git log`` is streamed, and is killed when the generator is closed. A history that cannot be read to its end ends
    in a BadRow.

    Raises:
        UsageError: git is not installed, ``path`` is not a repository, or it has no commits.
    """
    line = 0
    with tempfile.TemporaryFile() as errors, _start_log(Path(path), errors) as log:
        try:
            for line, (parts, files) in enumerate(_split_commits(_read_tokens(log.stdout)), start=1):
                yield Row(line, _build_fields(parts, files))
            failed = log.wait() != 0
        finally:
            log.kill()
        reason = f"git cannot read the history of {path}: {_read_error(errors)}" if failed else None
    if reason and not line:
        raise UsageError(reason)
    if reason:
        yield BadRow(line + 1, reason)


def _start_log(path: Path, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    # Errors go to a file: a pipe that is not read while rows are consumed would fill up and block git.
    try:
        return subprocess.Popen(
            ["git", "-C", str(path), *_LOG],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
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
        # Allow another user's repository: `git log` executes nothing of it.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": str(path.resolve()),
        # A partial clone would fetch missing objects by commands of its own configuration.
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _read_tokens(stream: IO[bytes] | None) -> Iterator[str]:
    rest = b""
    while stream and (chunk := stream.read(_CHUNK_BYTES)):
        *complete, rest = (rest + chunk).split(b"\0")
        yield from (token.decode("utf-8", "replace") for token in complete)


def _split_commits(tokens: Iterator[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the parts and the files of each commit."""
    # A line feed stands before the first file, and an empty token after the files of all commits but the last.
    while len(parts := list(islice(tokens, _PARTS))) == _PARTS:
        files = list(takewhile(bool, tokens))
        yield parts, [files[0].removeprefix("\n"), *files[1:]] if files else []


def _build_fields(parts: list[str], files: list[str]) -> dict[str, object]:
    sha, author, authored_at, decoration, subject, body = parts
    text, trailers = split_trailers(body)
    metadata: dict[str, object] = {"commit": sha}
    return {
        "id": sha,
        "content": f"{subject}\n\n{text}".strip(),
        "memory_type": guess_commit_type(subject),
        "tags": parse_scopes(subject),
        # For the oldest commit of a shallow clone git lists the whole tree.
        "files": [] if "grafted" in decoration.split(", ") else files,
        "success": True,
        "user_id": strip_addresses(author),
        "session_id": None,
        "created_at": authored_at,
        "metadata": metadata | {"trailers": trailers} if trailers else metadata,
    }


def _read_error(errors: IO[bytes]) -> str:
    errors.seek(0)
    text = errors.read().decode("utf-8", "replace")
    fatal = re.search(r"^(?:fatal|error): (.+)", text, re.M)
    return fatal[1] if fatal else text.strip() or "git failed without a message"


def split_trailers(body: str) -> tuple[str, dict[str, list[str]]]:
    """Return the body without trailers such as ``Signed-off-by: ..``, and their values by key without addresses."""
    kept: list[str] = []
    trailers: dict[str, list[str]] = {}
    for line in re.split(r"\r?\n", body):
        if trailer := _TRAILER.fullmatch(line):
            trailers.setdefault(trailer[1], []).append(strip_addresses(trailer[2]))
        else:
            kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), trailers


def strip_addresses(text: str) -> str:
    """Return ``text`` without e-mail addresses in angle brackets; others keep the part before the ``@``."""
    words = ((word, _ADDRESS.fullmatch(word)) for word in text.split())
    return " ".join(address[1] if address else word for word, address in words if not (address and word[0] == "<"))


def guess_commit_type(subject: str) -> str:
    """Return the memory type by the first known whole word of a commit's subject; ``change`` if there is none.

    "Add a test for the bug" is a feature, "Fix the added test" a bugfix. "prefix" and "address" match nothing.
    Conventional types of upkeep (``chore:``, ``ci:``, ``test:``, ..) are changes, whatever words follow.
    """
    if _CHORE.match(subject):
        return "change"
    found = _TYPES.search(subject[:_SUBJECT_CHARS])
    return (found and found.lastgroup) or "change"


def parse_scopes(subject: str) -> list[str]:
    """Return the scopes of a conventional commit: ``fix(api, cli): ..`` -> ``["api", "cli"]``; else an empty list."""
    scope = _SCOPE.match(subject)
    return [name.strip() for name in scope[1].split(",") if name.strip()] if scope else []
