"""Asking for a job: a pending row, which a sensor or ``consolidation run --pending`` executes; and cancelling one.

This is the one place where pending jobs are made, for people, agents, thresholds, schedules and plans alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.jobs.triggers import may_retry
from consolidation_pipeline.errors import ConflictError, InvalidOptionError, NotFoundError, UsageError
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.runs.phases import JOB_PHASES, build_scope, read_scope, select_phases
from consolidation_pipeline.service.runs.project_run import CANCELLED_BY
from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project
from consolidation_pipeline.service.runs.stale_jobs import fail_dead_job
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.schema import TRIGGER_TYPES
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.jobs import NewJob
from consolidation_pipeline.store.projects import get_project

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
    chosen = select_phases(job, phases)
    if trigger_type not in TRIGGER_TYPES:
        raise UsageError(f"trigger type {trigger_type!r} does not exist; the types are {', '.join(TRIGGER_TYPES)}")
    own = parse_options(options or {}).model_dump(mode="json", exclude_unset=True)
    project = get_runnable_project(engine, slug)
    fail_dead_job(engine, project)
    with engine.begin() as connection:
        row, created = ensure_live_job(
            connection,
            project.id,
            scope=build_scope(job, chosen, own),
            options=parse_options(own, base=parse_options(project.config)),
            trigger_type=trigger_type,
            triggered_by=triggered_by,
        )
        took = _estimate(connection, row)
    return _describe(row, slug, created=created, estimated_seconds=took)


def ensure_live_job(
    connection: Connection,
    project_id: UUID,
    *,
    scope: Mapping[str, Any],
    options: ConsolidationOptions,
    trigger_type: str,
    triggered_by: str,
) -> tuple[Row[Any], bool]:
    """The project's live job, made now where there is none, and whether it was made now."""
    wanted = build_new_job(project_id, scope, options, trigger_type=trigger_type, triggered_by=triggered_by)
    while True:  # the live job that was in the way may end before it is read
        made = append_pending_jobs(connection, [wanted])
        if (live := jobs.find_live_job(connection, project_id)) is not None:
            return live, made.get(project_id) == live.id


def build_new_job(
    project_id: UUID, scope: Mapping[str, Any], options: ConsolidationOptions, *, trigger_type: str, triggered_by: str
) -> NewJob:
    """What ``append_pending_jobs`` takes."""
    whole = JOB_PHASES[read_scope(scope)[0]]
    return NewJob(project_id, trigger_type, triggered_by, options.model_dump(mode="json"), scope, whole)


def append_pending_jobs(connection: Connection, wanted: Sequence[NewJob]) -> dict[UUID, UUID]:
    """Pending jobs for many projects in one statement, project -> job, without those that have a live job."""
    return jobs.append_jobs(connection, wanted) if wanted else {}


def request_retries(engine: Engine, now: datetime) -> list[RequestedJob]:
    """Pending jobs in place of those of schedules and thresholds that failed and have waited long enough; see
    ``core.triggers.may_retry``. What failed for a person is theirs to try again.
    """
    with engine.begin() as connection:
        failed = [row for row in jobs.list_failing_jobs(connection, JOB_PHASES) if _is_retried(row, now)]
        wanted = [request for row in failed if (request := _request_again(row)) is not None]
        made = set(append_pending_jobs(connection, wanted).values())
        live = jobs.list_pending_jobs(connection) if made else []
    return [_describe(row, row.slug) for row in live if row.id in made]


def _is_retried(row: Row[Any], now: datetime) -> bool:
    """Whether automation owes the job another attempt now."""
    if row.trigger_type == "manual" or row.asked_since or not row.consolidation_enabled:
        return False
    return bool(may_retry(row.retry_count, row.completed_at, now, most=row.max_retries))


def _request_again(row: Row[Any]) -> NewJob | None:
    try:
        options = parse_options(row.scope.get("options", {}), base=parse_options(row.config))
    except InvalidOptionError:  # the tick of its own trigger says so
        return None
    return build_new_job(
        row.project_id, row.scope, options, trigger_type=row.trigger_type, triggered_by=row.triggered_by
    )


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


def list_pending_jobs(engine: Engine) -> list[RequestedJob]:
    """The pending jobs of enabled projects, oldest first."""
    with engine.connect() as connection:
        return [_describe(row, row.slug) for row in jobs.list_pending_jobs(connection)]


def list_unlaunched_jobs(
    engine: Engine, find_launched: Callable[[Sequence[UUID]], Collection[UUID]]
) -> list[RequestedJob]:
    """The pending jobs that wait for somebody to launch them, oldest first: none of a project that is held now.

    Triggers and plans launch their jobs themselves: those are here only when that was lost. ``find_launched``: those of
    the jobs for which there is a run, whoever launched it.
    """
    lost = datetime.now(UTC) - LOST_AFTER
    with engine.connect() as connection:
        rows = [row for row in jobs.list_pending_jobs(connection) if not row.busy]
    waiting = [
        row for row in rows if row.created_at < lost or (row.trigger_type == "manual" and "plan" not in row.scope)
    ]
    launched = find_launched([row.id for row in waiting]) if waiting else ()
    return [_describe(row, row.slug) for row in waiting if row.id not in launched]


def is_pending(engine: Engine, job_id: UUID) -> bool:
    """Whether nobody has begun, cancelled or overtaken the job."""
    with engine.connect() as connection:
        job = jobs.get_job(connection, job_id)
    return job is not None and job.status == "pending"


def cancel_job(engine: Engine, job_id: UUID, *, cancelled_by: str) -> CancelledJob:
    """Cancel a pending or running job. A running one writes nothing more; what it wrote stands until rolled back.

    Raises:
        NotFoundError: there is no such job. ConflictError: it has ended; the message says how.
    """
    with engine.connect() as connection:
        job = jobs.get_job(connection, job_id)
        if job is None:
            raise NotFoundError(f"there is no job {job_id}; `consolidation history PROJECT` lists jobs")
        project = get_project(connection, job.slug)
    fail_dead_job(engine, project)
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
