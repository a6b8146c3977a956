"""Archiving by policy: selection, the limit per run, concurrent changes, rollback and restore."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from consolidation_pipeline.core.lifecycle.archive_policies import ArchiveUnits, merge_units
from consolidation_pipeline.service.jobs.run_report import write_report
from consolidation_pipeline.service.lifecycle import archive
from consolidation_pipeline.service.lifecycle.archive import (
    ArchiveResult,
    archive_memories,
    build_archive_metrics,
    load_archive_units,
)
from consolidation_pipeline.service.lifecycle.manual_actions import pin_memories, restore_memories
from consolidation_pipeline.service.review.suggestions import list_suggestions
from consolidation_pipeline.service.runs.project_run import PlanDecisions
from consolidation_pipeline.store.admin.project_counts import count_raw_memories
from consolidation_pipeline.store.database.vector_copy import to_uuids
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, corpus, note
from consolidation_pipeline_tests.service.pipeline_runner import MERGING, SLUG, Pipeline, note_id, run_phases
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge

NOW = datetime.now(UTC)
SUGGESTING = "consolidation_suggestions"
LESSON = LESSONS[0]


def ago(days: float) -> str:
    return (NOW - timedelta(days=days)).isoformat()


def unused_note(name: str, content: str, days: float = 100, **fields: Any) -> dict[str, Any]:
    """Return a note that came with one use, of ``days`` ago, when it was created."""
    plain = {"last_accessed_at": ago(days), "reused_count": 1, "importance": 0.5, "created_at": ago(days)}
    return note(name, content, **plain | fields)


def consolidate(pipeline: Pipeline) -> UUID:
    """Run the phases up to merging; return the job's id."""
    with pipeline.open() as run:
        run_phases(run, MERGING)
    return run.job_id


def run_archive(pipeline: Pipeline, now: datetime = NOW, **how: Any) -> tuple[ArchiveResult, UUID]:
    """Archive as of ``now``, after scoring in the forget job; return the result and the job's id.

    ``planned``: names of the memories that a plan archives.
    """
    planned = how.pop("planned", None)
    with pipeline.open(**how) as run:
        run.now = now
        if planned is not None:
            run.plan = PlanDecisions(now, {}, {str(note_id(name)): "staleness" for name in planned}, {})
        if run.job == "forget":
            run_phases(run, ("decay_scores",))
        before = count_raw(pipeline)
        done = archive_memories(run)
        assert run.archived == done.memories == count_raw(pipeline)["archived"] - before["archived"]
    assert find_broken_rules(pipeline) == []
    return done, run.job_id


def count_raw(pipeline: Pipeline) -> dict[str, int]:
    """Count raw memories by status."""
    with pipeline.engine.connect() as connection:
        counts = dict(count_raw_memories(connection, pipeline.project().id)._mapping)
    assert counts["active"] + counts["consolidated"] + counts["archived"] == counts["memories"]
    return counts


def archive_reasons(pipeline: Pipeline) -> dict[str, str]:
    """Return archived raw memories with their reasons."""
    query = "SELECT external_id, archive_reason FROM {s}.task_memories WHERE is_archived ORDER BY 1"
    return {row[0]: row[1] for row in pipeline.rows(query)}


# --- history of use --------------------------------------------------------------------------------------------------


def old_notes(count: int, days: float = 500) -> list[dict[str, Any]]:
    """Return notes of long ago of which no use is known."""
    unknown: dict[str, Any] = {"last_accessed_at": None, "reused_count": 0}
    return [note(f"old-{at}", f"Memory {at}.", created_at=ago(days + at), **unknown) for at in range(count)]


@pytest.mark.parametrize("job", ["consolidate", "forget"])
def test_old_import_without_uses_stays_active(pipeline: Pipeline, job: str) -> None:
    pipeline.configure_new(forgetting=True, archive_max_share=1.0)
    pipeline.add(old_notes(30))
    assert run_archive(pipeline, job=job)[0] == ArchiveResult(active_after=30)
    assert run_archive(pipeline, NOW + timedelta(days=89), job=job)[0].units == 0
    assert run_archive(pipeline, NOW + timedelta(days=91), job=job)[0].units == 30


def test_second_import_waits_its_own_time(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive_max_share=1.0)
    pipeline.add(old_notes(3))
    pipeline.write("UPDATE {s}.task_memories SET created_at = :at", at=ago(91))
    pipeline.add(old_notes(5))
    assert run_archive(pipeline)[0].units == 3
    assert set(archive_reasons(pipeline)) == {"old-0", "old-1", "old-2"}


def test_use_after_import_restarts_the_wait(pipeline: Pipeline) -> None:
    pipeline.configure_new(forgetting=True, archive_max_share=1.0)
    pipeline.add(old_notes(2))
    pipeline.write(
        "UPDATE {s}.task_memories SET reused_count = 1, last_accessed_at = :at WHERE external_id = 'old-0'",
        at=ago(-40),
    )
    for job in ("consolidate", "forget"):
        run_archive(pipeline, NOW + timedelta(days=91), job=job)
        assert set(archive_reasons(pipeline)) == {"old-1"}
    assert run_archive(pipeline, NOW + timedelta(days=131), job="forget")[0].units == 1


def test_merged_import_is_as_young_as_its_sources(pipeline: Pipeline) -> None:
    texts = (LESSON, f"Note to self: {LESSON}")
    pipeline.add(
        note(f"n{at}", text, created_at=ago(500), last_accessed_at=None, reused_count=0)
        for at, text in enumerate(texts)
    )
    consolidate(pipeline)
    assert run_archive(pipeline)[0].units == 0
    assert run_archive(pipeline, NOW + timedelta(days=91))[0].merged == 1


# --- selection -------------------------------------------------------------------------------------------------------


def test_stale_memories_are_archived_with_reason(pipeline: Pipeline) -> None:
    pipeline.add(
        [
            unused_note("stale", "One.", 90),
            unused_note("younger", "Two.", 89.99),
            unused_note("read", "Three.", 400, last_accessed_at=ago(89.99)),
            unused_note("uncounted", "No use is known.", 400, reused_count=0),
            unused_note("unread", "Four.", 400, last_accessed_at=ago(90.5), reused_count=2),
            unused_note("useful", "Five.", 400, reused_count=3),
            unused_note("pinned", "Six.", 400, pinned=True),
            unused_note("future", "Seven.", -3),
        ]
    )
    done, job = run_archive(pipeline)
    assert archive_reasons(pipeline) == {"stale": "staleness", "unread": "staleness"}
    assert (done.units, done.stale, done.forgotten, done.merged, done.active_after) == (2, 2, 0, 0, 6)
    changes = pipeline.rows("SELECT * FROM {s}.consolidation_changes ORDER BY reason")
    assert [change.reason for change in changes] == ["not used for 90 days, 1 reuse", "not used for 90 days, 2 reuses"]
    assert {(change.operation, change.confidence, change.job_id) for change in changes} == {("archive", None, job)}
    assert len({change.group_id for change in changes}) == 2
    assert pipeline.rows("SELECT DISTINCT archived_at FROM {s}.task_memories WHERE is_archived") == [(NOW,)]


def test_archive_limits_are_options(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive=False)
    pipeline.add([unused_note("a", "One.", 35, reused_count=1), unused_note("b", "Two.", 35, reused_count=2)])
    assert run_archive(pipeline)[0].units == 0
    pipeline.configure(archive_stale_days=35, archive_min_reuse=2)
    assert run_archive(pipeline)[0].units == 1
    assert set(archive_reasons(pipeline)) == {"a"}


def test_merged_memory_is_stale_by_newest_source(pipeline: Pipeline) -> None:
    pipeline.add(
        [
            unused_note("a", LESSON, 300),
            unused_note("b", f"Note to self: {LESSON}", 95),
            unused_note("c", LESSONS[1], 300),
            unused_note("d", f"Note to self: {LESSONS[1]}", 85),
            unused_note("e", LESSONS[2], 300, reused_count=2),
            unused_note("f", f"Note to self: {LESSONS[2]}", 300, reused_count=1),
        ]
    )
    consolidate(pipeline)
    done, _ = run_archive(pipeline)
    assert (done.units, done.merged, done.memories) == (1, 1, 2)
    (row,) = pipeline.rows("SELECT * FROM {s}.consolidated_memories WHERE retired_at IS NOT NULL")
    assert LESSON in row.content
    assert (row.retired_at, row.archive_reason, row.superseded_by_id) == (NOW, "staleness", None)
    assert archive_reasons(pipeline) == {}
    assert count_raw(pipeline) == {"memories": 6, "active": 0, "consolidated": 4, "archived": 2}
    hidden = "SELECT external_id FROM {s}.task_memories WHERE consolidated_into_id = :id ORDER BY 1"
    assert pipeline.rows(hidden, id=row.id) == [("a",), ("b",)]
    reason = "SELECT reason FROM {s}.consolidation_changes WHERE operation = 'archive'"
    assert pipeline.value(reason) == "not used for 95 days, 2 reuses"


FORGETTABLE: dict[str, Any] = {"importance": 0.69, "reused_count": 9, "memory_type": "change"}


def test_forgetting_respects_every_protection(pipeline: Pipeline) -> None:
    pipeline.configure_new(forgetting=True)
    pipeline.add(
        [
            unused_note("faded", "One.", 90, **FORGETTABLE),
            unused_note("important", "Two.", 400, **FORGETTABLE | {"importance": 0.7}),
            unused_note("young", "Three.", 89.99, **FORGETTABLE),
            unused_note("decided", "Four.", 400, **FORGETTABLE | {"memory_type": "decision"}),
            unused_note("discovered", "Five.", 400, **FORGETTABLE | {"memory_type": "discovery"}),
            unused_note("pinned", "Six.", 400, **FORGETTABLE, pinned=True),
            unused_note("stale", "Seven.", 400, memory_type="decision"),
            unused_note("both", "Eight.", 400),
        ]
    )
    done, _ = run_archive(pipeline, job="forget")
    assert archive_reasons(pipeline) == {"faded": "forgotten", "stale": "staleness", "both": "forgotten"}
    assert (done.stale, done.forgotten) == (1, 2)
    words = {row[0] for row in pipeline.rows("SELECT reason FROM {s}.consolidation_changes")}
    assert "relevance 0.001 after 90 days without use, importance 0.69" in words


@pytest.mark.parametrize(("decay_rate", "taken"), [(0.0, 0), (0.1, 1)])
def test_forgetting_uses_scored_relevance(pipeline: Pipeline, decay_rate: float, taken: int) -> None:
    pipeline.configure_new(forgetting=True, archive=False, decay_rate=decay_rate)
    pipeline.add([unused_note("a", "One.", 400, **FORGETTABLE)])
    assert run_archive(pipeline, job="forget")[0].forgotten == taken


def test_forgetting_needs_forget_job_option_and_scores(pipeline: Pipeline) -> None:
    pipeline.configure_new(forgetting=True)
    pipeline.add([unused_note("a", "One.", 400, **FORGETTABLE)])
    assert run_archive(pipeline)[0].units == 0
    with pipeline.open(job="forget") as run:
        assert archive_memories(run).units == 0
    pipeline.configure(forgetting=False)
    assert run_archive(pipeline, job="forget")[0].units == 0


# --- limit per run ---------------------------------------------------------------------------------------------------


def stale_and_recent_notes(stale: int, of: int) -> list[dict[str, Any]]:
    return [unused_note(f"n{at}", f"Memory {at}.", 100 if at < stale else 1) for at in range(of)]


@pytest.mark.parametrize(("stale", "of", "held_back"), [(50, 100, 0), (51, 100, 51), (19, 19, 0)])
def test_archiving_over_half_of_project_is_held_back(pipeline: Pipeline, stale: int, of: int, held_back: int) -> None:
    pipeline.add(stale_and_recent_notes(stale, of))
    done, _ = run_archive(pipeline)
    assert (done.held_back, done.units) == (held_back, 0 if held_back else stale)
    assert (len(archive_reasons(pipeline)), done.active_after) == (done.units, of - done.units)


def test_held_back_archives_need_plan_or_larger_share(pipeline: Pipeline) -> None:
    pipeline.add(stale_and_recent_notes(60, 100))
    result, _ = run_archive(pipeline)
    advice = build_archive_metrics(SLUG, result)["to_archive_them"]
    assert f"consolidation run {SLUG} --plan FILE" in advice
    done, job = run_archive(pipeline, planned=[f"n{at}" for at in range(60)])
    assert (done.units, done.held_back) == (60, 0)
    assert "to_archive_them" not in build_archive_metrics(SLUG, done)
    pipeline.roll_back(job)
    # Undoing a job is no decision on each memory: all are judged as before.
    assert run_archive(pipeline)[0] == ArchiveResult(held_back=60, active_after=100)
    assert run_archive(pipeline, NOW + timedelta(days=91))[0].held_back == 100
    pipeline.configure(archive_max_share=1.0)
    assert run_archive(pipeline, NOW + timedelta(days=91))[0].units == 100


def test_planned_archive_touches_only_planned_memories(pipeline: Pipeline) -> None:
    pipeline.add(stale_and_recent_notes(80, 100))
    done, _ = run_archive(pipeline, planned=["n3", "n5", "n95"])
    assert (done.units, done.held_back, done.active_after) == (2, 0, 98)
    assert set(archive_reasons(pipeline)) == {"n3", "n5"}


def test_planned_archive_uses_plan_time(pipeline: Pipeline) -> None:
    pipeline.add([unused_note("a", "One.", 89)])
    with pipeline.open() as run:
        run.plan = PlanDecisions(NOW, {}, {str(note_id("a")): "staleness"}, {})
        run.now = NOW + timedelta(days=2)
        assert archive_memories(run).units == 0
        run.plan = None
        assert archive_memories(run).units == 1
    assert pipeline.value("SELECT archived_at FROM {s}.task_memories") == NOW + timedelta(days=2)


def test_report_counts_archived_and_held_back(pipeline: Pipeline) -> None:
    pipeline.add(stale_and_recent_notes(60, 100))
    for share, cell in (("0.5", "60: `consolidation run notes --plan FILE`"), ("1", "0 |")):
        pipeline.configure(archive_max_share=float(share))
        with pipeline.open() as run:
            run.now = NOW
            with run.phase("archived_memories") as phase:
                done = archive_memories(run)
                phase.metrics = build_archive_metrics(SLUG, done)
                phase.counters = {"memories_archived": done.memories}
            report = write_report(run)
        assert report.metrics["memories_archived"] == done.memories
        assert report.metrics["held_back"] == done.held_back
        assert f"| archived by this run | {done.memories} |" in report.markdown
        assert f"| held back, too many to archive automatically | {cell}" in report.markdown
    assert report.metrics["archived"] == 60


# --- concurrent changes ----------------------------------------------------------------------------------------------


def call_before_first_write(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """Call ``meanwhile`` after the run has decided and before it writes its first batch."""
    write, done = archive._archive_batch, []

    def late(*arguments: Any) -> Any:
        if not done:
            done.append(meanwhile())
        return write(*arguments)

    monkeypatch.setattr(archive, "_archive_batch", late)


def test_archive_skips_memories_changed_meanwhile(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add([unused_note(name, f"Memory {name}.") for name in "abcde"])

    def meanwhile() -> None:
        # Counting an agent's use does not change the version.
        pipeline.write("UPDATE {s}.task_memories SET last_accessed_at = now() WHERE external_id = 'a'")
        pin_memories(pipeline.engine, [note_id("b")], pinned=True, changed_by="tester")
        pipeline.write("DELETE FROM {s}.task_memories WHERE external_id = 'c'")
        pipeline.write("UPDATE {s}.task_memories SET tags = '{{new}}', version = 7 WHERE external_id = 'd'")

    call_before_first_write(monkeypatch, meanwhile)
    with pipeline.open() as run:
        done = archive_memories(run)
    assert (done.units, done.changed) == (2, 3)
    assert set(archive_reasons(pipeline)) == {"d", "e"}


def test_archive_waits_for_row_lock_and_rechecks(pipeline: Pipeline) -> None:
    pipeline.add([unused_note("a", "One."), unused_note("b", "Two.")])
    done: list[ArchiveResult] = []

    def run_it() -> None:
        with pipeline.open() as run:
            done.append(archive_memories(run))

    use = "UPDATE consolidation.task_memories SET reused_count = 3 WHERE external_id = 'a'"
    with pipeline.engine.begin() as connection:
        connection.exec_driver_sql(use)
        runner = threading.Thread(target=run_it)
        runner.start()
        blocked = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        while not pipeline.value(blocked):
            assert runner.is_alive()
    runner.join()
    assert (done[0].units, done[0].changed) == (1, 1)
    assert set(archive_reasons(pipeline)) == {"b"}


def test_failed_archive_batch_keeps_earlier_ones(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "BATCH_ROWS", 2)
    pipeline.add([unused_note(name, f"Memory {name}.") for name in "abcde"])
    write, calls = archive.archive_rows, []

    def dying(*arguments: Any, **how: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("died")
        write(*arguments, **how)

    monkeypatch.setattr(archive, "archive_rows", dying)
    with pytest.raises(RuntimeError, match="died"), pipeline.open() as run:
        archive_memories(run)
    assert len(archive_reasons(pipeline)) == 2
    assert run_archive(pipeline)[0].units == 3


# --- rollback and restore --------------------------------------------------------------------------------------------


def test_rollback_of_archive_job_is_exact_and_redoable(pipeline: Pipeline) -> None:
    longer = "A lesson on tape backups that nobody asked for since the robot in the basement was sold to a museum."
    pipeline.add([*corpus(), unused_note("a", longer), unused_note("b", longer), unused_note("c", "Alone for long.")])
    consolidate(pipeline)
    before = dump_knowledge(pipeline)
    done, job = run_archive(pipeline, NOW + timedelta(days=200))
    assert done.merged > 0
    assert done.units > done.merged
    after = dump_knowledge(pipeline)
    undone = pipeline.roll_back(job)
    assert dump_knowledge(pipeline) == before
    assert (undone.memories_restored, undone.memories_deleted) == (done.units, 0)
    assert count_raw(pipeline)["archived"] == 0
    pipeline.roll_back(undone.rollback_id)
    assert dump_knowledge(pipeline) == after
    assert find_broken_rules(pipeline) == []


def test_restored_memory_is_archived_after_full_period(pipeline: Pipeline) -> None:
    pipeline.configure_new(forgetting=True)
    pipeline.add([unused_note(name, f"Memory {name}.", 400) for name in "abc"])
    assert run_archive(pipeline, job="forget")[0].forgotten == 3
    restore_memories(pipeline.engine, [note_id("a")], changed_by="tester")
    pipeline.roll_back(pipeline.last_group(entity=note_id("b")))
    assert set(archive_reasons(pipeline)) == {"c"}
    for how in ("consolidate", "forget"):
        assert run_archive(pipeline, NOW + timedelta(days=89), job=how)[0].units == 0
    assert run_archive(pipeline, NOW + timedelta(days=91))[0].stale == 2
    assert archive_reasons(pipeline) == {"a": "staleness", "b": "staleness", "c": "forgotten"}


def test_rollback_of_merge_does_not_count_as_access(pipeline: Pipeline) -> None:
    pipeline.add([unused_note("a", LESSON), unused_note("b", f"Note to self: {LESSON}")])
    pipeline.roll_back(consolidate(pipeline))
    assert run_archive(pipeline)[0].units == 2


def test_restored_source_protects_its_merged_memory(pipeline: Pipeline) -> None:
    pipeline.add([unused_note("a", LESSON)])
    run_archive(pipeline)
    restore_memories(pipeline.engine, [note_id("a")], changed_by="tester")
    pipeline.add([unused_note("b", f"Note to self: {LESSON}")])
    consolidate(pipeline)
    assert count_raw(pipeline)["consolidated"] == 2
    assert run_archive(pipeline)[0].units == 0
    assert run_archive(pipeline, NOW + timedelta(days=91))[0].merged == 1


def test_archived_memories_stay_out_of_groups(pipeline: Pipeline) -> None:
    pipeline.add([unused_note("a", LESSON), unused_note("b", f"Note to self: {LESSON}"), unused_note("c", LESSONS[1])])
    consolidate(pipeline)
    merged = pipeline.value("SELECT id FROM {s}.consolidated_memories")
    assert run_archive(pipeline)[0].units == 2
    late = [note("d", f"{LESSON} Seen again today."), note("e", f"Note to self: {LESSONS[1]}")]
    pipeline.add(late)
    consolidate(pipeline)
    # The new memories were compared and have no neighbours.
    assert pipeline.value("SELECT count(*) FROM {s}.memory_clusters") == 0
    assert pipeline.value("SELECT count(*) FROM {s}.memory_pairs") == 0
    restore_memories(pipeline.engine, [merged, note_id("c")], changed_by="tester")
    consolidate(pipeline)
    query = "SELECT consolidated_into_id, array_agg(external_id ORDER BY external_id) FROM {s}.task_memories GROUP BY 1"
    by_merged = {row[0]: row[1] for row in pipeline.rows(query)}
    assert by_merged.pop(merged) == ["a", "b", "d"]
    assert list(by_merged.values()) == [["c", "e"]]
    assert find_broken_rules(pipeline) == []


def test_archived_originals_end_their_suggestion(pipeline: Pipeline) -> None:
    pair, other = NEAR_MISSES[:2]
    pipeline.add([unused_note("a", pair[0]), note("b", pair[1]), note("c", other[0]), note("d", other[1])])
    phases = (*MERGING, SUGGESTING)
    with pipeline.open(planned=phases) as run:
        proposed = run_phases(run, phases)[SUGGESTING]
    assert proposed.waiting == 2
    done, job = run_archive(pipeline)
    assert (done.units, done.superseded) == (1, 1)
    assert build_archive_metrics(SLUG, done)["suggestions_superseded"] == 1
    waiting = list_suggestions(pipeline.engine, SLUG).suggestions
    assert [{one.id for one in row.originals} for row in waiting] == [{note_id("c"), note_id("d")}]
    pipeline.roll_back(job)
    assert list_suggestions(pipeline.engine, SLUG).total == 2
    assert find_broken_rules(pipeline) == []


def test_run_asks_about_what_it_does_not_archive(pipeline: Pipeline) -> None:
    ports = [f"The inventory service listens on port {port}." for port in (5432, 5433, 5434)]
    pipeline.add([unused_note("a", ports[0]), note("b", ports[1]), note("c", ports[2])])
    made, done = pipeline.plan(), pipeline.run()
    assert (done.archived.units, made.review.proposed) == (1, 1)
    [row] = list_suggestions(pipeline.engine, SLUG).suggestions
    assert {one.id for one in row.originals} == {note_id("b"), note_id("c")}
    before = dump_knowledge(pipeline)
    pipeline.run()
    assert dump_knowledge(pipeline) == before


def test_second_archive_finds_nothing(pipeline: Pipeline) -> None:
    pipeline.add([unused_note("a", "One."), unused_note("b", LESSON), unused_note("c", LESSON)])
    consolidate(pipeline)
    assert run_archive(pipeline)[0].units == 2
    before = dump_knowledge(pipeline)
    assert run_archive(pipeline)[0] == ArchiveResult()
    assert dump_knowledge(pipeline) == before


# --- units of the preview --------------------------------------------------------------------------------------------


def test_folded_units_match_units_after_merge(pipeline: Pipeline) -> None:
    def units() -> dict[UUID, dict[str, Any]]:
        with pipeline.open() as run, run.engine.connect() as connection:
            run.now = NOW
            ids, _, found = load_archive_units(connection, run)
        return {id_: as_row(found, at) for at, id_ in enumerate(to_uuids(ids))}

    pipeline.add(corpus())
    consolidate(pipeline)
    pipeline.add([note(f"again-{at}", f"Once again: {lesson}") for at, lesson in enumerate(LESSONS)])
    pipeline.add([unused_note("a", "Alone, and then not.", 50), unused_note("pinned", LESSONS[3], 200, pinned=True)])
    with pipeline.open() as run, run.engine.connect() as connection:
        run.now = NOW
        ids, raw, before = load_archive_units(connection, run)
    assert raw.sum() not in (0, len(raw))
    consolidate(pipeline)
    into = dict(pipeline.rows("SELECT id, coalesce(consolidated_into_id, id) FROM {s}.task_memories"))
    became = [into.get(id_, id_) for id_ in to_uuids(ids)]
    names = sorted(set(became))
    labels = np.array([names.index(name) for name in became])
    folded = merge_units(before, labels)
    after = units()
    assert {name: as_row(folded, at) for at, name in enumerate(names)} == after


def as_row(units: ArchiveUnits, at: int) -> dict[str, Any]:
    return {field.name: getattr(units, field.name)[at] for field in fields(ArchiveUnits)}


@pytest.mark.parametrize("late", [[], ["c"]])
def test_restored_memory_survives_new_merge_as_planned(pipeline: Pipeline, late: list[str]) -> None:
    pipeline.add([unused_note("a", LESSON), unused_note("b", LESSON)])
    first = pipeline.run()
    assert first.archived.merged == 1
    pipeline.roll_back(pipeline.value("SELECT group_id FROM {s}.consolidation_changes WHERE operation = 'archive'"))
    pipeline.roll_back(first.job_id)
    pipeline.add([unused_note(name, LESSON) for name in late])
    planned = pipeline.plan()
    second = pipeline.run()
    assert (len(planned.merges), planned.archives) == (1, [])
    assert (second.merging.created, second.archived.units) == (1, 0)
