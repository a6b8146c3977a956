"""What sensors and schedules share: run requests for pending jobs, and whether they start running."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import dagster as dg

from consolidation_pipeline.core.jobs.run_batching import Task, form_batches
from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.defs.job_batches import batch_config, find_batched, job_batch
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import JOB_TAG, TRIGGER_TAG, TRIGGERED_BY_TAG
from consolidation_pipeline.service.jobs.job_requests import LOST_AFTER, RequestedJob
from consolidation_pipeline.service.jobs.triggers import TriggerDecision, describe_skipped
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline.service.runs.stale_jobs import DIED, list_dead_runs
from consolidation_pipeline.store.admin.project_counts import list_backlogs
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import list_projects

# So many people that wait at once are served soonest by batches.
MANY = 20
_RUNS_AT_ONCE = 500  # ids in a query
_AT_WORK = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]

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


def find_runs(instance: dg.DagsterInstance, jobs: Sequence[UUID]) -> dict[UUID, dg.DagsterRun]:
    """The newest run of each of the jobs that has one, whoever launched it."""
    found: dict[UUID, dg.DagsterRun] = {}
    for start in range(0, len(jobs), _RUNS_AT_ONCE):
        ids = [str(job) for job in jobs[start : start + _RUNS_AT_ONCE]]
        for run in instance.get_runs(dg.RunsFilter(tags={JOB_TAG: ids})):  # newest first
            found.setdefault(UUID(run.tags[JOB_TAG]), run)
    return found


def find_turns(instance: dg.DagsterInstance, jobs: Sequence[UUID]) -> dict[UUID, dg.DagsterRun]:
    """The run of each of the jobs, else the batch in which it waits for its turn or with which it was cancelled."""
    batched = find_batched(instance)
    return {job: batched[job] for job in jobs if job in batched} | find_runs(instance, jobs)


def end_dead_runs(instance: dg.DagsterInstance, engine: Engine) -> list[str]:
    """Fail the runs whose process was killed: they would count as under way for ever; returns their ids.

    Until then nothing of their project leaves Dagster's queue. Its own monitoring leaves out what ``consolidation run``
    executes, which no launcher has launched.
    """
    runs = {run.run_id: run for run in instance.get_runs(dg.RunsFilter(statuses=_AT_WORK))}
    dead = list_dead_runs(engine, list(runs))
    for run_id in dead:
        instance.report_run_failed(runs[run_id], DIED)
    return list(dead)


def run_requests(decision: TriggerDecision, *, job: str, triggered_by: str) -> list[dg.RunRequest]:
    """Batches of the decision's jobs, which were made just now."""
    tasks = [
        Task(request.job_id, request.slug, job, request.memories, request.timeout_seconds)
        for request in decision.requests
    ]
    return [_batch_request(batch, triggered_by) for batch in form_batches(tasks)]


def pending_requests(store: Engine, pending: Sequence[RequestedJob]) -> list[dg.RunRequest]:
    """A run for each pending job, of its job and phases, with the job's id as run key; batches where many wait."""
    if len(pending) > MANY:
        sizes = _count_active(store)
        tasks = [
            Task(job.job_id, job.project, job.job, sizes.get(job.project, 0), job.timeout_seconds) for job in pending
        ]
        return [_batch_request(batch, "requested_jobs_sensor") for batch in form_batches(tasks)]
    return [
        dg.RunRequest(
            run_key=str(job.job_id),
            job_name=job.job,
            partition_key=job.project,
            tags={
                JOB_TAG: str(job.job_id),
                TRIGGER_TAG: job.trigger_type,
                TRIGGERED_BY_TAG: job.triggered_by or "",
                "dagster/max_runtime": str(job.timeout_seconds),
            },
            asset_selection=None if job.phases == JOB_PHASES[job.job] else [dg.AssetKey(name) for name in job.phases],
        )
        for job in pending
    ]


def _count_active(store: Engine) -> dict[str, int]:
    with store.connect() as connection:
        return {backlog.slug: backlog.active for backlog in list_backlogs(connection)}


def _batch_request(batch: Sequence[Task], triggered_by: str) -> dg.RunRequest:
    """A run for these jobs. The same ones are launched once in ten minutes at most: one may have been left waiting."""
    ids = [str(task.job_id) for task in batch]
    bucket = datetime.now(UTC).timestamp() // LOST_AFTER.total_seconds()
    return dg.RunRequest(
        run_key=f"{bucket:.0f}-{content_hash(' '.join(sorted(ids)))}",
        job_name=job_batch.name,
        run_config=batch_config(ids),
        tags={
            TRIGGERED_BY_TAG: triggered_by,
            "consolidation/jobs": str(len(batch)),
            "dagster/max_runtime": str(sum(task.timeout_seconds for task in batch)),
        },
    )


def say_why(decision: TriggerDecision) -> str:
    """What a tick asked for and why, and why not for the others: at most ten of each, what is unusual first."""
    asked = [f"{request.slug}: {request.reason}" for request in decision.requests]
    return "; ".join([*_first_ten(asked), *_first_ten(describe_skipped(decision))]) or "there are no projects"


def _first_ten(told: Sequence[str]) -> list[str]:
    more = len(told) - 10
    return [*told[:10], f"and {more} more"] if more > 0 else list(told)
