"""Confidence without a model, and the weight of evidence."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge.confidence import (
    count_sessions,
    heuristic_confidence,
    weigh_agreement,
    weigh_evidence,
)
from consolidation_pipeline.core.knowledge.quality_gates import T_PROMOTE
from consolidation_pipeline_tests.hypothesis_examples import examples

SHARES = st.floats(0, 1)
COUNTS = st.integers(0, 1000)


@pytest.mark.parametrize(
    ("similarity", "expected"), [(None, 0.0), (-0.2, 0.0), (0.4, 0.4), (0.75, 0.75), (0.76, 0.75), (1.0, 0.75)]
)
def test_heuristic_confidence_is_capped_similarity(similarity: float | None, expected: float) -> None:
    assert heuristic_confidence(similarity) == expected < T_PROMOTE


def test_support_counts_half_of_agreement() -> None:
    assert [heuristic_confidence(0.4, support) for support in (0.0, 0.4, 1.0)] == [0.2, 0.4, 0.7]
    assert heuristic_confidence(0.9, 1.0) == heuristic_confidence(1.0) == 0.75
    with pytest.raises(ValueError, match="support"):
        heuristic_confidence(0.4, 1.5)


def test_further_people_count_as_further_sessions() -> None:
    assert weigh_evidence(0.6, 10, 1) == weigh_evidence(0.6, 3, 1) < weigh_evidence(0.6, 3, 1, people=2)
    assert weigh_evidence(0.6, 3, 1, people=3) == weigh_evidence(0.6, 3, 3) == 0.6


def test_nan_similarity_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        heuristic_confidence(math.nan)


@settings(deadline=None, max_examples=examples(200))
@given(SHARES, SHARES, COUNTS, COUNTS, COUNTS, COUNTS)
def test_evidence_weight_is_monotone_and_bounded(a: float, b: float, s: int, t: int, m: int, n: int) -> None:
    low = weigh_evidence(min(a, b), min(s, t), min(m, n))
    high = weigh_evidence(max(a, b), max(s, t), max(m, n))
    assert 0.0 <= low <= high <= max(a, b)


@settings(deadline=None, max_examples=examples(200))
@given(SHARES, st.integers(3, 1000), st.integers(3, 1000))
def test_three_sources_and_sessions_keep_confidence(c: float, s: int, n: int) -> None:
    assert weigh_evidence(c, s, n) == c


@pytest.mark.parametrize(
    ("sources", "sessions", "share"), [(3, 2, 0.952), (3, 1, 0.762), (2, 2, 0.907), (1, 1, 0.580), (9, 1, 0.762)]
)
def test_fewer_sources_and_sessions_weigh_less(sources: int, sessions: int, share: float) -> None:
    assert weigh_evidence(1.0, sources, sessions) == pytest.approx(share, abs=1e-3)
    assert weigh_evidence(0.9, sources, sessions) == pytest.approx(0.9 * share, abs=1e-3)


def test_evidence_weight_is_exact_at_gate_values() -> None:
    assert weigh_evidence(T_PROMOTE, 3, 3) == T_PROMOTE
    assert weigh_evidence(0.84, 3, 3) == 0.84
    assert weigh_evidence(0.9, 3, 3) > T_PROMOTE
    assert weigh_evidence(0.89, 3, 2) < T_PROMOTE
    assert weigh_evidence(0.9, 0, 0) == 0.0


@pytest.mark.parametrize(
    ("confidence", "sources", "sessions"), [(math.nan, 1, 1), (1.1, 1, 1), (0.5, -1, 1), (0.5, 1, -1)]
)
def test_evidence_weight_refuses_values_out_of_range(confidence: float, sources: int, sessions: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        weigh_evidence(confidence, sources, sessions)


def test_source_without_session_counts_as_one() -> None:
    assert count_sessions(["a", "a", "b"]) == 2
    assert count_sessions(["a", None, None]) == 3
    assert count_sessions([]) == 0


@pytest.mark.parametrize(("units", "overruled", "share"), [(3, 0, 1.0), (3, 1, 2 / 3), (100, 1, 0.99), (2, 2, 0.0)])
def test_overruled_units_lower_confidence(units: int, overruled: int, share: float) -> None:
    assert weigh_agreement(0.9, units, overruled) == pytest.approx(0.9 * share)


@pytest.mark.parametrize(("confidence", "units", "overruled"), [(1.1, 3, 1), (0.9, 0, 0), (0.9, 3, 4), (0.9, 3, -1)])
def test_agreement_weight_refuses_impossible_counts(confidence: float, units: int, overruled: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        weigh_agreement(confidence, units, overruled)
