"""Patterns of risky texts, compiled from ``risk_phrases.toml``, which explains its notation."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

# Between two words, and up to six words between them: in one sentence.
_SPACE = r"[^\w.!?]+"
_GAP = rf"(?:{_SPACE}\w[\w'@/-]*){{0,6}}?{_SPACE}"
_FRAGMENT = re.compile(r"<([a-z_]+)>")


@cache
def _load() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("risk_phrases.toml").read_text("utf-8"))


def _any_of(patterns: Sequence[str]) -> str:
    """Return a pattern of these alternatives, with the fragments that they name."""
    return _FRAGMENT.sub(_insert_fragment, "|".join(f"(?:{pattern})" for pattern in patterns))


def _insert_fragment(match: re.Match[str]) -> str:
    fragments = _load()["fragments"]
    # Other text in angle brackets, such as the name of a group or a tag, stays.
    return "(?:" + "|".join(fragments[match[1]]) + ")" if match[1] in fragments else match[0]


@cache
def phrases(kind: str) -> re.Pattern[str]:
    """Return the pattern of the phrases of a kind in all languages, for folded text."""
    listed = [pattern for language in _load()["phrases"].values() for pattern in language.get(kind, ())]
    return re.compile(_any_of(listed).replace("~", _GAP).replace("_", _SPACE))


@cache
def forms(kind: str) -> re.Pattern[str]:
    """Return the pattern of the forms of a kind, for text as it is written."""
    return re.compile(_any_of(_load()["forms"][kind]), re.MULTILINE)


@cache
def negation() -> re.Pattern[str]:
    """Return the pattern of words that forbid what follows them in their clause, for folded text."""
    return re.compile(_load()["negation"])


_SENTENCE_END = re.compile(r"(?<=[.!?。！？;；])\s*")


def find_sensitive(folded: str) -> str | None:
    """Return the first sentence that tells to do something to money, access, safeguards, private or valuable data."""
    for sentence in _SENTENCE_END.split(folded):
        if any(subject.search(sentence) and action.search(sentence) for subject, action in _sensitive_pairs()):
            return sentence
    return None


def find_delicate(folded: str) -> str | None:
    """Return the first word of a subject on which a person decides, such as money, access or releases."""
    match = _delicate_words().search(folded)
    return match[0] if match else None


@cache
def _delicate_words() -> re.Pattern[str]:
    return _compile_words(_load()["subjects"]["delicate"])


@cache
def _sensitive_pairs() -> Sequence[tuple[re.Pattern[str], re.Pattern[str]]]:
    return [(_compile_words(pair["subject"]), _compile_words(pair["action"])) for pair in _load()["sensitive"]]


def _compile_words(words: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of whole words; Chinese and Japanese words have no borders."""
    spaced = [word for word in words if word.isascii()]
    others = [word for word in words if not word.isascii()]
    return re.compile("|".join([rf"\b(?:{'|'.join(spaced)})\b", *others]))
