"""Relevance: the formula of the pipeline, as of the run's instant, for everything that is active."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.core.memories import memory_id
from consolidation_pipeline.core.relevance import relevance
from consolidation_pipeline.service.decay import score_relevance
from consolidation_pipeline_tests.service.dumps import dump
from consolidation_pipeline_tests.service.lessons import LESSONS, corpus, note
from consolidation_pipeline_tests.service.running import SLUG, Pipeline

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
KNOWLEDGE = ["task_memories", "consolidated_memories"]


def ago(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat()


def id_of(name: str) -> UUID:
    return memory_id(SLUG, "test", name)


def score(pipeline: Pipeline, now: datetime = NOW) -> dict[str, float]:
    """Score the project as of an instant; relevance by external id."""
    with pipeline.open() as run:
        run.now = now
        score_relevance(run)
    rows = pipeline.rows(
        "SELECT external_id, relevance_score, relevance_at FROM {s}.task_memories WHERE NOT is_archived "
        "AND NOT is_consolidated"
    )
    assert {row.relevance_at for row in rows} == {now}
    return {row.external_id: row.relevance_score for row in rows}


def relate(pipeline: Pipeline, a: str, b: str, confidence: float, **fields: Any) -> None:
    values = {"status": "confirmed", "created_at": ago(1), "type": "shares_theme"} | fields
    pipeline.write(
        "INSERT INTO {s}.memory_relations (project_id, a_id, b_id, relation_type, confidence, status, created_at) "
        "SELECT id, :a, :b, :type, :confidence, :status, :created_at FROM {s}.projects",
        a=id_of(a),
        b=id_of(b),
        confidence=confidence,
        **values,
    )


def test_relevance_follows_age_access_importance_and_confirmed_relations(pipeline: Pipeline) -> None:
    pipeline.add(
        [
            note("fresh", "One.", created_at=ago(0), last_accessed_at=ago(0), importance=1.0),
            note("aged", "Two.", created_at=ago(7.5), last_accessed_at=ago(2.25), importance=0.4),
            note("unread", "Three.", created_at=ago(3), last_accessed_at=None, importance=0.5),
            note("future", "Four.", created_at=ago(-2), last_accessed_at=None, importance=0.5),
            note("old", "Five.", created_at=ago(400), last_accessed_at=None, importance=0.5),
        ]
    )
    relate(pipeline, "aged", "fresh", 0.9)
    relate(pipeline, "old", "aged", 0.6, type="explains")
    relate(pipeline, "unread", "aged", 0.9, status="candidate")
    relate(pipeline, "unread", "future", 0.9, created_at=ago(-1))
    found = score(pipeline)
    aged = math.exp(-0.75) * (0.3 + 0.3 * math.exp(-0.05 * 2.25)) * (1 + 0.3 * math.log(3)) * 0.9 * (0.7 + 0.3 * 0.75)
    assert found["aged"] == pytest.approx(aged)
    assert found["fresh"] == pytest.approx(0.6 * (1 + 0.3 * math.log(2)) * 1.5 * (0.7 + 0.27))
    assert found["unread"] == pytest.approx(relevance(3.0, None, 0, 0.5, None))
    assert found["future"] == pytest.approx(relevance(0.0, 0.0, 0, 0.5, None))
    assert found["old"] == 0.001


def test_the_projects_rates_are_used(pipeline: Pipeline) -> None:
    pipeline.configure_new(decay_rate=0.0, access_decay_rate=0.0)
    pipeline.add([note("aged", "Two.", created_at=ago(100), last_accessed_at=ago(50), importance=0.5)])
    assert score(pipeline)["aged"] == pytest.approx(0.6 * 0.85)


def test_scoring_twice_at_one_instant_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.run()
    score(pipeline)
    once = dump(pipeline, tables=KNOWLEDGE)
    score(pipeline)
    assert dump(pipeline, tables=KNOWLEDGE) == once


def test_relevance_fades_but_importance_is_never_written(pipeline: Pipeline) -> None:
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


def test_merged_memories_are_scored_from_their_own_inputs_and_their_sources_no_more(pipeline: Pipeline) -> None:
    pipeline.add(
        [
            note("a", LESSONS[0], created_at=ago(10), last_accessed_at=ago(4), importance=0.2),
            note("b", f"Note to self: {LESSONS[0]}", created_at=ago(6), last_accessed_at=ago(1), importance=0.8),
        ]
    )
    done = pipeline.run()
    with pipeline.open() as run:
        run.now = NOW
        scored = score_relevance(run)
    assert (done.merging.created, scored.scored) == (1, 1)
    assert pipeline.value("SELECT relevance_score FROM {s}.consolidated_memories") == pytest.approx(
        relevance(10.0, 1.0, 0, 0.8, None)
    )
    assert pipeline.rows("SELECT DISTINCT relevance_score FROM {s}.task_memories")[0][0] is None


def test_archived_memories_are_not_scored(pipeline: Pipeline) -> None:
    pipeline.add([note("a", "One."), note("b", "Two.")])
    pipeline.write("UPDATE {s}.task_memories SET archived_at = now() WHERE external_id = 'b'")
    assert set(score(pipeline)) == {"a"}
    assert pipeline.value("SELECT relevance_score FROM {s}.task_memories WHERE external_id = 'b'") is None


def test_the_spread_is_that_of_the_scores(pipeline: Pipeline) -> None:
    pipeline.add(
        [note(f"n{days}", f"Memory {days}.", created_at=ago(days), last_accessed_at=None) for days in range(5)]
    )
    with pipeline.open() as run:
        run.now = NOW
        done = score_relevance(run)
    stored = sorted(row[0] for row in pipeline.rows("SELECT relevance_score FROM {s}.task_memories"))
    assert done.spread == tuple(round(value, 6) for value in stored)
    assert (done.scored, done.as_of) == (5, NOW)
