"""Asking for a job: a pending row, which a sensor or ``consolidation run --pending`` executes; and cancelling one.

This is the one place where pending jobs are made, for people, agents, thresholds, schedules and plans alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.recovery import settle_dead_jobs
from consolidation_pipeline.service.runs import CANCELLED_BY, check_phases, check_runnable, read_scope, scope_of
from consolidation_pipeline.store import jobs
from consolidation_pipeline.store.engine import Connection, Engine, Row
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.schema import TRIGGER_TYPES

# A trigger launches its job within moments of making it. One that has no run after this was lost between the two.
LOST_AFTER = timedelta(minutes=10)

_ESTIMATED_BY = 20  # newest jobs among which one is looked for that did the same


@dataclass(frozen=True)
class RequestedJob:
    """A job that waits or runs. ``project``: its slug; ``timeout_seconds``: how long its run may take.

    ``created``: False where it was there before it was asked for, maybe for other phases. ``estimated_seconds``: how
    long the newest job took that did all of these phases; None where there is none, and in lists.
    """

    job_id: UUID
    status: str
    created: bool
    project_id: UUID
    project: str
    job: str
    phases: tuple[str, ...]
    trigger_type: str
    triggered_by: str | None
    created_at: datetime
    timeout_seconds: int
    estimated_seconds: float | None = None


@dataclass(frozen=True)
class CancelledJob:
    """A job that was cancelled: what it was before, and the phases it had done, which stand until rolled back."""

    job_id: UUID
    project_id: UUID
    project: str
    status: str
    previous_status: str
    phases_completed: tuple[str, ...]


def request_job(
    engine: Engine,
    slug: str,
    *,
    job: str = "consolidate",
    phases: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    triggered_by: str,
    trigger_type: str = "manual",
) -> RequestedJob:
    """Ask for a job of a project, or for some of its phases; where it has a live job, that one, whatever it does.

    ``options``: for this job alone, in place of the project's.

    Raises:
        InvalidScopeError: an unknown job or phase. UsageError: an unknown trigger type. InvalidOptionError: an option
        is unknown or out of range. NotFoundError, ProjectDisabledError: it cannot be run.
    """
    chosen = check_phases(job, phases)
    if trigger_type not in TRIGGER_TYPES:
        raise UsageError(f"trigger type {trigger_type!r} does not exist; the types are {', '.join(TRIGGER_TYPES)}")
    own = parse_options(options or {}).model_dump(mode="json", exclude_unset=True)
    project = check_runnable(engine, slug)
    settle_dead_jobs(engine, project)
    with engine.begin() as connection:
        row, created = pend_job(
            connection,
            project.id,
            scope=scope_of(job, chosen, own),
            options=parse_options(own, base=parse_options(project.config)),
            trigger_type=trigger_type,
            triggered_by=triggered_by,
        )
        took = _estimate(connection, row)
    return _describe(row, slug, created=created, estimated_seconds=took)


def pend_job(
    connection: Connection,
    project_id: UUID,
    *,
    scope: Mapping[str, Any],
    options: ConsolidationOptions,
    trigger_type: str,
    triggered_by: str,
) -> tuple[Row[Any], bool]:
    """The project's live job, made now where there is none, and whether it was made now."""
    live = jobs.find_live_job(connection, project_id)
    while live is None:
        snapshot = options.model_dump(mode="json")
        try:
            job_id = jobs.append_job(
                connection,
                project_id,
                trigger_type=trigger_type,
                triggered_by=triggered_by,
                options=snapshot,
                scope=scope,
            )
        except ConflictError:  # another request was quicker
            live = jobs.find_live_job(connection, project_id)
        else:
            made = jobs.get_job(connection, job_id)
            assert made is not None
            return made, True
    return live, False


def _estimate(connection: Connection, row: Row[Any]) -> float | None:
    wanted = set(read_scope(row.scope)[1])
    done = jobs.list_jobs(connection, row.project_id, limit=_ESTIMATED_BY)
    took = (job.duration_seconds for job in done if job.status == "completed" and wanted <= {*job.phases_completed})
    return next(took, None)


def _describe(
    row: Row[Any], slug: str, *, created: bool = False, estimated_seconds: float | None = None
) -> RequestedJob:
    job, phases = read_scope(row.scope)
    return RequestedJob(
        job_id=row.id,
        status=row.status,
        created=created,
        project_id=row.project_id,
        project=slug,
        job=job,
        phases=phases,
        trigger_type=row.trigger_type,
        triggered_by=row.triggered_by,
        created_at=row.created_at,
        timeout_seconds=row.options.get("timeout_seconds", ConsolidationOptions().timeout_seconds),
        estimated_seconds=estimated_seconds,
    )


def list_pending(engine: Engine) -> list[RequestedJob]:
    """The pending jobs of enabled projects, oldest first."""
    with engine.connect() as connection:
        return [_describe(row, row.slug) for row in jobs.list_pending_jobs(connection)]


def find_unlaunched(engine: Engine, has_run: Callable[[UUID], bool]) -> list[RequestedJob]:
    """The pending jobs that wait for somebody to launch them, oldest first: none of a project that is held now.

    Triggers and plans launch their jobs themselves: those are here only when that was lost. ``has_run(job_id)``:
    whether a run was launched for the job, by whomever.
    """
    lost = datetime.now(UTC) - LOST_AFTER
    with engine.connect() as connection:
        rows = [row for row in jobs.list_pending_jobs(connection) if not row.busy]
    waiting = [
        row for row in rows if row.created_at < lost or (row.trigger_type == "manual" and "plan" not in row.scope)
    ]
    return [_describe(row, row.slug) for row in waiting if not has_run(row.id)]


def is_pending(engine: Engine, job_id: UUID) -> bool:
    """Whether nobody has begun, cancelled or overtaken the job."""
    with engine.connect() as connection:
        job = jobs.get_job(connection, job_id)
    return job is not None and job.status == "pending"


def cancel_job(engine: Engine, job_id: UUID, *, cancelled_by: str) -> CancelledJob:
    """Cancel a pending or running job. A running one begins no further phase; what it did stands until rolled back.

    Raises:
        NotFoundError: there is no such job. ConflictError: it has ended; the message says how.
    """
    with engine.connect() as connection:
        job = jobs.get_job(connection, job_id)
        if job is None:
            raise NotFoundError(f"there is no job {job_id}; `consolidation history PROJECT` lists jobs")
        project = get_project(connection, job.slug)
    settle_dead_jobs(engine, project)
    with engine.begin() as connection:
        why = f"cancelled by {cancelled_by}"
        cancelled = jobs.finish_job(connection, job_id, "cancelled", error=why, metrics={CANCELLED_BY: cancelled_by})
        after = jobs.get_job(connection, job_id)
    if after is None or not cancelled:
        ended = "deleted" if after is None else after.status
        raise ConflictError(f"job {job_id} is {ended}: only a pending or running job can be cancelled", (str(job_id),))
    previous = "pending" if after.started_at is None else "running"
    done = tuple(after.phases_completed)
    return CancelledJob(job_id, project.id, project.slug, after.status, previous, done)
