"""Pieces of a context: candidates, and what of them was selected."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from uuid import UUID

from consolidation_pipeline.core.search.context_markdown import DERIVED, format_item, label_memory, leave_out_told
from consolidation_pipeline.core.search.passages import Passage, keep_passages, split_passages
from consolidation_pipeline.core.search.results import Contradiction
from consolidation_pipeline.core.text.token_estimate import estimate_tokens

PLAYBOOK = "playbook"

# Score, in standard deviations, that a text of e times the length needs more. Measured: docs/quality.md.
_LENGTH_PENALTY = 0.3
# Measured: the sides of disputes on the task have 0.54 to 0.91, of others 0.15 to 0.36.
_NEAR_MATCH = 0.4
# Keeps the logarithm of a score of 0 or 1 finite.
_LEAST_SCORE = 1e-9


@dataclass(frozen=True)
class ContextPiece:
    """Candidate for the context: a memory or a playbook entry.

    ``score``: 0 to 1, the logistic function of z-scores. ``raw_ids``: the raw memories it was made from, or its own id.
    ``learned_at``: of a playbook entry, when the newest of them was learned. ``category``: that of a playbook entry.
    ``is_related``: it may be about something else than the task. ``newer_ids``: memories that supersede it;
    ``rival_ids``: those that may. ``change_ids``: those that tell a change of what it speaks of, or another value.
    ``pattern_ids``: patterns that were made from it. ``scope``: key of its scope; empty if that does not matter.
    ``is_suspect``: it may be an injection. ``match``: how well it answers the task, of 0 to 1. ``day``: told beside it.
    """

    id: UUID
    kind: str
    text: str
    score: float
    raw_ids: frozenset[UUID]
    learned_at: datetime
    category: str | None = None
    is_related: bool = False
    newer_ids: tuple[UUID, ...] = ()
    rival_ids: tuple[UUID, ...] = ()
    change_ids: tuple[UUID, ...] = ()
    pattern_ids: frozenset[UUID] = frozenset()
    scope: str = ""
    is_suspect: bool = False
    match: float = 1.0
    day: date | None = None

    @property
    def is_near(self) -> bool:
        """True if it answers the task, so that what contradicts it matters to the task."""
        return not self.is_related and self.match >= _NEAR_MATCH

    @cached_property
    def rank(self) -> tuple[float, UUID]:
        """Sort key, the best first: the score that a text of this length needs, then the id."""
        return _LENGTH_PENALTY * math.log(max(1, len(self.text))) - self.z_score, self.id

    @property
    def weight(self) -> float:
        """Relevance above the mean of the candidates, in standard deviations."""
        return max(0.0, self.z_score)

    @property
    def z_score(self) -> float:
        """The score in standard deviations above the mean of the candidates."""
        score = min(max(self.score, _LEAST_SCORE), 1 - _LEAST_SCORE)
        return math.log(score / (1 - score))

    def with_z_score(self, z_score: float) -> ContextPiece:
        """Return the piece with another score."""
        return replace(self, score=1 / (1 + math.exp(-z_score)))

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages of its text."""
        return split_passages(self.text, is_derived=self.kind in DERIVED)

    @property
    def label(self) -> str:
        """Text of the item beside the id."""
        if self.kind == PLAYBOOK:
            return self.category or ""
        return label_memory(
            self.kind,
            len(self.raw_ids),
            self.newer_ids,
            rival_ids=self.rival_ids,
            day=self.day,
            is_suspect=self.is_suspect,
        )


@dataclass(frozen=True)
class SelectedPiece:
    """Piece of the context. ``passages``: those of the piece that no other piece says."""

    piece: ContextPiece
    passages: tuple[Passage, ...]
    is_whole: bool

    @cached_property
    def text(self) -> str:
        """The text of the piece without the passages that another piece says."""
        return self.piece.text.strip() if self.is_whole else keep_passages(self.piece.text, self.passages)

    def count_tokens(self) -> int:
        """Return the tokens of the item of the piece."""
        return estimate_tokens(self.format())

    def format(self, contradictions: Iterable[Contradiction] = ()) -> str:
        """Return the item of the piece, without what the contradictions tell of it."""
        text = leave_out_told(self.piece.id, self.text, list(contradictions))
        return format_item(self.piece.id, self.piece.label, text) if text else ""
