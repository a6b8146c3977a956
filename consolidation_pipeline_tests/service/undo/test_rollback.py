"""Rollback by change, group or job: an exact inverse, refused on conflicts, undoable itself."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.service.undo import rollback
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.ledger.ledger_reader import RollbackTarget
from consolidation_pipeline_tests.service.corpus import LESSONS, corpus, note, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline, note_id
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import count_rows, dump_knowledge, dump_tables

LESSON = LESSONS[0]


def group_of_job(pipeline: Pipeline, job_id: UUID, at: int = 0) -> UUID:
    """Return one group of a job's changes."""
    rows = pipeline.rows(
        "SELECT group_id FROM {s}.consolidation_changes WHERE job_id = :job GROUP BY 1 ORDER BY min(seq)", job=job_id
    )
    return UUID(str(rows[at][0]))


def dump_ledger(pipeline: Pipeline) -> list[str]:
    return dump_tables(pipeline, tables=["consolidation_changes"])["consolidation_changes"]


def age_changes(pipeline: Pipeline, by: timedelta, condition: str = "true") -> None:
    """Make changes older; without triggers, because the ledger refuses updates."""
    update = f"UPDATE {SCHEMA}.consolidation_changes SET changed_at = changed_at - :by WHERE {condition}"
    with pipeline.engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(update), {"by": by})


def extend_merge(pipeline: Pipeline) -> tuple[Outcome, Outcome]:
    """Run twice; the second run extends the merge of the first."""
    return pipeline.start_from(merge_and_extend)


def merge_and_extend(pipeline: Pipeline) -> tuple[Outcome, Outcome]:
    pipeline.add([note("a", LESSON), note("b", f"Note to self: {LESSON}"), note("other", LESSONS[1])])
    first = pipeline.run()
    pipeline.add([note("c", f"{LESSON} Seen again today.")])
    second = pipeline.run()
    assert (first.merging.created, second.merging.extended) == (1, 1)
    return first, second


def test_rollback_of_job_restores_every_byte(pipeline: Pipeline) -> None:
    pipeline.configure_new(review_limit=0)
    pipeline.add(corpus())
    before, rows_before = dump_knowledge(pipeline), count_rows(pipeline)
    done = pipeline.run()
    assert dump_knowledge(pipeline) != before
    superseding = done.supersessions.added
    undone = pipeline.roll_back(done.job_id)
    assert dump_knowledge(pipeline) == before
    assert (undone.scope, undone.changes) == ("job", 12 + 40 + 2 + superseding)
    deleted = 12 + 2 + superseding
    assert (undone.memories_restored, undone.memories_deleted, undone.memories_recreated) == (40, deleted, 0)
    grown = {"consolidation_changes", "similarity_calibrations", "memory_neighbors", "memory_clusters"}
    grown |= {"compared_memories", "compared_scopes", "compared_sentences", "grouped_scopes", "relevance_scores"}
    assert {name for name, rows in count_rows(pipeline).items() if rows != rows_before[name]} == grown
    assert find_broken_rules(pipeline) == []
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_events WHERE type = 'consolidation.rolled_back'") == 1
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_events WHERE type = 'playbook.changed'") == 0


def test_rollback_removes_neighbours_of_merges(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.roll_back(pipeline.run().job_id)
    dangling = """
        SELECT count(*) FROM {s}.memory_pairs n WHERE
        NOT EXISTS (SELECT 1 FROM {s}.task_memories m WHERE m.id = n.a)
        OR NOT EXISTS (SELECT 1 FROM {s}.task_memories m WHERE m.id = n.b)
    """
    assert pipeline.value(dangling) == 0


def test_rollback_of_group_leaves_others(pipeline: Pipeline) -> None:
    done = pipeline.consolidate(corpus(), review_limit=0)
    group = group_of_job(pipeline, done.job_id)
    undone = pipeline.roll_back(group)
    assert undone.scope == "group"
    assert undone.memories_deleted == 1
    assert undone.memories_restored == undone.changes - 1
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories WHERE kind = 'merged'") == len(LESSONS) - 1
    assert find_broken_rules(pipeline) == []
    rest = pipeline.roll_back(done.job_id)
    # With the summary and the profile.
    assert rest.memories_deleted == len(LESSONS) - 1 + 2 + done.supersessions.added
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_consolidated") == 0


def test_rollback_of_change_covers_its_group(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSON), note("b", f"Note to self: {LESSON}"), *reworded_notes(LESSONS[1:2])])
    before = dump_knowledge(pipeline)
    pipeline.run()
    source = note_id("a")
    change = pipeline.value("SELECT id FROM {s}.consolidation_changes WHERE entity_id = :id", id=source)
    undone = pipeline.roll_back(change)
    assert (undone.scope, undone.changes) == ("group", 3)
    assert (undone.memories_restored, undone.memories_deleted) == (2, 1)
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories") == 1
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_consolidated") == 4
    assert find_broken_rules(pipeline) == []
    pipeline.roll_back(
        pipeline.value(
            "SELECT max(group_id::text)::uuid FROM {s}.consolidation_changes JOIN "
            "{s}.consolidated_memories m ON m.id = entity_id"
        )
    )
    assert dump_knowledge(pipeline) == before


def test_rollback_of_rollback_restores_merged_state(pipeline: Pipeline) -> None:
    done = pipeline.consolidate(corpus(), review_limit=0)
    merged = dump_knowledge(pipeline)
    undone = pipeline.roll_back(done.job_id)
    redone = pipeline.roll_back(undone.rollback_id)
    assert dump_knowledge(pipeline) == merged
    assert (redone.memories_recreated, redone.memories_restored) == (12 + 2 + done.supersessions.added, 40)
    assert find_broken_rules(pipeline) == []
    assert pipeline.run().merging.absorbed == 0


def test_undo_and_redo_can_be_repeated(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSON), note("b", f"Note to self: {LESSON}")])
    raw = dump_knowledge(pipeline)
    target = pipeline.run().job_id
    merged = dump_knowledge(pipeline)
    for expected in (raw, merged, raw, merged):
        target = pipeline.roll_back(target).rollback_id
        assert dump_knowledge(pipeline) == expected


def test_second_rollback_of_job_changes_nothing(pipeline: Pipeline) -> None:
    job = pipeline.consolidate(corpus()).job_id
    first = pipeline.roll_back(job)
    before, changes = dump_knowledge(pipeline), dump_ledger(pipeline)
    with pytest.raises(ConflictError, match=f"{job} was rolled back before, by {first.rollback_id}") as refused:
        pipeline.roll_back(job)
    assert refused.value.conflicts == (str(first.rollback_id),)
    assert (dump_knowledge(pipeline), dump_ledger(pipeline)) == (before, changes)


def test_refusal_names_rollback_of_whole_job(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    job = pipeline.run().job_id
    parts = [pipeline.roll_back(group_of_job(pipeline, job, at)).rollback_id for at in (0, 1)]
    whole = pipeline.roll_back(job).rollback_id
    with pytest.raises(
        ConflictError, match=f"before, by {whole} .and parts of it by .*`consolidation rollback {whole}`"
    ) as refused:
        pipeline.roll_back(job)
    assert refused.value.conflicts[0] == str(whole)
    assert {*refused.value.conflicts[1:]} == {*map(str, parts)}


def test_run_after_rollback_reuses_ids(pipeline: Pipeline) -> None:
    first = pipeline.consolidate(corpus())
    # Versions continue counting, so that a stale version of the first merge does not match the second.
    times = {"created_at", "updated_at", "version"}
    accidents = {"consolidated_memories": times, "memory_lineage": {"job_id"}}
    tables = ["consolidated_memories", "memory_lineage", "memory_files", "memory_neighbors"]
    merged = dump_tables(pipeline, tables=tables, without=accidents)
    pipeline.roll_back(first.job_id)
    second = pipeline.run()
    assert second.merging == first.merging
    assert dump_tables(pipeline, tables=tables, without=accidents) == merged
    pipeline.roll_back(second.job_id)
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories") == 0


def test_rollback_of_extended_merge_is_refused(pipeline: Pipeline) -> None:
    first, second = extend_merge(pipeline)
    before, changes = dump_knowledge(pipeline), dump_ledger(pipeline)
    with pytest.raises(ConflictError, match="--cascade") as refused:
        pipeline.roll_back(first.job_id)
    later = pipeline.rows("SELECT id FROM {s}.consolidation_changes WHERE job_id = :job", job=second.job_id)
    assert set(refused.value.conflicts) == {str(row.id) for row in later}
    assert (dump_knowledge(pipeline), dump_ledger(pipeline)) == (before, changes)


def test_cascade_rolls_back_extension(pipeline: Pipeline) -> None:
    first, _ = extend_merge(pipeline)
    undone = pipeline.roll_back(first.job_id, cascade=True)
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories") == 0
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories WHERE is_consolidated OR version <> 1") == 0
    assert pipeline.value("SELECT count(*) FROM {s}.memory_lineage") == 0
    assert find_broken_rules(pipeline) == []
    pipeline.roll_back(undone.rollback_id)
    assert pipeline.value("SELECT version FROM {s}.consolidated_memories") == 2
    assert pipeline.run().merging.absorbed == 0


def test_extension_is_rolled_back_alone(pipeline: Pipeline) -> None:
    pipeline.consolidate([note("a", LESSON), note("b", f"Note to self: {LESSON}")])
    before = dump_knowledge(pipeline)
    pipeline.add([note("c", f"{LESSON} Seen again today.")])
    added = dump_knowledge(pipeline)
    pipeline.roll_back(pipeline.run().job_id)
    assert dump_knowledge(pipeline) == added
    assert dump_knowledge(pipeline)["consolidated_memories"] == before["consolidated_memories"]
    assert find_broken_rules(pipeline) == []
    assert pipeline.run().merging.extended == 1


def test_rollback_after_limit_is_refused(pipeline: Pipeline) -> None:
    done = pipeline.consolidate([note("a", LESSON), note("b", LESSON)])
    age_changes(pipeline, timedelta(days=8))
    before = dump_knowledge(pipeline)
    with pytest.raises(ConflictError, match="rollback_days"):
        pipeline.roll_back(done.job_id)
    assert dump_knowledge(pipeline) == before
    pipeline.configure(rollback_days=9)
    assert pipeline.roll_back(done.job_id).memories_deleted == 1


@pytest.mark.parametrize(
    ("days", "moment", "allowed"),
    [(7, timedelta(minutes=-1), True), (7, timedelta(seconds=1), False), (1, timedelta(seconds=1), True)],
)
def test_rollback_limit_is_exact(pipeline: Pipeline, days: int, moment: timedelta, allowed: bool) -> None:
    done = pipeline.consolidate([note("a", LESSON), note("b", LESSON)])
    age_changes(pipeline, timedelta(days=days) + moment)
    if allowed:
        assert pipeline.roll_back(done.job_id).memories_deleted == 1
        return
    with pytest.raises(ConflictError, match=f"{done.job_id} is 7 days old: .* for 7 days"):
        pipeline.roll_back(done.job_id)


def test_rollback_limit_includes_exact_age(pipeline: Pipeline) -> None:
    pipeline.configure_new()
    project, target = pipeline.project(), uuid4()
    rollback._check_target(RollbackTarget("job", project, ["merge"], [1], [], timedelta(days=7)), target, 7)
    with pytest.raises(ConflictError, match="rollback_days"):
        rollback._check_target(
            RollbackTarget("job", project, ["merge"], [1], [], timedelta(days=7, microseconds=1)), target, 7
        )


def test_rollback_reason_names_undone_target(pipeline: Pipeline) -> None:
    done = pipeline.consolidate([note("a", LESSON), note("b", LESSON)])
    undone = pipeline.roll_back(done.job_id)
    redone = pipeline.roll_back(undone.rollback_id)
    assert (undone.redone, redone.redone) == (False, True)
    query = "SELECT DISTINCT reason FROM {s}.consolidation_changes WHERE group_id = :group"
    assert pipeline.value(query, group=undone.rollback_id) == f"undoes job {done.job_id}"
    assert pipeline.value(query, group=redone.rollback_id) == f"redoes what was undone by job {undone.rollback_id}"


def test_rollback_of_unknown_id_is_refused(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSON)])
    idle = pipeline.run().job_id
    for target in (uuid4(), idle, note_id("a")):
        with pytest.raises(NotFoundError, match=str(target)):
            pipeline.roll_back(target)


# --- random histories ------------------------------------------------------------------------------------------------

WORDINGS = st.sampled_from(
    [f"{how}{LESSONS[which]}" for which in range(3) for how in ("", "Note to self: ", "Again: ")]
)
HISTORIES = st.lists(st.lists(WORDINGS, min_size=1, max_size=4), min_size=1, max_size=3)


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(history=HISTORIES, data=st.data())
def test_rollback_of_all_runs_restores_initial_state(
    shared: Pipeline, history: list[list[str]], data: st.DataObject
) -> None:
    shared.clear()
    states, done = [], []
    for number, texts in enumerate(history):
        shared.add([note(f"n{number}-{at}", text) for at, text in enumerate(texts)])
    for threshold in (0.999, 0.9, 0.82)[: data.draw(st.integers(1, 3))]:
        shared.configure(t_merge=threshold, t_suggest=0.7, t_pattern=0.5)
        states.append(dump_knowledge(shared))
        done.append(shared.run())
    for state, run in zip(reversed(states), reversed(done), strict=True):
        if shared.value("SELECT count(*) FROM {s}.consolidation_changes WHERE job_id = :job", job=run.job_id):
            shared.roll_back(run.job_id)
        assert dump_knowledge(shared) == state
        assert find_broken_rules(shared) == []


@pytest.mark.slow
@settings(deadline=None, max_examples=6)
@given(history=HISTORIES, data=st.data())
def test_random_cascade_and_redo_keep_rules(shared: Pipeline, history: list[list[str]], data: st.DataObject) -> None:
    shared.clear()
    for number, texts in enumerate(history):
        shared.add([note(f"n{number}-{at}", text) for at, text in enumerate(texts)])
        shared.run()
    groups = [row[0] for row in shared.rows("SELECT DISTINCT group_id FROM {s}.consolidation_changes ORDER BY 1")]
    if not groups:
        return
    merged = dump_knowledge(shared)
    undone = shared.roll_back(data.draw(st.sampled_from(sorted(groups))), cascade=True)
    assert find_broken_rules(shared) == []
    shared.roll_back(undone.rollback_id)
    assert dump_knowledge(shared) == merged
    assert find_broken_rules(shared) == []
