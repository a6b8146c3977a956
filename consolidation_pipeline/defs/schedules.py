"""Schedules: nightly consolidation, daily decay, weekly associations and retention, quarterly forgetting."""

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from consolidation_pipeline.defs.job_batches import job_batch
from consolidation_pipeline.defs.maintenance import audit_retention
from consolidation_pipeline.defs.names import prefixed
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import TRIGGERED_BY_TAG, ConsolidationResource
from consolidation_pipeline.defs.run_requests import (
    SCHEDULE_STATUS,
    build_batch_requests,
    build_partition_requests,
    explain_decision,
    limit_to_selected,
)
from consolidation_pipeline.service.jobs.triggers import (
    IsDue,
    can_associate,
    can_forget,
    has_memories,
    is_due_tonight,
    request_jobs,
)


@dataclass(frozen=True)
class Timing:
    """Time at which a job is requested for all projects that are due.

    ``name``: of the schedule, without prefix. ``by_project``: the option `schedule` of each project decides, and the
    cron says only how often it is looked at.
    """

    name: str
    cron: str
    job: str
    due: IsDue
    description: str
    by_project: bool = False


_TIMINGS = (
    Timing(
        "nightly",
        "*/15 * * * *",
        "consolidate",
        is_due_tonight,
        "Request a job for each project with new memories, or with more active memories than its threshold. A project "
        "is due at the time of its option `schedule`, by default 02:00 UTC. Missed times are caught up.",
        by_project=True,
    ),
    Timing(
        "daily_decay",
        "0 4 * * *",
        "decay",
        has_memories,
        "Score relevance every day, since it decays even if nothing else changes.",
    ),
    Timing(
        "weekly_associations",
        "0 5 * * 0",
        "associate",
        can_associate,
        "Find relations in a sample of the newest memories, every Sunday.",
    ),
    Timing(
        "quarterly_forgetting",
        "0 6 1 1,4,7,10 *",
        "forget",
        can_forget,
        "Archive irrelevant memories that no rule protects, every quarter, in projects where forgetting is on.",
    ),
)
_RETENTION, _RETENTION_CRON = "weekly_audit_retention", "0 5 * * 0"
# Schedules whose cron a component may set, and their own.
CRONS: Mapping[str, str] = {timing.name: timing.cron for timing in _TIMINGS} | {_RETENTION: _RETENTION_CRON}


def build_schedules(crons: Mapping[str, str], batch: dg.JobDefinition = job_batch) -> list[dg.ScheduleDefinition]:
    """Return all schedules.

    Args:
        crons: Other crons for some of them (keys of ``CRONS``), in UTC. A cron for `nightly` holds for all projects,
            whatever their option `schedule` says.
        batch: `job_batch` with its resource.
    """
    found = [_build_schedule(timing, batch, crons.get(timing.name)) for timing in _TIMINGS]
    return [*found, _build_retention_schedule(crons.get(_RETENTION, _RETENTION_CRON))]


def _build_schedule(timing: Timing, batch: dg.JobDefinition, cron: str | None) -> dg.ScheduleDefinition:
    by_project = timing.by_project and cron is None

    @dg.schedule(
        name=prefixed(timing.name),
        job=batch,
        cron_schedule=cron or timing.cron,
        default_status=SCHEDULE_STATUS,
        description=timing.description,
    )
    def request_batches(
        context: dg.ScheduleEvaluationContext, consolidation: ConsolidationResource
    ) -> list[dg.RunRequest] | dg.SkipReason:
        decision = request_jobs(
            consolidation.engine,
            limit_to_selected(consolidation, timing.due),
            job=timing.job,
            trigger_type="scheduled",
            triggered_by=prefixed(timing.name),
            by_cron=by_project,
            settings=consolidation.settings if timing.by_project else None,
        )
        reasons = explain_decision(decision)
        context.log.info(reasons)
        if not decision.requests:
            return dg.SkipReason(reasons)
        # A schedule cannot return partition requests, and a run for a missing partition would be rejected.
        for request in build_partition_requests(consolidation, context.instance):
            context.instance.add_dynamic_partitions(projects.name or "", list(request.partition_keys))
        # A schedule can launch only one job definition, so a large project is a batch of its own here.
        return build_batch_requests(decision, job=timing.job, triggered_by=prefixed(timing.name))

    return request_batches


def _build_retention_schedule(cron: str) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=prefixed(_RETENTION),
        job=audit_retention,
        cron_schedule=cron,
        default_status=SCHEDULE_STATUS,
        description="Remove expired ledger changes and events every Sunday.",
    )
    def remove_expired() -> dg.RunRequest:
        return dg.RunRequest(tags={TRIGGERED_BY_TAG: prefixed(_RETENTION)})

    return remove_expired


nightly_consolidation, daily_decay, weekly_associations, quarterly_forgetting, weekly_audit_retention = build_schedules(
    {}
)
