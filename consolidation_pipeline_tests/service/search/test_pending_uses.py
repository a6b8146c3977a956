"""Uses that searches counted, until a run adds them to the memories."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.store.database.raw_connections import autocommit_connection
from consolidation_pipeline.store.memories.export import open_snapshot, stream_derived, stream_memories
from consolidation_pipeline.store.memories.memories import load_memory
from consolidation_pipeline.store.memories.pending_uses import add_uses, fold_uses
from consolidation_pipeline.store.review.suggestions import load_states
from consolidation_pipeline_tests.service.corpus import LESSONS, STALE, note, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id, run_phases
from consolidation_pipeline_tests.service.search.test_hybrid_search import find

COUNTS = """
    SELECT id, reused_count, last_accessed_at FROM {s}.task_memories
    UNION ALL SELECT id, reuse_count, last_accessed_at FROM {s}.consolidated_memories
"""
PENDING = "SELECT count(*) FROM {s}.pending_uses"


def load_counts(pipeline: Pipeline) -> dict[UUID, tuple[Any, ...]]:
    return {row[0]: tuple(row[1:]) for row in pipeline.rows(COUNTS)}


def count(pipeline: Pipeline, uses: Mapping[UUID, int]) -> None:
    with autocommit_connection(pipeline.engine) as connection:
        add_uses(connection, pipeline.project().id, uses)


def test_uses_wait_for_the_next_run(pipeline: Pipeline) -> None:
    pipeline.consolidate(reworded_notes())
    before = load_counts(pipeline)
    found = {hit.id for hit in find(pipeline, "payments worker", limit=5, count_use=True).results}
    assert load_counts(pipeline) == before
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is not None
    with pipeline.open(planned=()):
        after = load_counts(pipeline)
    assert {id_ for id_ in after if after[id_][0] == before[id_][0] + 1} == found
    assert {id_ for id_ in after if after[id_] == before[id_]} == before.keys() - found
    assert pipeline.value(PENDING) == 0


def test_pending_uses_are_shown(pipeline: Pipeline) -> None:
    pipeline.consolidate([*reworded_notes(LESSONS[:1]), note("alone", "Rotate the keys monthly.", reused_count=3)])
    merged = pipeline.value("SELECT id FROM {s}.consolidated_memories WHERE kind = 'merged'")
    alone = note_id("alone")
    known = load_counts(pipeline)
    for uses in (1, 2):
        count(pipeline, {merged: uses, alone: uses})
    last = pipeline.value("SELECT max(used_at) FROM {s}.pending_uses")
    with open_snapshot(pipeline.engine) as connection:
        project = pipeline.project().id
        (raw,) = (row for row in stream_memories(connection, project) if row["id"] == "alone")
        (derived,) = (row for row in stream_derived(connection, project) if row["id"] == merged)
        states = load_states(connection, [merged, alone], scope="project")
        one, other = load_memory(connection, alone), load_memory(connection, merged)
    assert one is not None
    assert other is not None
    assert [row["reused_count"] for row in (raw, one)] == [states[alone].uses] * 2 == [6, 6]
    expected = known[merged][0] + 3
    assert [row["reuse_count"] for row in (derived, other)] == [expected, expected]
    assert states[merged].uses == expected
    assert {row["last_accessed_at"] for row in (raw, one, derived, other)} == {last}


def test_plan_and_run_know_pending_uses(pipeline: Pipeline) -> None:
    pipeline.add([note("old", "An old note about nothing.", **STALE), note("kept", "The wiki is read only.", **STALE)])
    count(pipeline, {note_id("kept"): 1})
    assert [one.id for one in pipeline.plan().archives] == [note_id("old")]
    assert pipeline.run().archived.memories == 1
    assert pipeline.rows("SELECT external_id FROM {s}.task_memories WHERE is_archived") == [("old",)]


def test_merged_memory_takes_over_pending_uses(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSONS[0], reused_count=1), note("b", f"Note to self: {LESSONS[0]}", reused_count=2)])
    count(pipeline, {note_id("a"): 4})
    with pipeline.open() as run:
        count(pipeline, {note_id("b"): 5})
        run_phases(run)
    assert pipeline.value("SELECT reuse_count FROM {s}.consolidated_memories WHERE kind = 'merged'") == 12


def test_interrupted_fold_loses_no_use(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSONS[0], reused_count=0)])
    count(pipeline, {note_id("a"): 2})
    with pipeline.engine.connect() as connection:
        fold_uses(connection, pipeline.project().id)
        connection.rollback()
    assert (pipeline.value(PENDING), load_counts(pipeline)[note_id("a")][0]) == (1, 0)
    pipeline.fold_uses()
    assert (pipeline.value(PENDING), load_counts(pipeline)[note_id("a")][0]) == (0, 2)


def test_concurrent_folds_count_each_use_once(pipeline: Pipeline) -> None:
    ids = [note_id(f"n{at}") for at in range(20)]
    pipeline.add([note(f"n{at}", f"Fact number {at}.", reused_count=0) for at in range(20)])
    with ThreadPoolExecutor(6) as pool:
        for work in [lambda: count(pipeline, dict.fromkeys(ids, 1)), pipeline.fold_uses] * 12:
            pool.submit(work)
    pipeline.fold_uses()
    assert pipeline.rows("SELECT DISTINCT reused_count FROM {s}.task_memories") == [(12,)]


def test_uses_of_what_is_gone_are_dropped(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSONS[0], reused_count=0)])
    with autocommit_connection(pipeline.engine) as connection:
        add_uses(connection, uuid4(), {note_id("a"): 1})
    assert pipeline.value(PENDING) == 0
    count(pipeline, {uuid4(): 1, note_id("a"): 1})
    pipeline.fold_uses()
    assert pipeline.value(PENDING) == 0
    assert load_counts(pipeline)[note_id("a")][0] == 1
