"""Groups by every method, and what is said about a group."""

from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

from consolidation_pipeline.core import clustering
from consolidation_pipeline.core.clustering import (
    choose_representative,
    cluster_key,
    cohesion,
    connected_components,
    group,
    mean_similarities,
    members_of,
    similarity_to,
)
from consolidation_pipeline.core.similarity import SLACK, similarity_join
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline_tests.core.graphs import clustered, pairs_from, partition


def test_members_of_lists_each_group_in_order():
    assert [members.tolist() for members in members_of(np.array([1, -1, 0, 1, 0]))] == [[2, 4], [0, 3]]
    assert members_of(np.array([-1, -1])) == members_of(np.empty(0, np.int64)) == []


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 60), st.integers(0, 999), st.sampled_from([0.5, 0.75, 0.9]))
def test_average_linkage_inside_components_is_that_of_the_whole_matrix(n, seed, threshold):
    x = clustered(n, 10, seed)
    labels = group(x, similarity_join(x, threshold), method="average", threshold=threshold, min_size=2)
    wide = x.astype(np.float64)
    distances = np.clip(1.0 - (wide @ wide.T)[np.triu_indices(n, 1)], 0.0, 2.0)
    whole = fcluster(linkage(distances, "average"), 1.0 - threshold + SLACK, "distance")
    expected = {frozenset(np.flatnonzero(whole == name).tolist()) for name in set(whole.tolist())}
    assert partition(labels) == {members for members in expected if len(members) > 1}


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["average", "complete", "components", "hdbscan"]), st.integers(0, 50), st.integers(0, 999))
def test_permuting_the_rows_gives_the_same_groups(method, n, seed):
    x = clustered(n, 6, seed)
    order = np.random.default_rng(seed).permutation(n)
    straight = group(x, similarity_join(x, 0.8), method=method, threshold=0.8, min_size=2)
    shuffled = group(x[order], similarity_join(x[order], 0.8), method=method, threshold=0.8, min_size=2)
    assert {frozenset(order[list(members)].tolist()) for members in partition(shuffled)} == partition(straight)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(["average", "complete", "components"]), st.integers(2, 30), st.integers(0, 999))
def test_ties_do_not_depend_on_the_position_of_rows(method, n, seed):
    rng = np.random.default_rng(seed)
    x = normalize(rng.choice([0.0, 1.0], (n, 5)))  # few distinct cosines, many repeats
    order = rng.permutation(n)
    straight = group(x, similarity_join(x, 0.6), method=method, threshold=0.6, min_size=2)
    shuffled = group(x[order], similarity_join(x[order], 0.6), method=method, threshold=0.6, min_size=2)
    assert {frozenset(order[list(members)].tolist()) for members in partition(shuffled)} == partition(straight)


@pytest.mark.parametrize("method", ["average", "complete", "components", "hdbscan"])
def test_three_plain_clusters_are_found_by_every_method(method):
    x = normalize(np.repeat(np.eye(3, 8), 6, axis=0) + 0.02 * np.random.default_rng(0).standard_normal((18, 8)))
    labels = group(x, similarity_join(x, 0.8), method=method, threshold=0.8, min_size=3)
    assert labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6


@pytest.mark.parametrize("method", ["average", "complete", "components"])
def test_groups_below_the_minimum_size_are_left_alone(method):
    x = normalize(np.repeat(np.eye(2), [2, 3], axis=0))
    pairs = similarity_join(x, 0.9)
    assert group(x, pairs, method=method, threshold=0.9, min_size=3).tolist() == [-1, -1, 0, 0, 0]
    assert group(x, pairs, method=method, threshold=0.9, min_size=1).tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("method", ["average", "complete", "components", "hdbscan"])
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_too_few_rows_for_a_group_are_left_alone(method, n):
    x = np.eye(3, dtype=np.float32)[:n]
    assert group(x, similarity_join(x, 0.9), method=method, threshold=0.9, min_size=3).tolist() == [-1] * n


def test_hdbscan_leaves_noise_alone():
    rng = np.random.default_rng(4)
    centres = np.eye(5)
    centres[1, 0] = 1.0  # the two dense places are closer to each other than the lone rows to anything
    x = normalize(centres[[0] * 8 + [1] * 8 + [2, 3, 4]] + 0.01 * rng.standard_normal((19, 5)))
    labels = group(x, similarity_join(x, 0.9), method="hdbscan", threshold=0.9, min_size=4)
    assert labels.tolist() == [0] * 8 + [1] * 8 + [-1] * 3


def test_an_unknown_method_is_refused_with_the_legal_ones():
    x = np.eye(2, dtype=np.float32)
    with pytest.raises(InvalidOptionError, match="'kmeans'; it must be one of average, complete, components, hdbscan"):
        group(x, similarity_join(x, 0.5), method="kmeans", threshold=0.5, min_size=2)


def test_groups_need_a_matrix_and_pairs_of_its_rows():
    with pytest.raises(ValueError, match=r"x has shape \(3,\)"):
        group(np.ones(3), pairs_from({}), method="average", threshold=0.5, min_size=2)
    with pytest.raises(ValueError, match="pairs name rows 0 to 2"):
        group(np.eye(2), pairs_from({(0, 2): 1.0}), method="average", threshold=0.5, min_size=2)


def test_a_component_too_large_to_link_is_split_where_it_is_weakest(monkeypatch):
    monkeypatch.setattr(clustering, "LARGEST_COMPONENT", 10)
    angles = np.r_[np.linspace(0.0, 0.08, 9), np.linspace(0.3, 0.38, 9)]  # two dense arcs, one bridge
    x = normalize(np.column_stack([np.cos(angles), np.sin(angles)]))
    pairs = similarity_join(x, 0.9)
    assert not connected_components(18, pairs, 0.9).any()
    labels = group(x, pairs, method="average", threshold=0.9, min_size=2)
    assert labels.tolist() == [0] * 9 + [1] * 9


def test_splitting_a_dense_component_does_not_scatter_it(monkeypatch):
    monkeypatch.setattr(clustering, "LARGEST_COMPONENT", 50)
    rng = np.random.default_rng(0)
    x = normalize(rng.standard_normal((1, 8)) + 0.05 * rng.standard_normal((60, 8)))
    labels = group(x, similarity_join(x, 0.7), method="average", threshold=0.7, min_size=2)
    assert (labels >= 0).sum() >= 30


def test_repeats_beyond_the_largest_component_are_one_group(monkeypatch):
    monkeypatch.setattr(clustering, "LARGEST_COMPONENT", 10)
    x = normalize(np.repeat(np.eye(2), [30, 4], axis=0))
    labels = group(x, similarity_join(x, 0.8), method="average", threshold=0.8, min_size=3)
    assert labels.tolist() == [0] * 30 + [1] * 4


@settings(deadline=None)
@given(st.integers(2, 40), st.integers(0, 99))
def test_cohesion_is_mean_and_minimum_over_all_pairs(n, seed):
    x = clustered(n + 5, 7, seed)
    members = np.random.default_rng(seed).permutation(n + 5)[:n]
    wide = x[members].astype(np.float64)
    cosines = (wide @ wide.T)[np.triu_indices(n, 1)]
    mean, minimum = cohesion(x, members)
    assert mean == pytest.approx(cosines.mean(), abs=1e-6)
    assert minimum == pytest.approx(cosines.min(), abs=1e-6)


def test_cohesion_of_a_large_group_looks_at_every_pair():
    x = np.repeat(np.eye(2, dtype=np.float32), [599, 1], axis=0)
    assert cohesion(x, np.arange(600)) == pytest.approx((598 / 600, 0.0))
    assert cohesion(x, np.arange(599)) == (1.0, 1.0)


@pytest.mark.parametrize("members", [[], [2]])
def test_cohesion_is_undefined_without_a_pair(members):
    assert cohesion(np.eye(3, dtype=np.float32), members) == (None, None)


def test_similarity_to_the_representative():
    x = normalize([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [-1.0, 0.0]])
    similarity = similarity_to(x, [0, 1, 3], 0)
    assert similarity.dtype == np.float32
    assert similarity == pytest.approx([1.0, np.sqrt(0.5), -1.0])


def test_mean_similarity_counts_the_others_only():
    x = normalize([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    half = np.sqrt(0.5)
    assert mean_similarities(x, [0, 1, 2]) == pytest.approx([half / 2, half, half / 2])
    assert np.isnan(mean_similarities(x, [1])).tolist() == [True]


@pytest.mark.parametrize(
    ("reused", "similar", "ids", "expected"),
    [
        ([1, 3, 2], [0.9, 0.1, 0.9], ["a", "b", "c"], 1),
        ([3, 3, 1], [0.8, 0.9, 1.0], ["a", "b", "c"], 1),
        ([3, 3, 3], [0.9, 0.9, 0.8], ["z", "b", "a"], 1),
        ([0, 0], [0.9 + 1e-9, 0.9], ["b", "a"], 1),
        ([0], [np.nan], ["a"], 0),
    ],
)
def test_the_representative_is_most_reused_then_most_similar_then_first(reused, similar, ids, expected):
    assert choose_representative(reused, similar, ids) == expected


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0.8, 0.9]), st.uuids()), min_size=1, unique_by=lambda m: m[2]
    )
)
def test_the_representative_does_not_depend_on_the_order_of_members(members):
    def chosen(rows: list[tuple[int, float, UUID]]) -> UUID:
        reused, similar, ids = zip(*rows, strict=True)
        return ids[choose_representative(reused, similar, ids)]

    assert chosen(members) == chosen(members[::-1]) == chosen(sorted(members))


@pytest.mark.parametrize(
    ("reused", "similar", "ids"), [([], [], []), ([1], [0.5, 0.6], ["a"]), ([1, 2], [0.5, 0.6], ["a"])]
)
def test_a_representative_needs_members_described_alike(reused, similar, ids):
    with pytest.raises(ValueError, match="one of each per member"):
        choose_representative(reused, similar, ids)


@settings(deadline=None)
@given(st.lists(st.uuids(), min_size=1, max_size=8, unique=True))
def test_a_cluster_key_names_its_members_in_any_order_and_form(ids):
    key = cluster_key(ids)
    assert len(key) == 32
    assert key == cluster_key(ids[::-1]) == cluster_key([str(member) for member in ids])
    assert key != cluster_key([*ids, "another"])
    assert key != cluster_key(ids, "another version")


def test_cluster_keys_do_not_confuse_ids_that_read_alike():
    assert cluster_key(["a", "b"]) != cluster_key(["a,b"]) != cluster_key(["ab"])


def test_a_cluster_key_is_the_same_on_every_machine():
    assert cluster_key([UUID(int=1), UUID(int=2)], "1") == "7a791d3a3a27dcda404783e4a5a2ecc2"
