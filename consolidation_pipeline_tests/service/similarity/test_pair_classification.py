"""Verdicts: what may merge, what a person decides, and what is on one topic at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.service.similarity import calibration_fit, similarity_graph
from consolidation_pipeline.store.similarity.similarity_graph import ASK, CROSS_TYPE, MERGE, TOPIC
from consolidation_pipeline_tests.service.corpus import LESSONS, corpus, note, reworded_notes, unrelated_notes
from consolidation_pipeline_tests.service.fake_embedder import VOCABULARY, WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline

# Alike to any model, but of eight words the one that differs may be what matters.
SHORT = (
    "Restart the payments worker after rotating the webhook secret.",
    "Restart the payments worker after rotating the webhook secrets.",
)
FOREIGN = dict(
    zip(VOCABULARY, "quartz raven slate tundra umber violet willow xenon yarrow zephyr".split(), strict=True)
)
REPORT = " ".join(VOCABULARY)
REPORT_IN_OTHER_WORDS = " ".join(FOREIGN.values())


class TopicEmbedder(WordEmbedder):
    """Sees what is spoken of, not in which words, under the name of a model whose profile knows that."""

    def __init__(self) -> None:
        super().__init__(LOCAL_MODEL, dimension=64)

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        plain = {other: word for word, other in FOREIGN.items()}
        return super().embed([" ".join(plain.get(word, word) for word in text.split()) for text in texts])


def judge(pipeline: Pipeline, texts: Sequence[str], *, embedder: Embedder | None = None, **options: Any) -> Outcome:
    """Run a project that has a pair of texts named ``a`` and ``b`` beside what it has already."""
    pipeline.add([note(name, text) for name, text in zip("ab", texts, strict=True)])
    pipeline.configure(**options)
    return pipeline.run(embedder=embedder)


def verdict(pipeline: Pipeline, a: str = "a", b: str = "b") -> int | None:
    """The stored verdict on two memories by name; None = no pair."""
    rows = pipeline.rows(
        "SELECT verdict FROM {s}.memory_neighbors n JOIN {s}.task_memories a ON a.id = n.a "
        "JOIN {s}.task_memories b ON b.id = n.b WHERE a.external_id IN (:a, :b) AND b.external_id IN (:a, :b)",
        a=a,
        b=b,
    )
    return rows[0].verdict if rows else None


def tiers(pipeline: Pipeline, name: str = "a") -> set[str]:
    """The tiers in which a memory stands, itself or through the merged memory that it is part of."""
    rows = pipeline.rows(
        "SELECT DISTINCT tier FROM {s}.memory_clusters c JOIN {s}.task_memories m "
        "ON c.member_id IN (m.id, m.consolidated_into_id) WHERE m.external_id = :name",
        name=name,
    )
    return {row.tier for row in rows}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve distinct memories are enough for a calibration."""
    monkeypatch.setattr(calibration_fit, "MIN_CONTENTS", 12)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, TOPIC),
        ({"t_merge": 0.9}, MERGE),
        ({"t_suggest": 0.7}, ASK),
        ({"t_merge": 0.9, "t_suggest": 0.7}, MERGE),
    ],
)
def test_only_automatic_thresholds_need_shared_words(
    pipeline: Pipeline, options: Mapping[str, float], expected: int
) -> None:
    done = judge(pipeline, [REPORT, REPORT_IN_OTHER_WORDS], embedder=TopicEmbedder(), **options)
    assert verdict(pipeline) == expected
    assert done.merging.created == (expected == MERGE)
    assert tiers(pipeline) == {TOPIC: set(), ASK: {"suggest"}, MERGE: {"merge"}}[expected]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(("options", "expected"), [({}, TOPIC), ({"t_merge": 0.7}, MERGE)])
def test_calibrated_project_needs_shared_words(pipeline: Pipeline, options: Mapping[str, float], expected: int) -> None:
    pipeline.add(corpus())
    judge(pipeline, [REPORT, REPORT_IN_OTHER_WORDS], embedder=TopicEmbedder(), **options)
    assert verdict(pipeline) == expected


def test_majority_of_shared_words_is_enough(pipeline: Pipeline) -> None:
    mixed = " ".join([*VOCABULARY[:5], *list(FOREIGN.values())[5:]])
    judge(pipeline, [REPORT, mixed], embedder=TopicEmbedder())
    assert verdict(pipeline) == MERGE
    pipeline.add([note("c", " ".join([*VOCABULARY[:4], *list(FOREIGN.values())[4:]]))])
    pipeline.run(embedder=TopicEmbedder())
    assert (verdict(pipeline, "a", "c"), verdict(pipeline, "b", "c")) == (TOPIC, MERGE)


def test_near_identical_short_pair_merges_in_small_project(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    judge(pipeline, SHORT)
    assert verdict(pipeline) == MERGE
    assert tiers(pipeline) == {"merge"}


def test_similar_short_pair_is_suggested_in_small_project(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    judge(pipeline, [SHORT[0], "After rotating the webhook secret, restart the payments worker please."])
    assert verdict(pipeline) == ASK
    assert tiers(pipeline) == {"suggest"}


@pytest.mark.usefixtures("measured")
def test_short_pair_is_suggested_in_calibrated_project(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    judge(pipeline, SHORT)
    assert verdict(pipeline) == ASK
    assert "suggest" in tiers(pipeline)
    assert "merge" not in tiers(pipeline)
    judge(pipeline, SHORT, t_merge=0.7)
    assert verdict(pipeline) == MERGE
    assert "merge" in tiers(pipeline)


@pytest.mark.usefixtures("measured")
def test_given_merge_threshold_does_not_override_veto(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    judge(pipeline, [f"{SHORT[0]} Wait 30 seconds.", f"{SHORT[0]} Wait 60 seconds."], t_merge=0.7)
    assert verdict(pipeline) == ASK
    assert tiers(pipeline) >= {"suggest"}
    assert "merge" not in tiers(pipeline)


@pytest.mark.usefixtures("measured")
def test_boilerplate_does_not_count_as_shared_words(pipeline: Pipeline) -> None:
    form = (
        "Review the full content of this learning entry and extract the actionable insights that future agents need. "
        "Add the key points of this learning here, with the context in which they apply and the evidence behind them."
    )
    pipeline.add([note(f"form-{at}", f"{lesson} {form}") for at, lesson in enumerate(LESSONS)])
    judge(pipeline, [f"{text} {form}" for text in SHORT])
    assert verdict(pipeline) == ASK


def test_cross_type_pairs_are_classified_by_option(pipeline: Pipeline) -> None:
    lesson, *_ = reworded_notes(times=1)
    pipeline.add([{**lesson, "id": "a"}, {**lesson, "id": "b", "memory_type": "decision"}])
    for cross_type, expected in ((False, CROSS_TYPE), (True, MERGE), (False, CROSS_TYPE)):
        pipeline.configure(cross_type=cross_type, merge=False)
        pipeline.run()
        assert verdict(pipeline) == expected
        assert tiers(pipeline) == ({"suggest"} if cross_type else set())


def test_pairs_are_classified_in_blocks(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT a, b, similarity, verdict FROM {s}.memory_neighbors ORDER BY a, b"
    pipeline.configure_new(t_merge=0.95, t_suggest=0.9, t_pattern=0.5)
    pipeline.add(corpus())
    pipeline.run()
    whole = pipeline.rows(query)
    pipeline.write("DELETE FROM {s}.memory_neighbors")
    pipeline.write("UPDATE {s}.task_memories SET graph_version = NULL")
    monkeypatch.setattr(similarity_graph, "CLASSIFY_BLOCK_PAIRS", 5)
    pipeline.run()
    assert pipeline.rows(query) == whole
    assert {row.verdict for row in whole} >= {ASK, MERGE}
