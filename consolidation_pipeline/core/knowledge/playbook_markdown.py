"""Playbook as a Markdown document for the instructions of an agent."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.knowledge.playbook import CATEGORIES, GENERAL

# Digits of an id that are shown. Twelve are unique in practice, and `consolidation lineage` accepts such a prefix.
ID_DIGITS = 12

# Beginnings of a line that start a block or end a paragraph (CommonMark 0.31, and the tables of GFM).
_BLOCK = re.compile(
    r"#{1,6}(?=\s|$)|[-+*](?=\s|$)|[>|]|<(?=[a-z!/?])|\[(?=[^\]]*\]:)|`{3}|~{3}"
    r"|=+\s*$|:?-+[-:|\s]*$|(?:[*_]\s*){3,}$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(\d{1,9})([.)])(?=\s|$)")


@dataclass(frozen=True)
class Instruction:
    """An entry as the document shows it.

    ``evidence``: number of memories behind it. ``writers``: number of their independent writers. ``seen``: how often
    and when memories say it; empty if that is not known.
    """

    id: UUID
    content: str
    category: str
    priority: int
    evidence: int
    writers: int
    seen: str = ""


def playbook_document(slug: str, entries: Iterable[Instruction]) -> str:
    """Return the document: one chapter per category, its entries by priority, highest first; ties: by id.

    Categories are in the order of ``CATEGORIES``, unknown ones before the last. Text that would start a Markdown block
    is escaped, so that it stays inside its list item.
    """
    chapters: dict[str, list[Instruction]] = {}
    for entry in sorted(entries, key=lambda one: (-one.priority, one.id)):
        chapters.setdefault(entry.category, []).append(entry)
    lead = (
        f"# Playbook of {slug}\n\n"
        "Learned from past work; in each chapter the most urgent first. In brackets: how many memories of how many\n"
        "independent writers are behind it, and an id; `consolidation lineage ID` shows those memories. Then how many\n"
        "of them say it alike, and when.\n"
    )
    return "\n".join([lead, *(_chapter(name, chapters[name]) for name in sorted(chapters, key=_chapter_order))])


def _chapter_order(category: str) -> tuple[int, str]:
    known = CATEGORIES.index(category) if category in CATEGORIES else CATEGORIES.index(GENERAL) - 0.5
    return int(2 * known), category


def _chapter(name: str, entries: Iterable[Instruction]) -> str:
    return "\n".join([f"## {_one_line(name).capitalize()}", "", *map(_item, entries), ""])


def _item(entry: Instruction) -> str:
    lines = [_escape_block(line) for line in map(_one_line, entry.content.splitlines()) if line]
    noun = "memory" if entry.evidence == 1 else "memories"
    writers = "1 writer" if entry.writers == 1 else f"{entry.writers} writers"
    behind = f"{entry.evidence} {noun} of {writers}, {entry.id.hex[:ID_DIGITS]}"
    seen = entry.seen[:1].lower() + entry.seen[1:].removesuffix(".")
    return "- " + "\n  ".join([*lines, f"({'; '.join(filter(None, (behind, seen)))})"])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _escape_block(line: str) -> str:
    """Return the line, escaped if it would start a block."""
    line = _NUMBER.sub(r"\1\\\2", line, count=1) if _NUMBER.match(line) else line
    return "\\" + line if _BLOCK.match(line) else line
