"""Schedules: nightly consolidation, daily decay, weekly associations, quarterly forgetting."""

import dagster as dg

from consolidation_pipeline.defs.job_batches import job_batch
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.run_requests import (
    SCHEDULE_STATUS,
    build_batch_requests,
    build_partition_requests,
    explain_decision,
)
from consolidation_pipeline.service.jobs.triggers import (
    IsDue,
    can_associate,
    can_forget,
    has_memories,
    is_due_tonight,
    request_jobs,
)
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Engine


def _request_batches(
    context: dg.ScheduleEvaluationContext,
    store: Engine,
    due: IsDue,
    *,
    job: str,
    triggered_by: str,
    by_cron: bool = False,
) -> list[dg.RunRequest] | dg.SkipReason:
    decision = request_jobs(
        store,
        due,
        job=job,
        trigger_type="scheduled",
        triggered_by=triggered_by,
        by_cron=by_cron,
        settings=Settings() if by_cron else None,
    )
    reasons = explain_decision(decision)
    context.log.info(reasons)
    if not decision.requests:
        return dg.SkipReason(reasons)
    # A schedule cannot return partition requests, and a run for a missing partition would be rejected.
    for request in build_partition_requests(store, context.instance):
        context.instance.add_dynamic_partitions(projects.name or "", list(request.partition_keys))
    # A schedule can launch only one job definition, so a large project is a batch of its own here.
    return build_batch_requests(decision, job=job, triggered_by=triggered_by)


@dg.schedule(job=job_batch, cron_schedule="*/15 * * * *", default_status=SCHEDULE_STATUS)
def nightly_consolidation(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Engine]
) -> list[dg.RunRequest] | dg.SkipReason:
    """Request a job for each project with new memories, or with more active memories than its threshold.

    A project is due at the time of its option `schedule`, by default 02:00 UTC. Missed times are caught up.
    """
    return _request_batches(
        context, store, is_due_tonight, job="consolidate", triggered_by="nightly_consolidation", by_cron=True
    )


@dg.schedule(job=job_batch, cron_schedule="0 4 * * *", default_status=SCHEDULE_STATUS)
def daily_decay(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Engine]
) -> list[dg.RunRequest] | dg.SkipReason:
    """Score relevance every day, since it decays even if nothing else changes."""
    return _request_batches(context, store, has_memories, job="decay", triggered_by="daily_decay")


@dg.schedule(job=job_batch, cron_schedule="0 5 * * 0", default_status=SCHEDULE_STATUS)
def weekly_associations(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Engine]
) -> list[dg.RunRequest] | dg.SkipReason:
    """Find relations in a sample of the newest memories, every Sunday."""
    return _request_batches(context, store, can_associate, job="associate", triggered_by="weekly_associations")


@dg.schedule(job=job_batch, cron_schedule="0 6 1 1,4,7,10 *", default_status=SCHEDULE_STATUS)
def quarterly_forgetting(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Engine]
) -> list[dg.RunRequest] | dg.SkipReason:
    """Archive irrelevant memories that no rule protects, every quarter, in projects where forgetting is on."""
    return _request_batches(context, store, can_forget, job="forget", triggered_by="quarterly_forgetting")
