import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.lifecycle.relevance import DEFAULT, Rates, relevance

days = st.floats(0.0, 400.0)
counts = st.integers(0, 50)
shares = st.floats(0.0, 1.0)


def by_hand(age: float, access: float, relations: int, importance: float, confidence: float) -> float:
    recency = math.exp(-0.1 * age) * (0.3 + 0.3 * math.exp(-0.05 * access))
    trust = confidence if relations else 0.5
    worth = (1 + 0.3 * math.log(1 + relations)) * (0.5 + importance) * (0.7 + 0.3 * trust)
    return max(0.001, recency * worth)


def test_a_fresh_important_memory_without_relations():
    assert relevance(0, 0, 0, 1.0, 0.5) == pytest.approx(0.765)


@settings(deadline=None)
@given(days, days, counts, shares, shares)
def test_relevance_is_the_formula(age, access, relations, importance, confidence):
    expected = by_hand(age, access, relations, importance, confidence)
    assert relevance(age, access, relations, importance, confidence) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(st.lists(st.tuples(days, days, counts, shares, shares), min_size=1, max_size=20))
def test_arrays_give_what_their_scalars_give(rows):
    together = relevance(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))
    assert together.dtype == np.float64
    assert together.tolist() == pytest.approx([relevance(*row) for row in rows], rel=1e-12)


def test_scalars_give_a_float_and_broadcast_with_arrays():
    assert type(relevance(np.float32(1.0), None, 0, 0.5, None)) is float
    assert relevance([0.0, 1.0, 2.0], None, 0, 0.5, None).shape == (3,)
    assert relevance(np.empty(0), None, 0, 0.5, None).shape == (0,)


@pytest.mark.parametrize("never", [None, math.nan])
def test_a_memory_never_accessed_counts_as_accessed_when_it_was_learned(never):
    assert relevance(10.0, never, 0, 0.5, 0.5) == relevance(10.0, 10.0, 0, 0.5, 0.5)


def test_missing_accesses_in_an_array_use_their_own_age():
    got = relevance(np.array([1.0, 5.0]), np.array([math.nan, 2.0]), 0, 0.5, 0.5)
    assert got.tolist() == [relevance(1.0, 1.0, 0, 0.5, 0.5), relevance(5.0, 2.0, 0, 0.5, 0.5)]


def test_times_in_the_future_count_as_now():
    assert relevance(-3.0, -7.0, 0, 1.0, 0.5) == pytest.approx(0.765)


@pytest.mark.parametrize(("relations", "confidence"), [(0, 0.9), (0, None), (3, None), (3, math.nan)])
def test_without_relations_or_their_confidence_the_middle_is_assumed(relations, confidence):
    assert relevance(1.0, 1.0, relations, 0.5, confidence) == relevance(1.0, 1.0, relations, 0.5, 0.5)


def test_there_is_a_floor_and_no_ceiling():
    assert relevance(10_000.0, None, 0, 0.0, None) == 0.001
    assert relevance(math.inf, None, 0, 0.0, None) == 0.001
    assert relevance(0.0, 0.0, 1000, 5.0, 1.0) > 5.0


@settings(deadline=None)
@given(days, days, counts, shares, shares)
def test_relevance_falls_with_time_and_rises_with_worth(age, access, relations, importance, confidence):
    here = relevance(age, access, relations, importance, confidence)
    assert relevance(age + 1, access, relations, importance, confidence) <= here
    assert relevance(age, access + 1, relations, importance, confidence) <= here
    assert relevance(age, access, relations, importance + 0.1, confidence) >= here


def test_rates_are_configuration():
    still = Rates(age=0.0, access=0.0, floor=0.0)
    assert relevance(500.0, 500.0, 0, 1.0, None, rates=still) == pytest.approx(0.765)
    assert relevance(10_000.0, None, 0, 0.5, None, rates=Rates(floor=0.2)) == 0.2
    assert Rates() == DEFAULT


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((math.nan, 0.0, 0, 0.5, None), "age_days holds nan"),
        ((0.0, 0.0, -1, 0.5, None), "relations holds -1"),
        ((0.0, 0.0, 0, -0.5, None), "importance holds -0.5"),
        (([0.0, 1.0], 0.0, 0, [0.5, math.nan], None), "importance holds nan"),
    ],
)
def test_impossible_inputs_are_refused_by_name(inputs, message):
    with pytest.raises(ValueError, match=message):
        relevance(*inputs)
