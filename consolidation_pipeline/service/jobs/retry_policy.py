"""Jobs that keep failing: when each is tried again, and which are dead, left to their schedule or a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.jobs.triggers import next_try
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline.store.database.engine import Connection, Row
from consolidation_pipeline.store.jobs import jobs


@dataclass(frozen=True)
class FailingJob:
    """A job of a project whose newest attempts failed. ``job_id``: the newest of them; ``next_try_at``: None = dead."""

    project: str
    job: str
    job_id: UUID
    failures: int
    dead: bool
    failed_at: datetime
    next_try_at: datetime | None
    error: str | None


def list_failing_jobs(connection: Connection, project_id: UUID | None = None) -> list[FailingJob]:
    """What keeps failing, in one project or in all, by project and job; a success ends it."""
    return [_failing(row) for row in jobs.list_failing_jobs(connection, JOB_PHASES, project_id)]


def _failing(row: Row[Any]) -> FailingJob:
    following = next_try(row.retry_count, row.completed_at, most=row.max_retries)
    return FailingJob(
        project=row.slug,
        job=row.job,
        job_id=row.id,
        failures=row.retry_count,
        dead=following is None,
        failed_at=row.completed_at,
        next_try_at=following,
        error=row.error_message,
    )


def describe_failing_job(failing: FailingJob) -> str:
    """It in words, without the project."""
    if failing.next_try_at is None:
        return f"{failing.job} is dead after {failing.failures} failures in a row"
    return f"{failing.job} failed {failing.failures} times in a row, next try {failing.next_try_at:%Y-%m-%d %H:%M} UTC"
