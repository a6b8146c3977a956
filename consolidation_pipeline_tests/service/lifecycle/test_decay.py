"""Relevance of active memories: formula, relations and incremental scoring."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, text

from consolidation_pipeline.core.lifecycle.relevance import compute_relevance
from consolidation_pipeline.service.lifecycle.decay import HISTOGRAM_BINS, score_relevance
from consolidation_pipeline.service.lifecycle.relations import decide_relations
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline.store.memories.relevance import load_decay_inputs
from consolidation_pipeline_tests.service.corpus import LESSONS, corpus, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id
from consolidation_pipeline_tests.service.table_dumps import dump_tables

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
KNOWLEDGE = ["task_memories", "consolidated_memories"]


def ago(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat()


MERGED_SCORE = (
    "SELECT relevance_score FROM {s}.relevance_scores JOIN {s}.consolidated_memories m ON m.id = memory_id "
    "WHERE kind = 'merged'"
)


def store_when_learned(pipeline: Pipeline) -> None:
    """Set the time of storage of all memories to when they were learned, as if agents had added them then."""
    pipeline.write("UPDATE {s}.task_memories SET created_at = learned_at")


def score(pipeline: Pipeline, now: datetime = NOW) -> dict[str, float]:
    """Run the decay job as of ``now``; return relevance by external id."""
    with pipeline.open(job="decay", planned=("decay_scores",)) as run:
        run.now = now
        score_relevance(run)
    rows = pipeline.rows(
        "SELECT external_id, relevance_score, relevance_at FROM {s}.task_memories "
        "LEFT JOIN {s}.relevance_scores ON memory_id = id WHERE NOT is_archived AND NOT is_consolidated"
    )
    assert {row.relevance_at for row in rows} == {now}
    return {row.external_id: row.relevance_score for row in rows}


def insert_relation(pipeline: Pipeline, a: str, b: str, confidence: float, **fields: Any) -> None:
    values = {"status": "confirmed", "created_at": ago(1), "type": "shares_theme"} | fields
    pipeline.write(
        "INSERT INTO {s}.memory_relations (project_id, a_id, b_id, relation_type, confidence, status, created_at) "
        "SELECT id, :a, :b, :type, :confidence, :status, :created_at FROM {s}.projects",
        a=note_id(a),
        b=note_id(b),
        confidence=confidence,
        **values,
    )


def test_relevance_matches_formula(pipeline: Pipeline) -> None:
    pipeline.add(
        [
            note("fresh", "One.", created_at=ago(0), last_accessed_at=ago(0), importance=1.0),
            note("aged", "Two.", created_at=ago(7.5), last_accessed_at=ago(2.25), importance=0.4),
            note("unread", "Three.", created_at=ago(3), last_accessed_at=None, importance=0.5),
            note("future", "Four.", created_at=ago(-2), last_accessed_at=None, importance=0.5),
            note("old", "Five.", created_at=ago(400), last_accessed_at=None, importance=0.5),
        ]
    )
    store_when_learned(pipeline)
    insert_relation(pipeline, "aged", "fresh", 0.9)
    insert_relation(pipeline, "old", "aged", 0.6, type="explains")
    insert_relation(pipeline, "unread", "aged", 0.9, status="candidate")
    insert_relation(pipeline, "unread", "future", 0.9, created_at=ago(-1))
    found = score(pipeline)
    aged = math.exp(-0.75) * (0.3 + 0.3 * math.exp(-0.05 * 2.25)) * (1 + 0.3 * math.log(3)) * 0.9 * (0.7 + 0.3 * 0.75)
    assert found["aged"] == pytest.approx(aged)
    assert found["fresh"] == pytest.approx(0.6 * (1 + 0.3 * math.log(2)) * 1.5 * (0.7 + 0.27))
    assert found["unread"] == pytest.approx(compute_relevance(3.0, None, 0, 0.5, None))
    assert found["future"] == pytest.approx(compute_relevance(0.0, 0.0, 0, 0.5, None))
    assert found["old"] == 0.001


def test_age_counts_from_import_without_use_count(pipeline: Pipeline) -> None:
    pipeline.add(
        [
            note("old", LESSONS[0], created_at=ago(400), last_accessed_at=None, reused_count=0, importance=0.5),
            note("again", LESSONS[0], created_at=ago(300), last_accessed_at=None, reused_count=0, importance=0.5),
            note("alone", "One.", created_at=ago(400), last_accessed_at=None, reused_count=0, importance=0.5),
            note("used", "Two.", created_at=ago(400), last_accessed_at=ago(9), reused_count=3, importance=0.5),
        ]
    )
    pipeline.run()
    pipeline.write("UPDATE {s}.task_memories SET created_at = :at", at=ago(5))
    found = score(pipeline)
    fresh = pytest.approx(compute_relevance(5.0, None, 0, 0.5, None))
    assert (found["alone"], found["used"]) == (fresh, compute_relevance(400.0, 9.0, 0, 0.5, None))
    assert pipeline.value(MERGED_SCORE) == fresh


def test_decay_rates_are_options(pipeline: Pipeline) -> None:
    pipeline.configure_new(decay_rate=0.0, access_decay_rate=0.0)
    pipeline.add([note("aged", "Two.", created_at=ago(100), last_accessed_at=ago(50), importance=0.5)])
    assert score(pipeline)["aged"] == pytest.approx(0.6 * 0.85)


def test_scoring_twice_at_one_time_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.consolidate(corpus())
    score(pipeline)
    once = dump_tables(pipeline, tables=KNOWLEDGE)
    score(pipeline)
    assert dump_tables(pipeline, tables=KNOWLEDGE) == once


def test_scoring_never_changes_importance(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "One.", created_at=ago(1)), note("b", LESSONS[0]), note("c", LESSONS[0])])
    pipeline.run()
    columns = (
        "SELECT id, importance FROM {s}.task_memories UNION ALL SELECT id, importance FROM {s}.consolidated_memories"
    )
    importance = sorted(pipeline.rows(columns))
    today = score(pipeline)
    tomorrow = score(pipeline, NOW + timedelta(days=1))
    assert tomorrow["a"] < today["a"]
    assert sorted(pipeline.rows(columns)) == importance


def test_merged_memory_is_scored_instead_of_sources(pipeline: Pipeline) -> None:
    pipeline.add(
        [
            note("a", LESSONS[0], created_at=ago(10), last_accessed_at=ago(4), importance=0.2),
            note("b", f"Note to self: {LESSONS[0]}", created_at=ago(6), last_accessed_at=ago(1), importance=0.8),
        ]
    )
    done = pipeline.run()
    with pipeline.open(job="decay", planned=("decay_scores",)) as run:
        run.now = NOW
        scored = score_relevance(run)
    assert (done.merging.created, scored.scored) == (1, 1)
    assert pipeline.value(MERGED_SCORE) == pytest.approx(compute_relevance(10.0, 1.0, 0, 0.8, None))
    assert pipeline.value("SELECT count(*) FROM {s}.relevance_scores JOIN {s}.task_memories ON id = memory_id") == 0


@pytest.mark.breaks_rules
def test_archived_memories_are_not_scored(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "One."), note("b", "Two.")])
    pipeline.write("UPDATE {s}.task_memories SET archived_at = now() WHERE external_id = 'b'")
    assert set(score(pipeline)) == {"a"}
    assert score_of(pipeline, "b") is None


def test_relevance_spread_matches_stored_scores(pipeline: Pipeline) -> None:
    pipeline.add(
        [note(f"n{days}", f"Memory {days}.", created_at=ago(days), last_accessed_at=None) for days in range(5)]
    )
    with pipeline.open() as run:
        run.now = NOW
        done = score_relevance(run)
    stored = sorted(row[0] for row in pipeline.rows("SELECT relevance_score FROM {s}.relevance_scores"))
    assert done.spread == tuple(round(value, 6) for value in stored)
    assert (done.scored, done.as_of) == (5, NOW)


def relation_counts(pipeline: Pipeline, table: str = "task_memories") -> dict[str, tuple[int, float]]:
    """Return the number and mean confidence of relations, by external id or content of merged memories."""
    name = "external_id" if table == "task_memories" else "content"
    names = dict(pipeline.rows(f"SELECT id, {name} FROM {{s}}.{table}"))
    with pipeline.engine.connect() as connection:
        rows = load_decay_inputs(connection, pipeline.project().id, table, NOW)
    pairs = zip(rows.relations.tolist(), rows.confidence.tolist(), strict=True)
    return {names[id_]: pair for id_, pair in zip(to_uuids(rows.ids), pairs, strict=True)}


def insert_merged(pipeline: Pipeline, content: str, *sources: str) -> UUID:
    """Insert a merged memory in place of these sources; return its id."""
    into = uuid4()
    pipeline.write(
        "INSERT INTO {s}.consolidated_memories (id, project_id, kind, abstraction_level, memory_type, content, "
        "content_hash, normalized_hash) SELECT :id, id, 'merged', 1, 'learning', :content, 'h', 'h' FROM {s}.projects",
        id=into,
        content=content,
    )
    pipeline.write(
        "UPDATE {s}.task_memories SET consolidated_into_id = :into WHERE external_id = ANY(:sources)",
        into=into,
        sources=list(sources),
    )
    return into


@pytest.mark.breaks_rules
def test_relations_of_sources_count_once_after_merge(pipeline: Pipeline) -> None:
    pipeline.add([note(name, f"Memory {name}.") for name in "abcde"])
    insert_relation(pipeline, "a", "d", 0.75)
    insert_relation(pipeline, "b", "d", 0.5)
    insert_relation(pipeline, "d", "c", 0.7, type="explains")
    insert_relation(pipeline, "a", "b", 0.9)
    insert_relation(pipeline, "c", "e", 0.25)
    assert relation_counts(pipeline)["d"] == (3, pytest.approx(0.65))
    insert_merged(pipeline, "abc", "a", "b", "c")
    assert relation_counts(pipeline) == {"d": (2, pytest.approx(0.725)), "e": (1, 0.25)}
    assert relation_counts(pipeline, "consolidated_memories") == {"abc": (3, pytest.approx((0.75 + 0.7 + 0.25) / 3))}


@pytest.mark.breaks_rules
def test_relations_follow_superseded_memory(pipeline: Pipeline) -> None:
    pipeline.add([note(name, f"Memory {name}.") for name in "abc"])
    insert_relation(pipeline, "a", "c", 0.75)
    first, last = insert_merged(pipeline, "first", "a"), insert_merged(pipeline, "last")
    retired = "UPDATE {s}.consolidated_memories SET retired_at = now(), superseded_by_id = :last WHERE id = :first"
    pipeline.write(retired, first=first, last=last)
    assert relation_counts(pipeline, "consolidated_memories") == {"last": (1, 0.75)}
    assert relation_counts(pipeline)["c"] == (1, 0.75)


@pytest.mark.breaks_rules
def test_archived_memory_does_not_raise_relevance(pipeline: Pipeline) -> None:
    pipeline.add([note(name, f"Memory {name}.") for name in "abcd"])
    insert_relation(pipeline, "a", "b", 0.75)
    insert_relation(pipeline, "a", "c", 0.5)
    insert_relation(pipeline, "a", "nobody", 0.9)
    merged = insert_merged(pipeline, "merged", "c")
    assert relation_counts(pipeline)["a"] == (2, 0.625)
    archived = "UPDATE {s}.consolidated_memories SET retired_at = now(), archive_reason = 'staleness' WHERE id = :m"
    pipeline.write(archived, m=merged)
    pipeline.write("UPDATE {s}.task_memories SET archived_at = now() WHERE external_id = 'b'")
    assert relation_counts(pipeline) == {"a": (0, 0.5), "d": (0, 0.5)}
    pipeline.write("UPDATE {s}.task_memories SET archived_at = NULL")
    assert relation_counts(pipeline)["a"] == (1, 0.75)


def test_candidate_relation_counts_while_confirmed(pipeline: Pipeline) -> None:
    pipeline.add([note(name, f"Memory {name}.", created_at=ago(1), last_accessed_at=None) for name in "ab"])
    insert_relation(pipeline, "a", "b", 0.6, status="candidate", type="contradicts")
    (relation,) = pipeline.rows("SELECT id FROM {s}.memory_relations")[0]
    alone = score(pipeline)["a"]
    groups = decide_relations(pipeline.engine, [relation], "confirmed", changed_by="tester")
    linked = score(pipeline)["a"]
    assert linked / alone == pytest.approx((1 + 0.3 * math.log(2)) * (0.7 + 0.3 * 0.6) / 0.85)
    pipeline.roll_back(groups[relation])
    assert score(pipeline)["a"] == alone
    decide_relations(pipeline.engine, [relation], "rejected", changed_by="tester")
    assert score(pipeline)["a"] == alone
    decide_relations(pipeline.engine, [relation], "confirmed", changed_by="tester")
    assert score(pipeline)["a"] == linked


def test_hourly_scoring_does_not_drift(pipeline: Pipeline) -> None:
    pipeline.add([note(f"n{days}", f"Memory {days}.", created_at=ago(days * 1.7)) for days in range(6)])
    insert_relation(pipeline, "n0", "n5", 0.8)
    for hour in range(1, 24):
        score(pipeline, NOW + timedelta(hours=hour))
    often = score(pipeline, NOW + timedelta(days=1))
    pipeline.write("DELETE FROM {s}.relevance_scores")
    assert score(pipeline, NOW + timedelta(days=1)) == often


def test_full_run_rescores_only_changed_memories(pipeline: Pipeline) -> None:
    pipeline.add([note(name, f"Memory {name}.", created_at=ago(3), last_accessed_at=ago(1)) for name in "abcdef"])
    store_when_learned(pipeline)
    before = score(pipeline)
    insert_relation(pipeline, "b", "c", 0.8, created_at=ago(-0.1))
    pipeline.write("UPDATE {s}.task_memories SET importance = 0.50001 WHERE external_id = 'd'")
    pipeline.write("UPDATE {s}.task_memories SET last_accessed_at = :at WHERE external_id = 'e'", at=ago(-0.2))
    pipeline.add([note("new", "Another.", created_at=ago(0))])
    store_when_learned(pipeline)

    def written(hours: float) -> tuple[int, set[str]]:
        later = NOW + timedelta(hours=hours)
        with pipeline.open() as run:
            run.now = later
            done = score_relevance(run)
        found = (
            "SELECT external_id FROM {s}.task_memories JOIN {s}.relevance_scores ON memory_id = id "
            "WHERE relevance_at = :at"
        )
        return done.written, {row[0] for row in pipeline.rows(found, at=later)}

    assert written(22) == (5, {"b", "c", "d", "e", "new"})
    assert score_of(pipeline, "a") == before["a"]
    assert written(22.5) == (0, set())
    assert written(23.5) == (2, {"a", "f"})
    pipeline.configure(decay_rate=0.2)
    assert written(24)[0] == 7


def score_of(pipeline: Pipeline, name: str) -> Any:
    rows = pipeline.rows("SELECT relevance_score FROM {s}.relevance_scores WHERE memory_id = :id", id=note_id(name))
    return rows[0][0] if rows else None


def test_relevance_histogram_counts_every_memory_once(pipeline: Pipeline) -> None:
    ages = [0, 0, 5, 20, 60, 400]
    pipeline.add(
        [note(f"n{n}", f"Memory {n}.", created_at=ago(days), last_accessed_at=None, importance=1.0)
         for n, days in enumerate(ages)]
    )  # fmt: skip
    store_when_learned(pipeline)
    pipeline.write("UPDATE {s}.task_memories SET importance = 2.5 WHERE external_id = 'n0'")
    with pipeline.open() as run:
        run.now = NOW
        done = score_relevance(run)
    stored = [row[0] for row in pipeline.rows("SELECT relevance_score FROM {s}.relevance_scores")]
    edges = [*HISTOGRAM_BINS, math.inf]
    counted = [sum(low <= value < high for value in stored) for low, high in pairwise(edges)]
    assert done.histogram == tuple(counted)
    assert (sum(done.histogram), done.histogram[0], done.histogram[-1]) == (6, 2, 1)


def test_decay_waits_for_no_rows_of_memories(pipeline: Pipeline) -> None:
    pipeline.configure_new(t_merge=0.8, t_suggest=0.75)
    pipeline.add(corpus())
    pipeline.run_phases(PHASES[: PHASES.index("decay_scores")])
    with pipeline.engine.begin() as connection:
        assert lock_all(connection, "consolidated_memories")
        assert lock_all(connection, "task_memories")
        # If decay waited, this would end the transaction, and the test fail.
        connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = '60s'"))
        assert score(pipeline)


def lock_all(connection: Connection, table: str) -> int:
    return len(connection.exec_driver_sql(f"SELECT id FROM consolidation.{table} ORDER BY id FOR NO KEY UPDATE").all())
