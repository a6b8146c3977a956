"""Average linkage on the pair graph compared with the full distance matrix."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

from consolidation_pipeline.core.grouping import average_linkage
from consolidation_pipeline.core.grouping.average_linkage import NO_LIMIT, LinkageLimits
from consolidation_pipeline.core.grouping.clustering import cluster_rows
from consolidation_pipeline.core.grouping.labels import Labels, list_members, renumber_labels
from consolidation_pipeline.core.grouping.linkage import connected_components
from consolidation_pipeline.core.similarity.similarity_join import SLACK, similarity_join
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.core.grouping.graphs import clustered_rows, group_rows, pairs_from, ring_rows
from consolidation_pipeline_tests.hypothesis_examples import examples


def link_all_rows(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return linkage(np.clip(1.0 - (wide @ wide.T)[np.triu_indices(len(x), 1)], 0.0, 2.0), "average")


def cut_tree(tree: np.ndarray, threshold: float) -> Labels:
    return renumber_labels(fcluster(tree, 1.0 - threshold + SLACK, "distance").astype(np.int64), 2)


@settings(deadline=None, max_examples=examples(200))
@given(st.integers(2, 60), st.integers(2, 12), st.integers(0, 9999), st.sampled_from([-0.2, 0.3, 0.5, 0.75, 0.9]))
def test_average_linkage_matches_full_matrix(n, d, seed, threshold):
    x = clustered_rows(n, d, seed)
    tree = link_all_rows(x)
    heights = np.sort(np.append(tree[:, 2], 1.0 - threshold + SLACK))
    assume(np.diff(heights).min() > 1e-9)
    assert group_rows(x, threshold).tolist() == cut_tree(tree, threshold).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("d", [3, 6])
def test_average_linkage_of_large_component_is_exact(d):
    x = normalize(np.random.default_rng(5).standard_normal((3000, d)))
    threshold = {3: 0.99, 6: 0.85}[d]
    pairs = similarity_join(x, threshold)
    assert max(map(len, list_members(connected_components(3000, pairs, threshold)))) > 2_950
    assert group_rows(x, threshold).tolist() == cut_tree(link_all_rows(x), threshold).tolist()


def test_average_linkage_memory_is_not_quadratic():
    n, threshold = 10_000, 0.99999
    x = ring_rows(n, seed=1)
    pairs = similarity_join(x, threshold)
    assert len(list_members(connected_components(n, pairs, threshold))) == 1
    group_rows(ring_rows(3_000, seed=2), 0.99)  # load the compiled code before memory is measured
    tracemalloc.start()
    labels = cluster_rows(x, pairs, method="average", threshold=threshold, min_size=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 4 / 10
    sums = np.array([x[members].astype(np.float64).mean(axis=0) for members in list_members(labels)])
    assert (np.einsum("ij,ij->i", sums, sums) > threshold - 1e-5).all()
    between = sums @ sums.T - 2.0 * np.eye(len(sums))
    assert between.max() < threshold


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_equal_rows_form_one_group_zero_rows_none(n):
    equal, zero = np.repeat(np.eye(1, 4, dtype=np.float32), n, axis=0), np.zeros((n, 4), dtype=np.float32)
    assert group_rows(equal, 0.9).tolist() == ([0] * n if n > 1 else [-1] * n)
    assert group_rows(zero, 0.9).tolist() == [-1] * n
    assert group_rows(zero, 0.0).tolist() == group_rows(equal, 0.9).tolist()


def test_near_repeats_form_one_group_each():
    x = normalize(np.repeat(np.eye(3), [40, 1, 30], axis=0))
    x[:5] += np.float32(1e-7)
    assert group_rows(normalize(x), 0.8, min_size=3).tolist() == [0] * 40 + [-1] + [1] * 30


def test_compiled_linkage_groups_many_repeats():
    x = normalize(np.repeat(np.eye(2), [600, 30], axis=0))
    assert group_rows(x, 0.8).tolist() == [0] * 600 + [1] * 30


def test_average_linkage_ignores_duplicate_pairs():
    x = clustered_rows(30, 6, 1)
    pairs = similarity_join(x, 0.7)
    i, j = np.r_[pairs.i, pairs.j], np.r_[pairs.j, pairs.i]
    twice = type(pairs)(i, j, np.r_[pairs.similarity, pairs.similarity])
    labels = cluster_rows(x, twice, method="average", threshold=0.7, min_size=2)
    assert labels.tolist() == group_rows(x, 0.7).tolist()


def test_average_linkage_compares_rows_by_direction():
    x = clustered_rows(40, 6, 2)
    rounded = x.astype(np.float16)
    assert group_rows(rounded, 0.7).tolist() == cut_tree(link_all_rows(rounded.astype(np.float32)), 0.7).tolist()


def test_rows_without_pairs_stay_ungrouped():
    for x in (np.eye(3), np.empty((3, 0))):
        labels = cluster_rows(x, pairs_from({}), method="average", threshold=0.5, min_size=2)
        assert labels.tolist() == [-1, -1, -1]


def limits_of(n: int, seed: int, most: int) -> LinkageLimits:
    rng = np.random.default_rng(seed)
    return LinkageLimits(rng.integers(0, 3, n), rng.integers(1, 4, n), most)


@settings(deadline=None, max_examples=examples(100))
@given(
    st.integers(2, 90),
    st.integers(0, 9999),
    st.sampled_from([5, 20, NO_LIMIT]),
    st.sampled_from([0.5, 0.8, 1.1]),
    st.sampled_from([0, 5, 1 << 20]),
    st.sampled_from([1, 1 << 22]),
)
def test_rounds_without_pairs_match_linkage_at_once(n, seed, most, complete_from, pairs_of_round, elements):
    x, limits = clustered_rows(n, 6, seed), limits_of(n, seed, most)
    pairs = similarity_join(x, 0.2)
    pairs = pairs.select(limits.walls[pairs.i] == limits.walls[pairs.j])
    options = {"method": "average", "threshold": 0.2, "min_size": 2, "limits": limits}
    at_once = cluster_rows(x, pairs, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(average_linkage, "_ROUND_PAIRS", pairs_of_round)
        patch.setattr(average_linkage, "_ROUND_PAIRS_PER_GROUP", 0)
        patch.setattr(average_linkage, "_ELEMENTS", elements)
        in_rounds = cluster_rows(x, pairs.at_least(complete_from), complete_from=complete_from, **options)
    assert in_rounds.tolist() == at_once.tolist()


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(2, 90), st.integers(0, 9999), st.integers(3, 30))
def test_groups_keep_walls_and_highest_weight(n, seed, most):
    x, limits = clustered_rows(n, 4, seed), limits_of(n, seed, most)
    pairs = similarity_join(x, 0.3)
    pairs = pairs.select(limits.walls[pairs.i] == limits.walls[pairs.j])
    labels = cluster_rows(x, pairs, method="average", threshold=0.3, min_size=2, limits=limits)
    for members in list_members(labels):
        assert len(set(limits.walls[members].tolist())) == 1
        assert limits.weights[members].sum() <= most


def test_too_large_group_is_split_where_it_is_loosest():
    near = normalize(np.array([[1, 0.1], [1, 0.2], [1, 0.3], [0.3, 1], [0.2, 1], [0.1, 1]]))
    limits = LinkageLimits(np.zeros(6, dtype=np.int64), np.ones(6, dtype=np.int64), 4)
    pairs = similarity_join(near, 0.2)
    assert group_rows(near, 0.2).tolist() == [0] * 6
    labels = cluster_rows(near, pairs, method="average", threshold=0.2, min_size=2, limits=limits)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.slow
def test_memory_of_rounds_is_bounded():
    n = 6_000
    x = normalize(np.random.default_rng(4).standard_normal((n, 48)))
    group_rows(ring_rows(3_000, seed=2), 0.99)  # load the compiled code before memory is measured
    tracemalloc.start()
    labels = cluster_rows(x, pairs_from({}), method="average", threshold=0.1, min_size=2, complete_from=1.1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A fifth of all 18 million pairs reach the threshold.
    assert peak < 250e6
    assert labels.min() >= 0
