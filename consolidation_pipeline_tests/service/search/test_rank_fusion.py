"""Fusion of two rankings: ties and patterns."""

from __future__ import annotations

import numpy as np
import pytest

from consolidation_pipeline.service.search.rank_fusion import RetrieverScores, add_nearer, fuse_scores
from consolidation_pipeline.store.search.keyword_matches import KeywordMatches
from consolidation_pipeline.store.search.retrievers import SemanticMatch

A, B, C, D = "1", "2", "3", "4"


@pytest.mark.parametrize("fusion", ["rrf", "zscore", "default"])
def test_fusion_ranks_best_of_both_first(fusion: str) -> None:
    ranked = fuse_scores(RetrieverScores({A: 0.9, B: 0.6, C: 0.4}, {A: 7.0, C: 2.0}), fusion)
    assert ranked[0][0] == A
    assert {id_ for id_, _ in ranked} == {A, B, C}
    assert all(0 < score < 1 for _, score in ranked)


def test_fusion_prefers_memory_over_equal_pattern() -> None:
    similar, matching = {A: 0.80, B: 0.79, C: 0.2}, {A: 5.0, B: 5.0}
    assert [id_ for id_, _ in fuse_scores(RetrieverScores(similar, matching), "zscore")] == [A, B, C]
    assert [id_ for id_, _ in fuse_scores(RetrieverScores(similar, matching, {A}), "zscore")] == [B, A, C]


def test_fusion_ranks_clearly_better_pattern_first() -> None:
    scores = RetrieverScores({A: 0.9, B: 0.4, C: 0.3}, {A: 9.0, B: 1.0}, {A})
    assert fuse_scores(scores, "zscore")[0][0] == A


def test_abstract_memory_does_not_change_other_scores() -> None:
    similar, matching = {A: 0.8, B: 0.5, C: 0.4}, {B: 3.0, C: 4.0}
    alone = fuse_scores(RetrieverScores(similar, matching), "zscore")
    joined = fuse_scores(RetrieverScores({D: 0.99, **similar}, {D: 50.0, **matching}, {D}), "zscore")
    assert [pair for pair in joined if pair[0] != D] == alone


def test_pattern_raises_its_members() -> None:
    similar, matching = {D: 0.9, A: 0.5, B: 0.51, C: 0.2}, {D: 9.0, A: 3.0, B: 3.0}
    ranked = [id_ for id_, _ in fuse_scores(RetrieverScores(similar, matching, {D}), "zscore") if id_ != D]
    raised = [id_ for id_, _ in fuse_scores(RetrieverScores(similar, matching, {D}, {D: [A]}), "zscore") if id_ != D]
    assert (ranked, raised) == ([B, A, C], [A, B, C])


def test_memories_found_by_words_join_the_nearest() -> None:
    near = [SemanticMatch(A, 0.9, "raw"), SemanticMatch(B, 0.8, "pattern"), SemanticMatch(C, 0.6, "raw")]
    kinds = ["raw", "raw", "pattern", "raw"]
    numbers = np.zeros(4, np.int64), np.zeros((4, 1), np.int64)
    matches = KeywordMatches([A, D, "5", "6"], kinds, *numbers, [0.9, 0.7, 0.95, None])
    assert [match.id for match in add_nearer(near, matches, 0.3, 2)] == [A, B, D]
    assert [match.id for match in add_nearer(near, matches, 0.3, 9)] == [A, B, D, C]
    assert add_nearer(near, matches, 0.75, 9) == near
