"""Stale jobs: rows of runs that were killed, cancelled or lost before they ended their job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.project_lock import is_project_busy
from consolidation_pipeline.store.projects import Project

DIED = "the process that ran it ended before it was done; the next run goes on from there"
_CANCELLED = "its run, or the batch in which it waited, was cancelled before it began"


def fail_dead_job(engine: Engine, project: Project) -> bool:
    """Mark the project's running job failed if no process holds the project; return True if one was marked."""
    with engine.begin() as connection:
        return not is_project_busy(connection, project.id) and fail_running_job(connection, project.id)


def fail_running_job(connection: Connection, project_id: UUID) -> bool:
    """Mark the running job of a project failed; return True if there was one.

    Call it only while this process or no process holds the project's lock. Then the process that ran the job is dead,
    or it lost the lock with its connection and writes nothing more.
    """
    live = jobs.find_live_job(connection, project_id)
    if live is None or live.status != "running":
        return False
    return jobs.finish_job(connection, live.id, "failed", error=DIED)


def end_dead_jobs(engine: Engine, find_ended: Callable[[Sequence[UUID]], Mapping[UUID, str]]) -> list[str]:
    """End every live job whose process died or whose run ended; return their ids.

    Args:
        find_ended: Takes job ids. Returns the final status of the Dagster run by job id, if that run has ended.
    """
    with engine.connect() as connection:
        free = [job for job in jobs.list_live_jobs(connection) if not job.busy]
    ended = find_ended([job.id for job in free]) if free else {}
    dead = [job for job in free if job.id in ended or job.status == "running"]
    return [str(job.id) for job in dead if _end_job(engine, job, ended.get(job.id, "failed"))]


def _end_job(engine: Engine, job: Row[Any], status: str) -> bool:
    """End a job; return False if a process holds the project by now, or the job has ended."""
    # A successful run ends its own job. If the job is still live, the run did not do it, so it failed.
    unstarted = _CANCELLED if status == "cancelled" else "its run ended before it opened the project"
    error = DIED if job.status == "running" else unstarted
    with engine.begin() as connection:
        if is_project_busy(connection, job.project_id):
            return False
        return jobs.finish_job(connection, job.id, "failed" if status == "completed" else status, error=error)


def list_dead_runs(engine: Engine, runs: Sequence[str]) -> Sequence[str]:
    """Return the ids of those unfinished Dagster ``runs`` whose process was killed: their job has ended."""
    if not runs:
        return []
    with engine.connect() as connection:
        return jobs.list_ended_runs(connection, runs, died=DIED)


def list_cancelled_unstarted(engine: Engine) -> list[UUID]:
    """Return the jobs of the last week that were cancelled before a run began them; their queued runs are void."""
    with engine.connect() as connection:
        return list(jobs.list_cancelled_before_start(connection, datetime.now(UTC) - timedelta(days=7)))
