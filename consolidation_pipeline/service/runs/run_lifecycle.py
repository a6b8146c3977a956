"""Lifecycle of a run: it takes the project's lock, begins its job row, and ends both.

If a job row is ``running`` while nobody holds the project's lock, its process died. The next run marks the job failed
and continues its work.
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
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.operator_limits import apply_limits, read_limits
from consolidation_pipeline.service.runs.phases import JOB_PHASES, PHASES, build_scope, read_scope
from consolidation_pipeline.service.runs.project_run import (
    PlanDecisions,
    ProjectRun,
    describe_error,
    raise_if_cancelled,
    read_decisions,
)
from consolidation_pipeline.service.runs.run_fingerprint import compute_fingerprint, find_unchanged_job
from consolidation_pipeline.service.runs.stale_jobs import fail_running_job
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_counts import count_raw_memories
from consolidation_pipeline.store.admin.project_inputs import hash_inputs
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.jobs import jobs
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline.store.memories.pending_uses import fold_uses
from consolidation_pipeline.store.projects import Project, get_project

logger = logging.getLogger(__name__)

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
    overrides: Mapping[str, Any] | None = None,
    may_skip: bool = False,
) -> Iterator[ProjectRun]:
    """Begin a run; at the end of the block, end its job row with the status that the run reached.

    Args:
        job: Name of the job.
        planned: Phases to run, in order.
        trigger_type: manual, scheduled or threshold.
        triggered_by: Displayed name of the caller.
        run_id: Id of the Dagster run, if any.
        requested: Pending job that the run was launched for, if any.
        overrides: Options over those of the project. Options that the job was requested with come before them.
        may_skip: Look for a job since which nothing has changed (``ProjectRun.unchanged``), if all phases are planned.

    Raises:
        InvalidOptionError: One of the ``overrides`` does not exist or is out of range.
        NotFoundError: There is no such project.
        ProjectDisabledError: Consolidation of the project is disabled.
        ProjectBusyError: Another run or a rollback holds the project.
        JobCancelledError: The requested job was cancelled.
        ConflictError: The requested job has ended, or another process ended the job in the meantime.
    """
    project = get_runnable_project(engine, slug)
    options = effective_options(project, settings)
    if overrides:
        options = apply_limits(parse_options(overrides, base=options), read_limits(settings))
    with project_lock(engine, project.id, slug, wait_seconds=LOCK_WAIT_SECONDS):
        is_whole = tuple(planned) == PHASES and not overrides
        unchanged = find_unchanged_job(engine, project, settings) if may_skip and is_whole else None
        with engine.begin() as connection:
            fold_uses(connection, project.id)
            if requested is not None:
                _reject_ended_request(jobs.get_job(connection, requested))
            fail_running_job(connection, project.id)
            pending = _find_pending(connection, project, planned, requested)
            job_id, now, options, plan = _begin_job(
                connection,
                project,
                options,
                pending=pending,
                settings=settings,
                scope=build_scope(job if job in JOB_PHASES else "consolidate", planned),
                trigger_type=trigger_type,
                triggered_by=triggered_by,
                run_id=run_id,
            )
            counts = _count_raw(connection, project)
        run = ProjectRun(engine, project, options, job_id, job, planned, now, triggered_by, counts, plan=plan)
        run.trigger_type = trigger_type
        run.unchanged = unchanged if pending is None else None
        run.span = _begin_span(run)
        try:
            yield run
        except Exception as error:
            _end_run(run, "failed", describe_error(error))
            raise
        except BaseException:
            _end_run(run, "cancelled", "the run was interrupted")
            raise
        _end_run(run, *run.final_status())


@contextmanager
def hold_project(engine: Engine, project: Project) -> Iterator[None]:
    """Hold the project's lock without a run. A job that still says ``running`` is marked failed.

    Raises:
        ProjectBusyError: A run or a rollback holds the project.
    """
    with project_lock(engine, project.id, project.slug, wait_seconds=LOCK_WAIT_SECONDS):
        # Committed at once: a run that lost its lock with its connection sees it before it commits anything.
        with engine.begin() as connection:
            fail_running_job(connection, project.id)
        yield


def _begin_span(run: ProjectRun) -> Any:
    attributes = {
        # The semantic conventions give this name to an operation that may create, update or consolidate memories.
        "gen_ai.operation.name": "upsert_memory",
        tracing.MEMORY_STORE_ID: run.project.slug,
        tracing.JOB_ID: str(run.job_id),
        "consolidation.job.name": run.job,
        "consolidation.job.trigger": run.trigger_type,
    }
    return tracing.start_span("upsert_memory", attributes)


def preview_run(engine: Engine, slug: str, *, settings: Settings) -> ProjectRun:
    """Return a run for a preview: without lock and job row, in read-only transactions."""
    read_only = engine.execution_options(postgresql_readonly=True)
    with read_only.connect() as connection:
        project = get_project(connection, slug)
        counts = _count_raw(connection, project)
    options, now = effective_options(project, settings), datetime.now(UTC)
    return ProjectRun(read_only, project, options, UUID(int=0), "consolidate", PHASES, now, "plan", counts)


def get_runnable_project(engine: Engine, slug: str) -> Project:
    """Return the project; raise ProjectDisabledError if its consolidation is disabled."""
    with engine.connect() as connection:
        project = get_project(connection, slug)
    if not project.consolidation_enabled:
        raise ProjectDisabledError(f"consolidation of project {slug} is disabled: enable it with `projects configure`")
    return project


def _reject_ended_request(job: Row[Any] | None) -> None:
    """Raise if the requested job was cancelled, or has been run by an earlier launch that was believed lost."""
    raise_if_cancelled(job, "nothing was run")
    if job is not None and job.status in ("completed", "failed"):
        raise ConflictError(f"job {job.id} is {job.status} already: nothing was run", (str(job.id),))


def _find_pending(
    connection: Connection, project: Project, planned: Sequence[str], requested: UUID | None
) -> Row[Any] | None:
    """Return the pending job that this run executes: the requested one, or else the next with the ``planned`` phases.

    None if there is none: then the run has a job of its own, and the others stay pending.
    """
    found = [job for job in jobs.list_queue(connection, project.id) if tuple(planned) == read_scope(job.scope)[1]]
    return next((job for job in found if requested in (None, job.id)), None)


def _begin_job(
    connection: Connection,
    project: Project,
    options: ConsolidationOptions,
    *,
    pending: Row[Any] | None,
    settings: Settings,
    scope: Mapping[str, Any],
    trigger_type: str,
    triggered_by: str,
    run_id: str | None,
) -> tuple[UUID, datetime, ConsolidationOptions, PlanDecisions | None]:
    """Claim ``pending``, or make a job with ``scope``; return its id, start, options and the plan to apply, if any.

    The job records the program and its inputs, so that it can be replayed.
    """
    scope = scope if pending is None else pending.scope
    options = apply_limits(parse_options(scope.get("options", {}), base=options), read_limits(settings))
    snapshot = options.model_dump(mode="json")
    if pending is None:
        job_id = jobs.append_job(
            connection,
            project.id,
            trigger_type=trigger_type,
            triggered_by=triggered_by,
            options=snapshot,
            scope=scope,
            phases=JOB_PHASES[read_scope(scope)[0]],
        )
    else:
        job_id = pending.id
    metrics = {"code": describe_code(), "inputs": hash_inputs(connection, project.id)}
    started_at = jobs.start_job(connection, job_id, run_id=run_id, options=snapshot, metrics=metrics)
    if started_at is None:
        raise ConflictError(f"job {job_id} was ended while its run began", (str(job_id),))
    append_event(connection, project.id, "consolidation.started", {"job_id": str(job_id)})
    return job_id, started_at, options, read_decisions(scope)


def _count_raw(connection: Connection, project: Project) -> tuple[int, int]:
    """Return the numbers of all and of archived raw memories."""
    counts = count_raw_memories(connection, project.id)
    return counts.memories, counts.archived


def _end_run(run: ProjectRun, status: str, error: str | None) -> None:
    """End the span and the job row. If the run left no work to the next one, its job records the fingerprint."""
    tracing.end_span(run.span, {"consolidation.job.status": status}, is_failed=status == "failed")
    is_whole = status == "completed" and tuple(run.planned) == PHASES and run.plan is None and not run.unfinished
    refused = [one.to_json() for one in run.refused_by_tests]
    told = {"stopped": run.stopped, "failing": run.failing, "refused_by_tests": refused}
    metrics: dict[str, Any] = {name: found for name, found in told.items() if found}
    try:
        with run.engine.begin() as connection:
            # Memories that came during the run may have missed some phases.
            memories, archived = run.raw_counts
            if is_whole and run.unchanged is not None:
                metrics["state"] = run.unchanged.metrics["state"]
            elif is_whole and _count_raw(connection, run.project) == (memories, archived + run.archived):
                metrics["state"] = compute_fingerprint(connection, run.project, run.options, run.now)
            jobs.finish_job(connection, run.job_id, status, error=error, metrics=metrics)
    except Exception:
        # The database is gone: the row stays `running` without a lock, and the next run marks it failed.
        logger.exception("job %s could not be marked %s", run.job_id, status)
