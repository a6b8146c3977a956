"""Schedules: nightly consolidation, daily decay, weekly associations, quarterly forgetting."""

import dagster as dg

from consolidation_pipeline.defs.job_batches import job_batch
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.run_requests import SCHEDULE_STATUS, partition_requests, run_requests, say_why
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


def _launch(
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
    context.log.info(why := say_why(decision))
    if not decision.requests:
        return dg.SkipReason(why)
    # A schedule cannot return partition requests, and a run for a partition that is not there would be refused.
    for request in partition_requests(store, context.instance):
        context.instance.add_dynamic_partitions(projects.name or "", list(request.partition_keys))
    # A schedule has one job only, so a large project is a batch of its own here.
    return run_requests(decision, job=job, triggered_by=triggered_by)


@dg.schedule(job=job_batch, cron_schedule="*/15 * * * *", default_status=SCHEDULE_STATUS)
def nightly_consolidation(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Engine]
) -> list[dg.RunRequest] | dg.SkipReason:
    """When their option schedule comes, at 02:00 UTC unless set: projects with anything new, or with more active
    memories than their threshold. What was missed while nothing ran is made up for.
    """
    return _launch(
        context, store, is_due_tonight, job="consolidate", triggered_by="nightly_consolidation", by_cron=True
    )


@dg.schedule(job=job_batch, cron_schedule="0 4 * * *", default_status=SCHEDULE_STATUS)
def daily_decay(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Engine]
) -> list[dg.RunRequest] | dg.SkipReason:
    """Every day: relevance fades, also where nothing else happens."""
    return _launch(context, store, has_memories, job="decay", triggered_by="daily_decay")


@dg.schedule(job=job_batch, cron_schedule="0 5 * * 0", default_status=SCHEDULE_STATUS)
def weekly_associations(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Engine]
) -> list[dg.RunRequest] | dg.SkipReason:
    """Every Sunday: how memories relate, from a sample of the newest."""
    return _launch(context, store, can_associate, job="associate", triggered_by="weekly_associations")


@dg.schedule(job=job_batch, cron_schedule="0 6 1 1,4,7,10 *", default_status=SCHEDULE_STATUS)
def quarterly_forgetting(
    context: dg.ScheduleEvaluationContext, store: dg.ResourceParam[Engine]
) -> list[dg.RunRequest] | dg.SkipReason:
    """Every quarter, where forgetting is on: memories that no longer matter and that nothing protects are archived."""
    return _launch(context, store, can_forget, job="forget", triggered_by="quarterly_forgetting")
