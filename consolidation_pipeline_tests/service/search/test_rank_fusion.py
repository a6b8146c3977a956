"""Fusion of two rankings: ties and patterns."""

from __future__ import annotations

import pytest

from consolidation_pipeline.service.search.rank_fusion import RetrieverScores, fuse_scores

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
