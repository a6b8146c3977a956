"""Job rows of runs that ended without saying so: killed processes, cancelled and lost runs."""

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

FindEnded = Callable[[Sequence[UUID]], Mapping[UUID, str]]

_ABANDONED_FOR = timedelta(days=7)


def fail_dead_job(engine: Engine, project: Project) -> bool:
    """Mark the project's running job failed when no process holds the project. True when one was marked."""
    with engine.begin() as connection:
        return not is_project_busy(connection, project.id) and fail_running_job(connection, project.id)


def fail_running_job(connection: Connection, project_id: UUID) -> bool:
    """Mark the running job of a project failed, whose lock is the caller's or nobody's. True when there was one.

    The process that ran it is dead, or goes on without the lock that it lost with its connection, and writes no more.
    """
    live = jobs.find_live_job(connection, project_id)
    if live is None or live.status != "running":
        return False
    return jobs.finish_job(connection, live.id, "failed", error=DIED)


def end_dead_jobs(engine: Engine, find_ended: FindEnded) -> list[str]:
    """Mark every live job whose process died or whose run ended without it; returns their ids.

    ``find_ended``: of live jobs the final status of their Dagster runs, by job; without those that may still work and
    those that have no run.
    """
    with engine.connect() as connection:
        free = [job for job in jobs.list_live_jobs(connection) if not job.busy]
    ended = find_ended([job.id for job in free]) if free else {}
    over = [job for job in free if job.id in ended or job.status == "running"]
    return [str(job.id) for job in over if _finish(engine, job, ended.get(job.id, "failed"))]


def _finish(engine: Engine, job: Row[Any], status: str) -> bool:
    """End a job that nobody held a moment ago. False: somebody holds the project now, or ended the job."""
    # A run that succeeded ends its own row; one that never opened the project did not do the job.
    error = DIED if job.status == "running" else "its run ended before it opened the project"
    with engine.begin() as connection:
        if is_project_busy(connection, job.project_id):
            return False
        return jobs.finish_job(connection, job.id, "failed" if status == "completed" else status, error=error)


def list_dead_runs(engine: Engine, runs: Sequence[str]) -> Sequence[str]:
    """Of Dagster runs, by id, that count as under way those whose process was killed: their job ended without them."""
    if not runs:
        return []
    with engine.connect() as connection:
        return jobs.list_ended_runs(connection, runs, died=DIED)


def list_cancelled_unstarted(engine: Engine) -> list[UUID]:
    """Jobs that were cancelled in the last week before anybody began them: a run that still waits for one is void."""
    with engine.connect() as connection:
        return list(jobs.list_cancelled_before_start(connection, datetime.now(UTC) - _ABANDONED_FOR))
