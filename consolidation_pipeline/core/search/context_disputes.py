"""Disputes of a context: passages that contradict each other, each told in one dispute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from consolidation_pipeline.core.search.context_pieces import ContextPiece
from consolidation_pipeline.core.search.passages import Passage
from consolidation_pipeline.core.search.results import Contradiction, ContradictionSide


def to_side(piece: ContextPiece, passage: Passage, words: str) -> ContradictionSide:
    """Return a passage of a piece as a side of a dispute. ``words``: those that differ."""
    return ContradictionSide(piece.id, piece.kind, passage.text, words, piece.learned_at)


def add_side(
    disputes: Sequence[Contradiction], kind: str, side: ContradictionSide, opposite: ContradictionSide
) -> list[Contradiction]:
    """Return the disputes with a new side, which joins those that tell it or the opposite side already.

    ``kind``: kind of the difference.
    """
    joined = [one for one in disputes if _tells(one, side) or _tells(one, opposite)]
    if not joined:
        return [*disputes, Contradiction(kind, _sort_newest_first([side, opposite]))]
    told = [known for one in joined for known in one.sides]
    new = [one for one in (side, opposite) if not any(_is_same(one, known) for known in told)]
    if any(one.kind != kind for one in joined):
        # Words that differ in a value say nothing beside words that differ in a name.
        new = [replace(one, words="") for one in new]
    united = Contradiction(joined[0].kind, _sort_newest_first([*told, *new]))
    return [united if one is joined[0] else one for one in disputes if one is joined[0] or one not in joined]


def _tells(dispute: Contradiction, side: ContradictionSide) -> bool:
    return any(_is_same(side, known) for known in dispute.sides)


def _is_same(one: ContradictionSide, other: ContradictionSide) -> bool:
    return (one.id, one.content) == (other.id, other.content)


def _sort_newest_first(sides: Iterable[ContradictionSide]) -> list[ContradictionSide]:
    return sorted(sides, key=lambda side: (side.learned_at, side.id), reverse=True)
