"""Rank fusion and BM25: formulas, ties and independence of order."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from consolidation_pipeline.core.search.ranking import bm25, reciprocal_rank_fusion, weighted_z_scores
from consolidation_pipeline.core.search.words import count_texts

IDS = st.integers(0, 30)
RANKINGS = st.lists(st.tuples(st.lists(IDS, unique=True), st.floats(0, 1)), max_size=4)
SCORED = st.lists(
    st.tuples(st.dictionaries(IDS, st.floats(0, 1, width=16)), st.floats(0, 1), st.just(0.0)), min_size=1, max_size=3
)


def test_rank_fusion_counts_ranks_from_one() -> None:
    fused = reciprocal_rank_fusion([["a", "b"], ["c"]], [0.6, 0.4])
    assert fused == [("a", 0.6 / 61), ("b", 0.6 / 62), ("c", 0.4 / 61)]
    ((first, score),) = reciprocal_rank_fusion([["a"], ["a"]], [0.6, 0.4])
    assert first == "a"
    assert score == pytest.approx(1 / 61)


def test_rank_fusion_breaks_ties_by_id() -> None:
    assert [id_ for id_, _ in reciprocal_rank_fusion([["b"], ["a"]], [0.5, 0.5])] == ["a", "b"]
    assert reciprocal_rank_fusion([["a", "a", "b"]], [1.0]) == [("a", 1 / 61), ("b", 1 / 62)]


def test_fusion_of_nothing_is_empty() -> None:
    assert reciprocal_rank_fusion([], []) == []
    assert reciprocal_rank_fusion([[], []], [0.6, 0.4]) == []
    assert weighted_z_scores([{}, {}], [0.6, 0.4], [0.0, 0.0]) == []


@given(RANKINGS)
def test_rank_fusion_ignores_ranking_order(rankings: list[tuple[list[int], float]]) -> None:
    fused = {
        tuple(reciprocal_rank_fusion([ids for ids, _ in order], [weight for _, weight in order]))
        for order in permutations(rankings)
    }
    assert len(fused) == 1


@given(RANKINGS)
def test_rank_fusion_descends_and_keeps_every_id(rankings: list[tuple[list[int], float]]) -> None:
    fused = reciprocal_rank_fusion([ids for ids, _ in rankings], [weight for _, weight in rankings])
    assert sorted(id_ for id_, _ in fused) == sorted({id_ for ids, _ in rankings for id_ in ids})
    assert fused == sorted(fused, key=lambda pair: (-pair[1], pair[0]))


@given(SCORED)
def test_z_score_fusion_ignores_order(rankings: list[tuple[dict[int, float], float, float]]) -> None:
    turned = [(dict(reversed(scores.items())), weight, absent) for scores, weight, absent in reversed(rankings)]
    fused = weighted_z_scores(*map(list, zip(*rankings, strict=True)))
    assert fused == weighted_z_scores(*map(list, zip(*turned, strict=True)))
    assert fused == sorted(fused, key=lambda pair: (-pair[1], pair[0]))


def test_z_scores_standardize_over_all_ids() -> None:
    fused = weighted_z_scores([{"a": 2.0, "b": 0.0}, {"b": 1.0}], [0.6, 0.4], [0.0, 0.0])
    assert [id_ for id_, _ in fused] == ["a", "b"]
    assert [score for _, score in fused] == pytest.approx([0.2, -0.2])


def test_z_scores_without_spread_add_nothing() -> None:
    expected = weighted_z_scores([{"a": 2.0, "b": 0.0}], [0.6], [0.0])
    assert weighted_z_scores([{"a": 2.0, "b": 0.0}, {"a": 0.3, "b": 0.3}], [0.6, 0.4], [0.0, 0.0]) == expected
    assert weighted_z_scores([{"a": 2.0, "b": 0.0}, {}], [0.6, 0.4], [0.0, 0.0]) == expected


@pytest.mark.parametrize("weights", [[1.0], [1.0, 1.0, 1.0]])
def test_fusion_needs_one_weight_per_ranking(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="give one for each"):
        reciprocal_rank_fusion([["a"], ["b"]], weights)
    with pytest.raises(ValueError, match="give one for each"):
        weighted_z_scores([{"a": 1.0}, {}], weights, [0.0, 0.0])


def test_fusion_rejects_invalid_input() -> None:
    with pytest.raises(ValueError, match="finite"):
        weighted_z_scores([{"a": float("nan")}], [1.0], [0.0])


def score(lengths: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.float64]:
    return bm25(lengths, counts, count_texts(lengths, counts))


def test_bm25_prefers_rare_words_and_short_texts() -> None:
    # Words: retry, E1234.
    counts = np.array([[1, 0], [0, 1], [1, 0], [3, 0]])
    common, rare, long, repeated = score(np.array([10, 10, 40, 10]), counts).tolist()
    assert rare > repeated > common > long > 0


def test_bm25_handles_common_and_missing_words() -> None:
    assert score(np.array([5]), np.array([[1]])).tolist() == pytest.approx([0.2876820724])
    assert score(np.array([5, 0]), np.zeros((2, 1))).tolist() == [0.0, 0.0]
    assert score(np.zeros(0), np.zeros((0, 3))).tolist() == []
    assert score(np.zeros(2), np.zeros((2, 0))).tolist() == [0.0, 0.0]


def test_bm25_ignores_text_and_word_order() -> None:
    source = np.random.default_rng(1)
    lengths, counts = source.integers(1, 90, 50), source.poisson(0.3, (50, 7))
    texts, words = source.permutation(50), source.permutation(7)
    turned = score(lengths[texts], counts[np.ix_(texts, words)])
    assert turned == pytest.approx(score(lengths, counts)[texts], rel=1e-12)


def test_z_scores_ignore_outside_ids() -> None:
    scores: list[dict[str, float]] = [{"a": 3.0, "b": 1.0}, {"a": 2.0, "c": 5.0}]
    alone = weighted_z_scores(scores, [0.4, 0.6], [0.0, 0.0])
    joined = weighted_z_scores([scores[0] | {"x": 90.0}, scores[1]], [0.4, 0.6], [0.0, 0.0], outside={"x"})
    assert [pair for pair in joined if pair[0] != "x"] == alone
    assert joined[0][0] == "x"
    assert weighted_z_scores([{"x": 1.0, "y": 2.0}], [1.0], [0.0], outside={"x", "y"})[0][0] == "y"
