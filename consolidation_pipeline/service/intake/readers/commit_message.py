"""What a commit message says: its text, its trailers, the kind of change and the scope."""

from __future__ import annotations

import re

# Lines that tools and reviewers add. Only these keys: a paragraph such as "Note: ..." is what the author has to say.
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


def split_trailers(body: str) -> tuple[str, dict[str, list[str]]]:
    """The body without lines such as ``Signed-off-by: ..``, and their values by key, e-mail addresses taken out."""
    kept: list[str] = []
    trailers: dict[str, list[str]] = {}
    for line in re.split(r"\r?\n", body):
        if trailer := _TRAILER.fullmatch(line):
            trailers.setdefault(trailer[1], []).append(without_addresses(trailer[2]))
        else:
            kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), trailers


def without_addresses(text: str) -> str:
    """``text`` without e-mail addresses; one that stands in place of a name leaves the part before the ``@``."""
    words = ((word, _ADDRESS.fullmatch(word)) for word in text.split())
    return " ".join(address[1] if address else word for word, address in words if not (address and word[0] == "<"))


def memory_type_of(subject: str) -> str:
    """The memory type of a commit by its subject's first telling whole word; ``change`` if none tells.

    "Add a test for the bug" adds, "Fix the added test" fixes; "prefix" and "address" say nothing. Conventional types
    that stand for upkeep (``chore:``, ``ci:``, ``test:``, ..) are changes, whatever words follow.
    """
    if _CHORE.match(subject):
        return "change"
    found = _TYPES.search(subject[:_SUBJECT_CHARS])
    return (found and found.lastgroup) or "change"


def scopes_of(subject: str) -> list[str]:
    """The scopes of a conventional commit: ``fix(api, cli): ..`` -> ``["api", "cli"]``; empty for other subjects."""
    scope = _SCOPE.match(subject)
    return [name.strip() for name in scope[1].split(",") if name.strip()] if scope else []
