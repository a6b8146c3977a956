"""Runs and their job rows: one run per project at a time, and correct rows after any failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import OperationalError

from consolidation_pipeline.errors import (
    ConflictError,
    NotFoundError,
    ProjectBusyError,
    ProjectDisabledError,
    TimeLimitError,
)
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.runs import run_fingerprint, run_lifecycle, stale_jobs
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.progress import find_progress
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.service.runs.stale_jobs import end_dead_jobs, fail_dead_job
from consolidation_pipeline.service.runs.worker_processes import compute_in_order
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline_tests.service.corpus import LESSONS, corpus, note, unrelated_notes
from consolidation_pipeline_tests.service.crash_helpers import kill, run_and_die
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id, run_phases
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import count_rows, dump_tables


def job(pipeline: Pipeline, job_id: UUID) -> Any:
    with pipeline.engine.connect() as connection:
        return jobs.get_job(connection, job_id)


def events(pipeline: Pipeline) -> list[str]:
    return [row[0] for row in pipeline.rows("SELECT type FROM {s}.consolidation_events ORDER BY created_at, type DESC")]


def append_pending_job(pipeline: Pipeline, name: str) -> UUID:
    with pipeline.engine.begin() as connection:
        return jobs.append_job(
            connection,
            pipeline.project().id,
            trigger_type="threshold",
            triggered_by="sensor",
            options={},
            scope={"job": name},
        )


def test_job_row_records_run_progress(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.configure(decay_rate=0.2)
    with pipeline.open(triggered_by="ada", run_id="run-1") as run:
        begun = job(pipeline, run.job_id)
        assert (begun.status, begun.progress, begun.phases_completed) == ("running", 0.0, [])
        assert (begun.triggered_by, begun.trigger_type, begun.dagster_run_id) == ("ada", "manual", "run-1")
        for done, name in enumerate(PHASES, start=1):
            run_phases(run, [name])
            row = job(pipeline, run.job_id)
            assert row.progress == pytest.approx(done / len(PHASES))
            assert row.phases_completed == list(PHASES[:done])
    ended = job(pipeline, run.job_id)
    assert (ended.status, ended.progress, ended.phases_failed, ended.error_message) == ("completed", 1.0, [], None)
    assert ended.started_at <= ended.completed_at
    assert ended.duration_seconds >= 0
    assert ended.memories_merged == 40
    assert set(PHASES) < set(ended.metrics)
    assert ended.options["decay_rate"] == 0.2
    assert ConsolidationOptions.model_validate(ended.options) == run.options
    told = [event for event in events(pipeline) if event != "suggestion.created"]
    assert told == ["consolidation.started", "consolidation.completed"]


def test_failed_phase_fails_job_and_others_continue(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    with pipeline.open() as run:
        run_phases(run, PHASES[:3])
        with pytest.raises(ZeroDivisionError), run.phase("clusters"):
            raise ZeroDivisionError("no groups today")
        run_phases(run, ["decay_scores"])
    row = job(pipeline, run.job_id)
    assert row.status == "failed"
    assert row.phases_failed == ["clusters"]
    assert row.phases_completed == [*PHASES[:3], "decay_scores"]
    assert row.error_message == "clusters: no groups today"
    assert events(pipeline)[-1] == "consolidation.failed"
    assert pipeline.run().merging.created == len(LESSONS)


def let_pass(seconds: float) -> None:
    """Make the phase that runs believe that it made no progress for some time."""
    progress = find_progress()
    assert progress is not None
    progress.at -= seconds


def test_no_phase_begins_after_one_that_took_too_long(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    pipeline.configure(timeout_seconds=60)
    with pipeline.open() as run:
        run_phases(run, PHASES[:3])
        with run.phase("clusters"):
            let_pass(61)
        with pytest.raises(TimeLimitError, match="clusters took longer than timeout_seconds = 60"):
            run_phases(run, PHASES[4:])
    row = job(pipeline, run.job_id)
    assert (row.status, row.phases_completed, row.phases_failed) == ("failed", list(PHASES[:4]), ["merged_memories"])
    assert row.error_message.startswith("merged_memories: not begun: clusters took longer than timeout_seconds = 60")
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_changes") == 0
    done = pipeline.run()
    assert (done.embedded.computed, done.merging.created) == (0, len(LESSONS))


def test_phase_that_makes_progress_may_take_long(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    pipeline.configure(timeout_seconds=60)
    with pipeline.open() as run:
        with run.phase("embedding_matrix"):
            let_pass(40)
            with run.transaction():
                pass
            let_pass(40)
            assert list(compute_in_order(str, [1, 2], memories=2)) == ["1", "2"]
            let_pass(40)
        run_phases(run, PHASES[1:])
    assert job(pipeline, run.job_id).status == "completed"


def test_run_error_is_recorded_on_job(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    with pytest.raises(RuntimeError), pipeline.open() as run:
        raise RuntimeError
    row = job(pipeline, run.job_id)
    assert (row.status, row.error_message) == ("failed", "RuntimeError")


def test_run_with_skipped_phases_is_failed(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    with pipeline.open() as run:
        run_phases(run, PHASES[:4])
    row = job(pipeline, run.job_id)
    assert row.status == "failed"
    assert f"did not run: {', '.join(PHASES[4:])}" in row.error_message


@pytest.mark.parametrize("swallowed", [False, True])
def test_interrupted_run_releases_lock(pipeline: Pipeline, swallowed: bool) -> None:
    pipeline.add(corpus())

    def interrupted() -> None:
        with pipeline.open() as run:
            ids.append(run.job_id)
            run_phases(run, PHASES[:2])
            try:
                with run.phase("clusters"):
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                if not swallowed:  # the executor may catch the interrupt and end the run
                    raise

    ids: list[UUID] = []
    if swallowed:
        interrupted()
    else:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    row = job(pipeline, ids[0])
    assert (row.status, row.error_message) == ("cancelled", "the run was interrupted")
    assert row.phases_completed == list(PHASES[:2])
    assert events(pipeline)[-1] == "consolidation.cancelled"
    assert pipeline.run().merging.created == len(LESSONS)


def test_run_of_disabled_project_creates_no_job(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    pipeline.configure(enabled=False)
    with pytest.raises(ProjectDisabledError, match=SLUG):
        pipeline.run()
    with pytest.raises(NotFoundError, match="nowhere"):
        pipeline.run("nowhere")
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_jobs") == 0


def test_concurrent_run_is_refused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lifecycle, "LOCK_WAIT_SECONDS", 0.2)
    pipeline.add(unrelated_notes())
    pipeline.add(unrelated_notes(), slug="other")
    with pipeline.open() as run:
        with pytest.raises(ProjectBusyError, match=SLUG):
            pipeline.run()
        assert not fail_dead_job(pipeline.engine, pipeline.project())
        assert job(pipeline, run.job_id).status == "running"
        pipeline.run("other")
        run_phases(run)
    assert job(pipeline, run.job_id).status == "completed"


@pytest.fixture
def dead_job(pipeline: Pipeline) -> UUID:
    """Job of a run whose process was killed after three phases."""
    return pipeline.start_from(kill_run)


def kill_run(pipeline: Pipeline) -> UUID:
    pipeline.add(corpus())
    kill(pipeline, run_and_die, "clusters", 1, "before")
    (row,) = pipeline.rows("SELECT id, status, phases_completed FROM {s}.consolidation_jobs")
    assert (row.status, row.phases_completed) == ("running", list(PHASES[:3]))
    return UUID(str(row.id))


@pytest.mark.slow
def test_next_run_fails_dead_job_and_continues(pipeline: Pipeline, dead_job: UUID) -> None:
    done = pipeline.run()
    assert (done.embedded.computed, done.graph.compared, done.merging.created) == (0, 0, len(LESSONS))
    row = job(pipeline, dead_job)
    assert (row.status, row.error_message) == ("failed", stale_jobs.DIED)
    assert row.completed_at is not None
    assert "consolidation.failed" in events(pipeline)


def test_dead_job_is_failed_without_new_run(pipeline: Pipeline, dead_job: UUID) -> None:
    project = pipeline.project()
    assert fail_dead_job(pipeline.engine, project)
    assert job(pipeline, dead_job).status == "failed"
    assert not fail_dead_job(pipeline.engine, project)


def test_jobs_of_ended_dagster_runs_are_finished(pipeline: Pipeline, dead_job: UUID) -> None:
    statuses = {"a": "cancelled", "b": None, "c": "completed"}
    waiting = {}
    for slug in statuses:
        pipeline.add(unrelated_notes(), slug=slug)
        with pipeline.engine.begin() as connection:
            waiting[slug] = jobs.append_job(
                connection, pipeline.project(slug).id, trigger_type="manual", triggered_by="x", options={}
            )
    status_of = {waiting[slug]: status for slug, status in statuses.items() if status is not None}
    marked = end_dead_jobs(pipeline.engine, lambda _: status_of)
    assert set(marked) == {str(dead_job), str(waiting["a"]), str(waiting["c"])}
    assert [job(pipeline, waiting[slug]).status for slug in statuses] == ["cancelled", "pending", "failed"]
    errors = [job(pipeline, waiting[slug]).error_message for slug in statuses]
    assert errors == [
        "its run, or the batch in which it waited, was cancelled before it began",
        None,
        "its run ended before it opened the project",
    ]
    assert job(pipeline, dead_job).status == "failed"


def test_live_run_is_not_marked_dead(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    with pipeline.open() as run:
        assert end_dead_jobs(pipeline.engine, lambda jobs: dict.fromkeys(jobs, "failed")) == []
        assert job(pipeline, run.job_id).status == "running"
        run_phases(run)


def test_run_claims_matching_pending_job(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    asked = append_pending_job(pipeline, "consolidate")
    assert pipeline.run().job_id == asked
    asked = append_pending_job(pipeline, "decay")
    with pipeline.open(planned=("decay_scores",)) as run:
        run_phases(run, ["decay_scores"])
    assert run.job_id == asked
    assert job(pipeline, asked).status == "completed"


@pytest.mark.parametrize(("asked", "planned"), [("decay", PHASES), ("consolidate", ("decay_scores",))])
def test_run_keeps_pending_job_of_other_scope(pipeline: Pipeline, asked: str, planned: tuple[str, ...]) -> None:
    pipeline.add(unrelated_notes())
    waiting = append_pending_job(pipeline, asked)
    with pipeline.open(planned=planned) as run:
        run_phases(run, planned)
    assert run.job_id != waiting
    assert job(pipeline, run.job_id).status == "completed"
    assert job(pipeline, waiting).status == "pending"


def test_second_run_writes_no_rows(pipeline: Pipeline) -> None:
    pipeline.consolidate(corpus())
    written = ["consolidation_changes", "consolidated_memories", "memory_lineage", "memory_files", "memory_neighbors"]
    before, state = count_rows(pipeline), dump_tables(pipeline, tables=written)
    done = pipeline.run()
    assert (done.embedded.computed, done.graph.compared, done.merging.absorbed) == (0, 0, 0)
    assert count_rows(pipeline) == before
    assert dump_tables(pipeline, tables=written) == state


def test_reads_of_a_run_open_no_transactions(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    ends = []

    def note_end(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if driver.info.transaction_status is TransactionStatus.INTRANS:
            ends.append(connection)

    for kind in ("commit", "rollback"):
        event.listen(pipeline.engine, kind, note_end)
    pipeline.run()
    first, ends[:] = len(ends), []
    pipeline.run()
    for kind in ("commit", "rollback"):
        event.remove(pipeline.engine, kind, note_end)
    # One for each phase that writes, and those that begin and end the run.
    assert first <= 24
    assert len(ends) <= 14


def test_unchanged_project_is_detected_before_run(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.add(corpus())
    project = pipeline.project()
    assert find_unchanged_job(pipeline.engine, project, pipeline.settings) is None
    done = pipeline.run()
    found = find_unchanged_job(pipeline.engine, project, pipeline.settings)
    assert found is not None
    assert found.id == done.job_id
    pipeline.configure(t_pattern=0.7)
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is None
    pipeline.configure()
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is not None
    with monkeypatch.context() as patched:
        patched.setattr(run_fingerprint, "describe_code", lambda: {"digest": "another program"})
        assert find_unchanged_job(pipeline.engine, project, pipeline.settings) is None
    pipeline.roll_back(done.job_id)
    assert find_unchanged_job(pipeline.engine, project, pipeline.settings) is None


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_memory_added_during_run_is_not_marked_seen(pipeline: Pipeline, phase: str) -> None:
    pipeline.add(unrelated_notes())
    with pipeline.open() as run:
        for name in PHASES:
            run_phases(run, [name])
            if name == phase:
                pipeline.add([note("meanwhile", "It arrived while the run went on.")])
    assert job(pipeline, run.job_id).status == "completed"
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is None
    pipeline.run()
    assert find_unchanged_job(pipeline.engine, pipeline.project(), pipeline.settings) is not None


def test_run_report_counts_project_and_run(pipeline: Pipeline) -> None:
    report = pipeline.consolidate(corpus()).report
    assert report.metrics["memories"] == len(corpus())
    assert (report.metrics["merged"], report.metrics["memories_merged"]) == (len(LESSONS), 40)
    assert report.metrics["units"] == report.metrics["active"] + report.metrics["merged"] == 24
    assert report.metrics["reduction"] == pytest.approx(1 - 24 / len(corpus()), abs=1e-6)
    assert report.metrics["suggest_groups"] == 3
    assert f"| merged by this run | {report.metrics['groups_merged']} groups, 40 memories |" in report.markdown
    assert pipeline.run().report.metrics["memories_merged"] == 0


@pytest.mark.slow
def test_concurrent_agent_writes_survive_runs(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    over, errors = threading.Event(), []
    written = count()

    def work() -> None:
        try:
            while not over.is_set():
                number = next(written)
                pipeline.add([note(f"agent-{number}", f"{LESSONS[number % 12]} Noted by agent {number}.")])
                used = note_id(f"lesson-{number % 12}-0")
                pipeline.write("UPDATE {s}.task_memories SET reused_count = reused_count + 1 WHERE id = :id", id=used)
        except Exception as error:
            errors.append(error)

    agent = threading.Thread(target=work)
    agent.start()
    try:
        statuses = [job(pipeline, pipeline.run().job_id).status for _ in range(3)]
    finally:
        over.set()
        agent.join()
    pipeline.run()
    assert errors == []
    assert statuses == ["completed"] * 3
    assert pipeline.value("SELECT count(*) FROM {s}.task_memories") == len(corpus()) + next(written)
    assert find_broken_rules(pipeline) == []


def drop_connections(pipeline: Pipeline) -> None:
    """End every connection to the database, as a restart of the server does."""
    url = pipeline.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def ask_over_a_dropped_connection(pipeline: Pipeline) -> None:
    with pipeline.engine.begin() as connection:
        drop_connections(pipeline)
        connection.execute(text("SELECT 1"))


def test_run_survives_dropped_connections(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    with pipeline.open() as run:
        run_phases(run, PHASES[:3])
        drop_connections(pipeline)
        time.sleep(0.2)  # connections that were used within the last 0.1 seconds are not pinged
        run_phases(run, PHASES[3:])
    assert job(pipeline, run.job_id).status == "completed"
    assert find_broken_rules(pipeline) == []


def test_phase_with_dropped_connection_fails(pipeline: Pipeline) -> None:
    pipeline.add(corpus())
    with pipeline.open() as run:
        run_phases(run, PHASES[:4])
        with pytest.raises(OperationalError), run.phase("merged_memories"):
            ask_over_a_dropped_connection(pipeline)
    row = job(pipeline, run.job_id)
    assert (row.status, row.phases_failed) == ("failed", ["merged_memories"])
    assert pipeline.run().merging.created == len(LESSONS)
    assert find_broken_rules(pipeline) == []


LOSE_THE_LOCK = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"


def test_run_without_lock_begins_no_phase(pipeline: Pipeline) -> None:
    pipeline.add(unrelated_notes())
    with pipeline.open() as first:
        pipeline.rows(LOSE_THE_LOCK)
        second = pipeline.run().job_id
        with pytest.raises(ConflictError, match="took over, clusters was not begun"), first.phase("clusters"):
            pass
    ended = dict(map(tuple, pipeline.rows("SELECT id, status FROM {s}.consolidation_jobs")))
    assert ended == {first.job_id: "failed", second: "completed"}


def write_event(run: ProjectRun, something: Callable[[], object]) -> None:
    """Write an event in a transaction of the run, and call ``meanwhile`` before its commit."""
    with run.transaction() as connection:
        append_event(connection, run.project.id, "test", {})
        something()


@pytest.mark.parametrize("by", ["run", "rollback"])
def test_run_without_lock_writes_nothing(pipeline: Pipeline, by: str) -> None:
    before = pipeline.consolidate(corpus()).job_id
    count_events = "SELECT count(*) FROM {s}.consolidation_events WHERE type = 'test'"
    with pipeline.open() as run:
        write_event(run, lambda: None)
        pipeline.rows(LOSE_THE_LOCK)
        with pytest.raises(ConflictError, match="took over, nothing was written"):
            write_event(run, lambda: pipeline.run() if by == "run" else pipeline.roll_back(before))
    assert pipeline.value(count_events) == 1
    assert job(pipeline, run.job_id).status == "failed"


def test_phases_write_only_through_run_transaction() -> None:
    folder = Path(run_lifecycle.__file__).parent.parent
    past = [path.name for path in folder.rglob("*.py") if "run.engine.begin(" in path.read_text()]
    assert past == ["run_lifecycle.py"]  # the commit that ends the job
