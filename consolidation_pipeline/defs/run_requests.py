"""Run requests of sensors and schedules: for pending jobs and new partitions. Also their default status."""

import inspect
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from consolidation_pipeline.core.jobs.run_batching import Task, form_batches
from consolidation_pipeline.core.jobs.triggers import Due
from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.defs.job_batches import build_batch_config, build_job_tags, job_batch
from consolidation_pipeline.defs.names import prefixed
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import TRIGGERED_BY_TAG, ConsolidationResource
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.service.jobs.job_requests import LOST_AFTER, RequestedJob
from consolidation_pipeline.service.jobs.triggers import IsDue, TriggerDecision, describe_skipped
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline.store.admin.project_counts import Backlog, list_backlogs
from consolidation_pipeline.store.projects import list_projects

# More requested jobs than this are run in batches, since starting a process for each would take longer.
MAX_SINGLE_RUNS = 20

# `consolidation dev` switches all sensors and schedules on. Otherwise, a person switches them on in the UI.
_IS_ON = os.environ.get("CONSOLIDATION_AUTOMATION") == "running"
SENSOR_STATUS = dg.DefaultSensorStatus.RUNNING if _IS_ON else dg.DefaultSensorStatus.STOPPED
SCHEDULE_STATUS = dg.DefaultScheduleStatus.RUNNING if _IS_ON else dg.DefaultScheduleStatus.STOPPED


def described_sensor(name: str, **values: Any) -> Callable[[Callable[..., Any]], dg.SensorDefinition]:
    """Return a decorator that makes a sensor of a function, whose docstring is shown in the UI.

    Args:
        name: Without prefix.
        values: Other arguments of ``dg.sensor``.
    """

    def decorate(evaluate: Callable[..., Any]) -> dg.SensorDefinition:
        return dg.sensor(name=prefixed(name), description=inspect.getdoc(evaluate), **values)(evaluate)

    return decorate


def build_partition_requests(
    consolidation: ConsolidationResource, instance: dg.DagsterInstance
) -> list[dg.AddDynamicPartitionsRequest]:
    """Return a request for the partitions of projects that have none yet; empty if all have one."""
    with consolidation.engine.connect() as connection:
        slugs = [project.slug for project in list_projects(connection) if consolidation.selects(project.slug)]
    return build_missing_partitions(slugs, instance)


def build_missing_partitions(
    slugs: Sequence[str], instance: dg.DagsterInstance
) -> list[dg.AddDynamicPartitionsRequest]:
    """Return a request for the partitions of those of these projects that have none yet; empty if all have one."""
    known = set(instance.get_dynamic_partitions(projects.name or ""))
    new = [slug for slug in slugs if slug not in known]
    return [projects.build_add_request(new)] if new else []


def build_batch_requests(decision: TriggerDecision, *, job: str, triggered_by: str) -> list[dg.RunRequest]:
    """Return batches of the new jobs of a trigger's decision."""
    tasks = [
        Task(request.job_id, request.slug, job, request.memories, request.timeout_seconds)
        for request in decision.requests
    ]
    return [_build_batch_request(batch, triggered_by) for batch in form_batches(tasks)]


def build_run_requests(consolidation: ConsolidationResource, pending: Sequence[RequestedJob]) -> list[dg.RunRequest]:
    """Return a run for each pending job, with the job's id as run key; batches if more than ``MAX_SINGLE_RUNS``."""
    if len(pending) > MAX_SINGLE_RUNS:
        with consolidation.engine.connect() as connection:
            sizes = {backlog.slug: backlog.active for backlog in list_backlogs(connection)}
        tasks = [
            Task(job.job_id, job.project, job.job, sizes.get(job.project, 0), job.timeout_seconds) for job in pending
        ]
        return [_build_batch_request(batch, prefixed("requested_jobs_sensor")) for batch in form_batches(tasks)]
    return [
        dg.RunRequest(
            run_key=str(job.job_id),
            job_name=prefixed(job.job),
            partition_key=job.project,
            tags={**build_job_tags(job), "dagster/max_runtime": str(job.timeout_seconds * len(job.phases))},
            asset_selection=None
            if job.phases == JOB_PHASES[job.job]
            else list(map(consolidation.asset_key, job.phases)),
        )
        for job in pending
    ]


def _build_batch_request(batch: Sequence[Task], triggered_by: str) -> dg.RunRequest:
    """Return a run for a batch of jobs.

    Its run key makes Dagster launch the same jobs at most once in ten minutes (``LOST_AFTER``). A batch may leave some
    pending; they are launched again then.
    """
    ids = [str(task.job_id) for task in batch]
    bucket = datetime.now(UTC).timestamp() // LOST_AFTER.total_seconds()
    return dg.RunRequest(
        run_key=f"{bucket:.0f}-{content_hash(' '.join(sorted(ids)))}",
        job_name=job_batch.name,
        run_config=build_batch_config(ids),
        tags={
            TRIGGERED_BY_TAG: triggered_by,
            "consolidation/jobs": str(len(batch)),
            "dagster/max_runtime": str(sum(task.timeout_seconds * len(JOB_PHASES[task.job]) for task in batch)),
        },
    )


def limit_to_selected(consolidation: ConsolidationResource, due: IsDue) -> IsDue:
    """Return ``due`` for the projects of this code location; no other project is due."""

    def decide(backlog: Backlog, options: ConsolidationOptions) -> Due:
        if not consolidation.selects(backlog.slug):
            return Due(False, "not one of the projects of this code location")
        return due(backlog, options)

    return decide


def explain_decision(decision: TriggerDecision) -> str:
    """Return why jobs were requested, and why other projects were skipped: at most ten of each, unusual ones first."""
    requested = [f"{request.slug}: {request.reason}" for request in decision.requests]
    return "; ".join([*_first_ten(requested), *_first_ten(describe_skipped(decision))]) or "there are no projects"


def list_first_ten(slugs: Sequence[str]) -> str:
    """Return the first ten of some projects, and how many more there are."""
    return ", ".join(_first_ten(slugs))


def _first_ten(reasons: Sequence[str]) -> list[str]:
    more = len(reasons) - 10
    return [*reasons[:10], f"and {more} more"] if more > 0 else list(reasons)
