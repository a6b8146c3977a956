"""The playbook as Markdown, to be pasted into an agent's instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.knowledge.playbook import CATEGORIES, GENERAL

# Digits of an id that are shown: two memories do not have the same 12 by chance, and `lineage` takes such a beginning.
ID_DIGITS = 12

# What begins a block, or ends a paragraph, at the beginning of a line (CommonMark 0.31 and the tables of GFM).
_BLOCK = re.compile(
    r"#{1,6}(?=\s|$)|[-+*](?=\s|$)|[>|]|<(?=[a-z!/?])|\[(?=[^\]]*\]:)|`{3}|~{3}"
    r"|=+\s*$|:?-+[-:|\s]*$|(?:[*_]\s*){3,}$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(\d{1,9})([.)])(?=\s|$)")


@dataclass(frozen=True)
class Instruction:
    """An entry as the document shows it. ``evidence``: how many memories bear it out."""

    id: UUID
    content: str
    category: str
    priority: int
    evidence: int


def playbook_document(slug: str, entries: Iterable[Instruction]) -> str:
    """The entries by category in the order of ``CATEGORIES``, unknown ones before the last, then by priority and id.

    Whatever an entry says stays inside its list item.
    """
    chapters: dict[str, list[Instruction]] = {}
    for entry in sorted(entries, key=lambda one: (-one.priority, one.id)):
        chapters.setdefault(entry.category, []).append(entry)
    lead = (
        f"# Playbook of {slug}\n\n"
        "Learned from past work; in each chapter the most urgent first. In brackets: how many memories bear it out,\n"
        "and an id; `consolidation lineage ID` shows those memories.\n"
    )
    return "\n".join([lead, *(_chapter(name, chapters[name]) for name in sorted(chapters, key=_place))])


def _place(category: str) -> tuple[int, str]:
    known = CATEGORIES.index(category) if category in CATEGORIES else CATEGORIES.index(GENERAL) - 0.5
    return int(2 * known), category


def _chapter(name: str, entries: Iterable[Instruction]) -> str:
    return "\n".join([f"## {_one_line(name).capitalize()}", "", *map(_item, entries), ""])


def _item(entry: Instruction) -> str:
    lines = [_inert(line) for line in map(_one_line, entry.content.splitlines()) if line]
    noun = "memory" if entry.evidence == 1 else "memories"
    return "- " + "\n  ".join([*lines, f"({entry.evidence} {noun}, {entry.id.hex[:ID_DIGITS]})"])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _inert(line: str) -> str:
    """A line that begins nothing but text."""
    line = _NUMBER.sub(r"\1\\\2", line, count=1) if _NUMBER.match(line) else line
    return "\\" + line if _BLOCK.match(line) else line
