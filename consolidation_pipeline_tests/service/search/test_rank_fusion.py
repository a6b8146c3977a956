"""Fusion of two rankings: ties and patterns."""

from __future__ import annotations

import pytest

from consolidation_pipeline.service.search.rank_fusion import RetrieverScores, fuse_scores

A, B, C = "1", "2", "3"


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
    assert fuse_scores(RetrieverScores({A: 0.9, B: 0.3, C: 0.3}, {A: 9.0, B: 1.0}, {A}), "zscore")[0][0] == A
