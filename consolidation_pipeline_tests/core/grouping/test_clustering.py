"""Clustering by every method, and cluster keys."""

from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.clustering import MAX_HDBSCAN_ROWS, cluster_key, cluster_keys, cluster_rows
from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.similarity.similarity_join import similarity_join
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline_tests.core.grouping.graphs import clustered_rows, group_rows, pairs_from, partition
from consolidation_pipeline_tests.hypothesis_examples import examples


def test_list_members_orders_rows_of_each_group():
    assert [members.tolist() for members in list_members(np.array([1, -1, 0, 1, 0]))] == [[2, 4], [0, 3]]
    assert list_members(np.array([-1, -1])) == list_members(np.empty(0, np.int64)) == []


def assert_order_is_ignored(x, order, threshold, method):
    straight, shuffled = group_rows(x, threshold, method=method), group_rows(x[order], threshold, method=method)
    assert {frozenset(order[list(members)].tolist()) for members in partition(shuffled)} == partition(straight)


@settings(deadline=None, max_examples=examples(30))
@given(st.sampled_from(["average", "complete", "components", "hdbscan"]), st.integers(0, 50), st.integers(0, 999))
def test_permuted_rows_form_same_groups(method, n, seed):
    assert_order_is_ignored(clustered_rows(n, 6, seed), np.random.default_rng(seed).permutation(n), 0.8, method)


@settings(deadline=None, max_examples=examples(30))
@given(st.sampled_from(["average", "complete", "components"]), st.integers(2, 30), st.integers(0, 999))
def test_ties_ignore_row_positions(method, n, seed):
    rng = np.random.default_rng(seed)
    x = normalize(rng.choice([0.0, 1.0], (n, 5)))  # few distinct cosines, many repeats
    assert_order_is_ignored(x, rng.permutation(n), 0.6, method)


@pytest.mark.parametrize("method", ["average", "complete", "components", "hdbscan"])
def test_every_method_finds_plain_clusters(method):
    x = normalize(np.repeat(np.eye(3, 8), 6, axis=0) + 0.02 * np.random.default_rng(0).standard_normal((18, 8)))
    labels = group_rows(x, 0.8, method=method, min_size=3)
    assert labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6


@pytest.mark.parametrize("method", ["average", "complete", "components"])
def test_groups_below_minimum_size_are_dropped(method):
    x = normalize(np.repeat(np.eye(2), [2, 3], axis=0))
    pairs = similarity_join(x, 0.9)
    assert cluster_rows(x, pairs, method=method, threshold=0.9, min_size=3).tolist() == [-1, -1, 0, 0, 0]
    assert cluster_rows(x, pairs, method=method, threshold=0.9, min_size=1).tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("method", ["average", "complete", "components", "hdbscan"])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_too_few_rows_stay_ungrouped(method, n):
    x = np.eye(3, dtype=np.float32)[:n]
    assert group_rows(x, 0.9, method=method, min_size=3).tolist() == [-1] * n


def test_hdbscan_leaves_noise_ungrouped():
    rng = np.random.default_rng(4)
    centres = np.eye(5)
    centres[1, 0] = 1.0  # the two dense regions are closer to each other than single rows to any row
    x = normalize(centres[[0] * 8 + [1] * 8 + [2, 3, 4]] + 0.01 * rng.standard_normal((19, 5)))
    labels = group_rows(x, 0.9, method="hdbscan", min_size=4)
    assert labels.tolist() == [0] * 8 + [1] * 8 + [-1] * 3


def test_unknown_clustering_method_is_rejected():
    x = np.eye(2, dtype=np.float32)
    with pytest.raises(InvalidOptionError, match="'kmeans'; it must be one of average, complete, components, hdbscan"):
        group_rows(x, 0.5, method="kmeans")


def test_cluster_rows_rejects_invalid_shapes():
    with pytest.raises(ValueError, match=r"x has shape \(3,\)"):
        cluster_rows(np.ones(3), pairs_from({}), method="average", threshold=0.5, min_size=2)
    with pytest.raises(ValueError, match="pairs name rows 0 to 2"):
        cluster_rows(np.eye(2), pairs_from({(0, 2): 1.0}), method="average", threshold=0.5, min_size=2)


def test_hdbscan_rejects_too_many_rows():
    x = np.ones((MAX_HDBSCAN_ROWS + 1, 1), dtype=np.float32)
    with pytest.raises(InvalidOptionError, match="there are 30001 units to group; it takes at most 30000"):
        cluster_rows(x, pairs_from({}), method="hdbscan", threshold=0.5, min_size=2)


@settings(deadline=None)
@given(st.lists(st.uuids(), min_size=1, max_size=8, unique=True))
def test_cluster_key_ignores_member_order(ids):
    key = cluster_key(ids)
    assert len(key) == 32
    assert key == cluster_key(ids[::-1]) == cluster_key([str(member) for member in ids])
    assert key != cluster_key([*ids, "another"])
    assert key != cluster_key(ids, "another version")


def test_cluster_keys_match_single_keys():
    ids = [UUID(int=number) for number in (9 << 64, 7, 1 << 100, 256, 0, 5)]
    array = np.array([id_.bytes for id_ in ids], dtype="S16")
    groups = np.array([0, 0, 1, 2, 2, 2])
    assert cluster_keys(array, groups) == [cluster_key(ids[:2]), cluster_key(ids[2:3]), cluster_key(ids[3:])]
    assert cluster_keys(array[:0], groups[:0]) == []


def test_cluster_key_separates_similar_ids():
    assert cluster_key(["a", "b"]) != cluster_key(["a,b"]) != cluster_key(["ab"])


def test_cluster_key_is_stable():
    assert cluster_key([UUID(int=1), UUID(int=2)], "1") == "7a791d3a3a27dcda404783e4a5a2ecc2"
