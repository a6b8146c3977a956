"""Sensors: projects become partitions, memories and people ask for runs, job rows follow them, events go out."""

from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.automation import (
    SENSOR_STATUS,
    partition_requests,
    pending_requests,
    run_requests,
    say_why_not,
)
from consolidation_pipeline.defs.jobs import associate, consolidate, decay, forget, summarize
from consolidation_pipeline.defs.resources import JOB_TAG
from consolidation_pipeline.service.events import deliver
from consolidation_pipeline.service.recovery import finish_dead_jobs
from consolidation_pipeline.service.requesting import find_unlaunched
from consolidation_pipeline.service.triggering import IsDue, is_ripe_for_summary, is_threshold_due, request_jobs
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.engine import Engine

# A tick may take a minute; a try that was begun may take a quarter of that.
_DELIVERY_SECONDS = 20.0

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


@dg.sensor(job=consolidate, minimum_interval_seconds=60, default_status=SENSOR_STATUS)
def new_memories_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """A project with enough new memories since its last job gets one job."""
    return _ask(context, store, is_threshold_due, job="consolidate", triggered_by="new_memories_sensor")


@dg.sensor(job=summarize, minimum_interval_seconds=60, default_status=SENSOR_STATUS)
def unsummarized_memories_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """A project in which enough memories wait for a summary, or a session ended, gets one job."""
    return _ask(context, store, is_ripe_for_summary, job="summarize", triggered_by="unsummarized_memories_sensor")


@dg.sensor(
    jobs=[consolidate, summarize, decay, associate, forget],
    minimum_interval_seconds=30,
    default_status=SENSOR_STATUS,
)
def requested_jobs_sensor(
    context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """Jobs that were asked for over HTTP, MCP or the command line are launched, and those whose run was lost again."""

    def has_run(job_id: UUID) -> bool:
        return bool(context.instance.get_runs(dg.RunsFilter(tags={JOB_TAG: str(job_id)}), limit=1))

    waiting = find_unlaunched(store, has_run)
    if not waiting:
        return dg.SkipReason("no pending job waits for a run")
    return dg.SensorResult(
        run_requests=pending_requests(waiting),
        dynamic_partitions_requests=partition_requests(store, context.instance),
    )


def _ask(
    context: dg.SensorEvaluationContext, store: Engine, due: IsDue, *, job: str, triggered_by: str
) -> dg.SensorResult | dg.SkipReason:
    decision = request_jobs(store, due, job=job, trigger_type="threshold", triggered_by=triggered_by)
    if not decision.requests:
        return dg.SkipReason(say_why_not(decision))
    return dg.SensorResult(
        run_requests=run_requests(decision, trigger_type="threshold", triggered_by=triggered_by),
        dynamic_partitions_requests=partition_requests(store, context.instance),
    )


@dg.sensor(minimum_interval_seconds=30, default_status=SENSOR_STATUS)
def event_delivery_sensor(store: dg.ResourceParam[Engine]) -> dg.SkipReason:
    """Events reach the webhook, where one is configured."""
    settings = Settings()
    if settings.webhook_url is None:
        return dg.SkipReason("no webhook is configured: CONSOLIDATION_WEBHOOK_URL is not set")
    done = deliver(store, settings, once=True, within=_DELIVERY_SECONDS)
    return dg.SkipReason(f"{done.delivered} events delivered, {done.failed} tries failed, {done.waiting} wait")


# Bookkeeping only, so it runs wherever a daemon does.
@dg.sensor(minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING)
def job_status_sensor(context: dg.SensorEvaluationContext, store: dg.ResourceParam[Engine]) -> dg.SkipReason:
    """Job rows tell the truth whatever way their run ended: killed processes, cancelled and lost runs included."""

    def ended(run_id: str | None, job_id: str) -> str | None:
        runs = context.instance.get_runs(
            dg.RunsFilter(run_ids=[run_id]) if run_id else dg.RunsFilter(tags={JOB_TAG: job_id}), limit=1
        )
        return _ENDED.get(runs[0].status) if runs else None

    marked = finish_dead_jobs(store, ended)
    return dg.SkipReason(f"marked as ended: {', '.join(marked)}" if marked else "every job row is true")
