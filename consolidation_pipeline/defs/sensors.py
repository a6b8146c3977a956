"""Sensors: register partitions, observe memories, request and launch jobs, update job statuses, deliver events."""

import json
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.job_batches import job_batch
from consolidation_pipeline.defs.job_runs import fail_dead_runs, fail_orphaned_runs, find_runs, find_runs_or_batches
from consolidation_pipeline.defs.jobs import ASSET_JOBS
from consolidation_pipeline.defs.names import prefixed
from consolidation_pipeline.defs.partitions import PROJECTS, projects
from consolidation_pipeline.defs.resources import ConsolidationResource
from consolidation_pipeline.defs.run_requests import (
    SENSOR_STATUS,
    build_batch_requests,
    build_missing_partitions,
    build_partition_requests,
    build_run_requests,
    described_sensor,
    explain_decision,
    limit_to_selected,
    list_first_ten,
)
from consolidation_pipeline.defs.sources import sources_sensor
from consolidation_pipeline.defs.task_memories import build_observations
from consolidation_pipeline.service.jobs.job_requests import list_unlaunched_jobs
from consolidation_pipeline.service.jobs.retry_policy import request_retries
from consolidation_pipeline.service.jobs.triggers import IsDue, can_summarize, is_threshold_due, request_jobs
from consolidation_pipeline.service.lineage.collector import find_receivers
from consolidation_pipeline.service.runs.stale_jobs import end_dead_jobs, list_cancelled_unstarted
from consolidation_pipeline.service.webhooks.event_delivery import deliver_events
from consolidation_pipeline.store.admin.project_counts import list_raw_versions
from consolidation_pipeline.store.projects import list_projects

# A tick may take a minute, and an attempt that has begun may take another 15 seconds.
_DELIVERY_SECONDS = 20.0

_NOT_STARTED = {dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED}
_ENDED = {
    dg.DagsterRunStatus.SUCCESS: "completed",
    dg.DagsterRunStatus.FAILURE: "failed",
    dg.DagsterRunStatus.CANCELED: "cancelled",
}


@described_sensor("projects_sensor", minimum_interval_seconds=30, default_status=SENSOR_STATUS)
def projects_sensor(
    context: dg.SensorEvaluationContext, consolidation: ConsolidationResource
) -> dg.SensorResult | dg.SkipReason:
    """Add a partition for each new project, and remove that of each project deleted since the last tick."""
    with consolidation.engine.connect() as connection:
        slugs = {project.slug for project in list_projects(connection)}
    # Projects of other databases may have partitions too, so only those are removed whose project was seen here.
    seen = set[str](json.loads(context.cursor or "[]"))
    removed = sorted((seen - slugs) & set(context.instance.get_dynamic_partitions(PROJECTS)))
    selected = sorted(filter(consolidation.selects, slugs))
    added = build_missing_partitions(selected, context.instance)
    context.update_cursor(json.dumps(selected))
    changes = (("added", [slug for request in added for slug in request.partition_keys]), ("removed", removed))
    described = [f"partitions {what}: {list_first_ten(keys)}" for what, keys in changes if keys]
    # A tick without a run counts as skipped. Without a reason, Dagster would call its result empty.
    reason = dg.SkipReason("; ".join(described) or "every project has a partition")
    if not described:
        return reason
    removals = [projects.build_delete_request(removed)] if removed else []
    return dg.SensorResult(skip_reason=reason, dynamic_partitions_requests=[*added, *removals])


@described_sensor("task_memories_sensor", minimum_interval_seconds=60, default_status=SENSOR_STATUS)
def task_memories_sensor(
    context: dg.SensorEvaluationContext, consolidation: ConsolidationResource
) -> dg.SensorResult | dg.SkipReason:
    """Observe the raw memories of each project where some were imported, edited, archived, restored or removed."""
    seen: dict[str, str] = json.loads(context.cursor or "{}")
    with consolidation.engine.connect() as connection:
        versions = [found for found in list_raw_versions(connection) if consolidation.selects(found.slug)]
    changed = [found for found in versions if seen.get(found.slug) != found.version]
    if not changed:
        return dg.SkipReason("no raw memory has changed")
    slugs = [found.slug for found in changed]
    return dg.SensorResult(
        skip_reason=dg.SkipReason(f"raw memories observed: {list_first_ten(slugs)}"),
        asset_events=build_observations(consolidation.asset_key("task_memories"), changed),
        dynamic_partitions_requests=build_partition_requests(consolidation, context.instance),
        cursor=json.dumps({found.slug: found.version for found in versions}),
    )


@described_sensor("new_memories_sensor", job=job_batch, minimum_interval_seconds=60, default_status=SENSOR_STATUS)
def new_memories_sensor(
    context: dg.SensorEvaluationContext, consolidation: ConsolidationResource
) -> dg.SensorResult | dg.SkipReason:
    """Request a job for each project with enough new memories since its last job."""
    return _request_jobs(
        context, consolidation, is_threshold_due, job="consolidate", triggered_by=prefixed("new_memories_sensor")
    )


@described_sensor(
    "unsummarized_memories_sensor",
    job=job_batch,
    minimum_interval_seconds=60,
    default_status=SENSOR_STATUS,
)
def unsummarized_memories_sensor(
    context: dg.SensorEvaluationContext, consolidation: ConsolidationResource
) -> dg.SensorResult | dg.SkipReason:
    """Request a job for each project where enough memories have no summary, or where a session ended."""
    return _request_jobs(
        context, consolidation, can_summarize, job="summarize", triggered_by=prefixed("unsummarized_memories_sensor")
    )


@described_sensor(
    "requested_jobs_sensor",
    jobs=[*ASSET_JOBS, job_batch],
    minimum_interval_seconds=30,
    default_status=SENSOR_STATUS,
)
def requested_jobs_sensor(
    context: dg.SensorEvaluationContext, consolidation: ConsolidationResource
) -> dg.SensorResult | dg.SkipReason:
    """Launch jobs that were requested over HTTP, MCP or the command line.

    Also launch jobs again whose run was lost, and retry failed jobs of sensors and schedules up to twice.
    """

    def find_launched(jobs: Sequence[UUID]) -> set[UUID]:
        # A run that was created but never launched is requested again: Dagster launches it by its run key.
        runs = find_runs_or_batches(context.instance, jobs)
        return {job for job, run in runs.items() if run.status is not dg.DagsterRunStatus.NOT_STARTED}

    engine = consolidation.engine
    retries = request_retries(engine, datetime.now(UTC))
    waiting = [*list_unlaunched_jobs(engine, find_launched), *retries]
    pending = [job for job in waiting if consolidation.selects(job.project)]
    if not pending:
        return dg.SkipReason("no pending job needs a run, and no failed job is due for a retry")
    context.log.info(f"{len(pending)} jobs launched, {len(retries)} of them as retries")
    return dg.SensorResult(
        run_requests=build_run_requests(consolidation, pending),
        dynamic_partitions_requests=build_partition_requests(consolidation, context.instance),
    )


def _request_jobs(
    context: dg.SensorEvaluationContext,
    consolidation: ConsolidationResource,
    due: IsDue,
    *,
    job: str,
    triggered_by: str,
) -> dg.SensorResult | dg.SkipReason:
    own = limit_to_selected(consolidation, due)
    decision = request_jobs(consolidation.engine, own, job=job, trigger_type="threshold", triggered_by=triggered_by)
    reasons = explain_decision(decision)
    context.log.info(reasons)
    if not decision.requests:
        return dg.SkipReason(reasons)
    return dg.SensorResult(
        run_requests=build_batch_requests(decision, job=job, triggered_by=triggered_by),
        dynamic_partitions_requests=build_partition_requests(consolidation, context.instance),
    )


@described_sensor("event_delivery_sensor", minimum_interval_seconds=30, default_status=SENSOR_STATUS)
def event_delivery_sensor(consolidation: ConsolidationResource) -> dg.SkipReason:
    """Deliver events to the webhook and the OpenLineage collector, if one is configured."""
    settings, others = consolidation.settings, find_receivers(consolidation.engine)
    if settings.webhook_url is None and not others:
        return dg.SkipReason("no webhook is configured: CONSOLIDATION_WEBHOOK_URL is not set")
    result = deliver_events(consolidation.engine, settings, once=True, max_seconds=_DELIVERY_SECONDS, others=others)
    return dg.SkipReason(
        f"{result.delivered} events delivered, {result.failed} attempts failed, {result.waiting} events waiting"
    )


# This only corrects statuses, so it is on by default.
@described_sensor("job_status_sensor", minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def job_status_sensor(context: dg.SensorEvaluationContext, consolidation: ConsolidationResource) -> dg.SkipReason:
    """Set the right status of jobs and runs that were killed, cancelled or lost."""

    def find_ended(jobs: Sequence[UUID]) -> dict[UUID, str]:
        runs = find_runs_or_batches(context.instance, jobs)
        return {job: _ENDED[run.status] for job, run in runs.items() if run.status in _ENDED}

    engine = consolidation.engine
    fail_orphaned_runs(context.instance)
    marked = end_dead_jobs(engine, find_ended)
    dead = fail_dead_runs(context.instance, engine)
    cancelled = find_runs(context.instance, list_cancelled_unstarted(engine)).values()
    void = [run for run in cancelled if run.status in _NOT_STARTED]
    for run in void:
        context.instance.report_run_canceled(run, "the job of this run was cancelled before it began")
    changes = (
        ("jobs marked as ended", marked),
        ("runs marked as failed", dead),
        ("runs cancelled with their jobs", [run.run_id for run in void]),
    )
    described = [f"{what}: {', '.join(ids)}" for what, ids in changes if ids]
    return dg.SkipReason("; ".join(described) or "all statuses are right")


_SENSORS = (
    projects_sensor,
    task_memories_sensor,
    new_memories_sensor,
    unsummarized_memories_sensor,
    requested_jobs_sensor,
    sources_sensor,
    event_delivery_sensor,
    job_status_sensor,
)


def build_sensors(bound: Sequence[dg.JobDefinition]) -> list[dg.SensorDefinition]:
    """Return all sensors. ``bound``: jobs with their resource, in place of those of the same name."""
    jobs = {job.name: job for job in bound}
    with warnings.catch_warnings():
        # Dagster passes a beta parameter to itself.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return [_set_jobs(sensor, jobs) for sensor in _SENSORS]


def _set_jobs(sensor: dg.SensorDefinition, jobs: Mapping[str, dg.JobDefinition]) -> dg.SensorDefinition:
    if not sensor.targets:
        return sensor
    return sensor.with_attributes(jobs=[jobs.get(job.name, job) for job in sensor.jobs])
