"""Plans: read-only, equal to the run, executed exactly or refused."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.knowledge import merged_memories
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, restore_memories
from consolidation_pipeline.service.plan import planner
from consolidation_pipeline.service.plan.apply import check_plan, request_plan_job
from consolidation_pipeline.service.plan.plan_document import Plan
from consolidation_pipeline.service.runs.plan_file import load_plan, save_plan
from consolidation_pipeline.service.runs.run_lifecycle import preview_run
from consolidation_pipeline.store.knowledge.merged_memories import write_merged
from consolidation_pipeline_tests.openai_server import openai_server
from consolidation_pipeline_tests.service.corpus import (
    LESSONS,
    NEAR_MISSES,
    STALE,
    UNRELATED,
    corpus,
    near_miss_notes,
    note,
    reworded_notes,
)
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge, dump_tables


def execute_plan(pipeline: Pipeline, made: Plan) -> dict[str, Any]:
    """Execute a plan as `run --plan` does, without Dagster; return the result of each phase."""
    request_plan_job(pipeline.engine, pipeline.project(), made, settings=pipeline.settings, triggered_by="tester")
    return pipeline.run_phases()


def dump_database(pipeline: Pipeline) -> dict[str, list[Any]]:
    """Return every row of every table and the last value of every sequence."""
    sequences = pipeline.rows("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1")
    return {**dump_tables(pipeline), "sequences": [tuple(row) for row in sequences]}


def load_run_decisions(
    pipeline: Pipeline, job: UUID
) -> tuple[dict[UUID, tuple[str, frozenset[UUID]]], dict[UUID, str]]:
    """Read a job from the ledger: merged memories with text and sources, archived ones with the policy.

    What is dissolved because its sources are of several scopes has the same operation, but is archived by no policy.
    """
    query = (
        "SELECT operation, entity_id, new_state FROM {s}.consolidation_changes WHERE job_id = :job "
        "AND (operation = 'archive' AND new_state->>'archive_reason' NOT LIKE 'scope:%' "
        "OR operation = 'merge' AND new_state ? 'content')"
    )
    changes = pipeline.rows(query, job=job)
    merged = {
        id_: (new["content"], frozenset(map(UUID, new["source_memory_ids"])))
        for operation, id_, new in changes
        if operation == "merge"
    }
    return merged, {id_: new["archive_reason"] for operation, id_, new in changes if operation == "archive"}


def load_plan_decisions(made: Plan) -> tuple[dict[UUID, tuple[str, frozenset[UUID]]], dict[UUID, str]]:
    """Return the same from a plan."""
    merged = {merge.id: (merge.text, frozenset(source.id for source in merge.sources)) for merge in made.merges}
    return merged, {archive.id: archive.policy for archive in made.archives}


def test_plan_writes_nothing(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    before = dump_database(pipeline)
    assert pipeline.plan().merges
    assert dump_database(pipeline) == before
    pipeline.run()
    pipeline.add([note("late", f"{LESSONS[0]} Again.")])
    before = dump_database(pipeline)
    assert pipeline.plan().merges[0].action == "extend"
    assert dump_database(pipeline) == before


def test_plan_uses_read_only_transaction(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    run = preview_run(pipeline.engine, SLUG, settings=pipeline.settings)
    with pytest.raises(DBAPIError, match="read-only"), run.engine.begin() as connection:
        connection.execute(text("UPDATE consolidation.task_memories SET importance = 1"))


def test_run_matches_plan(pipeline: Pipeline) -> None:
    old = [note(f"old-{at}", text, **STALE) for at, text in enumerate(UNRELATED)]
    pipeline.add([*reworded_notes(), *near_miss_notes(), *old])
    made = pipeline.plan()
    assert len(made.archives) == len(UNRELATED)
    assert load_plan_decisions(made) == load_run_decisions(pipeline, pipeline.run().job_id)
    assert (pipeline.plan().merges, pipeline.plan().archives) == ([], [])


def test_plan_shows_groups_texts_and_vetoes(pipeline: Pipeline) -> None:
    texts = [LESSONS[0], f"Note to self: {LESSONS[0]}"]
    pipeline.add([note("a", texts[0]), note("b", texts[1]), *near_miss_notes()])
    made = pipeline.plan()
    [merge] = made.merges
    assert {source.text for source in merge.sources} == set(texts)
    assert (merge.action, merge.supersedes, merge.dropped) == ("create", [], [])
    assert merge.similarity is not None
    assert merge.similarity[0][0] == pytest.approx(1, abs=1e-3)
    assert merge.similarity[0][1] == merge.similarity[1][0] == merge.lowest_similarity
    assert LESSONS[0] in merge.text
    conflicts = [
        reason for question in made.questions for pair in question.asked_pairs for reason in pair["differences"]
    ]
    assert any("30" in conflict and "60" in conflict for conflict in conflicts)
    assert all(len(question.texts) == len(question.members) == 2 for question in made.questions)
    assert made.costs.cost_usd == 0.0


def test_plan_explains_the_groups_worth_most(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add(near_miss_notes())
    whole = [pair for question in pipeline.plan().questions for pair in question.asked_pairs]
    assert len(whole) == 3
    monkeypatch.setattr(planner, "MAX_EXPLAINED_PAIRS", 2)
    limited = [pair for question in pipeline.plan().questions for pair in question.asked_pairs]
    assert limited[:2] == whole[:2]
    assert limited[2] == whole[2] | {"differences": ["not explained, as 2 pairs are worth more"]}


@pytest.mark.slow
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6), nights=st.integers(1, 3), old=st.booleans())
def test_random_runs_match_plans(shared: Pipeline, seed: int, nights: int, old: bool) -> None:
    shared.clear()
    shared.configure_new()
    draw = random.Random(seed)
    rows = [
        *corpus(),
        *(note(f"more-{at}", f"{text} {text}", **(STALE if old else {})) for at, text in enumerate(UNRELATED)),
    ]
    draw.shuffle(rows)
    size = -(-len(rows) // nights)
    for night in range(nights):
        shared.add(rows[night * size : (night + 1) * size])
        made = shared.plan()
        assert load_plan_decisions(made) == load_run_decisions(shared, shared.run().job_id)


@pytest.mark.slow
def test_plan_calibrates_in_memory(pipeline: Pipeline) -> None:
    boiler = "This text was written by the assistant of the night shift."
    pipeline.add(note(f"n{at}", f"{boiler} {text}") for at, text in enumerate([*LESSONS, *UNRELATED] * 1))
    pipeline.run()
    grown = [
        note(f"g{at}", f"{boiler} Ticket of team {at}: {text}") for at, text in enumerate([*LESSONS, *UNRELATED] * 3)
    ]
    pipeline.add([*grown, *reworded_notes()])
    made = pipeline.plan()
    assert made.calibration == "growth"
    assert load_plan_decisions(made) == load_run_decisions(pipeline, pipeline.run().job_id)


def test_plan_prices_paid_embedding_without_calls(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(embedding_model="openai/text-embedding-3-small")
    pipeline.add(corpus())
    with openai_server() as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        made = pipeline.plan()
        assert (made.merges, made.memories, made.calibration) == ([], 0, "paid")
        assert made.costs.memories_to_embed == len(corpus())
        assert made.costs.embedding_tokens > len(corpus())
        assert made.costs.cost_usd
        assert server.requests == []
        pipeline.run()
        paid = len(server.requests)
        pipeline.add([note("late", "Something else that nobody embedded so far.")])
        made = pipeline.plan()
        assert (made.costs.memories_to_embed, len(server.requests)) == (1, paid)


def test_planned_merges_are_written_exactly(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    made = pipeline.plan()
    execute_plan(pipeline, made)
    job = pipeline.rows("SELECT id, status FROM {s}.consolidation_jobs")[0]
    assert job.status == "completed"
    merged = pipeline.rows("SELECT id, content FROM {s}.consolidated_memories")
    assert {row.id: row.content for row in merged} == {merge.id: merge.text for merge in made.merges}


def test_interrupted_plan_is_completed_by_next_run(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [note(f"old-{at}", text, **STALE) for at, text in enumerate(UNRELATED)]
    pipeline.add([*reworded_notes(), *old])
    made = pipeline.plan()
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
            execute_plan(pipeline, made)
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories") == written[0] < len(made.merges)
    execute_plan(pipeline, made)
    after = dump_knowledge(pipeline)
    execute_plan(pipeline, made)
    assert dump_knowledge(pipeline) == after
    merged = pipeline.rows("SELECT id, content FROM {s}.consolidated_memories")
    assert {row.id: row.content for row in merged} == {merge.id: merge.text for merge in made.merges}
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_archived") == len(made.archives)


def test_run_skips_groups_removed_from_plan(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    made = pipeline.plan()
    kept = made.model_copy(update={"merges": made.merges[:2]})
    execute_plan(pipeline, kept)
    merged = pipeline.rows("SELECT id FROM {s}.consolidated_memories")
    assert {row.id for row in merged} == {merge.id for merge in made.merges[:2]}


def test_plan_survives_unrelated_changes(pipeline: Pipeline) -> None:
    pipeline.add(reworded_notes(LESSONS[:2]))
    made = pipeline.plan()
    pipeline.add([*reworded_notes(LESSONS[4:6]), note("other", UNRELATED[0])])
    execute_plan(pipeline, made)
    merged = pipeline.rows("SELECT id FROM {s}.consolidated_memories")
    assert {row.id for row in merged} == {merge.id for merge in made.merges}


@pytest.mark.parametrize("change", ["newcomer", "archived", "threshold"])
def test_plan_with_changed_group_is_refused(pipeline: Pipeline, change: str) -> None:
    pipeline.add(reworded_notes(LESSONS[:3]))
    made = pipeline.plan()
    source = note_id("lesson-0-1")
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
        execute_plan(pipeline, made)
    assert refused.value.conflicts
    assert dump_knowledge(pipeline) == before
    assert pipeline.value("SELECT status FROM {s}.consolidation_jobs") == "failed"


def test_plan_refuses_to_archive_memory_used_since(pipeline: Pipeline) -> None:
    pipeline.add([note("old", UNRELATED[0], **STALE), note("old too", UNRELATED[1], **STALE)])
    made = pipeline.plan()
    assert len(made.archives) == 2
    pipeline.write("UPDATE {s}.task_memories SET last_accessed_at = now() WHERE external_id = 'old'")
    with pytest.raises(ConflictError, match=r"memory .* would not be archived any more"):
        execute_plan(pipeline, made)
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_archived") == 0


def test_plan_survives_memory_archived_meanwhile(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = [note(name, LESSONS[0], **STALE) for name in ("one", "same")]
    pipeline.add([*pair, *(note(f"n{at}", text, **STALE) for at, text in enumerate(UNRELATED))])
    alone = {archive.id for archive in pipeline.plan().archives if archive.kind == "raw"}
    plan_merges = planner.plan_all_merges

    def plan_and_archive(*given: Any) -> list[Any]:
        merges = plan_merges(*given)
        archive_manually(pipeline.engine, [note_id("one")], changed_by="tester")
        return merges

    monkeypatch.setattr(planner, "plan_all_merges", plan_and_archive)
    made = pipeline.plan()
    assert len(made.merges) == 1
    assert {archive.id for archive in made.archives} == alone


def test_plan_archives_memories_held_back_by_run(pipeline: Pipeline) -> None:
    words = "amber birch cedar delta ember flint grove heron iris jade".split()
    pipeline.add(note(f"n{at}", f"{words[at % 10]} {words[at // 10]} {at}", **STALE) for at in range(100))
    held_back = pipeline.run()
    assert held_back.archived.held_back > 0
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_archived") == 0
    made = pipeline.plan()
    assert made.held_back
    execute_plan(pipeline, made)
    gone = pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_archived")
    gone += pipeline.value("SELECT count(*) FROM {s}.consolidated_memories WHERE archive_reason IS NOT NULL")
    assert gone == len(made.archives)


def test_plan_tells_what_another_run_archived(pipeline: Pipeline) -> None:
    pipeline.add([note("a", UNRELATED[0], **STALE), *(note(f"n{at}", text) for at, text in enumerate(UNRELATED[1:4]))])
    made = pipeline.plan()
    assert len(made.archives) == 1
    first = pipeline.run().archived
    assert (first.units, first.archived_before) == (1, 0)
    done = execute_plan(pipeline, made)["archived_memories"]
    assert (done.units, done.archived_before, done.changed) == (0, 1, 0)


def test_question_has_the_text_of_what_the_plan_merges(pipeline: Pipeline) -> None:
    one, other = NEAR_MISSES[0]
    pipeline.add([note("a", one), note("b", f"Note to self: {one}"), note("c", other)])
    made = pipeline.plan()
    [merge], [question] = made.merges, made.questions
    assert merge.id in question.members
    assert question.texts[merge.id] == merge.text
    assert other in question.texts.values()


def test_groups_to_be_archived_are_not_proposed(pipeline: Pipeline) -> None:
    (pair, other), fresh = NEAR_MISSES[:2], [note(f"n{at}", text) for at, text in enumerate(UNRELATED)]
    pipeline.add([note("a", pair[0], **STALE), note("b", pair[1]), note("c", other[0]), note("d", other[1]), *fresh])
    made = pipeline.plan()
    assert (len(made.archives), len(made.questions), made.review.proposed) == (1, 1, 1)
    done = pipeline.run()
    assert done.archived.memories == 1
    assert pipeline.rows("SELECT status, count(*) FROM {s}.consolidation_suggestions GROUP BY 1") == [("pending", 1)]
    pipeline.configure(archive=False)
    restore_memories(pipeline.engine, [made.archives[0].id], changed_by="tester")
    assert (len(pipeline.plan().questions), pipeline.plan().review.proposed) == (2, 1)


def test_plan_tells_when_unused_import_becomes_stale(pipeline: Pipeline) -> None:
    old = {"created_at": STALE["created_at"], "last_accessed_at": None, "reused_count": 0}
    pipeline.add([*(note(f"n{at}", text, **old) for at, text in enumerate(UNRELATED)), note("used", LESSONS[0])])
    made = pipeline.plan()
    due = made.as_of.date() + timedelta(days=90)
    assert (made.archives, made.upcoming_archives[-1].date) == ([], due)
    assert made.upcoming_archives[-1].memories == len(UNRELATED)
    pipeline.write("UPDATE {s}.task_memories SET reused_count = 3 WHERE external_id = 'used'")
    assert pipeline.plan().describe_upcoming_archives() == f"{len(UNRELATED)} from {due} if they are not used"


def test_plan_file_round_trips(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.add([*corpus(), note("old", "An old note about nothing in particular.", **STALE)])
    made = pipeline.plan()
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(Plan, tmp_path / "plan.json", made_by="plan") == made


@pytest.mark.parametrize("content", [None, "", "{}", "[1]", "not json", '{"format": 2}'])
def test_invalid_plan_file_is_refused(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=r"plan\.json"):
        load_plan(Plan, path, made_by="plan")


def test_plan_of_other_or_unknown_project_is_refused(pipeline: Pipeline) -> None:
    pipeline.add([note("a", UNRELATED[0])])
    pipeline.add([note("a", UNRELATED[0])], slug="other")
    made = pipeline.plan("other")
    with pytest.raises(UsageError, match="for project other, not for notes"):
        request_plan_job(pipeline.engine, pipeline.project(), made, settings=pipeline.settings, triggered_by="tester")
    with pytest.raises(NotFoundError):
        pipeline.plan("nowhere")


def test_run_without_plan_passes_plan_check(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    with pipeline.open() as run:
        check_plan(run)
