"""Calibration: cosine spreads and confidence intervals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.calibration import threshold_estimates
from consolidation_pipeline.core.calibration.threshold_estimates import (
    MAX_PAIRS_PER_MEMORY,
    measure_spread,
    wilson_interval,
)
from consolidation_pipeline.core.similarity.similarity_join import similarity_join
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.hypothesis_examples import examples

Floats = npt.NDArray[np.float32]


def make_rows(n: int, d: int = 16, seed: int = 0) -> Floats:
    return normalize(np.random.default_rng(seed).normal(size=(n, d)))


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


def test_cosine_spread_bound_keeps_graph_sparse() -> None:
    x = normalize(make_rows(600) + 0.6)
    found = measure_spread(x, np.arange(600))
    assert found is not None
    assert len(similarity_join(x, found.bound)) <= MAX_PAIRS_PER_MEMORY * len(x) * 1.02
    assert len(similarity_join(x, found.bound - 0.02)) > MAX_PAIRS_PER_MEMORY * len(x)


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
