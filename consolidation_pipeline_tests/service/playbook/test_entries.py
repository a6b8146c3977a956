"""Playbook entries end to end: promotion, reinforcement, review, updates, rollback and lineage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.admin.project_browser import list_groups_with_subjects
from consolidation_pipeline.service.intake.agent_memories import give_feedback
from consolidation_pipeline.service.intake.memory_uses import report_used
from consolidation_pipeline.service.playbook.entries import read_playbook
from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.service.undo.history import list_activity
from consolidation_pipeline.service.undo.lineage import LineageSource, trace_memory
from consolidation_pipeline.store.database.schema import consolidated_memories, playbook_entries
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows, update_rows
from consolidation_pipeline_tests.openai_server import OpenAIServer, Request, reply_with_json
from consolidation_pipeline_tests.service.corpus import FIFTH, MIGRATIONS, WEBHOOKS, note, topic_notes
from consolidation_pipeline_tests.service.knowledge.test_patterns import list_patterns
from consolidation_pipeline_tests.service.model_replies import pattern_reply, shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Outcome, Pipeline, run_phases
from consolidation_pipeline_tests.service.table_dumps import dump_tables

OPTIONS: dict[str, Any] = {"t_merge": 0.8, "t_suggest": 0.75, "t_pattern": 0.5, "archive": False}
MODEL: dict[str, Any] = {"llm_model": "openai/gpt-4o-mini", "playbook_approval": "automatic"}
RULE = WEBHOOKS[0]
# Cosines with RULE by the default embedding model: 0.92 and 0.85.
NEAR_DUPLICATE = "Verify the signature of a webhook first, then read its body and answer."
SIMILAR = "Verify the signature of a webhook before reading its body or headers."
TABLES = ("playbook_entries", "consolidation_changes", "memory_lineage")
Answer = Callable[[Request], dict[str, Any]]


def reply_with_patterns(confidence: float, words: Mapping[str, str]) -> Answer:
    """Return an answer whose pattern is the value in ``words`` whose key occurs in the prompt, if any."""
    sound = pattern_reply(confidence)

    def answer(request: Request) -> dict[str, Any]:
        prompt = str(shown_memories(request)).lower()
        reply_text = next((text for word, text in words.items() if word in prompt), None)
        return sound(request) | ({} if reply_text is None else {"pattern": reply_text})

    return answer


def list_entries(pipeline: Pipeline, status: str = "active") -> list[Any]:
    query = "SELECT * FROM {s}.playbook_entries WHERE status = :status ORDER BY priority DESC, id"
    return pipeline.rows(query, status=status)


def list_changes(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return change and operation of each row of ``playbook_changes``, oldest first."""
    query = (
        "SELECT change, operation FROM {s}.playbook_changes v JOIN {s}.consolidation_changes c USING (seq) ORDER BY seq"
    )
    return [tuple(row) for row in pipeline.rows(query)]


def edit_row(pipeline: Pipeline, row: Any, operation: str = "edit", **values: Any) -> UUID:
    """Change a row manually and return the group of the change."""
    table = playbook_entries if "priority" in row._fields else consolidated_memories
    change = Change(row.id, uuid4(), values, row.version)
    with pipeline.engine.begin() as connection:
        update_rows(connection, Author(row.project_id, None, "tester"), table, [change], operation=operation)
    return change.group_id


def leaf_ids(sources: Sequence[LineageSource]) -> set[UUID]:
    below = [leaf_ids(source.sources) or {source.id} for source in sources]
    return set().union(*below)


@pytest.fixture
def topics(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project with a model and two topics, of four and three memories."""
    del provider
    pipeline.configure_new(**OPTIONS, **MODEL)
    pipeline.add([*topic_notes("hook", WEBHOOKS), *topic_notes("move", MIGRATIONS)])
    return pipeline


def run_topics(topics: Pipeline) -> Outcome:
    """Run the project of ``topics``, or copy the rows of an earlier run of it."""
    return topics.start_from(Pipeline.run, __name__)


@pytest.fixture
def run_with_duplicates(topics: Pipeline, provider: OpenAIServer) -> Callable[[str], Outcome]:
    """Function that adds a second group on webhooks, lets the model describe it with the given text, and runs."""

    def run(words: str) -> Outcome:
        provider.behaviour = reply_with_json(reply_with_patterns(0.9, {"webhook": words}))
        topics.add(topic_notes("choice", (*WEBHOOKS[:3], FIFTH), memory_type="decision"))
        return topics.run()

    provider.behaviour = reply_with_json(reply_with_patterns(0.9, {"webhook": RULE}))
    topics.run()
    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("confidence", "promoted", "waiting"), [(0.79, 0, 0), (0.80, 0, 2), (0.84, 0, 2), (0.85, 2, 0)]
)
def test_llm_confidence_gates_playbook_entries(
    topics: Pipeline, provider: OpenAIServer, confidence: float, promoted: int, waiting: int
) -> None:
    provider.behaviour = reply_with_json(pattern_reply(confidence))
    done = topics.run().playbook
    assert (done.entries_promoted, done.entries_proposed) == (promoted, waiting)
    assert (done.entries_active, done.entries_waiting) == (promoted, waiting)
    assert (len(list_entries(topics)), len(list_entries(topics, "review"))) == (promoted, waiting)
    assert topics.value("SELECT memories_promoted FROM {s}.consolidation_jobs") == promoted


def test_entry_copies_text_and_evidence_of_pattern(topics: Pipeline, provider: OpenAIServer) -> None:
    run_topics(topics)
    hooks, moves = list_entries(topics)
    pattern, _ = list_patterns(topics)
    assert (hooks.source_id, hooks.content, hooks.tags) == (pattern.id, pattern.content, pattern.tags)
    assert (hooks.embedding_model, str(hooks.embedding)) == (pattern.embedding_model, str(pattern.embedding))
    assert (hooks.confidence, hooks.priority, moves.priority) == (0.9, 96, 95)
    assert hooks.supporting_memory_ids == sorted(pattern.source_memory_ids)
    assert list_changes(topics) == [("promote", "promote")] * 2
    assert len({topics.last_group(entity=row.id) for row in (hooks, moves)}) == 2
    assert len(provider.requests) == 2
    event = topics.value("SELECT payload FROM {s}.consolidation_events WHERE type = 'playbook.changed'")
    assert event["promoted"] == 2


@pytest.mark.slow
def test_second_run_writes_no_playbook_entry(topics: Pipeline) -> None:
    run_topics(topics)
    before = dump_tables(topics, tables=TABLES)
    again = topics.run().playbook
    assert (again.entries_promoted, again.entries_proposed, again.entries_reinforced) == (0, 0, 0)
    assert (again.entries_updated, again.entries_active) == (0, 2)
    assert dump_tables(topics, tables=TABLES) == before


def test_near_duplicate_pattern_reinforces_entry(
    topics: Pipeline, run_with_duplicates: Callable[[str], Outcome]
) -> None:
    done = run_with_duplicates(NEAR_DUPLICATE).playbook
    assert (done.entries_reinforced, done.entries_promoted, done.entries_proposed) == (1, 0, 0)
    hooks, _ = list_entries(topics)
    assert (hooks.content, hooks.priority, len(hooks.supporting_memory_ids)) == (RULE, 100, 8)
    assert len(set(hooks.supporting_memory_ids)) == 8
    assert list_changes(topics)[-1] == ("update", "edit")
    again = topics.run().playbook
    assert (again.entries_reinforced, again.entries_promoted) == (0, 0)


def test_similar_pattern_is_proposed_for_review(
    topics: Pipeline, run_with_duplicates: Callable[[str], Outcome]
) -> None:
    done = run_with_duplicates(SIMILAR).playbook
    assert (done.entries_reinforced, done.entries_promoted, done.entries_proposed) == (0, 0, 1)
    (waiting,) = list_entries(topics, "review")
    assert (waiting.content, list_changes(topics)[-1]) == (SIMILAR, ("add", "edit"))
    reason = topics.value("SELECT reason FROM {s}.consolidation_changes WHERE entity_id = :id", id=waiting.id)
    assert str(list_entries(topics)[0].id) in reason


def test_lineage_of_entry_reaches_all_evidence(topics: Pipeline, run_with_duplicates: Callable[[str], Outcome]) -> None:
    run_with_duplicates(NEAR_DUPLICATE)
    hooks, _ = list_entries(topics)
    found = trace_memory(topics.engine, str(hooks.id)[:8], depth=5)
    assert (found.kind, found.memory_type, found.status) == ("playbook", hooks.category, "active")
    source, *others = found.sources
    assert (source.id, source.similarity, len(source.sources)) == (hooks.source_id, 1.0, 4)
    assert leaf_ids(found.sources) == set(hooks.supporting_memory_ids)
    assert {other.kind for other in others} == {"raw"}
    assert all(0 < other.similarity <= 1 for other in [*others, *source.sources])
    assert {one.id for one in trace_memory(topics.engine, str(hooks.id), depth=1).sources} == {
        hooks.source_id,
        *(other.id for other in others),
    }
    for memory in hooks.supporting_memory_ids:
        derived = trace_memory(topics.engine, str(memory), depth=1).derived
        assert (hooks.id, "playbook", True) in [(row.id, row.kind, row.active) for row in derived]
    topics.write("UPDATE {s}.playbook_entries SET status = 'review' WHERE id = :id", id=hooks.id)
    derived = trace_memory(topics.engine, str(hooks.supporting_memory_ids[0]), depth=1).derived
    assert ("playbook", False, "review") in [(row.kind, row.active, row.status) for row in derived]
    assert {"active"} == {row.status for row in derived if row.kind != "playbook"}


def test_rolled_back_reinforcement_is_not_repeated(
    topics: Pipeline, run_with_duplicates: Callable[[str], Outcome]
) -> None:
    run_with_duplicates(NEAR_DUPLICATE)
    hooks, _ = list_entries(topics)
    topics.roll_back(topics.last_group(entity=hooks.id))
    assert len(list_entries(topics)[0].supporting_memory_ids) == 4
    assert topics.run().playbook.entries_reinforced == 0


def test_entry_rolled_back_alone_is_not_recreated(topics: Pipeline) -> None:
    run_topics(topics)
    hooks, moves = list_entries(topics)
    undone = topics.roll_back(topics.last_group(entity=hooks.id))
    assert topics.run().playbook.entries_promoted == 0
    assert [row.id for row in list_entries(topics)] == [moves.id]
    topics.roll_back(undone.rollback_id)
    assert topics.run().playbook.entries_updated == 0
    assert {row.id for row in list_entries(topics)} == {hooks.id, moves.id}


def test_rollback_of_job_allows_promotion_again(topics: Pipeline) -> None:
    job = topics.run().job_id
    before = [(row.id, row.content, row.priority) for row in list_entries(topics)]
    topics.roll_back(job)
    assert list_entries(topics) == []
    topics.run()
    assert [(row.id, row.content, row.priority) for row in list_entries(topics)] == before


def test_rollback_of_pattern_needs_entry_cascade(topics: Pipeline) -> None:
    run_topics(topics)
    hooks, moves = list_entries(topics)
    pattern = topics.last_group(entity=hooks.source_id)
    with pytest.raises(ConflictError, match=r"--cascade` undoes it with them, .*: promote of"):
        topics.roll_back(pattern)
    topics.roll_back(pattern, cascade=True)
    assert [row.id for row in list_entries(topics)] == [moves.id]
    assert topics.run().playbook.entries_promoted == 0


def test_grown_pattern_updates_entry_in_place(topics: Pipeline, provider: OpenAIServer) -> None:
    run_topics(topics)
    before, _ = list_entries(topics)
    provider.behaviour = reply_with_json(reply_with_patterns(0.95, {"webhook": NEAR_DUPLICATE}))
    topics.add([note("fifth", FIFTH)])
    done = topics.run().playbook
    assert (done.entries_updated, done.entries_promoted) == (1, 0)
    after, _ = list_entries(topics)
    assert (after.id, after.content, after.confidence, after.priority) == (before.id, NEAR_DUPLICATE, 0.95, 99)
    assert len(after.supporting_memory_ids) == 5
    assert after.embedding != before.embedding
    topics.roll_back(topics.last_group(entity=after.id))
    assert list_entries(topics)[0].content == before.content
    assert topics.run().playbook.entries_updated == 0


def test_grown_pattern_keeps_edited_entry_text(topics: Pipeline, provider: OpenAIServer) -> None:
    run_topics(topics)
    before, _ = list_entries(topics)
    edit_row(topics, before, content="Check it first.", content_hash="mine", embedding=None, embedding_model=None)
    provider.behaviour = reply_with_json(reply_with_patterns(0.95, {"webhook": NEAR_DUPLICATE}))
    topics.add([note("fifth", FIFTH)])
    assert topics.run().playbook.entries_updated == 1
    (after,) = [row for row in list_entries(topics) if row.id == before.id]
    assert (after.content, len(after.supporting_memory_ids)) == ("Check it first.", 5)


def test_approved_source_activates_waiting_entry(topics: Pipeline) -> None:
    with topics.open() as run:
        run_phases(run, run.planned[: run.planned.index("playbook_entries")])
    topics.write("UPDATE {s}.consolidated_memories SET needs_review = true")
    assert topics.run().playbook.entries_proposed == 2
    hooks, moves = list_patterns(topics)
    edit_row(topics, hooks, "review", needs_review=False)
    done = topics.run().playbook
    assert (done.entries_promoted, done.entries_active, done.entries_waiting) == (1, 1, 1)
    (active,) = list_entries(topics)
    assert (active.source_id, list_changes(topics)[-1]) == (hooks.id, ("promote", "promote"))
    topics.roll_back(topics.last_group(entity=active.id))
    assert topics.run().playbook.entries_promoted == 0
    assert {row.source_id for row in list_entries(topics, "review")} == {hooks.id, moves.id}


def test_entries_of_a_run_are_told_as_such(topics: Pipeline) -> None:
    topics.configure(**OPTIONS, llm_model=None)
    topics.run()
    (line,) = list_activity(topics.engine, SLUG, limit=1)
    assert line["groups"]["playbook"] == len(list_entries(topics, "review")) > 0
    assert "edit" not in line["groups"]
    topics.add([note("fifth", FIFTH)])
    topics.run()
    rows = list_groups_with_subjects(topics.engine, SLUG, limit=1000).rows
    told = [row["outcome"] for row in rows if row["operation"] == "edit"]
    assert set(told) == {"proposed entry", "changed entry"}


def test_retired_entry_is_not_proposed_again(topics: Pipeline) -> None:
    run_topics(topics)
    hooks, _ = list_entries(topics)
    assert find_unchanged_job(topics.engine, topics.project(), topics.settings) is not None
    edit_row(topics, hooks, "review", status="retired")
    assert find_unchanged_job(topics.engine, topics.project(), topics.settings) is None
    topics.add([note("fifth", FIFTH)])
    done = topics.run().playbook
    assert (done.entries_promoted, done.entries_updated, done.entries_active) == (0, 0, 1)
    assert list_changes(topics)[-1] == ("delete", "review")


def test_entry_outlives_archived_pattern(topics: Pipeline) -> None:
    run_topics(topics)
    hooks, _ = list_patterns(topics)
    edit_row(topics, hooks, "archive", retired_at=hooks.created_at, archive_reason="by hand")
    assert topics.run().playbook.entries_updated == 0
    assert hooks.id in {row.source_id for row in list_entries(topics)}


def test_entry_moves_to_superseding_pattern(topics: Pipeline) -> None:
    run_topics(topics)
    larger, smaller = list_patterns(topics)
    gone = next(row for row in list_entries(topics) if row.source_id == larger.id)
    topics.roll_back(topics.last_group(entity=gone.id))
    edit_row(topics, smaller, "pattern", superseded_by_id=larger.id, retired_at=smaller.created_at)
    assert topics.run_phases(["playbook_entries"])["playbook_entries"].entries_updated == 1
    (entry,) = list_entries(topics)
    assert (entry.source_id, entry.content, len(entry.supporting_memory_ids)) == (larger.id, larger.content, 7)
    found = trace_memory(topics.engine, str(entry.id), depth=5)
    assert leaf_ids(found.sources) == set(entry.supporting_memory_ids)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"promote": False}, {"t_promote": 0.95}])
def test_promotion_options_gate_playbook(topics: Pipeline, options: dict[str, Any]) -> None:
    topics.configure(**OPTIONS, **MODEL, **options)
    done = topics.run().playbook
    assert (done.entries_promoted, done.entries_proposed) == (0, 0 if "promote" in options else 2)
    topics.configure(**OPTIONS, **MODEL)
    assert topics.run().playbook.entries_promoted == 2
    topics.configure(**OPTIONS, **MODEL, **options)
    assert topics.run().playbook.entries_active == 2


def test_heuristic_pattern_is_proposed_for_review(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    hooks = [f"{RULE} {more}" for more in ("Always.", "Do it first.", "Check it in every handler.")]
    pipeline.add([*topic_notes("hook", tuple(hooks)), *topic_notes("move", MIGRATIONS)])
    pipeline.configure(**OPTIONS, merge=False)
    done = pipeline.run()
    assert (done.patterns.created, done.playbook.entries_promoted, done.playbook.entries_proposed) == (2, 0, 2)
    waiting, _ = list_entries(pipeline, "review")
    assert waiting.confidence <= 0.75
    assert done.report.metrics["needs_review"] >= 1
    reason = pipeline.value("SELECT reason FROM {s}.consolidation_changes WHERE entity_id = :id", id=waiting.id)
    assert "made without a model" in reason
    rows = read_playbook(pipeline.engine, pipeline.project().slug, limit=9, status="review")["entries"]
    assert all(row["seen"].endswith("2026.") for row in rows)
    assert pipeline.run().playbook.entries_proposed == 0


def test_votes_of_readers_move_playbook_priority(topics: Pipeline) -> None:
    run_topics(topics)

    def listed() -> list[tuple[UUID, int]]:
        return [(row["id"], row["priority"]) for row in read_playbook(topics.engine, "notes", limit=10)["entries"]]

    (hooks, _), (moves, _) = listed()
    report_used(topics.engine, [moves], voter="key:1")
    assert listed() == [(moves, 97), (hooks, 96)]
    supporting = topics.value("SELECT supporting_memory_ids FROM {s}.playbook_entries WHERE id = :id", id=moves)
    report_used(topics.engine, supporting, voter="key:1")
    assert listed()[0] == (moves, 97)
    give_feedback(topics.engine, supporting[0], helpful=False, changed_by="key:2")
    give_feedback(topics.engine, supporting[1], helpful=False, changed_by="key:3")
    assert listed() == [(hooks, 96), (moves, 93)]
    assert read_playbook(topics.engine, "notes", limit=1)["entries"][0]["id"] == hooks
    assert topics.run().playbook.entries_updated == 0


def test_playbook_lists_entries_by_priority(topics: Pipeline) -> None:
    run_topics(topics)
    found = read_playbook(topics.engine, "notes", limit=10)
    assert found["totals"] == {"active": 2, "review": 0, "retired": 0}
    assert [(row["priority"], row["evidence"]) for row in found["entries"]] == [(96, 4), (95, 3)]
    assert len(read_playbook(topics.engine, "notes", limit=1)["entries"]) == 1
    chapter = found["entries"][0]["category"]
    assert {row["category"] for row in read_playbook(topics.engine, "notes", limit=9, category=chapter)["entries"]} == {
        chapter
    }
    with pytest.raises(UsageError, match="active, review, retired"):
        read_playbook(topics.engine, "notes", limit=1, status="gone")
    with pytest.raises(UsageError, match="gotchas, architecture"):
        read_playbook(topics.engine, "notes", limit=1, category="cooking")
    with pytest.raises(NotFoundError):
        read_playbook(topics.engine, "nowhere", limit=1)


def test_playbook_as_of_is_what_it_was(pipeline: Pipeline) -> None:
    pipeline.configure_new()
    author = Author(pipeline.project().id, None, "tester")
    before = datetime.now(UTC)
    values = {"content": "Batch the requests.", "content_hash": "h", "status": "active", "priority": 60}
    change = Change(uuid4(), uuid4(), {**values, "supporting_memory_ids": []})
    with pipeline.engine.begin() as connection:
        insert_rows(connection, author, playbook_entries, [change], operation="promote")
    first = datetime.now(UTC)
    for version, edit in enumerate(({"content": "Batch all requests."}, {"status": "retired"}), 1):
        with pipeline.engine.begin() as connection:
            changes = [Change(change.entity_id, uuid4(), edit, version)]
            update_rows(connection, author, playbook_entries, changes, operation="edit")
        if version == 1:
            second = datetime.now(UTC)

    def read(as_of: datetime | None) -> list[str]:
        found = read_playbook(pipeline.engine, pipeline.project().slug, limit=9, as_of=as_of)
        assert found["totals"]["active"] == len(found["entries"])
        return [entry["content"] for entry in found["entries"]]

    assert [read(time) for time in (before, first, second, None)] == [
        [],
        ["Batch the requests."],
        ["Batch all requests."],
        [],
    ]
