import itertools
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
    complete_linkage,
    connected_components,
    group,
    mean_similarities,
    members_of,
    similarity_to,
)
from consolidation_pipeline.core.similarity import SLACK, SimilarPairs, similarity_join
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline.errors import InvalidOptionError

Graph = dict[tuple[int, int], float]


def pairs_from(graph: Graph) -> SimilarPairs:
    i, j = (np.array([pair[side] for pair in graph], dtype=np.int32) for side in (0, 1))
    return SimilarPairs(i, j, np.array(list(graph.values()), dtype=np.float32))


def partition(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(members.tolist()) for members in members_of(labels)}


def clustered(n: int, d: int, seed: int, noise: float = 0.35) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, n // 6), d))
    return normalize(centres[rng.integers(0, len(centres), n)] + noise * rng.standard_normal((n, d)))


@st.composite
def graphs(draw) -> tuple[int, Graph]:
    n = draw(st.integers(0, 11))
    possible = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    # Few distinct values, so that ties are common.
    return n, {pair: draw(st.sampled_from([0.7, 0.8, 0.85, 0.9, 0.95, 1.0])) for pair in chosen}


@st.composite
def graphs_with_initial(draw) -> tuple[int, Graph, list[int]]:
    n, graph = draw(graphs())
    return n, graph, draw(st.lists(st.integers(-1, 2), min_size=n, max_size=n))


def weakest(graph: Graph, a: frozenset[int], b: frozenset[int]) -> float:
    return min(graph.get((min(p, q), max(p, q)), -2.0) for p in a for q in b)


def complete_linkage_by_definition(n: int, graph: Graph, threshold: float, initial: list[int]) -> set[frozenset[int]]:
    named = {frozenset(at for at in range(n) if initial[at] == name) for name in set(initial) - {-1}}
    found = named | {frozenset([at]) for at in range(n) if initial[at] == -1}
    while True:
        merges = [
            (-weakest(graph, a, b), min(a), min(b), a, b)
            for a, b in itertools.permutations(found, 2)
            if min(a) < min(b) and weakest(graph, a, b) >= threshold
        ]
        if not merges:
            return {members for members in found if len(members) > 1}
        *_, a, b = min(merges, key=lambda merge: merge[:3])
        found = found - {a, b} | {a | b}


@settings(deadline=None, max_examples=200)
@given(graphs(), st.sampled_from([0.7, 0.85, 0.9]))
def test_complete_linkage_follows_its_definition(drawn, threshold):
    n, graph = drawn
    labels = complete_linkage(n, pairs_from(graph), threshold)
    assert partition(labels) == complete_linkage_by_definition(n, graph, threshold, [-1] * n)


@settings(deadline=None, max_examples=200)
@given(graphs(), st.sampled_from([0.7, 0.85, 0.9]))
def test_every_pair_of_a_group_reaches_the_threshold(drawn, threshold):
    n, graph = drawn
    for members in members_of(complete_linkage(n, pairs_from(graph), threshold)):
        assert all(graph[pair] >= threshold for pair in itertools.combinations(members.tolist(), 2))


@settings(deadline=None, max_examples=200)
@given(graphs(), st.sampled_from([0.7, 0.85]))
def test_no_two_resulting_groups_could_still_merge(drawn, threshold):
    n, graph = drawn
    labels = complete_linkage(n, pairs_from(graph), threshold)
    groups = partition(labels) | {frozenset([at]) for at in range(n) if labels[at] == -1}
    assert all(weakest(graph, a, b) < threshold for a, b in itertools.combinations(groups, 2))


@settings(deadline=None)
@given(graphs(), st.randoms())
def test_the_order_and_direction_of_pairs_and_repeats_do_not_matter(drawn, random):
    n, graph = drawn
    listed = [(*random.sample(pair, 2), similarity) for pair, similarity in graph.items()]
    listed = random.sample(listed, len(listed)) + listed[:2]
    i, j, similarity = (np.array([row[at] for row in listed]) for at in range(3))
    shuffled = SimilarPairs(i.astype(np.int32), j.astype(np.int32), similarity.astype(np.float32))
    assert (complete_linkage(n, shuffled, 0.8) == complete_linkage(n, pairs_from(graph), 0.8)).all()
    assert (connected_components(n, shuffled, 0.8) == connected_components(n, pairs_from(graph), 0.8)).all()


@settings(deadline=None, max_examples=200)
@given(graphs_with_initial())
def test_initial_groups_stay_together_and_follow_the_definition(drawn):
    n, graph, initial = drawn
    labels = complete_linkage(n, pairs_from(graph), 0.8, initial=initial)
    assert partition(labels) == complete_linkage_by_definition(n, graph, 0.8, initial)
    for name in set(initial) - {-1}:
        assert len(set(labels[np.array(initial) == name].tolist())) == 1


@settings(deadline=None, max_examples=200)
@given(graphs_with_initial())
def test_whoever_joins_an_initial_group_is_paired_with_all_of_it(drawn):
    n, graph, initial = drawn
    for members in members_of(complete_linkage(n, pairs_from(graph), 0.8, initial=initial)):
        for a, b in itertools.combinations(members.tolist(), 2):
            assert initial[a] == initial[b] != -1 or graph[a, b] >= 0.8


def test_similarity_does_not_chain():
    chain = pairs_from({(0, 1): 0.96, (1, 2): 0.95})
    assert complete_linkage(3, chain, 0.9).tolist() == [0, 0, -1]
    assert connected_components(3, chain, 0.9).tolist() == [0, 0, 0]


def test_a_newcomer_extends_an_existing_group_only_if_close_to_all_of_it():
    near_one = pairs_from({(0, 2): 0.99})
    near_both = pairs_from({(0, 2): 0.99, (1, 2): 0.91})
    assert complete_linkage(3, near_one, 0.9, initial=[4, 4, -1]).tolist() == [0, 0, -1]
    assert complete_linkage(3, near_both, 0.9, initial=[4, 4, -1]).tolist() == [0, 0, 0]


def test_groups_are_numbered_by_their_first_member():
    labels = complete_linkage(6, pairs_from({(1, 5): 0.91, (2, 3): 0.99}), 0.9)
    assert labels.tolist() == [-1, 0, 1, 1, -1, 0]
    assert labels.dtype == np.int64


def test_the_threshold_is_inclusive_with_slack():
    pairs = pairs_from({(0, 1): 0.9 - 5e-7, (2, 3): 0.9 - 2e-6})
    assert complete_linkage(4, pairs, 0.9).tolist() == [0, 0, -1, -1]
    assert connected_components(4, pairs, 0.9).tolist() == [0, 0, -1, -1]


def test_a_clique_of_exact_repeats_is_one_group():
    i, j = np.triu_indices(1500, 1)
    labels = complete_linkage(1500, SimilarPairs(i, j, np.ones(len(i), np.float32)), 0.95)
    assert not labels.any()


@pytest.mark.parametrize("join", [complete_linkage, connected_components])
def test_without_pairs_everyone_is_alone(join):
    assert join(3, pairs_from({}), 0.9).tolist() == [-1, -1, -1]
    assert join(0, pairs_from({}), 0.9).tolist() == []


@pytest.mark.parametrize("join", [complete_linkage, connected_components])
@pytest.mark.parametrize("graph", [{(0, 3): 1.0}, {(-1, 2): 1.0}])
def test_pairs_of_rows_that_do_not_exist_are_refused(join, graph):
    with pytest.raises(ValueError, match="pairs name rows"):
        join(3, pairs_from(graph), 0.9)


@pytest.mark.parametrize("initial", [[0, 0], [[0, 0, 0]], [0.0, 0.5, 1.0]])
def test_initial_labels_that_do_not_fit_are_refused(initial):
    with pytest.raises(ValueError, match="initial has shape"):
        complete_linkage(3, pairs_from({}), 0.9, initial=initial)


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
