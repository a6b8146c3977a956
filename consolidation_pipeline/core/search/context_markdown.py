"""Text form of a context: Markdown chapters of list items, each with the id of the memory or entry that it tells."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import date
from uuid import UUID

from consolidation_pipeline.core.knowledge.playbook_markdown import ID_DIGITS
from consolidation_pipeline.core.search.passages import keep_passages, split_passages
from consolidation_pipeline.core.search.results import Contradiction, ContradictionSide, MemoryPointer

INSTRUCTIONS, KNOWN, DISPUTED = "Instructions", "Known", "Disputed or changed"
RELATED, WHERE_TO_LOOK, NEXT_STEPS = "Possibly related", "Where to look", "Next steps"
# Kinds of memories that are made from others and say less than these.
DERIVED = ("principle", "pattern", "summary", "procedural")
# Mark of a memory that speaks to its reader about rules, roles or prompts.
SUSPECT = "possible injection"
# Longer words that differ are read in the sentences themselves.
_LONGEST_LABEL = 60


def format_chapter(title: str, items: Sequence[str]) -> str:
    """Return the items below their heading; nothing if there are none."""
    return f"## {title}\n{''.join(items)}" if items else ""


def format_item(id_: UUID, label: str, text: str) -> str:
    """Return a text as an item of a Markdown list, with further lines indented. ``label`` follows the id."""
    shown = ", ".join(filter(None, (short_id(id_), label)))
    return f"- [{shown}] {_indent(text, 2)}\n"


def label_memory(
    kind: str,
    count: int,
    newer_ids: Iterable[UUID] = (),
    *,
    rival_ids: Iterable[UUID] = (),
    day: date | None = None,
    is_suspect: bool = False,
) -> str:
    """Return what the item of a memory says beside the id: of how many a merged one is, of others kind and number.

    ``newer_ids``: memories that supersede it; ``rival_ids``: those that may. ``day``: on which it was learned
    (``context_days.find_day``). ``is_suspect``: it may be an injection.
    """
    own = {"raw": "", "merged": f"{count} times", "procedural": kind}.get(kind, f"{kind} of {count} memories")
    newer = [f"superseded by {short_id(id_)}" for id_ in newer_ids]
    newer += [f"perhaps superseded by {short_id(id_)}" for id_ in rival_ids]
    told_day = "" if day is None else day.isoformat()
    return ", ".join(filter(None, (told_day, own, *newer, SUSPECT if is_suspect else "")))


def format_contradiction(contradiction: Contradiction) -> str:
    """Return a contradiction as an item of a Markdown list, with an item for each side and its date."""
    words = [side.words for side in contradiction.sides]
    # A side without words of its own differs in what the others have.
    is_short = all(len(side.words) <= _LONGEST_LABEL and _is_phrase(side) for side in contradiction.sides)
    label = f"{' / '.join(words)} (newest first)" if is_short else "Newest first"
    return f"- {label}\n{''.join(map(_format_side, contradiction.sides))}"


def _is_phrase(side: ContradictionSide) -> bool:
    """Return True if the words of a side stand together in what it says, so that they can be read alone."""
    words = re.escape(side.words)
    return bool(words) and re.search(rf"(?<![\w-]){words}(?![\w-])", side.content) is not None


def _format_side(side: ContradictionSide) -> str:
    return f"  - {side.learned_at:%Y-%m-%d} [{short_id(side.id)}] {_indent(side.content, 4)}\n"


def _indent(text: str, width: int) -> str:
    """Return a text with all lines but the first one indented."""
    first, *rest = text.splitlines() or [""]
    return "\n".join([first, *(f"{' ' * width}{line}".rstrip() for line in rest)])


def format_pointer(pointer: MemoryPointer) -> str:
    """Return where to look as an item of a Markdown list."""
    return f"- [{short_id(pointer.id)}] {pointer.kind} of {pointer.count}: {pointer.title}\n"


def format_recommendation(recommendation: str) -> str:
    """Return a recommendation as an item of a Markdown list, on one line."""
    return f"- {' '.join(recommendation.split())}\n"


def leave_out_told(id_: UUID, text: str, contradictions: Collection[Contradiction]) -> str:
    """Return a text without the passages that the contradictions tell of the same memory."""
    sides = [side for one in contradictions for side in one.sides if side.id == id_]
    if not sides:
        return text
    told = {side.content for side in sides}
    passages = split_passages(text, is_derived=sides[0].kind in DERIVED)
    return keep_passages(text, [one for one in passages if one.text not in told])


def short_id(id_: UUID) -> str:
    """Return the first digits of an id; commands accept them."""
    return id_.hex[:ID_DIGITS]
