"""Job rows of runs that ended without saying so: killed processes, cancelled and lost runs."""

from __future__ import annotations

from collections.abc import Callable

from consolidation_pipeline.store import jobs
from consolidation_pipeline.store.engine import Engine
from consolidation_pipeline.store.projects import Project

DIED = "the process that ran it ended before it was done; the next run goes on from there"


def settle_dead_jobs(engine: Engine, project: Project) -> bool:
    """Mark the project's running job failed when no process holds the project. True when one was marked."""
    with engine.begin() as connection:
        live = jobs.find_live_job(connection, project.id)
        if live is None or live.status != "running" or jobs.is_project_busy(connection, project.id):
            return False
        return jobs.finish_job(connection, live.id, "failed", error=DIED)


def finish_dead_jobs(engine: Engine, ended: Callable[[str | None, str], str | None]) -> list[str]:
    """Mark every live job whose process died or whose run ended without it; returns their ids.

    ``ended(run_id, job_id)``: the final status of the job's Dagster run, None while it may still work.
    """
    marked = []
    with engine.connect() as connection:
        live = jobs.list_live_jobs(connection)
    for job in live:
        with engine.begin() as connection:
            if jobs.is_project_busy(connection, job.project_id):
                continue
            status = ended(job.dagster_run_id, str(job.id))
            if status is None and job.status == "running":
                status = "failed"
            # A run that succeeded ends its own row; one that never opened the project did not do the job.
            error = DIED if job.status == "running" else "its run ended before it opened the project"
            if status is not None and jobs.finish_job(
                connection, job.id, "failed" if status == "completed" else status, error=error
            ):
                marked.append(str(job.id))
    return marked
