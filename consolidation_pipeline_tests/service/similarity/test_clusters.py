"""Groups: independent of input order, without chaining, pairs that differ or mixed types."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import combinations
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.calibration.threshold_estimates import CosineSpread, measure_spread
from consolidation_pipeline.core.differences.explanation import explain
from consolidation_pipeline.core.similarity.similarity_join import SLACK
from consolidation_pipeline.core.vectors import center
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.service.intake import importer
from consolidation_pipeline.service.similarity import calibration_fit, embedding
from consolidation_pipeline.service.similarity.asked_pairs import explain_asked_pairs
from consolidation_pipeline.store.checks import groups
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.service.corpus import (
    LESSONS,
    NEAR_MISSES,
    UNRELATED,
    corpus,
    note,
    reworded_notes,
    unrelated_notes,
)
from consolidation_pipeline_tests.service.fake_embedder import VOCABULARY, WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline
from consolidation_pipeline_tests.service.table_dumps import dump_comparable, dump_tables

OPTIONS: dict[str, Any] = {"t_merge": 0.8, "t_suggest": 0.7, "t_pattern": 0.5}


def merged_names(pipeline: Pipeline) -> set[frozenset[str]]:
    """Return the external ids of the sources of each merged memory."""
    groups = defaultdict(set)
    for name, into in pipeline.rows(
        "SELECT external_id, consolidated_into_id FROM {s}.task_memories WHERE is_consolidated"
    ):
        groups[into].add(name)
    return {frozenset(names) for names in groups.values()}


def groups_of(pipeline: Pipeline, tier: str) -> dict[str, list[Any]]:
    """Return the member rows of a tier by cluster key."""
    found = defaultdict(list)
    query = "SELECT cluster_key, member_id, details FROM {s}.memory_clusters WHERE tier = :tier ORDER BY 1, 2"
    for row in pipeline.rows(query, tier=tier):
        found[row.cluster_key].append(row)
    return found


def test_rewordings_of_each_lesson_form_one_group(pipeline: Pipeline) -> None:
    done = pipeline.consolidate(corpus(), **OPTIONS)
    expected = {
        frozenset(row["id"] for row in reworded_notes() if row["id"].startswith(f"lesson-{number}-"))
        for number in range(len(LESSONS))
    }
    assert merged_names(pipeline) == expected
    assert done.clusters.groups["merge"] == len(LESSONS)
    assert done.clusters.members["merge"] == len(reworded_notes())
    assert done.clusters.cohesion_min is not None
    assert done.clusters.cohesion_min >= OPTIONS["t_merge"] - SLACK


def test_near_misses_become_suggestions_with_reasons(pipeline: Pipeline) -> None:
    done = pipeline.consolidate(corpus(), **OPTIONS)
    texts = {
        row.id: row.execution_summary for row in pipeline.rows("SELECT id, execution_summary FROM {s}.task_memories")
    }
    groups = groups_of(pipeline, "suggest")
    assert {frozenset(texts[row.member_id] for row in rows) for rows in groups.values()} == set(
        map(frozenset, NEAR_MISSES)
    )
    assert done.clusters.pairs_asked == len(NEAR_MISSES)
    asked = [pair for rows in groups.values() for row in rows for pair in row.details.get("asked_pairs", ())]
    assert len(asked) == len(groups)
    reasons = [reason for pair in explain_asked_pairs(asked, texts) for reason in pair["differences"]]
    kinds = sorted(reason.split(":")[0] for reason in reasons)
    assert kinds == ["different values", "different values", "only one denies it"]
    assert sum("30 seconds" in reason and "60 seconds" in reason for reason in reasons) == 1


def test_unrelated_memories_form_no_groups(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    done = pipeline.run()
    assert set(done.clusters.groups.values()) == {0}
    assert done.clusters.contents == len(UNRELATED)
    assert done.clusters.cohesion_min is None


def test_empty_project_has_no_groups(pipeline: Pipeline) -> None:
    pipeline.add([])
    done = pipeline.run()
    assert (done.clusters.contents, done.merging.created, done.decay.scored) == (0, 0, 0)


@settings(deadline=None, max_examples=4)
@given(data=st.data())
def test_groups_do_not_depend_on_order_or_batches(shared: Pipeline, data: st.DataObject) -> None:
    states: list[dict[str, list[str]]] = []
    for rows in (corpus(), data.draw(st.permutations(corpus()))):
        shared.clear()
        with pytest.MonkeyPatch.context() as patch:
            if states:
                patch.setattr(importer, "BATCH_ROWS", data.draw(st.integers(1, 60)))
                patch.setattr(embedding, "BATCH", data.draw(st.integers(5, 60)))
            shared.add(rows)
            shared.run()
        states.append(dump_comparable(shared))
    assert states[0] == states[1]


# --- invariants of merged memories -----------------------------------------------------------------------------------

ITEMS = st.lists(st.sampled_from(VOCABULARY[:6]), min_size=1, max_size=4, unique=True).map(" and ".join)
# Added items and labels are harmless; other items, another order, a negation and other values are not. The model
# ignores values and labels: such texts differ in their words alone. Upper case gives repeats another vector.
SENTENCES = st.tuples(
    st.sampled_from(["", "", "Note: "]),
    st.sampled_from(["The service needs", "The service needs", "The service does not need"]),
    ITEMS,
    st.sampled_from(["", "", " 30", " 60"]),
).map(lambda parts: f"{parts[0]}{parts[1]} {parts[2]}{parts[3]}")
SPELLED = st.tuples(SENTENCES, st.booleans()).map(lambda parts: parts[0].upper() if parts[1] else parts[0])
NOTES = st.tuples(SPELLED, st.sampled_from(["learning", "learning", "decision"]))
BATCHES = st.lists(st.lists(NOTES, min_size=2, max_size=14), min_size=1, max_size=2)


class Contents:
    """Raw memories by content, with the compared vectors, read from the tables."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.content_of: dict[UUID, tuple[str, str]] = {}
        self.text: dict[tuple[str, str], str] = {}
        self.variants: dict[tuple[str, str], list[npt.NDArray[np.float64]]] = defaultdict(list)
        self.units: dict[UUID, set[tuple[str, str]]] = defaultdict(set)
        mean = pipeline.value("SELECT center::text FROM {s}.similarity_calibrations ORDER BY version DESC LIMIT 1")
        for row in pipeline.rows("SELECT *, embedding::text AS vector FROM {s}.task_memories"):
            content = row.memory_type, row.normalized_hash
            x = np.array([json.loads(row.vector)], dtype=np.float32)
            compared = x if mean is None else center(x, np.array(json.loads(mean), dtype=np.float32))
            self.content_of[row.id] = content
            self.text[content] = row.execution_summary
            self.variants[content].append(compared[0].astype(np.float64))
            self.units[row.consolidated_into_id or row.id].add(content)

    def similarity(self, one: tuple[str, str], other: tuple[str, str]) -> float:
        """Return the cosine of the most similar variants."""
        return max(float(a @ b) for a in self.variants[one] for b in self.variants[other])

    def may_merge(self, one: tuple[str, str], other: tuple[str, str], *, cross_type: bool) -> bool:
        """Return True if two contents are similar, of compatible types and with harmless differences."""
        near = self.similarity(one, other) >= OPTIONS["t_merge"] - 2 * SLACK
        may_share = near and (cross_type or one[0] == other[0])
        return may_share and explain(self.text[one], self.text[other], word_similarity).may_merge


def run_in_batches(pipeline: Pipeline, batches: list[list[tuple[str, str]]], **options: Any) -> Outcome:
    pipeline.configure_new(**OPTIONS | options)
    for number, batch in enumerate(batches):
        pipeline.add([note(f"n{number}-{at}", text, memory_type=kind) for at, (text, kind) in enumerate(batch)])
        done = pipeline.run(embedder=WordEmbedder())
    return done


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(12))
@given(batches=BATCHES, cross_type=st.booleans())
def test_merge_groups_are_valid_and_maximal(
    shared: Pipeline, batches: list[list[tuple[str, str]]], cross_type: bool
) -> None:
    shared.clear()
    run_in_batches(shared, batches, cross_type=cross_type, recall_gate=False)
    found = Contents(shared)
    project = shared.project().id
    with shared.engine.connect() as connection:
        broken = [
            *groups.MERGE_GROUPS_DO_NOT_CHAIN.find(connection, project),
            *groups.ONE_MERGE_GROUP_PER_MEMORY.find(connection, project),
            *groups.PAIRS_ARE_COSINES.find(connection, project),
        ]
    assert broken == []
    for contents in found.units.values():
        for a, b in combinations(contents, 2):
            assert found.may_merge(a, b, cross_type=cross_type), (found.text[a], found.text[b], found.similarity(a, b))
    for one, other in combinations(found.units.values(), 2):
        assert not all(found.may_merge(a, b, cross_type=cross_type) for a in one for b in other)


def test_cross_type_groups_need_option(pipeline: Pipeline) -> None:
    notes = [("The service needs amber", "learning"), ("Note: The service needs amber", "decision")]
    run_in_batches(pipeline, [notes])
    assert merged_names(pipeline) == set()
    (asked,) = groups_of(pipeline, "suggest").values()
    assert "another memory type" in asked[0].details["asked_pairs"][0]["if_same"]
    pipeline.configure(**OPTIONS, cross_type=True)
    pipeline.run(embedder=WordEmbedder())
    assert merged_names(pipeline) == {frozenset({"n0-0", "n0-1"})}


def test_min_cluster_size_limits_merges(pipeline: Pipeline) -> None:
    pair = [("The cache needs birch", "learning"), ("Note: The cache needs birch", "learning")]
    labels = ("", "Note: ", "Reminder: ")
    triple = [(f"{label}delta and iris stop at night", "learning") for label in labels]
    done = run_in_batches(pipeline, [pair + triple], min_cluster_size=3)
    assert merged_names(pipeline) == {frozenset({"n0-2", "n0-3", "n0-4"})}
    assert done.clusters.groups["merge"] == 1
    pipeline.add([note("third", "Reminder: The cache needs birch")])
    pipeline.run(embedder=WordEmbedder())
    assert frozenset({"n0-0", "n0-1", "third"}) in merged_names(pipeline)


def test_exact_repeats_alone_are_merged(pipeline: Pipeline) -> None:
    run_in_batches(pipeline, [[("Amber birch.", "learning"), ("amber  BIRCH", "learning")]])
    assert merged_names(pipeline) == {frozenset({"n0-0", "n0-1"})}


def test_disabled_merging_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.configure_new(merge=False, summarize=False, review_limit=0)
    pipeline.add(corpus())
    before = dump_tables(pipeline, tables=["consolidated_memories", "memory_lineage"])
    done = pipeline.run()
    # Newer memories still supersede older ones.
    changed = pipeline.rows("SELECT DISTINCT entity_type FROM {s}.consolidation_changes")
    assert changed == [("memory_relations",)]
    assert (done.merging.absorbed, done.merging.created, done.clusters.groups["merge"]) == (0, 0, 0)
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_consolidated") == 0
    assert dump_tables(pipeline, tables=before) == before
    assert done.clusters.groups["suggest"] == len(LESSONS) + len(NEAR_MISSES)


@pytest.mark.slow
def test_disabling_merging_keeps_earlier_merges(pipeline: Pipeline) -> None:
    pipeline.consolidate(corpus())
    before = merged_names(pipeline)
    pipeline.configure(merge=False)
    pipeline.add([note("newcomer", f"Once again: {LESSONS[0]}")])
    done = pipeline.run()
    assert merged_names(pipeline) == before
    assert (done.merging.absorbed, done.clusters.groups["merge"]) == (0, len(LESSONS))


def test_near_duplicates_count_once_in_pattern(pipeline: Pipeline) -> None:
    shared_words = "amber birch cedar delta"
    topic = [(f"{shared_words} {word} {word} {word}", "learning") for word in ("grove", "heron", "iris")]
    repeats = [("ember flint", "learning"), ("flint ember", "learning"), ("Ember flint.", "learning")]
    pipeline_options = {"t_merge": 0.95, "t_suggest": 0.95, "t_pattern": 0.5}
    run_in_batches(pipeline, [topic + repeats], **pipeline_options)
    names = dict(pipeline.rows("SELECT id, external_id FROM {s}.task_memories"))
    groups = groups_of(pipeline, "pattern")
    assert [{names[row.member_id] for row in rows} for rows in groups.values()] == [{"n0-0", "n0-1", "n0-2"}]


def test_pattern_counts_wordings_behind_merged_unit(pipeline: Pipeline) -> None:
    # Three wordings in two units form a pattern; exact repeats are one wording.
    (near, far), (once, other), *_ = NEAR_MISSES
    pipeline.configure_new(**OPTIONS)
    wordings = {"near": near, "again": f"Note to self: {near}", "far": far}
    repeats = {"once": once, "repeat": f"{once} ", "other": other}
    pipeline.add([note(name, text) for name, text in {**wordings, **repeats}.items()])
    pipeline.run()
    assert merged_names(pipeline) == {frozenset({"near", "again"}), frozenset({"once", "repeat"})}
    (group,) = groups_of(pipeline, "pattern").values()
    names = dict(pipeline.rows("SELECT id, external_id FROM {s}.task_memories"))
    assert len(group) == 2
    assert {names.get(row.member_id) for row in group} == {None, "far"}


def test_sparse_graph_gives_the_same_pattern_groups(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_fit, "MIN_CONTENTS", 12)
    pipeline.configure_new(merge=False, summarize=False)
    pipeline.add(corpus())
    before = pipeline.run()
    patterns, pairs = groups_of(pipeline, "pattern"), pipeline.value("SELECT count(*) FROM {s}.memory_pairs")

    def measure_dense(*given: Any) -> CosineSpread | None:
        found = measure_spread(*given)
        return None if found is None else replace(found, bound=0.9)

    monkeypatch.setattr(calibration_fit, "measure_spread", measure_dense)
    pipeline.write("DELETE FROM {s}.similarity_calibrations")
    after = pipeline.run()
    assert after.clusters.groups["pattern"] == before.clusters.groups["pattern"] > 0
    assert groups_of(pipeline, "pattern").keys() == patterns.keys()
    assert pipeline.value("SELECT count(*) FROM {s}.memory_pairs") < pairs


def test_merges_of_distant_sources_are_described(pipeline: Pipeline) -> None:
    pipeline.consolidate(corpus())
    before = merged_names(pipeline)
    pipeline.configure(t_merge=0.95, t_suggest=0.9, t_pattern=0.85)
    pipeline.run(embedder=WordEmbedder())
    names = merged_names(pipeline)
    assert all(any(group <= other for other in names) for group in before)
    described = [rows for rows in groups_of(pipeline, "merge").values() for row in rows if row.details]
    assert len(described) == len(names)
    for rows in described:
        (details,) = [row.details for row in rows if row.details]
        assert -1.0 <= details["cohesion_min"] <= details["cohesion_mean"] <= 1.0
        assert details["weakest_new_pair"] is None or details["weakest_new_pair"] >= 0.95 - SLACK


def test_unchanged_groups_keep_their_rows(pipeline: Pipeline) -> None:
    pipeline.consolidate(corpus())
    pipeline.run()
    settled = dump_tables(pipeline, tables=["memory_clusters"])
    pipeline.run()
    assert dump_tables(pipeline, tables=["memory_clusters"]) == settled
    pipeline.add([note("stranger", "Quarterly planning happens on a whiteboard.")])
    pipeline.run()
    assert dump_tables(pipeline, tables=["memory_clusters"]) == settled
