"""Complete linkage compared with its definition, and connected components."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.grouping.linkage import complete_linkage, connected_components
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs
from consolidation_pipeline_tests.core.grouping.graphs import Graph, graphs, pairs_from, partition
from consolidation_pipeline_tests.hypothesis_examples import examples


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


@settings(deadline=None, max_examples=examples(200))
@given(graphs(), st.sampled_from([0.7, 0.85, 0.9]))
def test_complete_linkage_follows_definition(drawn, threshold):
    n, graph = drawn
    labels = complete_linkage(n, pairs_from(graph), threshold)
    assert partition(labels) == complete_linkage_by_definition(n, graph, threshold, [-1] * n)


@settings(deadline=None, max_examples=examples(200))
@given(graphs(), st.sampled_from([0.7, 0.85, 0.9]))
def test_complete_linkage_pairs_reach_threshold(drawn, threshold):
    n, graph = drawn
    for members in list_members(complete_linkage(n, pairs_from(graph), threshold)):
        assert all(graph[pair] >= threshold for pair in itertools.combinations(members.tolist(), 2))


@settings(deadline=None, max_examples=examples(200))
@given(graphs(), st.sampled_from([0.7, 0.85]))
def test_complete_linkage_leaves_no_mergeable_groups(drawn, threshold):
    n, graph = drawn
    labels = complete_linkage(n, pairs_from(graph), threshold)
    groups = partition(labels) | {frozenset([at]) for at in range(n) if labels[at] == -1}
    assert all(weakest(graph, a, b) < threshold for a, b in itertools.combinations(groups, 2))


@settings(deadline=None)
@given(graphs(), st.randoms())
def test_linkage_ignores_pair_order_and_repeats(drawn, random):
    n, graph = drawn
    listed = [(*random.sample(pair, 2), similarity) for pair, similarity in graph.items()]
    listed = random.sample(listed, len(listed)) + listed[:2]
    i, j, similarity = (np.array([row[at] for row in listed]) for at in range(3))
    shuffled = SimilarPairs(i.astype(np.int32), j.astype(np.int32), similarity.astype(np.float32))
    assert (complete_linkage(n, shuffled, 0.8) == complete_linkage(n, pairs_from(graph), 0.8)).all()
    assert (connected_components(n, shuffled, 0.8) == connected_components(n, pairs_from(graph), 0.8)).all()


@settings(deadline=None, max_examples=examples(200))
@given(graphs_with_initial())
def test_initial_groups_stay_together(drawn):
    n, graph, initial = drawn
    labels = complete_linkage(n, pairs_from(graph), 0.8, initial=initial)
    assert partition(labels) == complete_linkage_by_definition(n, graph, 0.8, initial)
    for name in set(initial) - {-1}:
        assert len(set(labels[np.array(initial) == name].tolist())) == 1


@settings(deadline=None, max_examples=examples(200))
@given(graphs_with_initial())
def test_new_member_is_paired_with_whole_group(drawn):
    n, graph, initial = drawn
    for members in list_members(complete_linkage(n, pairs_from(graph), 0.8, initial=initial)):
        for a, b in itertools.combinations(members.tolist(), 2):
            assert initial[a] == initial[b] != -1 or graph[a, b] >= 0.8


def test_complete_linkage_does_not_chain():
    chain = pairs_from({(0, 1): 0.96, (1, 2): 0.95})
    assert complete_linkage(3, chain, 0.9).tolist() == [0, 0, -1]
    assert connected_components(3, chain, 0.9).tolist() == [0, 0, 0]


def test_row_joins_group_only_if_close_to_all():
    near_one = pairs_from({(0, 2): 0.99})
    near_both = pairs_from({(0, 2): 0.99, (1, 2): 0.91})
    assert complete_linkage(3, near_one, 0.9, initial=[4, 4, -1]).tolist() == [0, 0, -1]
    assert complete_linkage(3, near_both, 0.9, initial=[4, 4, -1]).tolist() == [0, 0, 0]


def test_groups_are_numbered_by_first_member():
    labels = complete_linkage(6, pairs_from({(1, 5): 0.91, (2, 3): 0.99}), 0.9)
    assert labels.tolist() == [-1, 0, 1, 1, -1, 0]
    assert labels.dtype == np.int64


def test_linkage_threshold_is_inclusive_with_slack():
    pairs = pairs_from({(0, 1): 0.9 - 5e-7, (2, 3): 0.9 - 2e-6})
    assert complete_linkage(4, pairs, 0.9).tolist() == [0, 0, -1, -1]
    assert connected_components(4, pairs, 0.9).tolist() == [0, 0, -1, -1]


def test_exact_repeats_form_one_group():
    i, j = np.triu_indices(1500, 1)
    labels = complete_linkage(1500, SimilarPairs(i, j, np.ones(len(i), np.float32)), 0.95)
    assert not labels.any()


@pytest.mark.parametrize("join", [complete_linkage, connected_components])
def test_linkage_without_pairs_forms_no_groups(join):
    assert join(3, pairs_from({}), 0.9).tolist() == [-1, -1, -1]
    assert join(0, pairs_from({}), 0.9).tolist() == []


@pytest.mark.parametrize("join", [complete_linkage, connected_components])
@pytest.mark.parametrize("graph", [{(0, 3): 1.0}, {(-1, 2): 1.0}])
def test_linkage_rejects_pairs_of_missing_rows(join, graph):
    with pytest.raises(ValueError, match="pairs name rows"):
        join(3, pairs_from(graph), 0.9)


@pytest.mark.parametrize("initial", [[0, 0], [[0, 0, 0]], [0.0, 0.5, 1.0]])
def test_linkage_rejects_invalid_initial_labels(initial):
    with pytest.raises(ValueError, match="initial has shape"):
        complete_linkage(3, pairs_from({}), 0.9, initial=initial)
