"""Cohesion of groups compared with all their pairs."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.cohesion import compute_cohesion, summarize_groups
from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.core.grouping.graphs import clustered_rows


@settings(deadline=None)
@given(st.integers(2, 40), st.integers(0, 99))
def test_cohesion_is_mean_and_minimum_of_pairs(n, seed):
    x = clustered_rows(n + 5, 7, seed)
    members = np.random.default_rng(seed).permutation(n + 5)[:n]
    wide = x[members].astype(np.float64)
    cosines = (wide @ wide.T)[np.triu_indices(n, 1)]
    mean, minimum = compute_cohesion(x, members)
    assert mean == pytest.approx(cosines.mean(), abs=1e-6)
    assert minimum == pytest.approx(cosines.min(), abs=1e-6)


def test_cohesion_of_large_group_covers_every_pair():
    x = np.repeat(np.eye(2, dtype=np.float32), [599, 1], axis=0)
    assert compute_cohesion(x, np.arange(600)) == pytest.approx((598 / 600, 0.0))
    assert compute_cohesion(x, np.arange(599)) == (1.0, 1.0)


@pytest.mark.parametrize("members", [[], [2]])
def test_cohesion_needs_two_members(members):
    assert compute_cohesion(np.eye(3, dtype=np.float32), members) == (None, None)


def test_mean_similarity_excludes_own_row():
    x = normalize([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    half = np.sqrt(0.5)
    found = summarize_groups(x, np.zeros(3, dtype=np.int64)).mean_similarity
    assert found == pytest.approx([half / 2, half, half / 2])
    assert np.isnan(summarize_groups(x[:1], np.zeros(1, dtype=np.int64)).mean_similarity).tolist() == [True]


@settings(deadline=None)
@given(st.integers(0, 80), st.integers(1, 9), st.integers(0, 999))
def test_group_summaries_match_their_pairs(n, groups, seed):
    x = clustered_rows(n, 5, seed)
    labels = np.random.default_rng(seed).integers(-1, groups, n)
    found = summarize_groups(x, labels)
    wide = x.astype(np.float64)
    alone = np.ones(n, dtype=bool)
    for number, members in enumerate(list_members(labels)):
        cosines = wide[members] @ wide[members].T
        if len(members) > 1:
            inner = cosines[np.triu_indices(len(members), 1)]
            assert found.mean[number] == pytest.approx(inner.mean(), abs=1e-6)
            assert found.minimum[number] == pytest.approx(inner.min(), abs=1e-6)
            others = (cosines.sum(axis=1) - cosines.diagonal()) / (len(members) - 1)
            assert found.mean_similarity[members] == pytest.approx(others, abs=1e-6)
            alone[members] = False
        else:
            assert np.isnan([found.mean[number], found.minimum[number]]).all()
    assert np.isnan(found.mean_similarity[alone]).all()
    assert len(found.mean) == len(found.minimum) == labels.max(initial=-1) + 1


def test_group_summary_memory_is_not_quadratic():
    n = 12_000
    x = normalize(np.random.default_rng(0).standard_normal((n, 8)) + 2.0)
    x[7_777] = -x[0]
    tracemalloc.start()
    found = summarize_groups(x, np.zeros(n, dtype=np.int64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 4 / 10
    assert found.minimum[0] == pytest.approx(float((x[[0, 7_777]] @ x.T).min()), abs=1e-6)


def test_summarize_groups_needs_label_per_row():
    with pytest.raises(ValueError, match=r"labels have shape \(2,\); x has 3 rows"):
        summarize_groups(np.eye(3), np.zeros(2, dtype=np.int64))
