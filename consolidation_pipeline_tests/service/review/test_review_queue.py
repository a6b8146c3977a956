"""Review of patterns, principles and playbook entries: all or nothing, each decision undone alone."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.core.knowledge.playbook import compute_priority
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, pin_memories, restore_memories
from consolidation_pipeline.service.review.review_queue import ReviewDecision, decide_review, list_review
from consolidation_pipeline.store.database.schema import playbook_entries
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows
from consolidation_pipeline_tests.openai_server import OpenAIServer, reply_with_json
from consolidation_pipeline_tests.service.corpus import FIFTH, MIGRATIONS, WEBHOOKS, note, topic_notes
from consolidation_pipeline_tests.service.knowledge import test_principles
from consolidation_pipeline_tests.service.knowledge.test_patterns import list_patterns
from consolidation_pipeline_tests.service.model_replies import pattern_reply
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline
from consolidation_pipeline_tests.service.playbook.test_entries import OPTIONS
from consolidation_pipeline_tests.service.table_dumps import dump_tables

KNOWLEDGE = ["consolidated_memories", "playbook_entries", "consolidation_changes"]


def decide(pipeline: Pipeline, *ids: UUID, approved: bool, **how: Any) -> list[ReviewDecision]:
    return decide_review(pipeline.engine, ids, approved=approved, changed_by="tester", **how)


def list_waiting_ids(pipeline: Pipeline, slug: str = SLUG) -> list[UUID]:
    return [row["id"] for row in list_review(pipeline.engine, slug, limit=50)["waiting"]]


def insert_entry(pipeline: Pipeline, pattern: Any, *, reason: str | None = None) -> UUID:
    """Insert a playbook entry of a pattern that waits for review; return its id."""
    id_ = uuid4()
    values = {
        "content": pattern.content,
        "priority": compute_priority(0.82, len(pattern.source_memory_ids)),
        "confidence": 0.82,
        "supporting_memory_ids": list(pattern.source_memory_ids),
        "source_id": pattern.id,
        "status": "review",
        "content_hash": pattern.content_hash,
    }
    author = Author(pattern.project_id, None, "tester")
    with pipeline.engine.begin() as connection:
        insert_rows(
            connection, author, playbook_entries, [Change(id_, uuid4(), values, None, reason)], operation="promote"
        )
    return id_


def load_status(pipeline: Pipeline, id_: UUID) -> str:
    return str(pipeline.value("SELECT status FROM {s}.playbook_entries WHERE id = :id", id=id_))


@pytest.fixture
def uncertain(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project with two patterns of low confidence, of four and three memories."""
    provider.behaviour = reply_with_json(pattern_reply(0.75))
    pipeline.start_from(write_patterns)
    return pipeline


def write_patterns(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS, llm_model="openai/gpt-4o-mini")
    pipeline.add([*topic_notes("hook", WEBHOOKS), *topic_notes("move", MIGRATIONS)])
    pipeline.run()


def test_review_queue_lists_surest_first_with_evidence(uncertain: Pipeline) -> None:
    hooks, moves = list_patterns(uncertain)
    added = insert_entry(uncertain, moves, reason="not sure enough to be promoted")
    found = list_review(uncertain.engine, SLUG, limit=50)
    assert found["totals"] == {"pattern": 2, "principle": 0, "playbook": 1}
    first, *others = found["waiting"]
    assert (first["id"], {row["id"] for row in others}) == (added, {hooks.id, moves.id})
    second = next(row for row in others if row["id"] == hooks.id)
    assert (first["kind"], first["confidence"], first["evidence_count"]) == ("playbook", 0.82, 3)
    assert first["why"] == "not sure enough to be promoted"
    assert (second["kind"], second["pattern_type"], second["evidence_count"]) == ("pattern", "workflow", 4)
    assert (second["content"], second["why"]) == (hooks.content, "the model was only 0.75 sure of it")
    assert second["best_practices"] == hooks.details["best_practices"]
    assert second["evidence"] == hooks.details["evidence"]
    assert first["evidence"] == moves.details["evidence"]
    assert list_review(uncertain.engine, SLUG, limit=1, kind="pattern")["waiting"] == others[:1]
    with pytest.raises(UsageError, match="'merged' is not reviewed: it must be pattern, principle, playbook"):
        list_review(uncertain.engine, SLUG, limit=1, kind="merged")
    with pytest.raises(NotFoundError, match="nobody"):
        list_review(uncertain.engine, "nobody", limit=1)


def test_approved_pattern_stays_until_group_changes(uncertain: Pipeline) -> None:
    hooks, moves = list_patterns(uncertain)
    (done,) = decide(uncertain, hooks.id, approved=True, reason="seen it")
    assert (done.id, done.project, done.kind) == (hooks.id, SLUG, "pattern")
    (change,) = uncertain.rows("SELECT * FROM {s}.consolidation_changes WHERE operation = 'review'")
    assert (change.group_id, change.reason, change.changed_by) == (done.group_id, "seen it", "tester")
    assert uncertain.run().patterns.covered == 2
    assert list_waiting_ids(uncertain) == [moves.id]
    assert list_patterns(uncertain)[0].version == hooks.version + 1
    undone = uncertain.roll_back(done.group_id)
    assert set(list_waiting_ids(uncertain)) == {hooks.id, moves.id}
    uncertain.roll_back(undone.rollback_id)
    uncertain.add([note("fifth", FIFTH)])
    assert uncertain.run().patterns.updated == 1
    assert set(list_waiting_ids(uncertain)) == {hooks.id, moves.id}


def test_dismissed_pattern_returns_when_group_grows(uncertain: Pipeline) -> None:
    hooks, moves = list_patterns(uncertain)
    (done,) = decide(uncertain, hooks.id, approved=False)
    row = uncertain.rows("SELECT * FROM {s}.consolidated_memories WHERE id = :id", id=hooks.id)[0]
    assert (row.archive_reason, row.retired_at is not None) == ("dismissed", True)
    assert (uncertain.run().patterns.covered, list_waiting_ids(uncertain)) == (2, [moves.id])
    uncertain.add([note("fifth", FIFTH)])
    assert uncertain.run().patterns.created == 1
    larger, _ = list_patterns(uncertain)
    assert (larger.id != hooks.id, larger.source_count) == (True, 5)
    uncertain.roll_back(done.group_id)
    assert {row.id for row in list_patterns(uncertain)} == {hooks.id, larger.id, moves.id}


def test_archived_pattern_returns_only_by_restore(uncertain: Pipeline) -> None:
    hooks, moves = list_patterns(uncertain)
    (pinned,) = pin_memories(uncertain.engine, [hooks.id], pinned=True, changed_by="tester")
    with pytest.raises(ConflictError, match="pinned"):
        archive_manually(uncertain.engine, [hooks.id], changed_by="tester")
    uncertain.roll_back(pinned.group_id)
    archive_manually(uncertain.engine, [hooks.id], changed_by="tester", reason="out of date")
    assert (uncertain.run().patterns.created, [row.id for row in list_patterns(uncertain)]) == (0, [moves.id])
    restore_memories(uncertain.engine, [hooks.id], changed_by="tester")
    back = list_patterns(uncertain)[0]
    assert (back.id, back.content, back.needs_review, back.archive_reason) == (hooks.id, hooks.content, True, None)


@pytest.mark.breaks_rules
def test_restore_refuses_second_pattern_of_group(uncertain: Pipeline) -> None:
    hooks, moves = list_patterns(uncertain)
    (done,) = archive_manually(uncertain.engine, [hooks.id], changed_by="tester")
    uncertain.write("UPDATE {s}.consolidated_memories SET cluster_key = :k", k=hooks.cluster_key)
    with pytest.raises(ConflictError, match=f"{hooks.id} has the same group as pattern memory {moves.id}"):
        restore_memories(uncertain.engine, [hooks.id], changed_by="tester")
    with pytest.raises(ConflictError, match=f"row {moves.id} has the same text, or is of the same group"):
        uncertain.roll_back(done.group_id)


def test_review_decisions_are_all_or_nothing(uncertain: Pipeline) -> None:
    hooks, moves = list_patterns(uncertain)
    decide(uncertain, moves.id, approved=True)
    before = dump_tables(uncertain, tables=KNOWLEDGE)
    nobody, raw = uuid4(), hooks.source_memory_ids[0]
    with pytest.raises(NotFoundError, match=f"nothing has the id {nobody}"):
        decide(uncertain, hooks.id, nobody, approved=False)
    with pytest.raises(UsageError, match=f"{raw} is of kind raw"):
        decide(uncertain, hooks.id, raw, approved=False)
    with pytest.raises(ConflictError, match=f"pattern {moves.id} does not wait for review") as refused:
        decide(uncertain, hooks.id, moves.id, approved=True)
    assert refused.value.conflicts == (str(moves.id),)
    assert dump_tables(uncertain, tables=KNOWLEDGE) == before
    decide(uncertain, moves.id, approved=False)
    with pytest.raises(ConflictError, match=f"pattern {moves.id} is retired already"):
        decide(uncertain, hooks.id, moves.id, approved=False)
    assert [row.id for row in list_patterns(uncertain)] == [hooks.id]


def test_approved_pattern_is_promoted_by_next_run(uncertain: Pipeline) -> None:
    hooks, _ = list_patterns(uncertain)
    uncertain.run()
    assert uncertain.value("SELECT count(*) FROM {s}.playbook_entries") == 0
    decide(uncertain, hooks.id, approved=True)
    uncertain.run()
    (promoted,) = uncertain.rows("SELECT source_id, status FROM {s}.playbook_entries")
    assert (promoted.source_id, promoted.status) == (hooks.id, "active")


def test_playbook_decisions_are_undone_independently(uncertain: Pipeline) -> None:
    hooks, moves = list_patterns(uncertain)
    good, bad = insert_entry(uncertain, hooks), insert_entry(uncertain, moves)
    (approved,) = decide(uncertain, good, good, approved=True)
    (dismissed,) = decide(uncertain, bad, approved=False)
    assert [load_status(uncertain, id_) for id_ in (good, bad)] == ["active", "retired"]
    query = "SELECT payload FROM {s}.consolidation_events WHERE type = 'playbook.changed' ORDER BY created_at"
    assert [row.payload for row in uncertain.rows(query)[-2:]] == [{"approved": 1}, {"dismissed": 1}]
    with pytest.raises(ConflictError, match=f"playbook {good} does not wait"):
        decide(uncertain, good, approved=True)
    (late,) = decide(uncertain, good, approved=False)
    assert load_status(uncertain, good) == "retired"
    undone = [uncertain.roll_back(group.group_id) for group in (late, approved, dismissed)]
    assert [row.payload for row in uncertain.rows(query)[-3:]] == [
        {"rollback_id": str(one.rollback_id), "rolled_back": 1} for one in undone
    ]
    assert {load_status(uncertain, id_) for id_ in (good, bad)} == {"review"}


def test_review_covers_several_projects(uncertain: Pipeline) -> None:
    uncertain.configure_new("other", **OPTIONS, llm_model="openai/gpt-4o-mini")
    uncertain.add(topic_notes("hook", WEBHOOKS), "other")
    uncertain.run("other")
    ids = [list_waiting_ids(uncertain, slug)[0] for slug in (SLUG, "other")]
    done = decide(uncertain, *ids, approved=False)
    assert [(one.id, one.project) for one in done] == list(zip(ids, (SLUG, "other"), strict=True))
    assert len({one.group_id for one in done}) == 2


def test_dismissed_principle_stays_dismissed(pipeline: Pipeline) -> None:
    pipeline.configure_new(**test_principles.OPTIONS)
    rows = [
        row for name in (*test_principles.TOPICS, test_principles.FOURTH) for row in test_principles.memory_notes(name)
    ]
    pipeline.add(rows)
    test_principles.run_with_words(pipeline)
    (principle,) = test_principles.list_principles(pipeline)
    (shown,) = list_review(pipeline.engine, SLUG, limit=5, kind="principle")["waiting"]
    seen = principle.details["seen"]
    assert (shown["id"], shown["why"]) == (principle.id, f"it was made without a model. {seen}")
    (done,) = decide(pipeline, principle.id, approved=False)
    assert test_principles.run_with_words(pipeline).principles.covered == 1
    assert test_principles.list_principles(pipeline) == []
    pipeline.roll_back(done.group_id)
    first = test_principles.list_pattern_ids(pipeline)[0]
    archive_manually(pipeline.engine, [first], changed_by="tester")
    again = test_principles.run_with_words(pipeline)
    assert (again.principles.groups, again.principles.covered) == (1, 1)
    (same,) = test_principles.list_principles(pipeline)
    assert (same.id, same.version) == (principle.id, principle.version)
