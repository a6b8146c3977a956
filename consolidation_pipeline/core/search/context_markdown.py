"""Text form of a context: Markdown chapters of list items, each with the id of the memory or entry that it tells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from consolidation_pipeline.core.knowledge.playbook_markdown import ID_DIGITS
from consolidation_pipeline.core.search.results import Contradiction, MemoryPointer
from consolidation_pipeline.core.text.sentence_splitter import keep_sentences

INSTRUCTIONS, KNOWN, DISPUTED = "Instructions", "Known", "Disputed or changed"
RELATED, WHERE_TO_LOOK, NEXT_STEPS = "Possibly related", "Where to look", "Next steps"


def format_chapter(title: str, items: Sequence[str]) -> str:
    """Return the items below their heading; nothing if there are none."""
    return f"## {title}\n{''.join(items)}" if items else ""


def format_item(id_: UUID, label: str, text: str) -> str:
    """Return a text as an item of a Markdown list, with further lines indented. ``label`` follows the id."""
    first, *rest = text.splitlines() or [""]
    shown = ", ".join(filter(None, (short_id(id_), label)))
    return "\n".join([f"- [{shown}] {first}", *(f"  {line}".rstrip() for line in rest)]) + "\n"


def label_memory(kind: str, count: int, newer_ids: Iterable[UUID] = ()) -> str:
    """Return what the item of a memory says beside the id: of how many a merged one is, of others kind and number.

    ``newer_ids``: memories that supersede it.
    """
    own = {"raw": "", "merged": f"{count} times", "procedural": kind}.get(kind, f"{kind} of {count} memories")
    return ", ".join(filter(None, (own, *(f"superseded by {short_id(id_)}" for id_ in newer_ids))))


def format_contradiction(contradiction: Contradiction) -> str:
    """Return a contradiction as an item of a Markdown list, with a line for each side and its date."""
    words = [side.words for side in contradiction.sides]
    # A side without words of its own differs in what the others have.
    label = f"{' / '.join(words)} (newest first)" if all(words) else "Newest first"
    sides = (
        f"  - {side.learned_at:%Y-%m-%d} [{short_id(side.id)}] {' '.join(side.content.split())}\n"
        for side in contradiction.sides
    )
    return f"- {label}\n{''.join(sides)}"


def format_pointer(pointer: MemoryPointer) -> str:
    """Return where to look as an item of a Markdown list."""
    return f"- [{short_id(pointer.id)}] {pointer.kind} of {pointer.count}: {pointer.title}\n"


def format_recommendation(recommendation: str) -> str:
    """Return a recommendation as an item of a Markdown list, on one line."""
    return f"- {' '.join(recommendation.split())}\n"


def leave_out_told(id_: UUID, text: str, contradictions: Collection[Contradiction]) -> str:
    """Return a text without the sentences that the contradictions tell of the same memory."""
    told = {side.content for one in contradictions for side in one.sides if side.id == id_}
    return keep_sentences(text, lambda sentence: sentence not in told) if told else text


def short_id(id_: UUID) -> str:
    """Return the first digits of an id; commands accept them."""
    return id_.hex[:ID_DIGITS]
