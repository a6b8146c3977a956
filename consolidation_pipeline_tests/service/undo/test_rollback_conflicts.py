"""Conflicts of a rollback: later changes, another rollback, a run."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Table, create_engine

from consolidation_pipeline.errors import ConflictError, ProjectBusyError
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.runs import run_lifecycle
from consolidation_pipeline.service.undo import rollback
from consolidation_pipeline.service.undo.rollback import list_later_changes, roll_back
from consolidation_pipeline.store.database.schema import memory_relations, playbook_entries
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, insert_rows
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, call_concurrently
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge, dump_tables

LESSON = LESSONS[0]


def merge_pair(pipeline: Pipeline) -> UUID:
    """Merge two memories; return the job."""
    rows = [note("a", LESSON), note("b", f"Note to self: {LESSON}"), note("c", LESSONS[1])]
    return pipeline.consolidate(rows).job_id


def insert_row(pipeline: Pipeline, table: Table, **values: Any) -> UUID:
    """Insert a row through the ledger; return its group."""
    change = Change(uuid4(), uuid4(), values)
    with pipeline.engine.begin() as connection:
        author = Author(pipeline.project().id, None, "tester")
        insert_rows(connection, author, table, [change], operation="promote")
    return change.group_id


def insert_dependents(pipeline: Pipeline) -> list[UUID]:
    """Insert a relation and a playbook entry of the merged memory; return their groups."""
    merged = pipeline.value("SELECT id FROM {s}.consolidated_memories")
    raw = pipeline.value("SELECT id FROM {s}.task_memories WHERE NOT is_consolidated")
    kind = {"relation_type": "explains", "confidence": 0.7, "status": "confirmed"}
    behind = [row.id for row in pipeline.rows("SELECT id FROM {s}.task_memories")]
    entry = {"content": "Migrate first.", "content_hash": "h", "supporting_memory_ids": behind}
    return [
        insert_row(pipeline, memory_relations, a_id=raw, b_id=merged, **kind),
        insert_row(pipeline, playbook_entries, source_id=merged, **entry),
    ]


def test_rollback_lists_dependent_changes(pipeline: Pipeline) -> None:
    job = merge_pair(pipeline)
    groups = insert_dependents(pipeline)
    before, changes = dump_knowledge(pipeline), dump_tables(pipeline, tables=["consolidation_changes"])
    with pytest.raises(ConflictError, match=r"2 later changes depend on it; .*--cascade` .*: promote of") as refused:
        pipeline.roll_back(job)
    later = pipeline.rows("SELECT id FROM {s}.consolidation_changes WHERE operation = 'promote'")
    assert set(refused.value.conflicts) == {str(row.id) for row in later}
    assert set(list_later_changes(pipeline.engine, job, settings=pipeline.settings)) == {row.id for row in later}
    assert all(str(group) in str(refused.value) for group in groups)
    assert (dump_knowledge(pipeline), dump_tables(pipeline, tables=["consolidation_changes"])) == (before, changes)
    pipeline.roll_back(groups[-1])
    with pytest.raises(ConflictError, match=r"1 later change depends on it; .*: promote of"):
        pipeline.roll_back(job)


def test_cascade_undoes_dependents_newest_first(pipeline: Pipeline) -> None:
    job = merge_pair(pipeline)
    insert_dependents(pipeline)
    after = dump_knowledge(pipeline)
    undone = pipeline.roll_back(job, cascade=True)
    assert (undone.changes, undone.memories_deleted) == (5, 3)
    for table in ("consolidated_memories", "memory_relations", "playbook_entries"):
        assert pipeline.value(f"SELECT count(*) FROM {{s}}.{table}") == 0
    query = """
        SELECT c.seq FROM {s}.consolidation_changes r JOIN {s}.consolidation_changes c ON c.id = r.reverts_change_id
        WHERE r.group_id = :group ORDER BY r.seq
    """
    order = [row.seq for row in pipeline.rows(query, group=undone.rollback_id)]
    assert order == sorted(order, reverse=True)
    assert find_broken_rules(pipeline) == []
    pipeline.roll_back(undone.rollback_id)
    assert dump_knowledge(pipeline) == after


def test_dependent_groups_are_undone_one_by_one(pipeline: Pipeline) -> None:
    job = merge_pair(pipeline)
    for group in reversed(insert_dependents(pipeline)):
        pipeline.roll_back(group)
    assert pipeline.roll_back(job).memories_deleted == 1


def test_earlier_group_redone_later_is_no_conflict(pipeline: Pipeline) -> None:
    merge_pair(pipeline)
    (_, entry) = insert_dependents(pipeline)
    pipeline.add([note("d", f"{LESSON} Seen again today.")])
    grown = pipeline.run().job_id
    without_entry = pipeline.roll_back(entry)
    undone = pipeline.roll_back(grown)
    pipeline.roll_back(undone.rollback_id)
    pipeline.roll_back(without_entry.rollback_id)
    pipeline.roll_back(grown)
    assert [row.version for row in pipeline.rows("SELECT version FROM {s}.consolidated_memories")] == [1]
    assert pipeline.value("SELECT count(*) FROM {s}.playbook_entries") == 1


def test_rollback_refuses_duplicate_merged_memory(pipeline: Pipeline) -> None:
    pipeline.consolidate([note("a", LESSON), note("b", LESSON)])
    [archived] = archive_manually(pipeline.engine, [only_merged(pipeline)], changed_by="tester")
    pipeline.add([note("c", LESSON), note("d", LESSON)])
    job = pipeline.run().job_id
    duplicate = only_merged(pipeline)
    before = dump_knowledge(pipeline)
    with pytest.raises(ConflictError, match=f"row {duplicate} has the same text") as refused:
        pipeline.roll_back(archived.group_id)
    assert refused.value.conflicts == (str(duplicate),)
    assert dump_knowledge(pipeline) == before
    pipeline.roll_back(job)
    pipeline.roll_back(archived.group_id)
    assert only_merged(pipeline) == archived.id


def only_merged(pipeline: Pipeline) -> UUID:
    """Return the active merged memory."""
    [row] = pipeline.rows("SELECT id FROM {s}.consolidated_memories WHERE retired_at IS NULL")
    id_: UUID = row.id
    return id_


def test_second_rollback_after_new_run_is_refused(pipeline: Pipeline) -> None:
    job = merge_pair(pipeline)
    pipeline.roll_back(job)
    assert pipeline.run().merging.created == 1
    for cascade in (False, True):
        with pytest.raises(ConflictError, match="rolled back before"):
            pipeline.roll_back(job, cascade=cascade)


def test_one_of_concurrent_rollbacks_wins(pipeline: Pipeline) -> None:
    job = merge_pair(pipeline)
    change = pipeline.value("SELECT min(id::text)::uuid FROM {s}.consolidation_changes")
    targets = [job, change, job, change]
    engines = [create_engine(pipeline.engine.url) for _ in targets]
    settings = {"settings": pipeline.settings, "changed_by": "tester"}
    calls = zip(engines, targets, strict=True)
    outcomes = call_concurrently(*(partial(roll_back, engine, target, **settings) for engine, target in calls))
    for engine in engines:
        engine.dispose()
    assert ["rolled back before" in str(outcome) for outcome in outcomes].count(True) == 3
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_changes WHERE operation = 'rollback'") == 3
    assert find_broken_rules(pipeline) == []


def test_rollback_waiting_too_long_for_run_is_refused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lifecycle, "LOCK_WAIT_SECONDS", 0.2)
    job = merge_pair(pipeline)
    before = dump_knowledge(pipeline)
    with pipeline.open():
        with pytest.raises(ProjectBusyError, match="busy"):
            pipeline.roll_back(job)
        assert dump_knowledge(pipeline) == before
    assert pipeline.roll_back(job).memories_deleted == 1


def test_rollback_starts_after_running_run(pipeline: Pipeline) -> None:
    job = merge_pair(pipeline)
    with ThreadPoolExecutor(1) as pool:
        with pipeline.open() as run:
            waiting = pool.submit(pipeline.roll_back, job)
            time.sleep(0.3)
            assert not waiting.done()
            assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories") == 1
        assert waiting.result().memories_deleted == 1
    ended = pipeline.value("SELECT completed_at FROM {s}.consolidation_jobs WHERE id = :id", id=run.job_id)
    undone = pipeline.value("SELECT min(changed_at) FROM {s}.consolidation_changes WHERE operation = 'rollback'")
    assert ended <= undone


def test_run_does_not_start_during_rollback(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    job = merge_pair(pipeline)
    monkeypatch.setattr(run_lifecycle, "LOCK_WAIT_SECONDS", 0.2)
    entered, leave, real = threading.Event(), threading.Event(), rollback.revert_changes

    def slowly(*arguments: Any, **named: Any) -> dict[str, int]:
        entered.set()
        assert leave.wait(30)
        return real(*arguments, **named)

    monkeypatch.setattr(rollback, "revert_changes", slowly)
    with ThreadPoolExecutor(1) as pool:
        undoing = pool.submit(pipeline.roll_back, job)
        assert entered.wait(30)
        with pytest.raises(ProjectBusyError), pipeline.open():
            pass
        leave.set()
        assert undoing.result().memories_deleted == 1
    with pipeline.open():
        pass
