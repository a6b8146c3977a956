"""Associations: rules over a weekly sample or all pairs; each relation is stored once and undone alone."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.relation_types import CANDIDATE_TYPES
from consolidation_pipeline.core.vectors import normalize
from consolidation_pipeline.embed.embedder import Embedder
from consolidation_pipeline.errors import EmbeddingError, TooManyPairsError
from consolidation_pipeline.service.lifecycle import associations
from consolidation_pipeline.service.lifecycle.associations import AssociationResult, associate_memories
from consolidation_pipeline.service.lifecycle.relations import decide_relations
from consolidation_pipeline_tests.core.lifecycle.test_associations import associate
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.fake_embedder import WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge, dump_tables

NOW = datetime(2026, 5, 6, 12, tzinfo=UTC)
MODEL = "test/plane"
FAR = 1000.0


def typed_note(
    name: str, memory_type: str, cosine_to_east: float | None, *, days: float = 0.0, **fields: Any
) -> dict[str, Any]:
    """Return a memory whose vector has this cosine to the first axis; without a vector if None."""
    fields_of_note: dict[str, Any] = {"created_at": (NOW - timedelta(days=days)).isoformat()}
    if cosine_to_east is not None:
        fields_of_note |= {"embedding": [cosine_to_east, math.sqrt(1 - cosine_to_east**2)], "embedding_model": MODEL}
    return note(name, f"Memory {name}.", memory_type=memory_type, **fields_of_note | fields)


def run_associations(pipeline: Pipeline, *, now: datetime = NOW, embedder: Embedder | None = None) -> AssociationResult:
    """Run only the associations phase."""
    model = embedder or WordEmbedder(MODEL, dimension=2)
    with pipeline.open(embedder=model, planned=("associations",)) as run, run.phase("associations"):
        run.now = now
        return associate_memories(run)


def load_relations(pipeline: Pipeline) -> list[Any]:
    return pipeline.rows("SELECT * FROM {s}.memory_relations ORDER BY relation_type, a_id, b_id")


def relation_types(pipeline: Pipeline) -> list[str]:
    return [row.relation_type for row in load_relations(pipeline)]


def test_each_rule_creates_its_relation(pipeline: Pipeline) -> None:
    pipeline.add(
        [
            typed_note("yes", "decision", 1.0),
            typed_note("no", "decision", 0.2, days=FAR),
            typed_note("same", "learning", 0.99, days=2 * FAR),
            typed_note("week", "warning", -0.9, days=2.5),
        ]
    )
    done = run_associations(pipeline)
    found = {(row.relation_type, frozenset((row.a_id, row.b_id))): row for row in load_relations(pipeline)}
    assert found.keys() == {
        ("contradicts", frozenset((note_id("yes"), note_id("no")))),
        ("shares_theme", frozenset((note_id("yes"), note_id("same")))),
        ("parallel_context", frozenset((note_id("yes"), note_id("week")))),
    }
    expected = {"contradicts": ("candidate", 0.6, 0.2), "shares_theme": ("confirmed", 0.99, 0.99)} | {
        "parallel_context": ("candidate", 0.5, -0.9)
    }
    for (kind, _), row in found.items():
        status, confidence, similarity = expected[kind]
        assert (row.status, row.created_at, row.version) == (status, NOW, 1)
        assert (row.confidence, row.similarity) == (pytest.approx(confidence), pytest.approx(similarity))
        assert row.a_id < row.b_id
    assert done.found == {"contradicts": 1, "explains": 0, "shares_theme": 1, "parallel_context": 1}
    assert (done.memories, done.added, done.missing, done.skipped) == (4, 3, 0, None)


@pytest.mark.parametrize(("insight", "work"), [("bugfix", "feature"), ("discovery", "codebase_knowledge")])
def test_explains_relation_points_from_insight_to_work(pipeline: Pipeline, insight: str, work: str) -> None:
    for name in ("a", "b", "c", "d"):
        pipeline.configure_new(name)
        rows = [typed_note("insight", insight, 1.0), typed_note("work", work, 0.6, days=FAR)]
        pipeline.add(rows, name)
        with pipeline.open(name, embedder=WordEmbedder(MODEL, dimension=2)) as run:
            associate_memories(run)
    ends = {(note_id("insight", name), note_id("work", name)) for name in "abcd"}
    assert {(row.a_id, row.b_id) for row in load_relations(pipeline)} == ends
    assert {a < b for a, b in ends} == {True, False}
    assert {(row.relation_type, row.status, row.confidence) for row in load_relations(pipeline)} == {
        ("explains", "confirmed", 0.7)
    }


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [(0.2999, "contradicts"), (0.3001, None), (0.4, None), (0.6999, None), (0.7001, "shares_theme")],
)
def test_similarity_limits_of_distant_decisions(pipeline: Pipeline, similarity: float, expected: str | None) -> None:
    pipeline.add([typed_note("a", "decision", 1.0), typed_note("b", "decision", similarity, days=FAR)])
    run_associations(pipeline)
    assert relation_types(pipeline) == ([expected] if expected else [])


@pytest.mark.parametrize(("extra", "expected"), [(timedelta(0), 1), (timedelta(microseconds=1), 0)])
@pytest.mark.parametrize("hour", [0, 9])
def test_parallel_context_spans_exactly_seven_days(
    pipeline: Pipeline, extra: timedelta, expected: int, hour: int
) -> None:
    later = datetime(2026, 3, 29, hour, 17, 3, 141_593, tzinfo=UTC)
    pipeline.add(
        [
            typed_note("a", "learning", 1.0, created_at=later.isoformat()),
            typed_note("b", "warning", 0.1, created_at=(later - timedelta(days=7) - extra).isoformat()),
        ]
    )
    assert run_associations(pipeline).found["parallel_context"] == expected


def test_second_association_run_adds_nothing(pipeline: Pipeline) -> None:
    pipeline.add([typed_note(f"m{n}", MEMORY_TYPES[n % 10], math.cos(n), days=n) for n in range(15)])
    first = run_associations(pipeline)
    assert first.added == sum(first.found.values()) > 10
    before = dump_tables(pipeline, tables=["memory_relations", "consolidation_changes"])
    again = run_associations(pipeline)
    assert (again.found, again.added) == (first.found, 0)
    later = run_associations(pipeline, now=NOW + timedelta(days=30))
    assert later.added == 0
    assert dump_tables(pipeline, tables=["memory_relations", "consolidation_changes"]) == before


def test_each_relation_is_own_group_with_reason(pipeline: Pipeline) -> None:
    pipeline.add([typed_note(f"m{n}", "decision", 1.0 - n / 3) for n in range(4)])
    done = run_associations(pipeline)
    rows = pipeline.rows("SELECT * FROM {s}.consolidation_changes ORDER BY seq")
    assert len({row.group_id for row in rows}) == done.added == len(rows) > 2
    assert {(row.operation, row.entity_type) for row in rows} == {("associate", "memory_relations")}
    assert all(row.job_id and row.reason and row.confidence for row in rows)
    pipeline.roll_back(rows[0].group_id)
    assert len(load_relations(pipeline)) == done.added - 1


def test_association_run_is_undone_and_found_again(pipeline: Pipeline) -> None:
    pipeline.add([typed_note(f"m{n}", "decision", 1.0 - n / 3) for n in range(4)])
    before = dump_knowledge(pipeline)
    run_associations(pipeline)
    ids = [row.id for row in load_relations(pipeline)]
    undone = pipeline.roll_back(pipeline.value("SELECT id FROM {s}.consolidation_jobs"))
    assert dump_knowledge(pipeline) == before
    pipeline.roll_back(undone.rollback_id)
    assert [row.id for row in load_relations(pipeline)] == ids
    pipeline.roll_back(pipeline.value("SELECT id FROM {s}.consolidation_jobs"))
    assert run_associations(pipeline).added == len(ids)
    assert [row.id for row in load_relations(pipeline)] == ids


def test_rejected_relation_is_not_found_again(pipeline: Pipeline) -> None:
    pipeline.add([typed_note("a", "decision", 1.0), typed_note("b", "decision", 0.1, days=FAR)])
    run_associations(pipeline)
    (row,) = load_relations(pipeline)
    decide_relations(pipeline.engine, [row.id], "rejected", changed_by="tester")
    assert run_associations(pipeline, now=NOW + timedelta(days=7)).added == 0
    assert [row.status for row in load_relations(pipeline)] == ["rejected"]


def sampled_ids(pipeline: Pipeline, now: datetime = NOW) -> set[UUID]:
    """Return the sampled memories: equal vectors relate all of them."""
    pipeline.write("DELETE FROM {s}.memory_relations")
    run_associations(pipeline, now=now)
    return {end for row in load_relations(pipeline) for end in (row.a_id, row.b_id)}


def test_association_sample_changes_weekly(pipeline: Pipeline) -> None:
    pipeline.add([typed_note(f"m{n}", "learning", 1.0, days=n) for n in range(130)])
    newest = {note_id(f"m{n}") for n in range(100)}
    first = sampled_ids(pipeline)
    assert len(first) == 20
    assert first < newest
    assert sampled_ids(pipeline, NOW + timedelta(days=1)) == first
    weeks = [sampled_ids(pipeline, NOW + timedelta(weeks=week)) for week in range(1, 12)]
    assert all(week != first and week < newest for week in weeks)
    assert len(set().union(*weeks)) > 80


def test_association_sample_size_is_option(pipeline: Pipeline) -> None:
    pipeline.configure_new(sample_size=5)
    pipeline.add([typed_note(f"m{n}", "learning", 1.0, days=n) for n in range(30)])
    assert len(sampled_ids(pipeline)) == 5
    pipeline.configure(sample_size=1000)
    assert len(sampled_ids(pipeline)) == 30


@pytest.mark.parametrize("count", [0, 1])
def test_association_of_single_memory_is_empty(pipeline: Pipeline, count: int) -> None:
    for size in (0, 20):
        pipeline.configure_new(sample_size=size)
        pipeline.add([typed_note(f"m{n}", "learning", 1.0) for n in range(count)])
        done = run_associations(pipeline)
        assert (done.memories, done.added, done.skipped) == (count, 0, None)


def test_association_embeds_missing_vectors(pipeline: Pipeline) -> None:
    rows = [
        typed_note("a", "learning", None, days=FAR),
        typed_note("b", "warning", None),
        typed_note("c", "change", 1.0),
    ]
    pipeline.add([row | {"content": "amber birch"} if row["id"] != "c" else row for row in rows])
    embedder = WordEmbedder(MODEL, dimension=2)
    done = run_associations(pipeline, embedder=embedder)
    assert (done.memories, done.missing, len(embedder.seen)) == (3, 0, 2)
    assert {note_id("a"), note_id("b")} in [{row.a_id, row.b_id} for row in load_relations(pipeline)]
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE embedding IS NOT NULL") == 1


class RefusingEmbedder(WordEmbedder):
    """Embedder that refuses texts with some words, as a model refuses too long ones."""

    def __init__(self, *refused: str, error: type[Exception] = EmbeddingError) -> None:
        super().__init__(MODEL, dimension=2)
        self._refused, self._error = refused, error

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        bad = [text for text in texts if any(word in text for word in self._refused)]
        if bad:
            raise self._error(f"cannot embed {bad[0]!r}")
        return super().embed(texts)


def test_unembeddable_memory_is_skipped_with_warning(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    same = ["amber birch", "birch amber"]
    pipeline.add(
        [note(f"m{n}", text, created_at=NOW.isoformat()) for n, text in enumerate([*same, "flint grove", "8"])]
    )
    with caplog.at_level(logging.WARNING):
        done = run_associations(pipeline, embedder=RefusingEmbedder("flint"))
    assert (done.memories, done.missing, done.found["shares_theme"], done.skipped) == (2, 2, 1, None)
    assert f"memory {note_id('m2')} is not associated" in caplog.text
    assert f"memory {note_id('m3')} is not associated" in caplog.text


def test_association_skips_memories_refused_by_model(pipeline: Pipeline) -> None:
    pipeline.add([typed_note("a", "learning", None), typed_note("b", "learning", None)])
    done = run_associations(pipeline, embedder=RefusingEmbedder("Memory"))
    assert (done.memories, done.missing, done.added, done.skipped) == (0, 2, 0, None)


def test_association_skips_vectors_of_other_length(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    pipeline.add(
        [typed_note("a", "learning", 1.0), typed_note("b", "learning", 0.9), typed_note("c", "learning", None)]
    )
    with caplog.at_level(logging.WARNING):
        done = run_associations(pipeline, embedder=WordEmbedder(MODEL, dimension=3))
    assert (done.memories, done.missing, done.added) == (2, 1, 1)
    assert f"memory {note_id('c')} is not associated: its vector is zero or of another length" in caplog.text


@pytest.mark.parametrize("error", [EmbeddingError, ImportError, ConnectionError])
def test_association_without_model_is_skipped(pipeline: Pipeline, error: type[Exception]) -> None:
    pipeline.add(
        [typed_note("a", "learning", 1.0), typed_note("b", "learning", 1.0), typed_note("c", "learning", None)]
    )
    done = run_associations(pipeline, embedder=RefusingEmbedder("Memory", "memory", error=error))
    assert (done.memories, done.added, sum(done.found.values())) == (0, 0, 0)
    assert done.skipped is not None
    assert "test/plane cannot be loaded or reached" in done.skipped
    assert load_relations(pipeline) == []
    assert pipeline.value("SELECT status FROM {s}.consolidation_jobs") == "completed"


def test_association_with_unknown_model_is_skipped(pipeline: Pipeline) -> None:
    pipeline.configure_new(embedding_model="no-such-provider/model")
    pipeline.add([note("a", LESSONS[0]), note("b", LESSONS[1])])
    with pipeline.open(planned=("associations",)) as run:
        done = associate_memories(run)
    assert "no-such-provider/model cannot be loaded or reached" in (done.skipped or "")


def test_association_of_stored_vectors_needs_no_model(pipeline: Pipeline) -> None:
    pipeline.add([typed_note("a", "learning", 1.0), typed_note("b", "learning", 0.9)])
    assert run_associations(pipeline, embedder=RefusingEmbedder("")).found["shares_theme"] == 1


@pytest.mark.breaks_rules
def test_association_covers_active_units_only(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive=False)
    pipeline.add(
        [note("a", LESSONS[0]), note("b", f"Note to self: {LESSONS[0]}"), note("c", LESSONS[1]), note("d", "Old.")]
    )
    assert pipeline.run().merging.created == 1
    pipeline.write("UPDATE {s}.task_memories SET archived_at = now() WHERE external_id = 'd'")
    with pipeline.open() as run:
        assert associate_memories(run).memories == 2


def test_relation_of_source_counts_for_merged_memory(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive=False)
    lesson = LESSONS[0]
    when = {"created_at": "2024-01-05T10:00:00Z"}
    pipeline.add([note("a", lesson, **when), note("other", "Design review moved to Thursdays.", **when)])
    pipeline.run()
    with pipeline.open() as run:
        assert associate_memories(run).added == 1
    pipeline.add([note("b", f"Note to self: {lesson}", **when)])
    assert pipeline.run().merging.created == 1
    with pipeline.open() as run:
        done = associate_memories(run)
    assert (done.memories, sum(done.found.values()), done.added) == (2, 1, 0)


def test_too_many_relations_are_refused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(associations, "MAX_RELATIONS", 9)
    pipeline.configure_new(sample_size=0)
    pipeline.add([typed_note(f"m{n}", "learning", 1.0) for n in range(5)])
    with pytest.raises(TooManyPairsError, match="more than 9 pairs of memories are related: set sample_size"):
        run_associations(pipeline)
    assert load_relations(pipeline) == []
    monkeypatch.setattr(associations, "MAX_RELATIONS", 10)
    assert run_associations(pipeline).added == 10


def test_relations_are_written_in_batches(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(associations, "BATCH_ROWS", 4)
    pipeline.configure_new(sample_size=0)
    pipeline.add([typed_note(f"m{n}", "learning", 1.0) for n in range(5)])
    assert run_associations(pipeline).added == len(load_relations(pipeline)) == 10


def test_full_association_skips_missing_vectors(pipeline: Pipeline) -> None:
    pipeline.configure_new(sample_size=0)
    pipeline.add(
        [typed_note("a", "learning", 1.0), typed_note("b", "learning", 0.9), typed_note("c", "learning", None)]
    )
    done = run_associations(pipeline, embedder=RefusingEmbedder(""))
    assert (done.memories, done.missing, done.added) == (2, 1, 1)


@settings(deadline=None, max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(MEMORY_TYPES), st.integers(0, 40)), max_size=40), st.integers(0, 3))
def test_full_association_matches_pairwise_rules(shared: Pipeline, memories: list[tuple[str, int]], seed: int) -> None:
    shared.clear()
    shared.configure_new(sample_size=0)
    vectors = normalize(np.random.default_rng(seed).standard_normal((len(memories), 3)))
    rows = [
        typed_note(f"m{n}", kind, None, days=days, embedding=vectors[n].tolist(), embedding_model=MODEL)
        for n, (kind, days) in enumerate(memories)
    ]
    shared.add(rows)
    done = run_associations(shared)
    expected = set()
    for (n, (one, _)), (m, (other, _)) in combinations(enumerate(memories), 2):
        found = associate(one, other, np.float32(np.dot(*vectors[[n, m]].astype(np.float64))), math.inf)
        if found is not None:
            expected.add((frozenset((note_id(f"m{n}"), note_id(f"m{m}"))), found.relation_type))
    assert {(frozenset((row.a_id, row.b_id)), row.relation_type) for row in load_relations(shared)} == expected
    assert done.added == len(expected)
    assert run_associations(shared).added == 0
    assert all((row.status == "candidate") == (row.relation_type in CANDIDATE_TYPES) for row in load_relations(shared))
