"""Runs of a project in this process, recorded in the same Dagster instance as runs from the UI.

Dagster takes longer to import than to find that nothing changed, so it is imported where a run begins.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from consolidation_pipeline.errors import ConflictError, JobEndedError, StoreError
from consolidation_pipeline.service.runs.phases import PHASES, select_phases
from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project
from consolidation_pipeline.service.runs.stale_jobs import fail_dead_job
from consolidation_pipeline.settings import Settings, use_dagster_home
from consolidation_pipeline.store.database.engine import Engine, open_engine
from consolidation_pipeline.store.jobs.jobs import find_job_by_run, finish_job
from consolidation_pipeline.store.jobs.project_lock import check_not_busy
from consolidation_pipeline.store.projects import Project, list_projects

if TYPE_CHECKING:
    import dagster as dg

    from consolidation_pipeline.service.admin.doctor import Automation
    from consolidation_pipeline.service.jobs.job_requests import RequestedJob
    from consolidation_pipeline.service.plan.plan_document import Plan


@dataclass(frozen=True)
class RunOutcome:
    """Result of a run.

    ``status``: completed, failed, cancelled, or unchanged (nothing changed since job ``job_id``, so nothing was run).
    """

    project: str
    job_id: UUID | None
    run_id: str | None
    status: str
    metrics: dict[str, Any]
    error: str | None
    seconds: float


def run_project(
    slug: str,
    *,
    job: str = "consolidate",
    phases: Sequence[str] | None = None,
    plan: Plan | None = None,
    requested: RequestedJob | None = None,
    triggered_by: str = "cli",
    run_id: str | None = None,
) -> RunOutcome:
    """Run a job of a project now, in this process. No daemon is needed.

    If nothing changed since the last completed run, nothing is run or written, unless ``plan``, ``requested`` or some
    of the phases are given.

    Args:
        slug: The project.
        job: Name of the job.
        phases: Run only these phases of the job; None = all.
        plan: Apply only this plan.
        requested: The pending job that requested the run.
        triggered_by: Name of the caller, for the record.
        run_id: Id (a UUID) of the new Dagster run, by which others follow it; None = any.

    Raises:
        UsageError: The job or a phase is unknown, or the plan is for another project.
        NotFoundError: There is no such project.
        ProjectDisabledError: Consolidation is disabled for the project.
        ProjectBusyError: Another run or a rollback holds the project. A requested job stays pending.
        JobEndedError: Another run did the requested job or the plan, or does it; or the job was cancelled.
        ConflictError: The project has a pending job, or has changed since the plan was made.
    """
    began = time.monotonic()
    engine = open_engine(Settings())
    chosen = select_phases(job, phases)
    project = get_runnable_project(engine, slug)
    job_id = None if requested is None else requested.job_id
    if plan is not None:
        from consolidation_pipeline.service.plan.apply import request_plan_job

        job_id = request_plan_job(engine, project, plan, settings=Settings(), triggered_by=triggered_by)
    elif requested is None and chosen == PHASES:
        last = find_unchanged_job(engine, project, Settings())
        if last is not None:
            seconds = time.monotonic() - began
            return RunOutcome(slug, last.id, last.dagster_run_id, "unchanged", last.metrics, None, seconds)
    tags = _describe_trigger(requested, job_id, triggered_by)
    result = _execute(engine, project, job, chosen, tags, run_id, is_requested=requested is not None)
    with engine.begin() as connection:
        row = find_job_by_run(connection, result.run_id)
        if row is None and job_id is not None:
            _raise_if_taken(engine, job_id)
        if row is None and plan is not None and job_id is not None:
            finish_job(connection, job_id, "cancelled", error="the project was busy")
    if row is None:
        with engine.connect() as connection:
            check_not_busy(connection, project.id, slug)
    seconds = time.monotonic() - began
    if row is None:
        return RunOutcome(slug, None, result.run_id, "failed", {}, _find_first_error(result), seconds)
    if plan is not None and row.status == "failed" and _is_conflict(result):
        raise ConflictError(row.error_message)
    return RunOutcome(slug, row.id, result.run_id, row.status, row.metrics, row.error_message, seconds)


def _describe_trigger(requested: RequestedJob | None, job_id: UUID | None, triggered_by: str) -> dict[str, str]:
    """Return the tags of a run that tell who started it, why, and its job."""
    from consolidation_pipeline.defs.resources import JOB_TAG, TRIGGER_TAG, TRIGGERED_BY_TAG

    tags = {TRIGGERED_BY_TAG: triggered_by}
    if requested is not None:
        tags = {TRIGGERED_BY_TAG: requested.triggered_by or triggered_by, TRIGGER_TAG: requested.trigger_type}
    return tags if job_id is None else tags | {JOB_TAG: str(job_id)}


def _execute(
    engine: Engine,
    project: Project,
    job: str,
    phases: tuple[str, ...],
    tags: Mapping[str, str],
    run_id: str | None,
    *,
    is_requested: bool,
) -> dg.ExecuteInProcessResult:
    """Execute phases of a job. For a requested job that cannot begin now, raise before there is a Dagster run."""
    from consolidation_pipeline.defs.job_batches import execute_in_process
    from consolidation_pipeline.defs.job_runs import fail_dead_runs
    from consolidation_pipeline.defs.names import prefixed
    from consolidation_pipeline.defs.partitions import PROJECTS
    from consolidation_pipeline.defs.resources import JOB_TAG

    with _open_instance() as instance:
        instance.add_dynamic_partitions(PROJECTS, [project.slug])
        fail_dead_job(engine, project)
        fail_dead_runs(instance, engine)
        definition = _definitions().resolve_job_def(prefixed(job))
        if is_requested:
            _raise_if_taken(engine, UUID(tags[JOB_TAG]))
            with engine.connect() as connection:
                check_not_busy(connection, project.id, project.slug)
        return execute_in_process(definition, instance, project.slug, phases=phases, tags=tags, run_id=run_id)


def _raise_if_taken(engine: Engine, job_id: UUID) -> None:
    from consolidation_pipeline.service.jobs.job_requests import explain_taken

    if reason := explain_taken(engine, job_id):
        raise JobEndedError(f"{reason}: nothing was run", (str(job_id),))


def register_projects() -> list[str]:
    """Make every project a partition of the Dagster instance. Return their slugs."""
    from consolidation_pipeline.defs.partitions import PROJECTS

    with open_engine(Settings()).connect() as connection:
        slugs = [project.slug for project in list_projects(connection)]
    with _open_instance() as instance:
        instance.add_dynamic_partitions(PROJECTS, slugs)
    return slugs


def find_automation() -> Automation:
    """Return the sensors and schedules that are on, as set in the instance or by default; raise StoreError."""
    from consolidation_pipeline.service.admin.doctor import Automation

    loaded = _definitions()
    automations = (*(loaded.sensors or ()), *(loaded.schedules or ()))
    defaults = {automation.name: automation.default_status.value for automation in automations}
    try:
        with _open_instance() as instance:
            states = {state.instigator_name: state.status.value for state in instance.all_instigator_state()}
            beats = [beat.timestamp for beat in instance.get_daemon_heartbeats().values()]
    except Exception as error:  # any error of the driver; its message may contain the password
        raise StoreError(f"Dagster's storage cannot be read: {type(error).__name__}") from None
    on = {name for name, default in defaults.items() if states.get(name, default) != "STOPPED"}
    seen = datetime.fromtimestamp(max(beats), UTC) if beats else None
    return Automation(sorted(on), sorted(defaults.keys() - on), seen)


@contextmanager
def _open_instance() -> Iterator[dg.DagsterInstance]:
    """Open the instance of DAGSTER_HOME, else of the project's folder. Paths in dagster.yaml are relative to it."""
    import dagster as dg

    with chdir(use_dagster_home()), dg.DagsterInstance.get() as instance:
        yield instance


@cache
def _definitions() -> dg.Definitions:
    from consolidation_pipeline.definitions import defs

    return defs()


def _is_conflict(result: dg.ExecuteInProcessResult) -> bool:
    """Return True if a phase failed with a ConflictError."""
    errors = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    return any(error and error.cause and error.cause.cls_name == ConflictError.__name__ for error in errors)


def _find_first_error(result: dg.ExecuteInProcessResult) -> str:
    """Return the error of a run that failed before it had a job row, in one line."""
    for event in result.all_events:
        if event.is_failure and event.message:
            return event.message.strip().splitlines()[-1]
    return f"run {result.run_id} failed, see the Dagster UI"
