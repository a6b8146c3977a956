"""Pattern threshold of a project: where average linkage separates its topics best."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.calibration.threshold_estimates import measure_spread
from consolidation_pipeline.core.calibration.topic_threshold import (
    DEFAULT_POSITION,
    TopicThreshold,
    find_topic_threshold,
    limit_topic_size,
)
from consolidation_pipeline.core.grouping.clustering import cluster_rows
from consolidation_pipeline.core.similarity.similarity_join import similarity_join
from consolidation_pipeline.core.vectors import center, normalize
from consolidation_pipeline_tests.hypothesis_examples import examples

Floats = npt.NDArray[np.float32]


def topic_rows(topics: int, each: int, noise: float, d: int = 32, seed: int = 0) -> Floats:
    """Return rows around orthogonal directions; a member has a cosine of about 1 / (1 + noise^2 d) with another."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.standard_normal((d, d)))[0][:topics]
    x = np.repeat(directions, each, axis=0) + noise * rng.standard_normal((topics * each, d))
    return center(normalize(x), normalize(x).mean(axis=0, dtype=np.float64))


def find(x: Floats, order: npt.NDArray[np.int64] | None = None) -> TopicThreshold:
    order = np.arange(len(x)) if order is None else order
    spread = measure_spread(x, order)
    assert spread is not None
    return find_topic_threshold(x, order, spread)


@pytest.mark.parametrize(("topics", "each"), [(8, 40), (12, 10), (20, 5)])
@pytest.mark.parametrize("noise", [0.05, 0.15, 0.22])
def test_threshold_separates_topics_of_any_spread(topics: int, each: int, noise: float) -> None:
    x = topic_rows(topics, each, noise)
    found = find(x)
    labels = cluster_rows(
        x, similarity_join(x, found.threshold), method="average", threshold=found.threshold, min_size=3
    )
    truth = np.repeat(np.arange(topics), each)
    same = labels[:, None] == labels[None]
    right = np.triu((truth[:, None] == truth[None]) & same & (labels >= 0), 1).sum()
    wanted = topics * each * (each - 1) / 2
    assert right / wanted > 0.8
    assert right / np.triu(same & (labels >= 0)[:, None], 1).sum() > 0.8


def test_threshold_follows_similarity_of_members() -> None:
    close, loose = find(topic_rows(10, 12, 0.05)), find(topic_rows(10, 12, 0.2))
    assert loose.threshold < 0.5 < close.threshold
    assert 0.0 < loose.silhouette < close.silhouette <= 1.0


@settings(deadline=None, max_examples=examples(15))
@given(st.permutations(range(60)))
def test_topic_threshold_ignores_row_order(order: list[int]) -> None:
    x = topic_rows(6, 10, 0.15)
    again = np.empty_like(x)
    again[order] = x  # row ``at`` moves to order[at]
    assert find(again, np.array(order)) == find(x)


def test_rows_without_topics_use_default_position() -> None:
    x = np.eye(60, dtype=np.float32)
    spread = measure_spread(x, np.arange(60))
    assert spread is not None
    assert find(x) == TopicThreshold(round(spread.median * (1 - DEFAULT_POSITION), 3), 0.0, 60)


def test_large_projects_are_linked_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consolidation_pipeline.core.calibration.topic_threshold.LINKED_ROWS", 100)
    x = topic_rows(10, 30, 0.15)
    order = np.random.default_rng(1).permutation(300)
    found = find(x, order)
    assert found.linked == 100
    assert found.threshold < 0.7


@pytest.mark.parametrize(("contents", "most"), [(0, 40), (500, 40), (2_000, 100), (100_000, 400)])
def test_topic_size_is_limited_by_project_size(contents: int, most: int) -> None:
    assert limit_topic_size(contents) == most
