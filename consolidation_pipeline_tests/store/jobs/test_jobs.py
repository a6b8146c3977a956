"""Jobs: the queue of a project, the project lock, progress, and events at commit."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import OperationalError

from consolidation_pipeline.errors import ProjectBusyError
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.jobs.jobs import (
    NewJob,
    append_idle_jobs,
    append_job,
    find_job_by_run,
    find_live_job,
    finish_job,
    get_job,
    list_jobs,
    list_live_jobs,
    list_queue,
    record_failed_phase,
    record_phase,
    start_job,
)
from consolidation_pipeline.store.jobs.project_lock import is_project_busy, project_lock
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import add_project

LOCK_HOLDER = """
import sys
from uuid import UUID
from consolidation_pipeline.store.database.engine import connect_engine, with_driver
from consolidation_pipeline.store.jobs.project_lock import project_lock
with project_lock(connect_engine(with_driver(sys.argv[1], "psycopg")), UUID(sys.argv[2]), "garden", wait_seconds=0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def project(engine: Engine) -> Project:
    with engine.begin() as connection:
        return add_project(connection)


@pytest.fixture
def connection(engine: Engine, project: Project) -> Iterator[Connection]:
    del project  # it must be committed before the test reads
    with engine.connect() as connection:
        yield connection


@pytest.fixture
def other_process(database_url: str, project: Project) -> Iterator[subprocess.Popen[str]]:
    """Process that holds the lock of the project."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", LOCK_HOLDER, database_url, str(project.id)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def _append(connection: Connection, project: Project, **values: Any) -> UUID:
    given = {"trigger_type": "manual", "triggered_by": "test", "options": {}} | values
    return append_job(connection, project.id, **given)


def _get(connection: Connection, job: UUID) -> Any:
    row = get_job(connection, job)
    assert row is not None
    return row


def _run_concurrently(count: int, work: Callable[[], Any]) -> list[Any]:
    """Run ``work`` in ``count`` threads at once; return the results."""
    barrier = threading.Barrier(count)

    def start() -> Any:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(count) as pool:
        return [future.result() for future in [pool.submit(start) for _ in range(count)]]


def _is_busy(engine: Engine, project: Project) -> bool:
    with engine.connect() as connection:
        return is_project_busy(connection, project.id)


def test_automation_appends_one_job_at_a_time(engine: Engine, project: Project) -> None:
    def request() -> dict[UUID, UUID]:
        with engine.begin() as connection:
            return append_idle_jobs(connection, [NewJob(project.id, "threshold", "test", {}, {"job": "decay"})])

    results = _run_concurrently(8, request)
    assert sorted(map(len, results)) == [0] * 7 + [1]


def test_jobs_of_project_queue_in_order(connection: Connection, project: Project) -> None:
    asked = [_append(connection, project, scope={"job": name}) for name in ("decay", "summarize", "consolidate")]
    connection.execute(  # A transaction has one time.
        text("UPDATE consolidation.consolidation_jobs SET created_at = created_at - interval '1 hour' WHERE id = :id"),
        {"id": asked[2]},
    )
    assert next(row.id for row in list_queue(connection, project.id)) == asked[2]
    assert start_job(connection, asked[1], run_id=None, options={})
    assert [row.id for row in list_queue(connection, project.id)][:2] == [asked[1], asked[2]]
    assert {row.id for row in list_live_jobs(connection)} == set(asked)
    with pytest.raises(ProjectBusyError, match="another run of its project began"):
        start_job(connection, asked[0], run_id=None, options={})


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_finished_job_allows_next_one(connection: Connection, project: Project, status: str) -> None:
    first = _append(connection, project)
    finish_job(connection, first, status)
    assert find_live_job(connection, project.id) is None
    assert _append(connection, project) != first


def test_each_project_has_its_own_job(connection: Connection, project: Project) -> None:
    jobs = {_append(connection, project), _append(connection, add_project(connection, "other"))}
    assert {row.id for row in list_live_jobs(connection)} == jobs


def test_job_starts_only_once(connection: Connection, project: Project) -> None:
    job = _append(connection, project, scope={"phases": ["clusters"]})
    assert start_job(connection, job, run_id="run-1", options={"merge": True})
    assert not start_job(connection, job, run_id="run-2", options={})
    row = find_job_by_run(connection, "run-1")
    assert row is not None
    assert (row.id, row.status, row.options, row.scope) == (job, "running", {"merge": True}, {"phases": ["clusters"]})
    assert find_job_by_run(connection, "run-2") is None


def test_progress_is_share_of_planned_phases(connection: Connection, project: Project) -> None:
    job = _append(connection, project)

    def record(phase: str, **counters: int) -> tuple[float, list[str]]:
        record_phase(connection, job, phase, planned=4, metrics={"n": len(phase)}, counters=counters)
        row = _get(connection, job)
        return row.progress, row.phases_completed

    assert record("embed") == (0.25, ["embed"])
    assert record("graph", memories_merged=2) == (0.5, ["embed", "graph"])
    assert record("embed") == (0.5, ["graph", "embed"])
    assert record("merge", memories_merged=3, clusters_merged=1) == (0.75, ["graph", "embed", "merge"])
    assert record("decay")[0] == 1.0
    assert record("extra")[0] == 1.0
    row = _get(connection, job)
    assert (row.memories_merged, row.clusters_merged) == (5, 1)
    assert row.metrics == {phase: {"n": 5} for phase in ("embed", "graph", "merge", "decay", "extra")}


def test_run_without_planned_phases_completes_at_once(connection: Connection, project: Project) -> None:
    job = _append(connection, project)
    record_phase(connection, job, "embed", planned=0, metrics={}, counters={})
    assert _get(connection, job).progress == 1.0


def test_failed_phases_are_listed_with_all_errors(connection: Connection, project: Project) -> None:
    job = _append(connection, project)
    for phase, error in (("graph", "no memory"), ("merge", "it's 100% broken: %s :x"), ("graph", "again")):
        record_failed_phase(connection, job, phase, error)
    finish_job(connection, job, "failed", error="given up")
    row = _get(connection, job)
    assert row.phases_failed == ["merge", "graph"]
    assert row.error_message == "graph: no memory\nmerge: it's 100% broken: %s :x\ngraph: again"


def test_job_finishes_only_once(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        job = _append(connection, project)

    def end() -> bool:
        with engine.begin() as connection:
            return finish_job(connection, job, "completed", metrics={"reduction": 0.5})

    assert sorted(_run_concurrently(4, end)) == [False, False, False, True]
    with engine.begin() as connection:
        assert not finish_job(connection, job, "failed", error="too late")
        events = connection.execute(text(f"SELECT type, payload FROM {SCHEMA}.consolidation_events")).all()
        assert [tuple(row) for row in events] == [("consolidation.completed", {"job_id": str(job), "error": None})]
        row = _get(connection, job)
        assert (row.status, row.progress, row.error_message) == ("completed", 1, None)
        assert row.metrics == {"reduction": 0.5, "cost_usd": 0, "tokens": 0, "calls": 0}
        assert row.slug == project.slug


def test_job_cancelled_before_start_has_no_duration(connection: Connection, project: Project) -> None:
    job = _append(connection, project)
    assert finish_job(connection, job, "cancelled")
    assert not start_job(connection, job, run_id=None, options={})
    row = _get(connection, job)
    assert (row.started_at, row.duration_seconds, row.progress) == (None, 0, 0)


def test_jobs_are_listed_newest_first_in_pages(connection: Connection, project: Project) -> None:
    created = []
    for number in range(5):
        created.append(_append(connection, project))
        finish_job(connection, created[-1], "completed" if number < 4 else "failed")
        shift = "created_at = now() + make_interval(secs => :n), completed_at = now() + make_interval(secs => :n)"
        update = f"UPDATE {SCHEMA}.consolidation_jobs SET {shift} WHERE id = :id"
        connection.execute(text(update), {"n": number, "id": created[-1]})
    pages = [list_jobs(connection, project.id, limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [row.id for page in pages for row in page] == created[::-1]
    assert get_job(connection, uuid4()) is None


@pytest.mark.slow
def test_project_lock_excludes_other_process(
    engine: Engine, project: Project, other_process: subprocess.Popen[str]
) -> None:
    assert _is_busy(engine, project)
    with pytest.raises(ProjectBusyError, match="garden"), project_lock(engine, project.id, "garden", wait_seconds=0.2):
        pytest.fail("two holders have the lock of one project")
    other_process.communicate("")
    assert other_process.returncode == 0
    assert not _is_busy(engine, project)


def test_killed_process_releases_project_lock(
    engine: Engine, project: Project, other_process: subprocess.Popen[str]
) -> None:
    other_process.kill()
    with project_lock(engine, project.id, "garden", wait_seconds=30):
        assert _is_busy(engine, project)
    assert not _is_busy(engine, project)


def test_project_lock_covers_one_project(engine: Engine, project: Project) -> None:
    with engine.begin() as connection:
        others = [add_project(connection, f"other{n}") for n in range(20)]  # lock keys of either sign
    for locked in [project, *others]:
        with project_lock(engine, locked.id, locked.slug, wait_seconds=0):
            assert [_is_busy(engine, p) for p in [project, *others]] == [p is locked for p in [project, *others]]
            with pytest.raises(ProjectBusyError), project_lock(engine, locked.id, locked.slug, wait_seconds=0):
                pytest.fail("two holders have the lock of one project")
    assert not _is_busy(engine, project)


def test_lock_request_reports_lost_connection(engine: Engine, project: Project) -> None:
    def terminate_backend(connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if "pg_try_advisory_lock" in statement:
            with engine.connect() as other:
                pid = connection.connection.driver_connection.info.backend_pid  # type: ignore[union-attr]
                other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

    event.listen(engine, "before_cursor_execute", terminate_backend)
    with pytest.raises(OperationalError), project_lock(engine, project.id, "garden", wait_seconds=0):
        pass
    event.remove(engine, "before_cursor_execute", terminate_backend)
    assert not _is_busy(engine, project)


def test_project_lock_is_released_on_error(engine: Engine, project: Project) -> None:
    with pytest.raises(RuntimeError), project_lock(engine, project.id, "garden", wait_seconds=0):
        raise RuntimeError
    with project_lock(engine, project.id, "garden", wait_seconds=0):
        pass
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


def test_project_lock_survives_lost_connection(engine: Engine, project: Project) -> None:
    terminate_holder = """
        SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """
    with project_lock(engine, project.id, "garden", wait_seconds=0), engine.connect() as connection:
        connection.execute(text(terminate_holder))
    with project_lock(engine, project.id, "garden", wait_seconds=10):
        pass


def test_event_notifies_at_commit(engine: Engine, database_url: str, project: Project) -> None:
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute("LISTEN consolidation")
        with engine.connect() as connection:
            append_event(connection, project.id, "test.lost", {})
            connection.rollback()
            append_event(connection, project.id, "test.kept", {"text": "it's %s :x"})
            assert list(listener.notifies(timeout=0.3)) == []
            connection.commit()
            notifications = list(listener.notifies(timeout=10, stop_after=1))
            rows = connection.execute(text(f"SELECT id, type, payload FROM {SCHEMA}.consolidation_events")).all()
    ids = [UUID(notification.payload) for notification in notifications]
    assert [tuple(row) for row in rows] == [(id_, "test.kept", {"text": "it's %s :x"}) for id_ in ids]
