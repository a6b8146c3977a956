"""Nearest-neighbor chains: equal results compiled and in Python, and termination on any graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping import agglomeration
from consolidation_pipeline.core.grouping.agglomeration import agglomerate
from consolidation_pipeline.core.grouping.average_linkage import NO_LIMIT
from consolidation_pipeline.core.grouping.clustering import cluster_rows
from consolidation_pipeline.core.grouping.linkage import connected_components
from consolidation_pipeline.core.grouping.nearest_neighbor_chain import Rows
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, similarity_join
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline_tests.core.grouping.graphs import clustered_rows, group_rows, partition, ring_rows
from consolidation_pipeline_tests.hypothesis_examples import examples


def rows_of(sums: np.ndarray, lowest: float) -> Rows:
    ones = np.ones(len(sums), dtype=np.int64)
    return Rows(sums, ones, ones.copy(), lowest, NO_LIMIT)


@pytest.mark.parametrize("method", ["average", "complete"])
@pytest.mark.parametrize("tied", [False, True])
def test_compiled_and_python_linkage_agree(monkeypatch, method, tied):
    x = normalize(np.random.default_rng(3).choice([0.0, 1.0], (400, 6))) if tied else clustered_rows(400, 8, 3)
    found = []
    for is_compiled in (True, False):
        monkeypatch.setattr(agglomeration.FOLLOW_CHAINS, "pays", lambda _, answer=is_compiled: answer)
        found.append(group_rows(x, 0.7, method=method).tolist())
    assert found[0] == found[1]
    assert max(found[0]) > 3


@pytest.mark.parametrize(("rows", "saved"), [(False, 3e-6), (True, 1.2e-5)])
def test_kernel_savings_are_counted_per_edge(monkeypatch, rows, saved):
    savings = []
    monkeypatch.setattr(agglomeration.FOLLOW_CHAINS, "pays", lambda seconds: savings.append(seconds) or False)
    given_rows = {"rows": rows_of(np.eye(3), 0.5)} if rows else {}
    agglomerate(3, np.array([0, 1]), np.array([1, 2]), np.array([0.9, 0.8]), **given_rows)
    assert savings == [2 * saved]


@settings(deadline=None, max_examples=examples(100))
@given(st.integers(2, 40), st.integers(0, 999), st.floats(0.1, 0.9))
def test_sparse_graph_forms_connected_groups_only(n, seed, share):
    x = clustered_rows(n, 3, seed)
    pairs = similarity_join(x, 0.6)
    pairs = pairs.select(np.random.default_rng(seed).random(len(pairs)) < share)
    labels = cluster_rows(x, pairs, method="average", threshold=0.6, min_size=2)
    connected = partition(connected_components(n, pairs, 0.6))
    assert all(any(members <= piece for piece in connected) for members in partition(labels))


def test_ties_ignore_summation_order():
    # On a ring every row is equally close to both neighbors, up to the rounding of a rotation.
    rng = np.random.default_rng(0)
    ring = ring_rows(60, seed=None).astype(np.float64) @ np.linalg.qr(rng.standard_normal((64, 2)))[0].T
    i, j = np.triu_indices(60, 1)
    found = {
        tuple(agglomerate(60, i, j, np.ones(len(i)), rows=rows_of(np.ascontiguousarray(turned), 0.9)).tolist())
        for turned in (ring[:, rng.permutation(64)] for _ in range(20))
    }
    assert len(found) == 1


def test_long_neighbor_chain_is_followed_to_end():
    n = 300
    similarity = np.linspace(0.8, 0.9, n - 1).astype(np.float32)
    chain = SimilarPairs(np.arange(n - 1), np.arange(1, n), similarity)
    into = agglomerate(n, chain.i, chain.j, chain.similarity)
    assert into.tolist() == [at - at % 2 for at in range(n)]
