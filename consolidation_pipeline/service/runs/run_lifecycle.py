"""How a run begins and ends: its lock and its job row.

The run holds the project's lock from start to end. A job row that says ``running`` while nobody holds the lock belongs
to a process that died; whoever comes next marks it failed and goes on from what it left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline import tracing
from consolidation_pipeline.errors import ConflictError, ProjectDisabledError
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.phases import JOB_PHASES, PHASES, build_scope, read_scope
from consolidation_pipeline.service.runs.project_run import (
    PlanDecisions,
    ProjectRun,
    describe_error,
    raise_if_cancelled,
    read_decisions,
)
from consolidation_pipeline.service.runs.run_fingerprint import compute_fingerprint
from consolidation_pipeline.service.runs.stale_jobs import fail_running_job
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_counts import count_raw
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.projects import Project, get_project

logger = logging.getLogger(__name__)

OVERTAKEN = "another run of the project began first; the run that was asked for has a job of its own when it begins"
LOCK_WAIT_SECONDS = 10.0


@contextmanager
def open_run(
    engine: Engine,
    slug: str,
    *,
    settings: Settings,
    job: str = "consolidate",
    planned: Sequence[str] = PHASES,
    trigger_type: str = "manual",
    triggered_by: str = "system",
    run_id: str | None = None,
    requested: UUID | None = None,
) -> Iterator[ProjectRun]:
    """Begin a run and, whatever happens, end its job row truthfully.

    ``requested``: the pending job that it was launched for.

    Raises:
        NotFoundError, ProjectDisabledError; ProjectBusyError: another run holds the project; JobCancelledError: what
        was ``requested`` was cancelled; ConflictError: another job came in between.
    """
    project = get_runnable_project(engine, slug)
    options = effective_options(project, settings)
    with project_lock(engine, project.id, slug, wait_seconds=LOCK_WAIT_SECONDS):
        with engine.begin() as connection:
            if requested is not None:
                _refuse_done(jobs.get_job(connection, requested))
            _settle_live_job(connection, project, planned)
            job_id, options, plan = _begin_job(
                connection,
                project,
                options,
                scope=build_scope(job if job in JOB_PHASES else "consolidate", planned),
                trigger_type=trigger_type,
                triggered_by=triggered_by,
                run_id=run_id,
            )
            counts = _count_raw(connection, project)
        now = datetime.now(UTC)
        run = ProjectRun(engine, project, options, job_id, job, planned, now, triggered_by, counts, plan=plan)
        run.trigger_type = trigger_type
        run.span = _begin_span(run)
        try:
            yield run
        except Exception as error:
            _end(run, "failed", describe_error(error))
            raise
        except BaseException:
            _end(run, "cancelled", "the run was interrupted")
            raise
        _end(run, *run.outcome())


@contextmanager
def hold_project(engine: Engine, project: Project) -> Iterator[None]:
    """Hold the project without a run. A run that lost it with its connection writes no more.

    Raises:
        ProjectBusyError: a run or a rollback holds the project.
    """
    with project_lock(engine, project.id, project.slug, wait_seconds=LOCK_WAIT_SECONDS):
        # In a transaction of its own: such a run holds what it writes until it has seen this.
        with engine.begin() as connection:
            fail_running_job(connection, project.id)
        yield


def _begin_span(run: ProjectRun) -> Any:
    """The run in a trace: what may create, update or consolidate memories, which of it the caller does not choose."""
    attributes = {tracing.MEMORY_STORE_ID: run.project.slug, tracing.JOB_ID: str(run.job_id)}
    told = {"consolidation.job.name": run.job, "consolidation.job.trigger": run.trigger_type}
    return tracing.start_span("upsert_memory", {"gen_ai.operation.name": "upsert_memory", **attributes, **told})


def preview_run(engine: Engine, slug: str, *, settings: Settings) -> ProjectRun:
    """A run that is only thought through: without lock and job row, on transactions that the database lets read only.

    Raises:
        NotFoundError: no such project.
    """
    reading = engine.execution_options(postgresql_readonly=True)
    with reading.connect() as connection:
        project = get_project(connection, slug)
        counts = _count_raw(connection, project)
    options, now = effective_options(project, settings), datetime.now(UTC)
    return ProjectRun(reading, project, options, UUID(int=0), "consolidate", PHASES, now, "plan", counts)


def get_runnable_project(engine: Engine, slug: str) -> Project:
    """The project, if it may be run. Raises NotFoundError, ProjectDisabledError."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
    if not project.consolidation_enabled:
        raise ProjectDisabledError(f"consolidation of project {slug} is disabled: enable it with `projects configure`")
    return project


def _refuse_done(job: Row[Any] | None) -> None:
    """What was cancelled is not done, and a job that was launched twice, as its first launch was thought lost, once."""
    raise_if_cancelled(job, "nothing was run")
    if job is not None and job.status in ("completed", "failed"):
        raise ConflictError(f"job {job.id} is {job.status} already: nothing was run", (str(job.id),))


def _settle_live_job(connection: Connection, project: Project, planned: Sequence[str]) -> None:
    """End the live job unless it waits for just this run; a running one died, for we hold the lock."""
    fail_running_job(connection, project.id)
    pending = jobs.find_live_job(connection, project.id)
    if pending is not None and tuple(planned) != read_scope(pending.scope)[1]:
        # To claim it would tell whoever waits for it that more or less was done than they asked for.
        jobs.finish_job(connection, pending.id, "cancelled", error=OVERTAKEN)


def _begin_job(
    connection: Connection,
    project: Project,
    options: ConsolidationOptions,
    *,
    scope: Mapping[str, Any],
    trigger_type: str,
    triggered_by: str,
    run_id: str | None,
) -> tuple[UUID, ConsolidationOptions, PlanDecisions | None]:
    """Claim the pending job, or make one of ``scope``: its options and the plan it is to carry out, if any."""
    pending = jobs.find_live_job(connection, project.id)
    scope = scope if pending is None else pending.scope
    options = parse_options(scope.get("options", {}), base=options)
    snapshot = options.model_dump(mode="json")
    job_id: UUID
    if pending is not None:
        job_id = pending.id
    else:
        job_id = jobs.append_job(
            connection,
            project.id,
            trigger_type=trigger_type,
            triggered_by=triggered_by,
            options=snapshot,
            scope=scope,
            phases=JOB_PHASES[read_scope(scope)[0]],
        )
    if not jobs.start_job(connection, job_id, run_id=run_id, options=snapshot):
        raise ConflictError(f"job {job_id} was ended while the run began", (str(job_id),))
    append_event(connection, project.id, "consolidation.started", {"job_id": str(job_id)})
    return job_id, options, read_decisions(scope)


def _count_raw(connection: Connection, project: Project) -> tuple[int, int]:
    counts = count_raw(connection, project.id)
    return counts.memories, counts.archived


def _end(run: ProjectRun, status: str, error: str | None) -> None:
    tracing.end_span(run.span, {"consolidation.job.status": status}, is_failed=status == "failed")
    whole = status == "completed" and tuple(run.planned) == PHASES and run.plan is None
    try:
        with run.engine.begin() as connection:
            # What came while the run went on may have missed its phases: then the next run has something to do.
            memories, archived = run.raw_counts
            seen_all = (
                whole
                and not run.unfinished
                and _count_raw(connection, run.project) == (memories, archived + run.archived)
            )
            metrics: dict[str, Any] = {"stopped": run.stopped} if run.stopped else {}
            metrics |= {"state": compute_fingerprint(connection, run.project, run.options, run.now)} if seen_all else {}
            jobs.finish_job(connection, run.job_id, status, error=error, metrics=metrics)
    except Exception:
        # The database went away: the row stays `running` without a lock, and the next run marks it failed.
        logger.exception("job %s could not be marked %s", run.job_id, status)
