"""Text form of a context: a Markdown list with one item for each piece, contradiction and recommendation."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from consolidation_pipeline.core.knowledge.playbook_markdown import ID_DIGITS
from consolidation_pipeline.core.search.results import Contradiction
from consolidation_pipeline.core.text.sentence_splitter import split_sentences


def format_item(kind: str, category: str | None, id_: UUID, text: str) -> str:
    """Return a piece as an item of a Markdown list, with further lines indented."""
    label = ", ".join(filter(None, (kind, category, short_id(id_))))
    first, *rest = text.splitlines() or [""]
    return "\n".join([f"- ({label}) {first}", *(f"  {line}".rstrip() for line in rest)]) + "\n"


def format_contradiction(contradiction: Contradiction) -> str:
    """Return a contradiction as an item of a Markdown list, with a line for each side and its date."""
    words = " / ".join(side.words or "-" for side in contradiction.sides)
    sides = (
        f"  - {side.learned_at:%Y-%m-%d} ({side.kind}, {short_id(side.id)}) {' '.join(side.content.split())}\n"
        for side in contradiction.sides
    )
    return f"- (contradiction, {contradiction.kind}, newest first) {words}\n{''.join(sides)}"


def format_recommendation(recommendation: str) -> str:
    """Return a recommendation as an item of a Markdown list, on one line."""
    return f"- (recommended) {' '.join(recommendation.split())}\n"


def is_told(id_: UUID, text: str, contradictions: Collection[Contradiction]) -> bool:
    """Return True if the contradictions tell all sentences of a piece, so that it needs no item of its own."""
    told = {side.content for one in contradictions for side in one.sides if side.id == id_}
    return bool(told) and told.issuperset(split_sentences(text))


def short_id(id_: UUID) -> str:
    """Return the first digits of an id; commands accept them."""
    return id_.hex[:ID_DIGITS]
