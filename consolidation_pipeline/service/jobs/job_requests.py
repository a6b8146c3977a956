"""Requests of jobs: pending rows, which a sensor or ``consolidation run --pending`` executes, and their cancellation.

The pending jobs of a project are a queue: they run one after the other, in the order in which they were asked for. All
pending jobs are made here, for people, agents, thresholds, schedules and plans.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.runs.operator_limits import check_limits, read_limits
from consolidation_pipeline.service.runs.phases import JOB_PHASES, build_scope, read_scope, select_phases
from consolidation_pipeline.service.runs.project_run import CANCELLED_BY
from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project
from consolidation_pipeline.service.runs.stale_jobs import fail_dead_job
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.schema import TRIGGER_TYPES
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.jobs import NewJob
from consolidation_pipeline.store.projects import get_project

# A trigger launches its job right after making it. If there is no run after this time, the launch was lost.
LOST_AFTER = timedelta(minutes=10)

# Pending jobs of a project. People and schedules ask for far fewer; a loop that asks for ever is told to stop.
MAX_PENDING = 20

# Newest jobs that are searched for one that did the same phases.
_ESTIMATE_JOBS = 20


@dataclass(frozen=True)
class RequestedJob:
    """A pending or running job.

    ``created``: False if the same job was live before the request. ``jobs_ahead``: live jobs of the project that run
    before it; 0 in lists. ``project``: slug. ``estimated_seconds``: duration of the newest job that did all of these
    phases; None if there is none, and in lists.
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
    jobs_ahead: int = 0


@dataclass(frozen=True)
class CancelledJob:
    """A cancelled job: its previous status, and the phases that it completed, whose changes stay until rolled back."""

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
    settings: Settings | None = None,
) -> RequestedJob:
    """Request a job of a project. It waits behind the project's live jobs; if one of them is the same, return that.

    Jobs are the same if they have the same name, phases and options.

    Args:
        job: A key of ``JOB_PHASES``.
        phases: Phases to run; None = all of the job.
        options: Options of this job only, over those of the project.
        triggered_by: Name of the person or program that asks.
        trigger_type: manual, scheduled or threshold.
        settings: Limits of the options; None = those of the environment.

    Raises:
        InvalidScopeError: The job or a phase does not exist.
        UsageError: The trigger type does not exist.
        InvalidOptionError: An option does not exist, is out of range or beyond the operator's limits.
        NotFoundError: There is no such project.
        ProjectDisabledError: Consolidation of the project is disabled.
        ConflictError: The project has ``MAX_PENDING`` pending jobs.
    """
    selected = select_phases(job, phases)
    if trigger_type not in TRIGGER_TYPES:
        raise UsageError(f"trigger type {trigger_type!r} does not exist; the types are {', '.join(TRIGGER_TYPES)}")
    given = parse_options(options or {})
    check_limits(given, read_limits(settings or Settings()))
    own = given.model_dump(mode="json", exclude_unset=True)
    project = get_runnable_project(engine, slug)
    fail_dead_job(engine, project)
    scope, effective = build_scope(job, selected, own), parse_options(own, base=parse_options(project.config))
    wanted = build_new_job(project.id, scope, effective, trigger_type=trigger_type, triggered_by=triggered_by)
    with engine.begin() as connection:
        row, created = ensure_live_job(connection, wanted)
        ahead = [live.id for live in jobs.list_queue(connection, project.id)].index(row.id)
        seconds = _estimate_seconds(connection, row)
    return describe_request(row, slug, created=created, estimated_seconds=seconds, jobs_ahead=ahead)


def ensure_live_job(connection: Connection, wanted: NewJob) -> tuple[Row[Any], bool]:
    """Return the project's live job of the same scope, or else ``wanted``, pending, and True if it was made now.

    Raises:
        ConflictError: The project has ``MAX_PENDING`` pending jobs.
    """
    jobs.lock_queues(connection, [wanted.project_id])
    live = jobs.list_queue(connection, wanted.project_id)
    if (same := next((job for job in live if job.scope == wanted.scope), None)) is not None:
        return same, False
    pending = [str(job.id) for job in live if job.status == "pending"]
    if len(pending) >= MAX_PENDING:
        raise ConflictError(
            f"the project has {len(pending)} pending jobs, and no more are queued: `consolidation run --pending` runs"
            " them, `consolidation cancel JOB` cancels one",
            tuple(pending),
        )
    job_id = jobs.append_job(connection, **vars(wanted))
    return next(job for job in jobs.list_queue(connection, wanted.project_id) if job.id == job_id), True


def build_new_job(
    project_id: UUID, scope: Mapping[str, Any], options: ConsolidationOptions, *, trigger_type: str, triggered_by: str
) -> NewJob:
    """Return a job to be made by ``append_pending_jobs``."""
    whole = JOB_PHASES[read_scope(scope)[0]]
    return NewJob(project_id, trigger_type, triggered_by, options.model_dump(mode="json"), scope, whole)


def append_pending_jobs(connection: Connection, wanted: Sequence[NewJob]) -> dict[UUID, UUID]:
    """Make pending jobs in one statement, except for projects with a live job; return project id -> job id.

    Automation asks again at its next tick, so its jobs do not queue.
    """
    return jobs.append_idle_jobs(connection, wanted) if wanted else {}


def _estimate_seconds(connection: Connection, row: Row[Any]) -> float | None:
    phases = set(read_scope(row.scope)[1])
    rows = jobs.list_jobs(connection, row.project_id, limit=_ESTIMATE_JOBS)
    done = (job for job in rows if job.status == "completed" and phases.issubset(job.phases_completed))
    return next((job.duration_seconds for job in done), None)


def describe_request(
    row: Row[Any], slug: str, *, created: bool = False, estimated_seconds: float | None = None, jobs_ahead: int = 0
) -> RequestedJob:
    """Return a job's row as a requested job of the project ``slug``."""
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
        jobs_ahead=jobs_ahead,
    )


def list_pending_jobs(engine: Engine) -> list[RequestedJob]:
    """Return the pending jobs of enabled projects, oldest first."""
    with engine.connect() as connection:
        return [describe_request(row, row.slug) for row in jobs.list_pending_jobs(connection)]


def list_unlaunched_jobs(
    engine: Engine, find_launched: Callable[[Sequence[UUID]], Collection[UUID]]
) -> list[RequestedJob]:
    """Return the pending jobs that wait for a launch, oldest first: of each project that no run holds, the next one.

    Triggers and plans launch their jobs themselves: theirs are returned only if the launch was lost.

    Args:
        find_launched: Function that selects the ids of jobs for which there is a run.
    """
    lost = datetime.now(UTC) - LOST_AFTER
    with engine.connect() as connection:
        pending = jobs.list_pending_jobs(connection)
    rows = [row for row in {row.project_id: row for row in reversed(pending)}.values() if not row.busy]
    rows.sort(key=lambda row: (row.created_at, row.id))
    waiting = [
        row for row in rows if row.created_at < lost or (row.trigger_type == "manual" and "plan" not in row.scope)
    ]
    launched = find_launched([row.id for row in waiting]) if waiting else ()
    return [describe_request(row, row.slug) for row in waiting if row.id not in launched]


def explain_taken(engine: Engine, job_id: UUID) -> str | None:
    """Return why a job cannot be run any more, such as that another run did or does it; None if it is pending."""
    with engine.connect() as connection:
        job = jobs.get_job(connection, job_id)
    if job is None:
        return f"job {job_id} was deleted"
    if CANCELLED_BY in job.metrics:
        return f"job {job_id} was cancelled by {job.metrics[CANCELLED_BY]}"
    return None if job.status == "pending" else f"another run took job {job_id}, which is {job.status}"


def cancel_job(engine: Engine, job_id: UUID, *, cancelled_by: str) -> CancelledJob:
    """Cancel a pending or running job. A running one writes nothing more; what it changed stays until rolled back.

    Raises:
        NotFoundError: There is no such job.
        ConflictError: The job has ended; the message names its status.
    """
    with engine.connect() as connection:
        job = jobs.require_job(connection, job_id)
        project = get_project(connection, job.slug)
    fail_dead_job(engine, project)
    with engine.begin() as connection:
        error = f"cancelled by {cancelled_by}"
        cancelled = jobs.finish_job(connection, job_id, "cancelled", error=error, metrics={CANCELLED_BY: cancelled_by})
        after = jobs.get_job(connection, job_id)
    if after is None or not cancelled:
        ended = "deleted" if after is None else after.status
        raise ConflictError(f"job {job_id} is {ended}: only a pending or running job can be cancelled", (str(job_id),))
    previous = "pending" if after.started_at is None else "running"
    done = tuple(after.phases_completed)
    return CancelledJob(job_id, project.id, project.slug, after.status, previous, done)
