"""Memories with known facts: what a system gets, and what its result is judged by."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

# Before it a sentence ends. In Chinese and Japanese no space follows.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")


@dataclass(frozen=True)
class Memory:
    """A memory as a system gets it. ``created_at``: ISO 8601 with time zone."""

    id: str
    user: str
    text: str
    created_at: str
    language: str = "en"


@dataclass(frozen=True)
class Fact:
    """A fact of a user.

    A text tells the fact if one of its sentences matches every pattern, or if the text contains one of ``wordings``.
    """

    id: str
    user: str
    patterns: tuple[str, ...] = ()
    wordings: tuple[str, ...] = ()

    @cached_property
    def _compiled(self) -> list[re.Pattern[str]]:
        return [re.compile(pattern, re.IGNORECASE) for pattern in self.patterns]

    def is_told_by(self, text: str) -> bool:
        """Return True if the text tells the fact."""
        folded = squeeze(text)
        if any(squeeze(wording) in folded for wording in self.wordings):
            return True
        parts = _SENTENCE_END.split(re.sub(r"[ \t]+", " ", text)) if self.patterns else []
        return any(all(pattern.search(part) for pattern in self._compiled) for part in parts)


class NearMiss(NamedTuple):
    """Two facts that differ in one thing, which is named by the class.

    ``both_hold``: both can be true at a time. Else the newer one may or may not have replaced the other.
    """

    difference: str
    language: str
    first: str
    second: str
    both_hold: bool = True


class Duplicate(NamedTuple):
    """Two memories that tell the same facts. ``kind``: exact, light or reworded."""

    kind: str
    language: str
    first: str
    second: str


class Replacement(NamedTuple):
    """Two memories. ``is_replaced``: the newer one says that the older one holds no longer; else both hold."""

    language: str
    older: str
    newer: str
    is_replaced: bool


class Question(NamedTuple):
    """A question of a user that a text answers if it tells the fact."""

    user: str
    text: str
    fact: str


@dataclass(frozen=True)
class Dataset:
    """Memories in the order of their creation, and what is known about them. ``tells``: facts by memory."""

    name: str
    memories: list[Memory] = field(default_factory=list)
    facts: dict[str, Fact] = field(default_factory=dict)
    tells: dict[str, frozenset[str]] = field(default_factory=dict)
    near_misses: list[NearMiss] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    replacements: list[Replacement] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    @cached_property
    def replaced(self) -> dict[str, str]:
        """Memories that hold no longer, with the memory that says so."""
        return {pair.older: pair.newer for pair in self.replacements if pair.is_replaced}

    @cached_property
    def exclusive(self) -> set[frozenset[str]]:
        """Pairs of facts that cannot both be true."""
        return {frozenset((pair.first, pair.second)) for pair in self.near_misses if not pair.both_hold}

    @cached_property
    def created(self) -> dict[str, str]:
        """Time of each memory."""
        return {memory.id: memory.created_at for memory in self.memories}

    @cached_property
    def current_facts(self) -> list[Fact]:
        """Facts that some memory tells which was not replaced."""
        told = {fact for memory, facts in self.tells.items() if memory not in self.replaced for fact in facts}
        return [fact for id_, fact in self.facts.items() if id_ in told]


def squeeze(text: str) -> str:
    """Return the text in lower case with single spaces."""
    return " ".join(text.casefold().split())


def match_values(values: Iterable[str]) -> tuple[str, ...]:
    """Return a pattern for each value, which matches it as a whole: 418 not in 4180, 3.8 not in 3.8.2."""
    return tuple(rf"(?<![0-9A-Za-z.:]){re.escape(value)}(?![0-9A-Za-z]|[.:][0-9])" for value in values)
