"""Batches: jobs of many projects, executed one after another in one process, each as a run of its own partition.

Starting a process for each of a thousand small projects would take hours. Each project still has its own run,
materializations, checks and job, and is locked while its job runs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import dagster as dg
from pydantic import Field

from consolidation_pipeline.defs.maintenance import fail_without_traceback, parse_id
from consolidation_pipeline.defs.names import RESOURCE, own_name, prefixed
from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.resources import (
    AUTOMATION_TAGS,
    BATCH_TAG,
    JOB_TAG,
    TRIGGER_TAG,
    TRIGGERED_BY_TAG,
    ConsolidationResource,
)
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.jobs.job_requests import RequestedJob, list_pending_jobs
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.jobs import get_job
from consolidation_pipeline.store.jobs.project_lock import is_project_busy

# The caller shows progress and errors; the UI shows Dagster's log of the run.
_SILENT_CONSOLE = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
# Ids that an error message lists.
_MAX_LISTED = 5


class BatchConfig(dg.Config):
    """Jobs to run."""

    jobs: list[str] = Field(description="Ids of pending jobs, in the order to run them.")


def execute_in_process(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    slug: str,
    *,
    phases: tuple[str, ...],
    tags: Mapping[str, str],
    run_id: str | None = None,
) -> dg.ExecuteInProcessResult:
    """Run phases of a job of one project in this process, recorded in ``instance`` as a run of its partition.

    ``run_id``: id of the run; None = any.
    """
    assets = job.asset_layer.selected_asset_keys
    chosen = None if phases == JOB_PHASES[own_name(job.name)] else [key for key in assets if key.path[-1] in phases]
    return job.execute_in_process(
        partition_key=slug,
        instance=instance,
        run_config=_SILENT_CONSOLE,
        tags=dict(tags),
        asset_selection=chosen,
        raise_on_error=False,
        run_id=run_id,
    )


@dg.op(name=prefixed("run_pending_jobs"))
def run_pending_jobs(context: dg.OpExecutionContext, config: BatchConfig, consolidation: ConsolidationResource) -> None:
    """Run each job that is still pending. A failure does not stop the others. Jobs of busy projects stay pending."""
    store = consolidation.engine
    with fail_without_traceback():
        wanted = _parse_job_ids(config.jobs)
        # A project may be deleted after a sensor or schedule asked for its job.
        if context.run.tags.keys().isdisjoint(AUTOMATION_TAGS):
            _check_known(store, wanted)
    pending = {job.job_id: job for job in list_pending_jobs(store)}
    context.instance.add_dynamic_partitions(PROJECTS, sorted({job.project for job in pending.values()}))
    counts = Counter(_run_one(context, store, job_id, pending.get(job_id)) for job_id in wanted)
    context.add_output_metadata({"jobs": len(wanted), **counts})


def _parse_job_ids(jobs: Sequence[str]) -> list[UUID]:
    """Return the ids of a batch. Raise UsageError if there is none, or if one is no id."""
    if not jobs:
        raise UsageError("`jobs` is empty: give the ids of pending jobs, as in `consolidation history PROJECT`")
    try:
        return [parse_id(job) for job in jobs]
    except UsageError as error:
        raise UsageError(f"`jobs`: {error} of a pending job, as in `consolidation history PROJECT`") from None


def _check_known(engine: Engine, jobs: Sequence[UUID]) -> None:
    """Raise NotFoundError if one of these ids is of no job."""
    with engine.connect() as connection:
        unknown = [str(job) for job in jobs if get_job(connection, job) is None]
    if unknown:
        listed = ", ".join(unknown[:_MAX_LISTED])
        hint = "`consolidation history PROJECT` lists jobs"
        raise NotFoundError(f"`jobs`: there is no job {listed}, and none was run; {hint}")


def _run_one(context: dg.OpExecutionContext, store: Engine, job_id: UUID, job: RequestedJob | None) -> str:
    """Run a job, which is ``job`` if it is pending; return its final status.

    "skipped": it was started, done or cancelled elsewhere. "busy": its project is locked. "deleted": its row is gone.
    """
    with store.connect() as connection:
        row = get_job(connection, job_id)
        if row is None:
            return "deleted"
        if job is None or row.status != "pending":
            return "skipped"
        if is_project_busy(connection, job.project_id):
            return "busy"
    definition = context.repository_def.get_job(prefixed(job.job))
    tags = {**build_job_tags(job), BATCH_TAG: context.run_id}
    execute_in_process(definition, context.instance, job.project, phases=job.phases, tags=tags)
    _stop_if_cancelled(context)
    with store.connect() as connection:
        row = get_job(connection, job.job_id)
    status = "deleted" if row is None else str(row.status)
    context.log.info(f"{job.project}: {job.job} {status}")
    return status


def build_job_tags(job: RequestedJob) -> dict[str, str]:
    """Return the tags by which a Dagster run finds its job, and by which a run of the job is found."""
    return {JOB_TAG: str(job.job_id), TRIGGER_TAG: job.trigger_type, TRIGGERED_BY_TAG: job.triggered_by or ""}


def _stop_if_cancelled(context: dg.OpExecutionContext) -> None:
    """End the batch if its run was cancelled: an interrupt reaches only the run of the current project."""
    run = context.instance.get_run_by_id(context.run_id)
    if run is None or run.status is not dg.DagsterRunStatus.STARTED:
        raise dg.DagsterExecutionInterruptedError


def build_job_batch(resource: ConsolidationResource) -> dg.JobDefinition:
    """Return the job with its resource bound. Otherwise Dagster would bind it for each sensor, by a beta feature."""

    @dg.job(
        name=prefixed("job_batch"),
        resource_defs={RESOURCE: resource},
        executor_def=dg.in_process_executor,
        description="Run pending jobs of many small projects in one process, each as its own run. Config: jobs.",
    )
    def batch() -> None:
        run_pending_jobs()

    return batch


job_batch = build_job_batch(ConsolidationResource())


def build_batch_config(job_ids: list[str]) -> dict[str, Any]:
    """Return the run configuration of a batch of jobs."""
    return {"ops": {run_pending_jobs.name: {"config": {"jobs": job_ids}}}}
