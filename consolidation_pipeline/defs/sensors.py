"""Sensors: projects become partitions, memories and people ask for runs, job rows follow them, events go out."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.job_batches import end_orphans, job_batch
from consolidation_pipeline.defs.jobs import associate, consolidate, decay, forget, reembed, summarize
from consolidation_pipeline.defs.run_requests import (
    SENSOR_STATUS,
    end_dead_runs,
    find_runs,
    find_turns,
    partition_requests,
    pending_requests,
    run_requests,
    say_why,
)
from consolidation_pipeline.service.jobs.job_requests import list_unlaunched_jobs
from consolidation_pipeline.service.jobs.retry_policy import request_retries
from consolidation_pipeline.service.jobs.triggers import IsDue, can_summarize, is_threshold_due, request_jobs
from consolidation_pipeline.service.runs.stale_jobs import end_dead_jobs, list_cancelled_unstarted
from consolidation_pipeline.service.webhooks.event_delivery import deliver_events
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine

# A tick may take a minute; a try that was begun may take a quarter of that.
_DELIVERY_SECONDS = 20.0

_WAITS = {dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED}
_ENDED = {
    dg.DagsterRunStatus.SUCCESS: "completed",
    dg.DagsterRunStatus.FAILURE: "failed",
    dg.DagsterRunStatus.CANCELED: "cancelled",
}


@dg.sensor(minimum_interval_seconds=30, default_status=SENSOR_STATUS)
def projects_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """New projects become partitions."""
    requests = partition_requests(store, context.instance)
    if not requests:
        return dg.SkipReason("every project is a partition")
    return dg.SensorResult(dynamic_partitions_requests=requests)


@dg.sensor(job=job_batch, minimum_interval_seconds=60, default_status=SENSOR_STATUS)
def new_memories_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """A project with enough new memories since its last job gets one job."""
    return _ask(context, store, is_threshold_due, job="consolidate", triggered_by="new_memories_sensor")


@dg.sensor(job=job_batch, minimum_interval_seconds=60, default_status=SENSOR_STATUS)
def unsummarized_memories_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """A project in which enough memories wait for a summary, or a session ended, gets one job."""
    return _ask(context, store, can_summarize, job="summarize", triggered_by="unsummarized_memories_sensor")


@dg.sensor(
    jobs=[consolidate, summarize, decay, associate, forget, reembed, job_batch],
    minimum_interval_seconds=30,
    default_status=SENSOR_STATUS,
)
def requested_jobs_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """Jobs that were asked for over HTTP, MCP or the command line are launched, those whose run was lost once more, and
    those of sensors and schedules that failed up to twice again.
    """

    def find_launched(jobs: Sequence[UUID]) -> set[UUID]:
        # A run that was made and never launched is asked for again: under its run key Dagster launches that one.
        runs = find_turns(context.instance, jobs)
        return {job for job, run in runs.items() if run.status is not dg.DagsterRunStatus.NOT_STARTED}

    retries = request_retries(store, datetime.now(UTC))
    waiting = [*list_unlaunched_jobs(store, find_launched), *retries]
    if not waiting:
        return dg.SkipReason("no pending job waits for a run, and no failed one is to be tried again now")
    context.log.info(f"{len(waiting)} jobs launched, {len(retries)} of them in place of one that failed")
    return dg.SensorResult(
        run_requests=pending_requests(store, waiting),
        dynamic_partitions_requests=partition_requests(store, context.instance),
    )


def _ask(
    context: dg.SensorEvaluationContext, store: Engine, due: IsDue, *, job: str, triggered_by: str
) -> dg.SensorResult | dg.SkipReason:
    decision = request_jobs(store, due, job=job, trigger_type="threshold", triggered_by=triggered_by)
    context.log.info(why := say_why(decision))
    if not decision.requests:
        return dg.SkipReason(why)
    return dg.SensorResult(
        run_requests=run_requests(decision, job=job, triggered_by=triggered_by),
        dynamic_partitions_requests=partition_requests(store, context.instance),
    )


@dg.sensor(minimum_interval_seconds=30, default_status=SENSOR_STATUS)
def event_delivery_sensor(store: dg.ResourceParam[Engine]) -> dg.SkipReason:
    """Events reach the webhook, where one is configured."""
    settings = Settings()
    if settings.webhook_url is None:
        return dg.SkipReason("no webhook is configured: CONSOLIDATION_WEBHOOK_URL is not set")
    done = deliver_events(store, settings, once=True, max_seconds=_DELIVERY_SECONDS)
    return dg.SkipReason(f"{done.delivered} events delivered, {done.failed} tries failed, {done.waiting} wait")


# Bookkeeping only, so it runs wherever a daemon does.
@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def job_status_sensor(context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]) -> dg.SkipReason:
    """Job rows and runs tell the truth whatever way they ended: killed processes, cancelled and lost runs included."""

    def find_ended(jobs: Sequence[UUID]) -> dict[UUID, str]:
        runs = find_turns(context.instance, jobs)
        return {job: _ENDED[run.status] for job, run in runs.items() if run.status in _ENDED}

    end_orphans(context.instance)
    marked = end_dead_jobs(store, find_ended)
    dead = end_dead_runs(context.instance, store)
    void = [
        run for run in find_runs(context.instance, list_cancelled_unstarted(store)).values() if run.status in _WAITS
    ]
    for run in void:
        context.instance.report_run_canceled(run, "its job was cancelled before it began")
    told = (
        ("jobs marked as ended", marked),
        ("runs marked as failed", dead),
        ("runs cancelled with their jobs", [run.run_id for run in void]),
    )
    return dg.SkipReason("; ".join(f"{what}: {', '.join(ids)}" for what, ids in told if ids) or "every job row is true")
