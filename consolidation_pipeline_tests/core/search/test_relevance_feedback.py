"""Relevance feedback: what raises a memory beside its own score."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from consolidation_pipeline.core.search.context_pieces import ContextPiece
from consolidation_pipeline.core.search.relevance_feedback import raise_similar

BEST = "The ledger export fails when the currency column is empty."
LIKE_BEST = "Fill the currency column before the ledger export."
OTHER = "The wiki has a new skin since spring."
PATTERN = UUID(int=77)


def memory(number: int, text: str, z_score: float, *patterns: UUID) -> ContextPiece:
    id_, now = UUID(int=number), datetime(2026, 5, 1, tzinfo=UTC)
    piece = ContextPiece(id_, "raw", text, 0.5, frozenset((id_,)), now, pattern_ids=frozenset(patterns))
    return piece.with_z_score(z_score)


def test_memory_like_the_best_is_raised() -> None:
    memories = [memory(1, BEST, 4.0), memory(2, OTHER, 0.5), memory(3, LIKE_BEST, 0.4)]
    raised = {one.id.int: one.z_score for one in raise_similar(memories)}
    assert raised[1] > raised[3] > raised[2]


def test_member_of_a_pattern_of_the_best_is_raised() -> None:
    memories = [memory(1, BEST, 4.0, PATTERN), memory(2, OTHER, 0.5, PATTERN), memory(3, OTHER, 0.5)]
    raised = {one.id.int: one.z_score for one in raise_similar(memories)}
    assert raised[2] == pytest.approx(raised[3] + 0.85)


def test_pattern_of_one_of_the_best_raises_less() -> None:
    best = [memory(1, BEST, 6.0), memory(2, BEST, 3.0, PATTERN)]
    others = [memory(3, OTHER, 0.5, PATTERN), memory(4, OTHER, 0.5)]
    raised = {one.id.int: one.z_score for one in raise_similar([*best, *others])}
    assert raised[3] == pytest.approx(raised[4] + 0.85 * 3 / 9)


def test_doubtful_best_memory_raises_none() -> None:
    memories = [memory(1, BEST, 2.9), memory(2, OTHER, 0.5), memory(3, LIKE_BEST, 0.4)]
    assert raise_similar(memories) == memories
    assert raise_similar([]) == []


def test_feedback_does_not_depend_on_order() -> None:
    memories = [memory(at, text, z) for at, (text, z) in enumerate([(BEST, 4.0), (OTHER, 3.5), (LIKE_BEST, 0.4)])]
    raised = {one.id: one.z_score for one in raise_similar(memories)}
    turned = {one.id: one.z_score for one in raise_similar(memories[::-1])}
    assert raised == turned


def test_equal_texts_keep_their_scores() -> None:
    memories = [replace(memory(at, BEST, 4.0), id=UUID(int=at)) for at in range(3)]
    assert all(math.isclose(one.z_score, 4.0) for one in raise_similar(memories))
