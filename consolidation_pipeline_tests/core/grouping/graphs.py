"""Strategies and samples: graphs of similar pairs, and clustered vectors."""

import itertools

import numpy as np
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.clustering import cluster_rows
from consolidation_pipeline.core.grouping.labels import Labels, list_members
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs, similarity_join
from consolidation_pipeline.core.vectors import normalize

Graph = dict[tuple[int, int], float]


def group_rows(x: np.ndarray, threshold: float, *, method: str = "average", min_size: int = 2) -> Labels:
    """Group rows by the pairs that reach the threshold."""
    return cluster_rows(x, similarity_join(x, threshold), method=method, threshold=threshold, min_size=min_size)


def pairs_from(graph: Graph) -> SimilarPairs:
    i, j = (np.array([pair[side] for pair in graph], dtype=np.int32) for side in (0, 1))
    return SimilarPairs(i, j, np.array(list(graph.values()), dtype=np.float32))


def partition(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(members.tolist()) for members in list_members(labels)}


def clustered_rows(n: int, d: int, seed: int, noise: float = 0.35) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, n // 6), d))
    return normalize(centres[rng.integers(0, len(centres), n)] + noise * rng.standard_normal((n, d)))


def ring_rows(n: int, seed: int | None) -> np.ndarray:
    """Return unit vectors (n, 2) around the circle, evenly spaced or with jitter drawn from the seed."""
    jitter = np.zeros(n) if seed is None else 0.4 * np.random.default_rng(seed).standard_normal(n)
    angles = 2.0 * np.pi * (np.arange(n) + jitter) / n
    return normalize(np.column_stack([np.cos(angles), np.sin(angles)]))


@st.composite
def graphs(draw) -> tuple[int, Graph]:
    n = draw(st.integers(0, 11))
    candidates = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(candidates), unique=True)) if candidates else []
    # Few distinct values, so that ties are common.
    return n, {pair: draw(st.sampled_from([0.7, 0.8, 0.85, 0.9, 0.95, 1.0])) for pair in chosen}
