"""Sensors: register partitions, request and launch jobs, update job statuses, deliver events."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.job_batches import job_batch
from consolidation_pipeline.defs.job_runs import fail_dead_runs, fail_orphaned_runs, find_runs, find_runs_or_batches
from consolidation_pipeline.defs.jobs import associate, consolidate, decay, forget, reembed, summarize
from consolidation_pipeline.defs.run_requests import (
    SENSOR_STATUS,
    build_batch_requests,
    build_partition_requests,
    build_run_requests,
    explain_decision,
)
from consolidation_pipeline.service.jobs.job_requests import list_unlaunched_jobs
from consolidation_pipeline.service.jobs.retry_policy import request_retries
from consolidation_pipeline.service.jobs.triggers import IsDue, can_summarize, is_threshold_due, request_jobs
from consolidation_pipeline.service.runs.stale_jobs import end_dead_jobs, list_cancelled_unstarted
from consolidation_pipeline.service.webhooks.event_delivery import deliver_events
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine

# A tick may take a minute, and an attempt that has begun may take another 15 seconds.
_DELIVERY_SECONDS = 20.0

_NOT_STARTED = {dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED}
_ENDED = {
    dg.DagsterRunStatus.SUCCESS: "completed",
    dg.DagsterRunStatus.FAILURE: "failed",
    dg.DagsterRunStatus.CANCELED: "cancelled",
}


@dg.sensor(minimum_interval_seconds=30, default_status=SENSOR_STATUS)
def projects_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """Add a partition for each new project."""
    requests = build_partition_requests(store, context.instance)
    if not requests:
        return dg.SkipReason("every project has a partition")
    return dg.SensorResult(dynamic_partitions_requests=requests)


@dg.sensor(job=job_batch, minimum_interval_seconds=60, default_status=SENSOR_STATUS)
def new_memories_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """Request a job for each project with enough new memories since its last job."""
    return _request_jobs(context, store, is_threshold_due, job="consolidate", triggered_by="new_memories_sensor")


@dg.sensor(job=job_batch, minimum_interval_seconds=60, default_status=SENSOR_STATUS)
def unsummarized_memories_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """Request a job for each project where enough memories have no summary, or where a session ended."""
    return _request_jobs(context, store, can_summarize, job="summarize", triggered_by="unsummarized_memories_sensor")


@dg.sensor(
    jobs=[consolidate, summarize, decay, associate, forget, reembed, job_batch],
    minimum_interval_seconds=30,
    default_status=SENSOR_STATUS,
)
def requested_jobs_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """Launch jobs that were requested over HTTP, MCP or the command line.

    Also launch jobs again whose run was lost, and retry failed jobs of sensors and schedules up to twice.
    """

    def find_launched(jobs: Sequence[UUID]) -> set[UUID]:
        # A run that was created but never launched is requested again: Dagster launches it by its run key.
        runs = find_runs_or_batches(context.instance, jobs)
        return {job for job, run in runs.items() if run.status is not dg.DagsterRunStatus.NOT_STARTED}

    retries = request_retries(store, datetime.now(UTC))
    pending = [*list_unlaunched_jobs(store, find_launched), *retries]
    if not pending:
        return dg.SkipReason("no pending job needs a run, and no failed job is due for a retry")
    context.log.info(f"{len(pending)} jobs launched, {len(retries)} of them as retries")
    return dg.SensorResult(
        run_requests=build_run_requests(store, pending),
        dynamic_partitions_requests=build_partition_requests(store, context.instance),
    )


def _request_jobs(
    context: dg.SensorEvaluationContext, store: Engine, due: IsDue, *, job: str, triggered_by: str
) -> dg.SensorResult | dg.SkipReason:
    decision = request_jobs(store, due, job=job, trigger_type="threshold", triggered_by=triggered_by)
    reasons = explain_decision(decision)
    context.log.info(reasons)
    if not decision.requests:
        return dg.SkipReason(reasons)
    return dg.SensorResult(
        run_requests=build_batch_requests(decision, job=job, triggered_by=triggered_by),
        dynamic_partitions_requests=build_partition_requests(store, context.instance),
    )


@dg.sensor(minimum_interval_seconds=30, default_status=SENSOR_STATUS)
def event_delivery_sensor(store: dg.ResourceParam[Engine]) -> dg.SkipReason:
    """Deliver events to the webhook, if one is configured."""
    settings = Settings()
    if settings.webhook_url is None:
        return dg.SkipReason("no webhook is configured: CONSOLIDATION_WEBHOOK_URL is not set")
    result = deliver_events(store, settings, once=True, max_seconds=_DELIVERY_SECONDS)
    return dg.SkipReason(
        f"{result.delivered} events delivered, {result.failed} attempts failed, {result.waiting} events waiting"
    )


# This only corrects statuses, so it is on by default.
@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def job_status_sensor(context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]) -> dg.SkipReason:
    """Set the right status of jobs and runs that were killed, cancelled or lost."""

    def find_ended(jobs: Sequence[UUID]) -> dict[UUID, str]:
        runs = find_runs_or_batches(context.instance, jobs)
        return {job: _ENDED[run.status] for job, run in runs.items() if run.status in _ENDED}

    fail_orphaned_runs(context.instance)
    marked = end_dead_jobs(store, find_ended)
    dead = fail_dead_runs(context.instance, store)
    cancelled = find_runs(context.instance, list_cancelled_unstarted(store)).values()
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
