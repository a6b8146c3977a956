"""Verdicts on pairs: merge, suggest or same topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from consolidation_pipeline.core.calibration.model_thresholds import find_profile
from consolidation_pipeline.core.text.word_overlap import build_word_sets
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.embed.local import LOCAL_MODEL
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.similarity import pair_classification, screen_keys, similarity_graph
from consolidation_pipeline.store.similarity.similarity_graph import ASK, MERGE, TOPIC
from consolidation_pipeline_tests.service.corpus import (
    LESSONS,
    NEAR_MISSES,
    corpus,
    note,
    reworded_notes,
    unrelated_notes,
)
from consolidation_pipeline_tests.service.fake_embedder import VOCABULARY, WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline
from consolidation_pipeline_tests.service.similarity.test_calibration import BOILERPLATE
from consolidation_pipeline_tests.service.similarity.test_calibration import (
    calibrate_from_twelve as calibrate_from_twelve,
)

SHORT = (
    "Restart the payments worker after rotating the webhook secret.",
    "After rotating the webhook secret, restart the payments worker please.",
)
# Its vectors are as near as those of SHORT.
OPPOSITE = "Restart the payments worker before rotating the webhook secret."
FOREIGN = dict(
    zip(VOCABULARY, "quartz raven slate tundra umber violet willow xenon yarrow zephyr".split(), strict=True)
)


def report(words: Iterable[str]) -> str:
    """Return a text whose words about the topic are given."""
    return f"It is about {' and '.join(words)}"


REPORT = report(VOCABULARY)
REPORT_IN_OTHER_WORDS = report(FOREIGN.values())


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
        "SELECT verdict FROM {s}.memory_pairs n JOIN {s}.task_memories a ON a.id = n.a "
        "JOIN {s}.task_memories b ON b.id = n.b WHERE a.external_id IN (:a, :b) AND b.external_id IN (:a, :b)",
        a=a,
        b=b,
    )
    return rows[0].verdict if rows else None


def test_portions_of_pairs_get_the_same_verdicts(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT a, b, verdict FROM {s}.memory_pairs ORDER BY a, b"
    pipeline.add(corpus())
    pipeline.run_phases(PHASES[:3])
    whole = pipeline.rows(query)
    pipeline.clear()
    monkeypatch.setattr(screen_keys, "_PORTION_TEXTS", 5)
    monkeypatch.setattr(pair_classification, "_PORTION_PAIRS", 7)
    pipeline.add(corpus())
    pipeline.run_phases(PHASES[:3])
    assert pipeline.rows(query) == whole
    assert {pair.verdict for pair in whole} >= {MERGE, ASK}


def watch_read_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the texts that are read from now on to screen pairs."""
    seen: list[str] = []
    read = screen_keys.list_keys

    def list_keys(texts: Sequence[str]) -> Any:
        seen.extend(texts)
        return read(texts)

    monkeypatch.setattr(screen_keys, "list_keys", list_keys)
    return seen


def test_pairs_are_screened_by_the_keys_of_earlier_runs(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT a, b, verdict FROM {s}.memory_pairs ORDER BY a, b"
    texts = (*SHORT, OPPOSITE)
    pipeline.add([*unrelated_notes(), note("a", texts[0])])
    pipeline.run_phases(PHASES[:3])
    seen = watch_read_texts(monkeypatch)
    for name, text in zip("bc", texts[1:], strict=True):
        pipeline.add([note(name, text)])
        pipeline.run_phases(PHASES[:3])
    # The first one is in no pair before the second one comes.
    assert sorted(seen) == sorted(texts)
    grown = pipeline.rows(query)
    assert [verdict(pipeline, *pair) for pair in ("ab", "ac", "bc")] == [MERGE, ASK, ASK]
    pipeline.write("DELETE FROM {s}.memory_neighbors")
    pipeline.write("DELETE FROM {s}.compared_memories")
    pipeline.run_phases(PHASES[:3])
    assert pipeline.rows(query) == grown


def test_keys_of_another_calibration_are_read_again(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add(note(name, text) for name, text in zip("ab", SHORT, strict=True))
    pipeline.run_phases(PHASES[:3])
    pipeline.configure(t_merge=0.6)
    seen = watch_read_texts(monkeypatch)
    pipeline.run_phases(PHASES[:3])
    assert sorted(seen) == sorted(SHORT)


def test_plan_reads_texts_and_stores_no_keys(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add(note(name, text) for name, text in zip("ab", SHORT, strict=True))
    seen = watch_read_texts(monkeypatch)
    assert len(pipeline.plan().merges) == 1
    assert sorted(seen) == sorted(SHORT)
    pipeline.run()
    assert len(seen) == 4


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
    [({}, TOPIC), ({"t_merge": 0.9}, TOPIC), ({"t_suggest": 0.7}, ASK), ({"t_merge": 0.9, "t_suggest": 0.7}, ASK)],
)
def test_only_automatic_thresholds_need_shared_words(
    pipeline: Pipeline, options: Mapping[str, float], expected: int
) -> None:
    done = run_with_pair(pipeline, [REPORT, REPORT_IN_OTHER_WORDS], embedder=TopicEmbedder(), **options)
    assert verdict(pipeline) == expected
    assert done.merging.created == 0
    assert tiers(pipeline) == {TOPIC: set(), ASK: {"suggest"}}[expected]


@pytest.mark.slow
@pytest.mark.usefixtures("calibrate_from_twelve")
@pytest.mark.parametrize(("options", "expected"), [({}, TOPIC), ({"t_suggest": 0.7}, ASK)])
def test_calibrated_project_needs_shared_words(pipeline: Pipeline, options: Mapping[str, float], expected: int) -> None:
    pipeline.add(corpus())
    run_with_pair(pipeline, [REPORT, REPORT_IN_OTHER_WORDS], embedder=TopicEmbedder(), **options)
    assert verdict(pipeline) == expected


def test_half_of_words_is_enough_for_question(pipeline: Pipeline) -> None:
    mixed = report([*list(FOREIGN.values())[:5], *VOCABULARY[5:]])
    run_with_pair(pipeline, [REPORT, mixed], embedder=TopicEmbedder())
    assert verdict(pipeline) == ASK
    pipeline.add([note("c", report([*list(FOREIGN.values())[:6], *VOCABULARY[6:]]))])
    pipeline.run(embedder=TopicEmbedder())
    assert (verdict(pipeline, "a", "c"), verdict(pipeline, "b", "c")) == (TOPIC, ASK)


def test_harmless_difference_needs_no_shared_words(pipeline: Pipeline) -> None:
    synonyms = ["The script removes the folder.", "The script deletes the directory."]
    words = build_word_sets(synonyms).overlap(np.array([0], np.int32), np.array([1], np.int32))
    assert words < find_profile(LOCAL_MODEL, centered=False).shared_words
    run_with_pair(pipeline, synonyms, t_merge=0.6)
    assert verdict(pipeline) == MERGE
    assert tiers(pipeline) == {"merge"}


def test_short_pair_with_harmless_difference_merges(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    run_with_pair(pipeline, SHORT)
    assert verdict(pipeline) == MERGE
    assert tiers(pipeline) == {"merge"}


def test_short_pair_with_unproven_difference_is_suggested(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    run_with_pair(pipeline, [SHORT[0], OPPOSITE])
    assert verdict(pipeline) == ASK
    assert tiers(pipeline) == {"suggest"}


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_calibrated_project_merges_by_difference(pipeline: Pipeline) -> None:
    pipeline.add([*corpus(), note("c", OPPOSITE)])
    run_with_pair(pipeline, SHORT, recall_gate=False)
    assert [verdict(pipeline, *pair) for pair in ("ab", "ac", "bc")] == [MERGE, ASK, ASK]
    assert "merge" in tiers(pipeline)
    assert "merge" not in tiers(pipeline, "c")


def test_harmless_pair_below_merge_threshold_is_suggested(pipeline: Pipeline) -> None:
    run_with_pair(pipeline, SHORT, t_merge=0.999)
    assert verdict(pipeline) == ASK
    assert tiers(pipeline) == {"suggest"}
    pipeline.configure(t_merge="auto")
    pipeline.run()
    assert verdict(pipeline) == MERGE
    assert tiers(pipeline) == {"merge"}


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_given_merge_threshold_does_not_override_difference(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    run_with_pair(pipeline, [f"{SHORT[0]} Wait 30 seconds.", f"{SHORT[0]} Wait 60 seconds."], t_merge=0.7)
    assert verdict(pipeline) == ASK
    assert tiers(pipeline) >= {"suggest"}
    assert "merge" not in tiers(pipeline)


@pytest.mark.usefixtures("calibrate_from_twelve")
def test_boilerplate_does_not_count_as_shared_words(pipeline: Pipeline) -> None:
    forms = [note(f"form-{at}", f"{lesson} {BOILERPLATE}") for at, lesson in enumerate(LESSONS)]
    pipeline.add([*forms, *unrelated_notes()])
    texts = [f"{text}. {BOILERPLATE}" for text in (REPORT, REPORT_IN_OTHER_WORDS)]
    whole = build_word_sets(texts).overlap(np.array([0], np.int32), np.array([1], np.int32))
    assert whole >= find_profile(LOCAL_MODEL).shared_words
    run_with_pair(pipeline, texts, embedder=TopicEmbedder())
    assert pipeline.value("SELECT jsonb_array_length(to_jsonb(boilerplate)) FROM {s}.similarity_calibrations") == 2
    assert verdict(pipeline) == TOPIC


def test_cross_type_pairs_are_classified_by_option(pipeline: Pipeline) -> None:
    lesson, *_ = reworded_notes(times=1)
    pipeline.add([{**lesson, "id": "a"}, {**lesson, "id": "b", "memory_type": "decision"}])
    for cross_type, expected in ((False, ASK), (True, MERGE), (False, ASK)):
        pipeline.configure(cross_type=cross_type, merge=False)
        pipeline.run()
        assert verdict(pipeline) == expected
        assert tiers(pipeline) == {"suggest"}


def test_other_facts_under_two_types_are_not_asked(pipeline: Pipeline) -> None:
    one, other = NEAR_MISSES[0]
    pipeline.add([note("a", one), note("b", other, memory_type="decision")])
    assert pipeline.run().merging.created == 0
    assert pipeline.value("SELECT count(*) FROM {s}.memory_pairs") == 0
    assert tiers(pipeline) == set()


def test_pairs_are_classified_in_blocks(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT a, b, similarity, verdict FROM {s}.memory_pairs ORDER BY a, b"
    pipeline.configure_new(t_merge=0.95, t_suggest=0.9, t_pattern=0.5)
    pipeline.add(corpus())
    pipeline.run()
    whole = pipeline.rows(query)
    pipeline.write("DELETE FROM {s}.memory_neighbors")
    pipeline.write("DELETE FROM {s}.compared_memories")
    monkeypatch.setattr(similarity_graph, "CLASSIFY_BLOCK_PAIRS", 5)
    pipeline.run()
    assert pipeline.rows(query) == whole
    assert {row.verdict for row in whole} >= {ASK, MERGE}
