"""Average linkage on the pair graph compared with the full distance matrix."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

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
    n, threshold = 20_000, 0.99999
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
