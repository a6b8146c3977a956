"""Retry policy: jobs that keep failing, and their retries. A dead job is left to its schedule or to a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.jobs.triggers import may_retry, next_attempt_at
from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.service.jobs.job_requests import (
    RequestedJob,
    append_pending_jobs,
    build_new_job,
    describe_request,
)
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.jobs import NewJob


@dataclass(frozen=True)
class FailingJob:
    """A job of a project whose last attempts failed. ``job_id``: the last one. ``next_try_at``: None if it is dead."""

    project: str
    job: str
    job_id: UUID
    failures: int
    dead: bool
    failed_at: datetime
    next_try_at: datetime | None
    error: str | None


def list_failing_jobs(connection: Connection, project_id: UUID | None = None) -> list[FailingJob]:
    """Return the jobs whose last attempt failed, of one project or of all, by project and job."""
    return [_describe_failing(row) for row in jobs.list_failing_jobs(connection, JOB_PHASES, project_id)]


def _describe_failing(row: Row[Any]) -> FailingJob:
    next_try_at = next_attempt_at(row.retry_count, row.completed_at, max_attempts=row.max_retries)
    return FailingJob(
        project=row.slug,
        job=row.job,
        job_id=row.id,
        failures=row.retry_count,
        dead=next_try_at is None,
        failed_at=row.completed_at,
        next_try_at=next_try_at,
        error=row.error_message,
    )


def describe_failing_job(failing: FailingJob) -> str:
    """Return a sentence on a failing job, without the name of the project."""
    if failing.next_try_at is None:
        return f"{failing.job} is dead after {failing.failures} failures in a row"
    return f"{failing.job} failed {failing.failures} times in a row, next try {failing.next_try_at:%Y-%m-%d %H:%M} UTC"


def request_retries(engine: Engine, now: datetime) -> list[RequestedJob]:
    """Make pending jobs for failed ones that have waited long enough (``core.jobs.triggers.may_retry``).

    Failed jobs that a person requested are not retried.
    """
    with engine.begin() as connection:
        failed = [row for row in jobs.list_failing_jobs(connection, JOB_PHASES) if _is_retried(row, now)]
        wanted = [job for row in failed if (job := _build_retry(row)) is not None]
        made = set(append_pending_jobs(connection, wanted).values())
        pending = jobs.list_pending_jobs(connection) if made else []
    return [describe_request(row, row.slug) for row in pending if row.id in made]


def _is_retried(row: Row[Any], now: datetime) -> bool:
    """Return True if the failed job is to be tried again now."""
    if row.trigger_type == "manual" or row.asked_since or not row.consolidation_enabled:
        return False
    return bool(may_retry(row.retry_count, row.completed_at, now, max_attempts=row.max_retries))


def _build_retry(row: Row[Any]) -> NewJob | None:
    """Return a new job like the failed one; None if its options are invalid now, as the trigger reports."""
    try:
        options = parse_options(row.scope.get("options", {}), base=parse_options(row.config))
    except InvalidOptionError:
        return None
    return build_new_job(
        row.project_id, row.scope, options, trigger_type=row.trigger_type, triggered_by=row.triggered_by
    )
