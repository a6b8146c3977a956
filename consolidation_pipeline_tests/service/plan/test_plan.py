"""A plan shows what a run would do, writes nothing, and is carried out as it stands or not at all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from consolidation_pipeline.core.memories.memories import memory_id
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.knowledge import merged_memories
from consolidation_pipeline.service.plan.apply import check_plan, request_plan_job
from consolidation_pipeline.service.plan.plan_document import Plan, load_plan, save_plan
from consolidation_pipeline.service.plan.planner import make_plan
from consolidation_pipeline.service.runs.run_lifecycle import preview_run
from consolidation_pipeline.store.knowledge.merged_memories import write_merged
from consolidation_pipeline_tests.openai_server import openai_server
from consolidation_pipeline_tests.service.corpus import (
    LESSONS,
    UNRELATED,
    corpus,
    near_miss_notes,
    note,
    reworded_notes,
)
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Outcome, Pipeline, run_phases
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge, dump_tables

OLD = {"created_at": "2024-01-05T10:00:00Z", "last_accessed_at": None, "reused_count": 0}


def plan(pipeline: Pipeline) -> Plan:
    return make_plan(pipeline.engine, SLUG, settings=pipeline.settings)


def carry_out(pipeline: Pipeline, made: Plan) -> None:
    """As `run --plan` does it, without Dagster."""
    request_plan_job(pipeline.engine, pipeline.project(), made, settings=pipeline.settings, triggered_by="tester")
    with pipeline.open() as run:
        run_phases(run)


def everything(pipeline: Pipeline) -> dict[str, list[Any]]:
    """The whole database: every row of every table, and how far every sequence has counted."""
    sequences = pipeline.rows("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1")
    return {**dump_tables(pipeline), "sequences": [tuple(row) for row in sequences]}


def done_by(pipeline: Pipeline, outcome: Outcome) -> tuple[dict[UUID, tuple[str, frozenset[UUID]]], dict[UUID, str]]:
    """Read from a run's ledger: merged memories with text and sources, archived ones with the policy."""
    of_job = {"job": outcome.job_id}
    merged = pipeline.rows(
        "SELECT entity_id, new_state ->> 'content', new_state -> 'source_memory_ids' FROM {s}.consolidation_changes "
        "WHERE job_id = :job AND operation = 'merge' AND new_state ? 'content'",
        **of_job,
    )
    archived = pipeline.rows(
        "SELECT entity_id, new_state ->> 'archive_reason' FROM {s}.consolidation_changes "
        "WHERE job_id = :job AND operation = 'archive'",
        **of_job,
    )
    return {row[0]: (row[1], frozenset(map(UUID, row[2]))) for row in merged}, {row[0]: row[1] for row in archived}


def decided(made: Plan) -> tuple[dict[UUID, tuple[str, frozenset[UUID]]], dict[UUID, str]]:
    """Read the same from a plan."""
    merged = {merge.id: (merge.text, frozenset(source.id for source in merge.sources)) for merge in made.merges}
    return merged, {archive.id: archive.policy for archive in made.archives}


def test_plan_writes_nothing(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    before = everything(pipeline)
    assert plan(pipeline).merges
    assert everything(pipeline) == before
    pipeline.run()
    pipeline.add([note("late", f"{LESSONS[0]} Again.")])
    before = everything(pipeline)
    assert plan(pipeline).merges[0].action == "extend"
    assert everything(pipeline) == before


def test_plan_uses_read_only_transaction(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    run = preview_run(pipeline.engine, SLUG, settings=pipeline.settings)
    with pytest.raises(DBAPIError, match="read-only"), run.engine.begin() as connection:
        connection.execute(text("UPDATE consolidation.task_memories SET importance = 1"))


def test_run_matches_plan(pipeline: Pipeline) -> None:
    old = [note(f"old-{at}", text, **OLD) for at, text in enumerate(UNRELATED)]
    pipeline.add([*reworded_notes(), *near_miss_notes(), *old])
    made = plan(pipeline)
    assert len(made.archives) == len(UNRELATED)
    assert decided(made) == done_by(pipeline, pipeline.run())
    assert (plan(pipeline).merges, plan(pipeline).archives) == ([], [])


def test_plan_shows_groups_texts_and_vetoes(pipeline: Pipeline) -> None:
    texts = [LESSONS[0], f"Note to self: {LESSONS[0]}"]
    pipeline.add([note("a", texts[0]), note("b", texts[1]), *near_miss_notes()])
    made = plan(pipeline)
    [merge] = made.merges
    assert {source.text for source in merge.sources} == set(texts)
    assert (merge.action, merge.supersedes, merge.dropped) == ("create", [], [])
    assert merge.similarity is not None
    assert merge.similarity[0][0] == pytest.approx(1, abs=1e-3)
    assert merge.similarity[0][1] == merge.similarity[1][0] == merge.lowest_similarity
    assert LESSONS[0] in merge.text
    conflicts = [conflict for question in made.questions for veto in question.vetoes for conflict in veto["conflicts"]]
    assert any("30" in conflict and "60" in conflict for conflict in conflicts)
    assert all(len(question.texts) == len(question.members) == 2 for question in made.questions)
    assert made.costs.cost_usd == 0.0


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6), nights=st.integers(1, 3), old=st.booleans())
def test_random_runs_match_plans(shared: Pipeline, seed: int, nights: int, old: bool) -> None:
    shared.clear()
    shared.configure_new()
    draw = random.Random(seed)
    rows = [
        *corpus(),
        *(note(f"more-{at}", f"{text} {text}", **(OLD if old else {})) for at, text in enumerate(UNRELATED)),
    ]
    draw.shuffle(rows)
    size = -(-len(rows) // nights)
    for night in range(nights):
        shared.add(rows[night * size : (night + 1) * size])
        made = plan(shared)
        assert decided(made) == done_by(shared, shared.run())


def test_plan_calibrates_in_memory(pipeline: Pipeline) -> None:
    boiler = "This text was written by the assistant of the night shift."
    pipeline.add(note(f"n{at}", f"{boiler} {text}") for at, text in enumerate([*LESSONS, *UNRELATED] * 1))
    pipeline.run()
    grown = [
        note(f"g{at}", f"{boiler} Ticket of team {at}: {text}") for at, text in enumerate([*LESSONS, *UNRELATED] * 3)
    ]
    pipeline.add([*grown, *reworded_notes()])
    made = plan(pipeline)
    assert made.calibration == "growth"
    assert decided(made) == done_by(pipeline, pipeline.run())


def test_plan_prices_paid_embedding_without_calls(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(embedding_model="openai/text-embedding-3-small")
    pipeline.add(corpus())
    with openai_server() as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        made = plan(pipeline)
        assert (made.merges, made.memories, made.calibration) == ([], 0, "paid")
        assert made.costs.memories_to_embed == len(corpus())
        assert made.costs.embedding_tokens > len(corpus())
        assert made.costs.cost_usd
        assert server.requests == []
        pipeline.run()
        paid = len(server.requests)
        pipeline.add([note("late", "Something else that nobody embedded so far.")])
        made = plan(pipeline)
        assert (made.costs.memories_to_embed, len(server.requests)) == (1, paid)


def test_planned_merges_are_written_exactly(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    made = plan(pipeline)
    carry_out(pipeline, made)
    job = pipeline.rows("SELECT id, status FROM {s}.consolidation_jobs")[0]
    assert job.status == "completed"
    merged = pipeline.rows("SELECT id, content FROM {s}.consolidated_memories")
    assert {row.id: row.content for row in merged} == {merge.id: merge.text for merge in made.merges}


def test_interrupted_plan_is_completed_by_next_run(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [note(f"old-{at}", text, **OLD) for at, text in enumerate(UNRELATED)]
    pipeline.add([*reworded_notes(), *old])
    made = plan(pipeline)
    monkeypatch.setattr(merged_memories, "BATCH", 5)
    written: list[int] = []

    def killed(*args: Any, **how: Any) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(len(args[2]))
        write_merged(*args, **how)

    with monkeypatch.context() as patch:
        patch.setattr(merged_memories, "write_merged", killed)
        with pytest.raises(KeyboardInterrupt):
            carry_out(pipeline, made)
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories") == written[0] < len(made.merges)
    carry_out(pipeline, made)
    after = dump_knowledge(pipeline)
    carry_out(pipeline, made)
    assert dump_knowledge(pipeline) == after
    merged = pipeline.rows("SELECT id, content FROM {s}.consolidated_memories")
    assert {row.id: row.content for row in merged} == {merge.id: merge.text for merge in made.merges}
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_archived") == len(made.archives)


def test_run_skips_groups_removed_from_plan(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    made = plan(pipeline)
    kept = made.model_copy(update={"merges": made.merges[:2]})
    carry_out(pipeline, kept)
    merged = pipeline.rows("SELECT id FROM {s}.consolidated_memories")
    assert {row.id for row in merged} == {merge.id for merge in made.merges[:2]}


def test_plan_survives_unrelated_changes(pipeline: Pipeline) -> None:
    pipeline.add(reworded_notes(LESSONS[:2]))
    made = plan(pipeline)
    pipeline.add([*reworded_notes(LESSONS[4:6]), note("other", UNRELATED[0])])
    carry_out(pipeline, made)
    merged = pipeline.rows("SELECT id FROM {s}.consolidated_memories")
    assert {row.id for row in merged} == {merge.id for merge in made.merges}


@pytest.mark.parametrize("change", ["newcomer", "archived", "threshold"])
def test_plan_with_changed_group_is_refused(pipeline: Pipeline, change: str) -> None:
    pipeline.add(reworded_notes(LESSONS[:3]))
    made = plan(pipeline)
    source = memory_id(SLUG, "test", "lesson-0-1")
    if change == "newcomer":
        pipeline.add([note("late", f"{LESSONS[0]} It happened once more.")])
    elif change == "archived":
        pipeline.write(
            "UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'x' WHERE id = :id", id=source
        )
    else:
        pipeline.configure(t_merge=0.99)
    before = dump_knowledge(pipeline)
    with pytest.raises(ConflictError, match="has changed since the plan was made") as refused:
        carry_out(pipeline, made)
    assert refused.value.conflicts
    assert dump_knowledge(pipeline) == before
    assert pipeline.value("SELECT status FROM {s}.consolidation_jobs") == "failed"


def test_plan_refuses_to_archive_memory_used_since(pipeline: Pipeline) -> None:
    pipeline.add([note("old", UNRELATED[0], **OLD), note("old too", UNRELATED[1], **OLD)])
    made = plan(pipeline)
    assert len(made.archives) == 2
    pipeline.write("UPDATE {s}.task_memories SET last_accessed_at = now() WHERE external_id = 'old'")
    with pytest.raises(ConflictError, match=r"memory .* would not be archived any more"):
        carry_out(pipeline, made)
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_archived") == 0


def test_plan_archives_memories_held_back_by_run(pipeline: Pipeline) -> None:
    words = "amber birch cedar delta ember flint grove heron iris jade".split()
    pipeline.add(note(f"n{at}", f"{words[at % 10]} {words[at // 10]} {at}", **OLD) for at in range(100))
    held_back = pipeline.run()
    assert held_back.archived.held_back > 0
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_archived") == 0
    made = plan(pipeline)
    assert made.held_back
    carry_out(pipeline, made)
    gone = pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_archived")
    gone += pipeline.value("SELECT count(*) FROM {s}.consolidated_memories WHERE archive_reason IS NOT NULL")
    assert gone == len(made.archives)


def test_plan_file_round_trips(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.add([*corpus(), note("old", "An old note about nothing in particular.", **OLD)])
    made = plan(pipeline)
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", "not json", '{"format": 2}'])
def test_invalid_plan_file_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"plan\.json"):
        load_plan(path)


def test_plan_of_other_or_unknown_project_is_refused(pipeline: Pipeline) -> None:
    pipeline.add([note("a", UNRELATED[0])])
    pipeline.add([note("a", UNRELATED[0])], slug="other")
    made = make_plan(pipeline.engine, "other", settings=pipeline.settings)
    with pytest.raises(UsageError, match="for project other, not for notes"):
        request_plan_job(pipeline.engine, pipeline.project(), made, settings=pipeline.settings, triggered_by="tester")
    with pytest.raises(NotFoundError):
        make_plan(pipeline.engine, "nowhere", settings=pipeline.settings)


def test_run_without_plan_passes_plan_check(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    with pipeline.open() as run:
        check_plan(run)
