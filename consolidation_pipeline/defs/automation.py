"""What sensors and schedules share: run requests for pending jobs, and whether they start running."""

import os
from collections.abc import Sequence
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import JOB_TAG, TRIGGER_TAG, TRIGGERED_BY_TAG
from consolidation_pipeline.service.requesting import RequestedJob
from consolidation_pipeline.service.runs import JOB_PHASES
from consolidation_pipeline.service.triggering import Decision
from consolidation_pipeline.store.engine import Engine
from consolidation_pipeline.store.projects import list_projects

# `consolidation dev` starts everything running; otherwise a person switches each on in the UI.
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


def _tags(job_id: UUID, timeout_seconds: int, trigger_type: str, triggered_by: str) -> dict[str, str]:
    return {
        JOB_TAG: str(job_id),
        TRIGGER_TAG: trigger_type,
        TRIGGERED_BY_TAG: triggered_by,
        "dagster/max_runtime": str(timeout_seconds),
    }


def say_why_not(decision: Decision) -> str:
    """Reasons, at most ten, why no project was due."""
    shown = [f"{slug}: {reason}" for slug, reason in list(decision.skipped.items())[:10]]
    more = len(decision.skipped) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more > 0 else shown) or "there are no projects"
