"""What sensors and schedules share: run requests for pending jobs, and whether they start running."""

import os

import dagster as dg

from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import JOB_TAG, TRIGGER_TAG, TRIGGERED_BY_TAG
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
            tags={
                JOB_TAG: str(request.job_id),
                TRIGGER_TAG: trigger_type,
                TRIGGERED_BY_TAG: triggered_by,
                "dagster/max_runtime": str(request.timeout_seconds),
            },
        )
        for request in decision.requests
    ]


def say_why_not(decision: Decision) -> str:
    """Reasons, at most ten, why no project was due."""
    shown = [f"{slug}: {reason}" for slug, reason in list(decision.skipped.items())[:10]]
    more = len(decision.skipped) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more > 0 else shown) or "there are no projects"
