"""Markup of quoted statements: emphasis and heading signs are taken off, asterisks of arithmetic stay."""

from __future__ import annotations

import re

# Pairs around words: "**bold**", "*italic*", "__bold text__"; not "2 * x", "2**3" or "__init__".
_PAIRS = (
    re.compile(r"(?<![\w*)\]])\*\*(?=[^\s*])([^*\n]*[^\s*])\*\*(?![\w*(])"),
    re.compile(r"(?<![\w*)\]])\*(?=[^\s*])([^*\n]*[^\s*])\*(?![\w*(])"),
    re.compile(r"(?<!\w)__(?=[^\s_])([^_\n]* [^_\n]*)__(?!\w)"),
)
# A heading sign, and a bold opening that was cut before its end.
_OPENING = re.compile(r"^\W*#+\s+|^\s*\*\*(?=\w)")
# "feat(api): add x" and "fix: y": how changes are named.
_COMMIT = re.compile(
    r"^(?:(?:feat|fix|docs?|chore|refactor|perf|build|ci|style|tests?|wip)\b)?\s?(?:\(([\w ,./+&-]+)\))?!?:\s+", re.I
)


def strip_markup(text: str) -> str:
    """Return a statement without heading signs and emphasis."""
    for pair in _PAIRS:
        text = pair.sub(r"\1", text)
    return _OPENING.sub("", text, count=1).strip() or text


def strip_commit_prefix(text: str) -> str:
    """Return a commit subject without its kind: "feat(api): add x" gives "Api: add x"."""
    bare = _COMMIT.sub(lambda match: f"{match[1][:1].upper()}{match[1][1:]}: " if match[1] else "", text) or text
    first = bare.split(maxsplit=1)[0]
    return bare[:1].upper() + bare[1:] if bare != text and first.isalpha() and first.islower() else bare
