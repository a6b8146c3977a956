"""Calibration: cosine spreads, confidence intervals, and thresholds estimated from labelled pairs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.calibration import threshold_estimates
from consolidation_pipeline.core.calibration.model_thresholds import CONSERVATIVE, WORDLLAMA
from consolidation_pipeline.core.calibration.threshold_estimates import (
    GRID,
    MAX_PAIRS_PER_MEMORY,
    MAX_WRONG_SHARE,
    MIN_PATTERN_THRESHOLD,
    CosineSpread,
    LabelledPairs,
    compute_curve,
    compute_merged_shares,
    estimate_errors,
    measure_spread,
    recommend_pattern_threshold,
    recommend_thresholds,
    wilson_interval,
)
from consolidation_pipeline.core.similarity.similarity_join import similarity_join
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.hypothesis_examples import examples

Floats = npt.NDArray[np.float32]


def make_rows(n: int, d: int = 16, seed: int = 0) -> Floats:
    return normalize(np.random.default_rng(seed).normal(size=(n, d)))


def label_pairs(
    same: list[float], other: list[float], *, words: int = 40, vetoed: tuple[int, ...] = ()
) -> LabelledPairs:
    similarity = np.array([*same, *other])
    veto = np.zeros(len(similarity), dtype=bool)
    veto[list(vetoed)] = True
    truth = np.arange(len(similarity)) < len(same)
    kind = np.where(truth, "retold", "blend")
    return LabelledPairs(
        similarity=similarity,
        words=np.full(len(similarity), words),
        shared=np.ones(len(similarity)),
        vetoed=veto,
        same=truth,
        kind=kind,
    )


def test_full_sample_spread_matches_all_pairs() -> None:
    x = make_rows(200)
    found = measure_spread(x, np.arange(200))
    assert found is not None
    cosines = x.astype(np.float64) @ x.T.astype(np.float64)
    off = cosines[~np.eye(200, dtype=bool)]
    np.fill_diagonal(cosines, -1.0)
    assert found.median == pytest.approx(np.median(off), abs=2e-4)
    assert found.nearest == pytest.approx(np.median(cosines.max(axis=1)), abs=2e-4)
    assert found.bound == pytest.approx(np.quantile(off, 1 - 2 * MAX_PAIRS_PER_MEMORY / 199), abs=1e-3)
    assert found.sampled == 200


@settings(deadline=None, max_examples=examples(15))
@given(st.permutations(range(30)))
def test_cosine_spread_ignores_row_order(order: list[int]) -> None:
    x = make_rows(30)
    again = np.empty_like(x)
    again[order] = x  # row ``at`` moves to order[at]
    assert measure_spread(again, np.array(order)) == measure_spread(x, np.arange(30))


def test_cosine_spread_does_not_depend_on_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    x = make_rows(300)
    whole = measure_spread(x, np.arange(300))
    monkeypatch.setattr(threshold_estimates, "_BLOCK", 1_000)
    assert measure_spread(x, np.arange(300)) == whole
    monkeypatch.setattr(threshold_estimates, "SAMPLE_ROWS", 50)
    part = measure_spread(x, np.arange(300))
    assert part is not None
    assert part.sampled == 50


def test_cosine_spread_of_few_rows_has_no_bound() -> None:
    found = measure_spread(make_rows(2 * MAX_PAIRS_PER_MEMORY + 1), np.arange(2 * MAX_PAIRS_PER_MEMORY + 1))
    assert found is not None
    assert found.bound == -1.0


@pytest.mark.parametrize("n", [0, 1])
def test_cosine_spread_needs_two_rows(n: int) -> None:
    assert measure_spread(make_rows(n), np.arange(n)) is None


def test_pattern_threshold_keeps_large_graph_sparse() -> None:
    x = normalize(make_rows(600) + 0.6)
    found = measure_spread(x, np.arange(600))
    assert found is not None
    t_pattern = recommend_pattern_threshold(found)
    assert len(similarity_join(x, t_pattern)) <= MAX_PAIRS_PER_MEMORY * len(x) * 1.02
    assert len(similarity_join(x, found.bound - 0.02)) > MAX_PAIRS_PER_MEMORY * len(x)


@settings(deadline=None, max_examples=examples(60))
@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-1, 1))
def test_pattern_threshold_stays_within_bounds(median: float, nearest: float, bound: float) -> None:
    found = recommend_pattern_threshold(CosineSpread(median, nearest, bound, 100))
    low = max(MIN_PATTERN_THRESHOLD, bound)
    assert low - 1e-3 <= found <= max(low, nearest, median) + 1e-3


def test_pattern_threshold_follows_spread() -> None:
    assert recommend_pattern_threshold(CosineSpread(0.1, 0.9, -1.0, 100)) == 0.468
    assert recommend_pattern_threshold(CosineSpread(0.1, 0.9, 0.5, 100)) == 0.5
    assert recommend_pattern_threshold(CosineSpread(0.0, 0.1, -1.0, 100)) == MIN_PATTERN_THRESHOLD


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (1, 10, 0.0179, 0.4042),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_interval_matches_known_values(count: int, total: int, low: float, high: float) -> None:
    found = wilson_interval(count, total)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(("count", "total"), [(-1, 3), (4, 3)])
def test_wilson_interval_rejects_invalid_counts(count: int, total: int) -> None:
    with pytest.raises(ValueError, match="is no share"):
        wilson_interval(count, total)


def test_merge_threshold_rises_to_stop_near_misses() -> None:
    same, other = [0.9] * 100, [0.3] * 150 + [0.7] * 50
    found = recommend_thresholds(label_pairs(same, other), WORDLLAMA)
    assert (found.t_merge, found.t_suggest) == (0.71, round(0.71 - (WORDLLAMA.t_merge - WORDLLAMA.t_suggest), 3))
    assert recommend_thresholds(label_pairs(same, [0.3] * 200), WORDLLAMA).t_merge == WORDLLAMA.t_merge


def test_recommended_threshold_respects_profile_minimum() -> None:
    found = recommend_thresholds(label_pairs([0.9] * 100, [0.3] * 200), CONSERVATIVE)
    assert found.t_merge == CONSERVATIVE.t_merge


def test_unstoppable_near_misses_only_count_as_errors() -> None:
    pairs = label_pairs([0.9] * 100, [1.0] * 40 + [0.3] * 160)
    assert recommend_thresholds(pairs, WORDLLAMA).t_merge == WORDLLAMA.t_merge
    assert estimate_errors(pairs, WORDLLAMA.t_merge).wrong.value == 0.2


def test_vetoed_near_misses_do_not_count_as_errors() -> None:
    pairs = label_pairs([0.9] * 100, [0.9] * 200, vetoed=tuple(range(100, 300)))
    assert recommend_thresholds(pairs, WORDLLAMA).t_merge == WORDLLAMA.t_merge
    assert estimate_errors(pairs, 0.66).wrong.count == 0


def test_short_texts_need_higher_similarity() -> None:
    assert estimate_errors(label_pairs([0.9] * 10, [], words=40), 0.66).found.value == 1.0
    assert estimate_errors(label_pairs([0.9] * 10, [], words=12), 0.66).found.value == 0.0


def test_pairs_with_few_shared_words_are_not_merged() -> None:
    pairs = replace(label_pairs([0.9] * 4, []), shared=np.array([0.0, 0.49, 0.5, 1.0]))
    assert pairs.merged(0.66).tolist() == [True] * 4
    assert replace(pairs, min_shared=0.5).merged(0.66).tolist() == [False, False, True, True]


def test_near_misses_with_few_shared_words_are_ignored() -> None:
    pairs = label_pairs([0.9] * 100, [0.7] * 200)
    distinct = replace(pairs, shared=np.where(pairs.same, 1.0, 0.2))
    assert recommend_thresholds(distinct, WORDLLAMA).t_merge > WORDLLAMA.t_merge
    assert recommend_thresholds(replace(distinct, min_shared=0.5), WORDLLAMA).t_merge == WORDLLAMA.t_merge


def test_suggest_threshold_finds_most_paraphrases() -> None:
    far = label_pairs([*np.linspace(0.45, 0.95, 101)], [0.3] * 200)
    assert recommend_thresholds(far, WORDLLAMA).t_suggest == 0.5
    assert recommend_thresholds(far, WORDLLAMA, lowest=0.55).t_suggest == 0.55
    assert recommend_thresholds(far, WORDLLAMA, lowest=0.9).t_suggest == WORDLLAMA.t_merge


def test_empty_labels_recommend_profile_thresholds() -> None:
    found = recommend_thresholds(label_pairs([], []), WORDLLAMA)
    assert (found.t_merge, found.t_suggest) == (WORDLLAMA.t_merge, WORDLLAMA.t_suggest)


COSINES = st.lists(st.floats(-1, 1), max_size=60)


@settings(deadline=None, max_examples=examples(60))
@given(COSINES, COSINES)
def test_recommended_thresholds_stay_within_bounds(same: list[float], other: list[float]) -> None:
    pairs = label_pairs(same, other)
    found = recommend_thresholds(pairs, WORDLLAMA)
    assert WORDLLAMA.t_merge <= found.t_merge <= GRID[-1]
    assert min(MIN_PATTERN_THRESHOLD, found.t_merge) <= found.t_suggest <= found.t_merge
    if len(other) > 80:
        unavoidable = estimate_errors(pairs, GRID[-1]).wrong.high
        assert estimate_errors(pairs, found.t_merge).wrong.low < MAX_WRONG_SHARE + unavoidable


@settings(deadline=None, max_examples=examples(30))
@given(COSINES, COSINES)
def test_error_curve_never_rises(same: list[float], other: list[float]) -> None:
    curve = compute_curve(label_pairs(same, other))
    assert [point.threshold for point in curve] == list(GRID)
    for low, high in pairwise(curve):
        assert low.wrong.count >= high.wrong.count
        assert low.found.count >= high.found.count


def test_merged_shares_are_grouped_by_kind() -> None:
    kinds = compute_merged_shares(label_pairs([0.9, 0.1], [0.8, 0.2, 0.3]), 0.66)
    assert {kind: (share.count, share.total) for kind, share in kinds.items()} == {"retold": (1, 2), "blend": (1, 3)}
