"""Verdicts on pairs: merge, suggest or same topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.service.similarity import similarity_graph
from consolidation_pipeline.store.similarity.similarity_graph import ASK, CROSS_TYPE, MERGE, TOPIC
from consolidation_pipeline_tests.service.corpus import LESSONS, corpus, note, reworded_notes, unrelated_notes
from consolidation_pipeline_tests.service.fake_embedder import VOCABULARY, WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline
from consolidation_pipeline_tests.service.similarity.test_calibration import BOILERPLATE
from consolidation_pipeline_tests.service.similarity.test_calibration import (
    calibrate_from_twelve as calibrate_from_twelve,
)

# Near-identical vectors, but one differing word of eight may matter.
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
    """Embedder that maps foreign words to plain ones, under the name of the local model."""

    def __init__(self) -> None:
        super().__init__(LOCAL_MODEL, dimension=64)

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        plain = {other: word for word, other in FOREIGN.items()}
        return super().embed([" ".join(plain.get(word, word) for word in text.split()) for text in texts])


def run_with_pair(
    pipeline: Pipeline, texts: Sequence[str], *, embedder: Embedder | None = None, **options: Any
) -> Outcome:
    """Add a pair of texts named ``a`` and ``b`` and run the project."""
    pipeline.add([note(name, text) for name, text in zip("ab", texts, strict=True)])
    pipeline.configure(**options)
    return pipeline.run(embedder=embedder)


def verdict(pipeline: Pipeline, a: str = "a", b: str = "b") -> int | None:
    """Return the stored verdict on two memories by name; None without a pair."""
    rows = pipeline.rows(
        "SELECT verdict FROM {s}.memory_neighbors n JOIN {s}.task_memories a ON a.id = n.a "
        "JOIN {s}.task_memories b ON b.id = n.b WHERE a.external_id IN (:a, :b) AND b.external_id IN (:a, :b)",
        a=a,
        b=b,
    )
    return rows[0].verdict if rows else None


def tiers(pipeline: Pipeline, name: str = "a") -> set[str]:
    """Return the tiers of a memory, or of its merged memory."""
    rows = pipeline.rows(
        "SELECT DISTINCT tier FROM {s}.memory_clusters c JOIN {s}.task_memories m "
        "ON c.member_id IN (m.id, m.consolidated_into_id) WHERE m.external_id = :name",
        name=name,
    )
    return {row.tier for row in rows}


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, TOPIC), ({"t_merge": 0.9}, MERGE), ({"t_suggest": 0.7}, ASK), ({"t_merge": 0.9, "t_suggest": 0.7}, MERGE)],
)
def test_only_automatic_thresholds_need_shared_words(
    pipeline: Pipeline, options: Mapping[str, float], expected: int
) -> None:
    done = run_with_pair(pipeline, [REPORT, REPORT_IN_OTHER_WORDS], embedder=TopicEmbedder(), **options)
    assert verdict(pipeline) == expected
    assert done.merging.created == (expected == MERGE)
    assert tiers(pipeline) == {TOPIC: set(), ASK: {"suggest"}, MERGE: {"merge"}}[expected]


@pytest.mark.usefixtures("calibrate_from_twelve")
@pytest.mark.parametrize(("options", "expected"), [({}, TOPIC), ({"t_merge": 0.7}, MERGE)])
def test_calibrated_project_needs_shared_words(pipeline: Pipeline, options: Mapping[str, float], expected: int) -> None:
    pipeline.add(corpus())
    run_with_pair(pipeline, [REPORT, REPORT_IN_OTHER_WORDS], embedder=TopicEmbedder(), **options)
    assert verdict(pipeline) == expected


def test_majority_of_shared_words_is_enough(pipeline: Pipeline) -> None:
    mixed = " ".join([*VOCABULARY[:5], *list(FOREIGN.values())[5:]])
    run_with_pair(pipeline, [REPORT, mixed], embedder=TopicEmbedder())
    assert verdict(pipeline) == MERGE
    pipeline.add([note("c", " ".join([*VOCABULARY[:4], *list(FOREIGN.values())[4:]]))])
    pipeline.run(embedder=TopicEmbedder())
    assert (verdict(pipeline, "a", "c"), verdict(pipeline, "b", "c")) == (TOPIC, MERGE)


def test_near_identical_short_pair_merges(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    run_with_pair(pipeline, SHORT)
    assert verdict(pipeline) == MERGE
    assert tiers(pipeline) == {"merge"}


def test_similar_short_pair_is_suggested(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    run_with_pair(pipeline, [SHORT[0], "After rotating the webhook secret, restart the payments worker please."])
    assert verdict(pipeline) == ASK
    assert tiers(pipeline) == {"suggest"}


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_short_pair_is_suggested_in_calibrated_project(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    run_with_pair(pipeline, SHORT)
    assert verdict(pipeline) == ASK
    assert "suggest" in tiers(pipeline)
    assert "merge" not in tiers(pipeline)
    run_with_pair(pipeline, SHORT, t_merge=0.7)
    assert verdict(pipeline) == MERGE
    assert "merge" in tiers(pipeline)


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_given_merge_threshold_does_not_override_veto(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    run_with_pair(pipeline, [f"{SHORT[0]} Wait 30 seconds.", f"{SHORT[0]} Wait 60 seconds."], t_merge=0.7)
    assert verdict(pipeline) == ASK
    assert tiers(pipeline) >= {"suggest"}
    assert "merge" not in tiers(pipeline)


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_boilerplate_does_not_count_as_shared_words(pipeline: Pipeline) -> None:
    pipeline.add([note(f"form-{at}", f"{lesson} {BOILERPLATE}") for at, lesson in enumerate(LESSONS)])
    run_with_pair(pipeline, [f"{text} {BOILERPLATE}" for text in SHORT])
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
