"""Run a project's assets in this process, recorded in the same Dagster instance as runs from the UI."""

import time
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.job_batches import execute
from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.resources import JOB_TAG, TRIGGER_TAG, TRIGGERED_BY_TAG
from consolidation_pipeline.defs.run_requests import end_dead_runs
from consolidation_pipeline.errors import ConflictError, ProjectBusyError, StoreError
from consolidation_pipeline.service.admin.doctor import Automation
from consolidation_pipeline.service.jobs.job_requests import RequestedJob
from consolidation_pipeline.service.plan.apply import request_plan_job
from consolidation_pipeline.service.plan.plan_document import Plan
from consolidation_pipeline.service.runs.phases import PHASES, select_phases
from consolidation_pipeline.service.runs.run_fingerprint import find_unchanged_job
from consolidation_pipeline.service.runs.run_lifecycle import get_runnable_project
from consolidation_pipeline.service.runs.stale_jobs import fail_dead_job
from consolidation_pipeline.settings import Settings, use_dagster_home
from consolidation_pipeline.store.database.engine import open_engine
from consolidation_pipeline.store.jobs.jobs import find_job_by_run, finish_job
from consolidation_pipeline.store.jobs.project_lock import is_project_busy
from consolidation_pipeline.store.projects import list_projects


@dataclass(frozen=True)
class RunOutcome:
    """How a run went: status completed, failed, cancelled, or unchanged (nothing to do since job ``job_id``)."""

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
) -> RunOutcome:
    """Run a job of a project, or only the given phases of it, here and now; no daemon is needed.

    ``plan``: do what it decided and nothing else. ``requested``: the pending job that asked for it. Else nothing is run
    or written when nothing changed since the last completed run.

    Raises:
        UsageError: an unknown job or phase, or a plan for another project. NotFoundError, ProjectDisabledError: the
        project cannot be run. ProjectBusyError: another run or a rollback holds the project. ConflictError: the project
        has a pending job, or has changed since the plan was made.
    """
    began = time.monotonic()
    engine = open_engine(Settings())
    chosen = select_phases(job, phases)
    project = get_runnable_project(engine, slug)
    request = None if requested is None else requested.job_id
    tags = {TRIGGERED_BY_TAG: triggered_by}
    if plan is not None:
        request = request_plan_job(engine, project, plan, settings=Settings(), triggered_by=triggered_by)
    elif requested is not None:
        tags = {TRIGGERED_BY_TAG: requested.triggered_by or triggered_by, TRIGGER_TAG: requested.trigger_type}
    elif chosen == PHASES and (last := find_unchanged_job(engine, project, Settings())) is not None:
        return RunOutcome(slug, last.id, last.dagster_run_id, "unchanged", last.metrics, None, time.monotonic() - began)
    with _instance() as instance:
        instance.add_dynamic_partitions(PROJECTS, [slug])
        fail_dead_job(engine, project)
        end_dead_runs(instance, engine)
        tags |= {} if request is None else {JOB_TAG: str(request)}
        result = execute(_definitions().resolve_job_def(job), instance, slug, phases=chosen, tags=tags)
    with engine.begin() as connection:
        row = find_job_by_run(connection, result.run_id)
        if row is None and plan is not None and request is not None:
            finish_job(connection, request, "cancelled", error="the project was busy")
        if row is None and is_project_busy(connection, project.id):
            raise ProjectBusyError(
                f"project {slug} is busy: another run or rollback holds it; try again when it is done"
            )
    seconds = time.monotonic() - began
    if row is None:
        return RunOutcome(slug, None, result.run_id, "failed", {}, _first_error(result), seconds)
    if plan is not None and row.status == "failed" and _is_conflict(result):
        raise ConflictError(row.error_message)
    return RunOutcome(slug, row.id, result.run_id, row.status, row.metrics, row.error_message, seconds)


def register_projects() -> list[str]:
    """Make every project a partition of the Dagster instance; returns their slugs."""
    with open_engine(Settings()).connect() as connection:
        slugs = [project.slug for project in list_projects(connection)]
    with _instance() as instance:
        instance.add_dynamic_partitions(PROJECTS, slugs)
    return slugs


def find_automation() -> Automation:
    """Sensors and schedules, on or off as the instance has them, else as they are defined.

    Raises:
        StoreError: Dagster's storage cannot be reached.
    """
    found = _definitions()
    defaults = {one.name: one.default_status.value for one in (*(found.sensors or ()), *(found.schedules or ()))}
    try:
        with _instance() as instance:
            states = {state.instigator_name: state.status.value for state in instance.all_instigator_state()}
            beats = [beat.timestamp for beat in instance.get_daemon_heartbeats().values()]
    except Exception as error:  # whatever its driver raises; its message may hold the password
        raise StoreError(f"Dagster's storage cannot be read: {type(error).__name__}") from None
    on = {name for name, default in defaults.items() if states.get(name, default) != "STOPPED"}
    seen = datetime.fromtimestamp(max(beats), UTC) if beats else None
    return Automation(sorted(on), sorted(defaults.keys() - on), seen)


@contextmanager
def _instance() -> Iterator[dg.DagsterInstance]:
    """The instance of DAGSTER_HOME, else of the project's folder; paths in its dagster.yaml are relative to that."""
    with chdir(use_dagster_home()), dg.DagsterInstance.get() as instance:
        yield instance


@cache
def _definitions() -> dg.Definitions:
    from consolidation_pipeline.definitions import defs

    return defs()


def _is_conflict(result: dg.ExecuteInProcessResult) -> bool:
    """Whether a phase refused because the stored state was not the one it expected."""
    errors = [event.step_failure_data.error for event in result.all_events if event.is_step_failure]
    return any(error and error.cause and error.cause.cls_name == ConflictError.__name__ for error in errors)


def _first_error(result: dg.ExecuteInProcessResult) -> str:
    """Why a run failed before it had a job row, in one line."""
    for event in result.all_events:
        if event.is_failure and event.message:
            return event.message.strip().splitlines()[-1]
    return f"run {result.run_id} failed, see the Dagster UI"
