"""Strategies and samples: graphs of similar pairs, and clustered vectors."""

import itertools

import numpy as np
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs
from consolidation_pipeline.core.vectors import normalize

Graph = dict[tuple[int, int], float]


def pairs_from(graph: Graph) -> SimilarPairs:
    i, j = (np.array([pair[side] for pair in graph], dtype=np.int32) for side in (0, 1))
    return SimilarPairs(i, j, np.array(list(graph.values()), dtype=np.float32))


def partition(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(members.tolist()) for members in list_members(labels)}


def clustered(n: int, d: int, seed: int, noise: float = 0.35) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((max(1, n // 6), d))
    return normalize(centres[rng.integers(0, len(centres), n)] + noise * rng.standard_normal((n, d)))


def on_a_ring(n: int, seed: int | None) -> np.ndarray:
    """Return unit vectors (n, 2) around the circle, evenly spaced or with jitter drawn from the seed."""
    jitter = np.zeros(n) if seed is None else 0.4 * np.random.default_rng(seed).standard_normal(n)
    angles = 2.0 * np.pi * (np.arange(n) + jitter) / n
    return normalize(np.column_stack([np.cos(angles), np.sin(angles)]))


@st.composite
def graphs(draw) -> tuple[int, Graph]:
    n = draw(st.integers(0, 11))
    possible = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    # Few distinct values, so that ties are common.
    return n, {pair: draw(st.sampled_from([0.7, 0.8, 0.85, 0.9, 0.95, 1.0])) for pair in chosen}
