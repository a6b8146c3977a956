"""Uses that agents report: votes that move the ranking, bounded, and undone with their feedback."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.core.lifecycle.feedback import OWN_WEIGHT, UNKNOWN_QUERY_WEIGHT, VOTE_DAYS
from consolidation_pipeline.embed import load_embedder
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.intake.agent_memories import add_memories, get_memory, give_feedback
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.service.intake.memory_uses import MAX_USED, UsesReport, report_used
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline.service.undo.ledger_retention import remove_expired_changes
from consolidation_pipeline.store.memories.votes import load_usefulness
from consolidation_pipeline_tests.service.corpus import LESSONS, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline

ASKED = "when to restart the billing worker"
# Part of one voter whose only vote names no query.
PART = UNKNOWN_QUERY_WEIGHT / (UNKNOWN_QUERY_WEIGHT + 3)
TWINS = ("Restart the billing worker after each deploy.", "Restart the billing worker before each deploy.")


@pytest.fixture
def twins(shared: Pipeline) -> tuple[Pipeline, list[UUID]]:
    """Project with two memories on one matter among others; their ids in the order in which search ranks them."""
    shared.clear()
    ensure_project(shared.engine, SLUG)
    rows = [{"content": text, "session_id": f"s{at}"} for at, text in enumerate([*TWINS, *LESSONS])]
    add_memories(shared.engine, SLUG, rows, source="agent", changed_by="bot", settings=shared.settings)
    return shared, rank(shared)


def rank(pipeline: Pipeline) -> list[UUID]:
    asked = SearchQuery(ASKED, limit=2, explain=True)
    found = search(pipeline.engine, SLUG, asked, settings=pipeline.settings, count_use=False)
    return [hit.id for hit in found.results]


def usefulness(pipeline: Pipeline, id_: UUID, asked: str = "") -> float:
    embedder = load_embedder("local")
    query = (embedder.name, embedder.embed([asked])[0]) if asked else None
    with pipeline.engine.connect() as connection:
        return load_usefulness(connection, [str(id_)], query=query).get(str(id_), 0.0)


def test_reported_uses_move_ranking(twins: tuple[Pipeline, list[UUID]]) -> None:
    pipeline, (first, second) = twins
    for at in range(8):
        assert report_used(pipeline.engine, [second], voter=f"key:{at}") == UsesReport(1, 0)
    assert rank(pipeline) == [second, first]
    for at in range(10):
        report_used(pipeline.engine, [first], voter=f"key:{at}")
    assert rank(pipeline) == [first, second]


def test_use_for_a_query_counts_for_similar_queries(twins: tuple[Pipeline, list[UUID]]) -> None:
    pipeline, (first, second) = twins
    how: dict[str, Any] = {"settings": pipeline.settings}
    for at in range(4):
        report_used(pipeline.engine, [second], voter=f"key:{at}", query="colour of the company logo", **how)
    assert rank(pipeline) == [first, second]
    for at in range(4):
        report_used(pipeline.engine, [second], voter=f"key:{at}", query=f" {ASKED} ", **how)
    assert rank(pipeline) == [second, first]
    assert report_used(pipeline.engine, [second], voter="key:0", query=ASKED, **how) == UsesReport(0, 1)
    assert pipeline.value("SELECT count(*) FROM {s}.vote_queries") == 2
    # Another model gives vectors that cannot be compared: the queries count as not known.
    pipeline.write("UPDATE {s}.vote_queries SET embedding_model = 'other'")
    assert usefulness(pipeline, second) > 0


def test_repeated_use_counts_once_a_day(twins: tuple[Pipeline, list[UUID]]) -> None:
    pipeline, (id_, _) = twins
    assert report_used(pipeline.engine, [id_, id_], voter="key:1") == UsesReport(1, 0)
    once = usefulness(pipeline, id_)
    assert report_used(pipeline.engine, [id_], voter="key:1") == UsesReport(0, 1)
    assert usefulness(pipeline, id_) == once
    pipeline.write("UPDATE {s}.memory_votes SET day = day - 1")
    report_used(pipeline.engine, [id_], voter="key:1")
    assert once < usefulness(pipeline, id_) < 1 / 3


@pytest.mark.parametrize("by_key", [True, False])
def test_writer_of_memory_counts_less(twins: tuple[Pipeline, list[UUID]], by_key: bool) -> None:
    pipeline, (id_, _) = twins
    writer = pipeline.value("SELECT 'session ' || session_id FROM {s}.task_memories WHERE id = :id", id=id_)
    if by_key:
        writer = "key:1"
        pipeline.write("UPDATE {s}.task_memories SET writer = 'key:1'")
    report_used(pipeline.engine, [id_], voter=writer)
    assert usefulness(pipeline, id_) == usefulness(pipeline, id_, ASKED) == 0
    report_used(pipeline.engine, [id_], voter=writer, query=ASKED, settings=pipeline.settings)
    part = OWN_WEIGHT / (1 + 3)
    assert usefulness(pipeline, id_, ASKED) == pytest.approx(part / (part + 2))
    report_used(pipeline.engine, [id_], voter="key:2", query=ASKED, settings=pipeline.settings)
    both = part + 1 / (1 + 3)
    assert usefulness(pipeline, id_, ASKED) == pytest.approx(both / (both + 2))


def test_old_votes_no_longer_count(twins: tuple[Pipeline, list[UUID]]) -> None:
    pipeline, (id_, _) = twins
    report_used(pipeline.engine, [id_], voter="key:1")
    pipeline.write("UPDATE {s}.memory_votes SET day = day - :days", days=VOTE_DAYS - 1)
    assert usefulness(pipeline, id_) > 0
    pipeline.write("UPDATE {s}.memory_votes SET day = day - 1")
    assert usefulness(pipeline, id_) == 0


def test_retention_deletes_votes_that_no_longer_count(twins: tuple[Pipeline, list[UUID]]) -> None:
    pipeline, ids = twins
    for id_ in ids:
        report_used(pipeline.engine, [id_], voter="key:1", query=str(id_), settings=pipeline.settings)
    pipeline.write("UPDATE {s}.memory_votes SET day = day - :days WHERE memory_id = :id", days=VOTE_DAYS, id=ids[0])
    pipeline.write("UPDATE {s}.vote_queries SET day = day - :days", days=VOTE_DAYS)
    remove_expired_changes(pipeline.engine, settings=pipeline.settings, now=datetime.now(UTC))
    assert pipeline.rows("SELECT memory_id FROM {s}.memory_votes") == [(ids[1],)]
    assert pipeline.value("SELECT count(*) FROM {s}.vote_queries") == 0


def test_undone_feedback_does_not_count(twins: tuple[Pipeline, list[UUID]]) -> None:
    pipeline, (id_, _) = twins
    report_used(pipeline.engine, [id_], voter="bot")
    done = give_feedback(pipeline.engine, id_, helpful=False, changed_by="bot")
    assert usefulness(pipeline, id_) == pytest.approx(-0.25 / 2.25)
    undone = pipeline.roll_back(done["group_id"])
    assert usefulness(pipeline, id_) == 0
    pipeline.roll_back(undone.rollback_id)
    assert usefulness(pipeline, id_) < 0


def test_rating_moves_importance_once_a_day(twins: tuple[Pipeline, list[UUID]]) -> None:
    pipeline, (id_, _) = twins
    ratings = [("a", True), ("a", True), ("b", True), ("a", False), ("a", False)]
    moved = [
        give_feedback(pipeline.engine, id_, helpful=helpful, changed_by="api:x", voter=voter)["importance"]
        for voter, helpful in ratings
    ]
    assert moved == [0.6, 0.6, 0.7, 0.6, 0.6]
    assert len(get_memory(pipeline.engine, id_)["feedback_given"]) == 5


def test_merged_memory_takes_over_votes_of_sources(shared: Pipeline) -> None:
    shared.clear()
    shared.add(reworded_notes(LESSONS[:1])[:3])
    sources = [row[0] for row in shared.rows("SELECT id FROM {s}.task_memories")]
    for source in sources:
        report_used(shared.engine, [source], voter="key:1")
    shared.run_phases(PHASES[: PHASES.index("merged_memories") + 1])
    merged = shared.value("SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged'")
    assert usefulness(shared, merged) == pytest.approx(PART / (PART + 2))
    report_used(shared.engine, [merged], voter="key:2")
    assert usefulness(shared, merged) == pytest.approx(2 * PART / (2 * PART + 2))


def test_unknown_or_too_many_ids_are_refused(twins: tuple[Pipeline, list[UUID]]) -> None:
    pipeline, (id_, _) = twins
    nobody = uuid4()
    with pytest.raises(NotFoundError, match=f"no memory or playbook entry {nobody}"):
        report_used(pipeline.engine, [id_, nobody], voter="key:1")
    for ids in ([], [uuid4() for _ in range(MAX_USED + 1)]):
        with pytest.raises(UsageError, match=f"give 1 to {MAX_USED} ids"):
            report_used(pipeline.engine, ids, voter="key:1")
    assert pipeline.value("SELECT count(*) FROM {s}.memory_votes") == 0
