"""Relevance: the decay formula, arrays, missing values and limits."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.lifecycle.relevance import DEFAULT_RATES, DecayRates, compute_relevance

days = st.floats(0.0, 400.0)
counts = st.integers(0, 50)
shares = st.floats(0.0, 1.0)


def reference_relevance(age: float, access: float, relations: int, importance: float, confidence: float) -> float:
    recency = math.exp(-0.1 * age) * (0.3 + 0.3 * math.exp(-0.05 * access))
    trust = confidence if relations else 0.5
    worth = (1 + 0.3 * math.log(1 + relations)) * (0.5 + importance) * (0.7 + 0.3 * trust)
    return max(0.001, recency * worth)


@settings(deadline=None)
@given(days, days, counts, shares, shares)
def test_relevance_follows_formula(age, access, relations, importance, confidence):
    expected = reference_relevance(age, access, relations, importance, confidence)
    assert compute_relevance(age, access, relations, importance, confidence) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(st.lists(st.tuples(days, days, counts, shares, shares), min_size=1, max_size=20))
def test_relevance_arrays_match_scalars(rows):
    together = compute_relevance(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))
    assert together.dtype == np.float64
    assert together.tolist() == pytest.approx([compute_relevance(*row) for row in rows], rel=1e-12)


def test_relevance_broadcasts_scalars():
    assert compute_relevance([0.0, 1.0, 2.0], None, 0, 0.5, None).shape == (3,)
    assert compute_relevance(np.empty(0), None, 0, 0.5, None).shape == (0,)


@pytest.mark.parametrize("never", [None, math.nan])
def test_relevance_of_unaccessed_memory_uses_its_age(never):
    assert compute_relevance(10.0, never, 0, 0.5, 0.5) == compute_relevance(10.0, 10.0, 0, 0.5, 0.5)


def test_missing_access_in_array_uses_row_age():
    got = compute_relevance(np.array([1.0, 5.0]), np.array([math.nan, 2.0]), 0, 0.5, 0.5)
    assert got.tolist() == [compute_relevance(1.0, 1.0, 0, 0.5, 0.5), compute_relevance(5.0, 2.0, 0, 0.5, 0.5)]


@pytest.mark.parametrize(("age", "access"), [(0, 0), (-3.0, -7.0)])
def test_relevance_treats_future_times_as_now(age, access):
    assert compute_relevance(age, access, 0, 1.0, 0.5) == pytest.approx(0.765)


@pytest.mark.parametrize(("relations", "confidence"), [(0, 0.9), (0, None), (3, None), (3, math.nan)])
def test_relevance_without_relations_assumes_mid_trust(relations, confidence):
    assert compute_relevance(1.0, 1.0, relations, 0.5, confidence) == compute_relevance(1.0, 1.0, relations, 0.5, 0.5)


def test_relevance_has_floor_but_no_ceiling():
    assert compute_relevance(10_000.0, None, 0, 0.0, None) == 0.001
    assert compute_relevance(math.inf, None, 0, 0.0, None) == 0.001
    assert compute_relevance(0.0, 0.0, 1000, 5.0, 1.0) > 5.0


@settings(deadline=None)
@given(days, days, counts, shares, shares)
def test_relevance_falls_with_age_and_rises_with_worth(age, access, relations, importance, confidence):
    here = compute_relevance(age, access, relations, importance, confidence)
    assert compute_relevance(age + 1, access, relations, importance, confidence) <= here
    assert compute_relevance(age, access + 1, relations, importance, confidence) <= here
    assert compute_relevance(age, access, relations, importance + 0.1, confidence) >= here


def test_decay_rates_are_configurable():
    still = DecayRates(age=0.0, access=0.0, floor=0.0)
    assert compute_relevance(500.0, 500.0, 0, 1.0, None, rates=still) == pytest.approx(0.765)
    assert compute_relevance(10_000.0, None, 0, 0.5, None, rates=DecayRates(floor=0.2)) == 0.2
    assert DecayRates() == DEFAULT_RATES


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((math.nan, 0.0, 0, 0.5, None), "age_days holds nan"),
        ((0.0, 0.0, -1, 0.5, None), "relations holds -1"),
        ((0.0, 0.0, 0, -0.5, None), "importance holds -0.5"),
        (([0.0, 1.0], 0.0, 0, [0.5, math.nan], None), "importance holds nan"),
    ],
)
def test_relevance_rejects_invalid_inputs_by_name(inputs, message):
    with pytest.raises(ValueError, match=message):
        compute_relevance(*inputs)
