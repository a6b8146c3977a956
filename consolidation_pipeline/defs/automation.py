"""What sensors and schedules share: run requests for pending jobs, and whether they start running."""

import os
from collections.abc import Sequence
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import JOB_TAG, TRIGGER_TAG, TRIGGERED_BY_TAG
from consolidation_pipeline.service.requesting import RequestedJob
from consolidation_pipeline.service.runs import JOB_PHASES
from consolidation_pipeline.service.triggering import Decision, tell_skipped
from consolidation_pipeline.store.engine import Engine
from consolidation_pipeline.store.projects import list_projects

# `consolidation dev` starts everything running; otherwise a person switches each on in the UI.
_RUNS_AT_ONCE = 500  # ids in a query
RUNNING = os.environ.get("CONSOLIDATION_AUTOMATION") == "running"
SENSOR_STATUS = dg.DefaultSensorStatus.RUNNING if RUNNING else dg.DefaultSensorStatus.STOPPED
SCHEDULE_STATUS = dg.DefaultScheduleStatus.RUNNING if RUNNING else dg.DefaultScheduleStatus.STOPPED


def partition_requests(engine: Engine, instance: dg.DagsterInstance) -> list[dg.AddDynamicPartitionsRequest]:
    """Ask for partitions of projects that have none yet."""
    with engine.connect() as connection:
        slugs = [project.slug for project in list_projects(connection)]
    known = set(instance.get_dynamic_partitions(projects.name or ""))
    new = [slug for slug in slugs if slug not in known]
    return [projects.build_add_request(new)] if new else []


def run_requests(decision: Decision, *, trigger_type: str, triggered_by: str) -> list[dg.RunRequest]:
    """One run request per pending job; the job's id is the run key, so a job is launched once."""
    return [
        dg.RunRequest(
            run_key=str(request.job_id),
            partition_key=request.slug,
            tags=_tags(request.job_id, request.timeout_seconds, trigger_type, triggered_by),
        )
        for request in decision.requests
    ]


def pending_requests(pending: Sequence[RequestedJob]) -> list[dg.RunRequest]:
    """One run request per pending job, for its job and phases; the job's id is the run key, as everywhere."""
    return [
        dg.RunRequest(
            run_key=str(job.job_id),
            job_name=job.job,
            partition_key=job.project,
            tags=_tags(job.job_id, job.timeout_seconds, job.trigger_type, job.triggered_by or ""),
            asset_selection=None if job.phases == JOB_PHASES[job.job] else [dg.AssetKey(name) for name in job.phases],
        )
        for job in pending
    ]


def find_runs(instance: dg.DagsterInstance, jobs: Sequence[UUID]) -> dict[UUID, dg.DagsterRun]:
    """The newest run of each of the jobs that has one, whoever launched it."""
    found: dict[UUID, dg.DagsterRun] = {}
    for start in range(0, len(jobs), _RUNS_AT_ONCE):
        ids = [str(job) for job in jobs[start : start + _RUNS_AT_ONCE]]
        for run in instance.get_runs(dg.RunsFilter(tags={JOB_TAG: ids})):  # newest first
            found.setdefault(UUID(run.tags[JOB_TAG]), run)
    return found


def _tags(job_id: UUID, timeout_seconds: int, trigger_type: str, triggered_by: str) -> dict[str, str]:
    return {
        JOB_TAG: str(job_id),
        TRIGGER_TAG: trigger_type,
        TRIGGERED_BY_TAG: triggered_by,
        "dagster/max_runtime": str(timeout_seconds),
    }


def say_why(decision: Decision) -> str:
    """What a tick asked for and why, and why not for the others: at most ten of each, what is unusual first."""
    asked = [f"{request.slug}: {request.reason}" for request in decision.requests]
    return "; ".join([*_first_ten(asked), *_first_ten(tell_skipped(decision))]) or "there are no projects"


def _first_ten(told: Sequence[str]) -> list[str]:
    more = len(told) - 10
    return [*told[:10], f"and {more} more"] if more > 0 else list(told)
