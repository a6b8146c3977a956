"""Jobs of many projects in one process, one after another, each as a run of its own partition.

To start a process for each of a thousand small projects would take hours. Each project keeps its run, materializations
and checks, its job row, and its lock for as long as it is worked on.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import dagster as dg
from pydantic import Field

from consolidation_pipeline.defs.partitions import PROJECTS
from consolidation_pipeline.defs.resources import BATCH_TAG, JOB_TAG, TRIGGER_TAG, TRIGGERED_BY_TAG, store
from consolidation_pipeline.service.jobs.job_requests import RequestedJob, is_pending, list_pending_jobs
from consolidation_pipeline.service.runs.phases import JOB_PHASES
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.jobs import get_job
from consolidation_pipeline.store.jobs.project_lock import is_project_busy

# Progress and errors are the caller's to show; Dagster's own log of the run is in the UI.
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

_WAITS_OR_RUNS = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
# A cancelled batch ends the jobs that it did not begin; by then that is noticed.
_NOTICED_AFTER = timedelta(days=1)


class BatchConfig(dg.Config):
    """What to work off."""

    jobs: list[str] = Field(description="Ids of pending jobs, in the order in which they are run.")


def execute(
    job: dg.JobDefinition,
    instance: dg.DagsterInstance,
    slug: str,
    *,
    phases: tuple[str, ...],
    tags: Mapping[str, str],
) -> dg.ExecuteInProcessResult:
    """Run ``phases`` of a job of a project in this process, recorded in ``instance`` as a run of its partition."""
    chosen = None if phases == JOB_PHASES[job.name] else [dg.AssetKey(name) for name in phases]
    return job.execute_in_process(
        partition_key=slug,
        instance=instance,
        run_config=_QUIET,
        tags=dict(tags),
        asset_selection=chosen,
        raise_on_error=False,
    )


@dg.op
def run_pending_jobs(context: dg.OpExecutionContext, config: BatchConfig, store: dg.ResourceParam[Engine]) -> None:
    """Run each job that still waits; one that fails does not stop the others, one of a busy project goes on waiting."""
    waiting = {job.job_id: job for job in list_pending_jobs(store)}
    context.instance.add_dynamic_partitions(PROJECTS, sorted({job.project for job in waiting.values()}))
    ended = Counter(_run_one(context, store, waiting.get(UUID(job_id))) for job_id in config.jobs)
    context.add_output_metadata({"jobs": len(config.jobs), **ended})


def _run_one(context: dg.OpExecutionContext, store: Engine, job: RequestedJob | None) -> str:
    """How the job ended; "skipped": somebody else began, did or cancelled it; "busy": its project is held."""
    if job is None or not is_pending(store, job.job_id):
        return "skipped"
    with store.connect() as connection:
        if is_project_busy(connection, job.project_id):
            return "busy"
    definition = context.repository_def.get_job(job.job)
    execute(definition, context.instance, job.project, phases=job.phases, tags=_tags(job, context.run_id))
    _stop_if_cancelled(context)
    with store.connect() as connection:
        row = get_job(connection, job.job_id)
    status = "deleted" if row is None else str(row.status)
    context.log.info(f"{job.project}: {job.job} {status}")
    return status


def _tags(job: RequestedJob, batch: str) -> dict[str, str]:
    return {
        JOB_TAG: str(job.job_id),
        TRIGGER_TAG: job.trigger_type,
        TRIGGERED_BY_TAG: job.triggered_by or "",
        BATCH_TAG: batch,
    }


def _stop_if_cancelled(context: dg.OpExecutionContext) -> None:
    """An interrupt ends the run of the project that was worked on; it is meant for the batch."""
    run = context.instance.get_run_by_id(context.run_id)
    if run is None or run.status is not dg.DagsterRunStatus.STARTED:
        raise dg.DagsterExecutionInterruptedError


# What it needs is bound here: Definitions would bind it anew for each sensor that has it, by a beta feature.
@dg.job(
    resource_defs={"store": store},
    executor_def=dg.in_process_executor,
    description="Run pending jobs of many small projects, each as a run of its own; config: jobs.",
)
def job_batch() -> None:
    run_pending_jobs()


def batch_config(job_ids: list[str]) -> dict[str, Any]:
    """Run configuration of a batch of these jobs."""
    return {"ops": {run_pending_jobs.name: {"config": {"jobs": job_ids}}}}


def find_batched(instance: dg.DagsterInstance) -> dict[UUID, dg.DagsterRun]:
    """The batch in which a job waits for its turn, or which was cancelled before.

    A batch that ended any other way has left the job to the next one.
    """
    cancelled = dg.RunsFilter(
        job_name=job_batch.name,
        statuses=[dg.DagsterRunStatus.CANCELED],
        updated_after=datetime.now(UTC) - _NOTICED_AFTER,
    )
    live = dg.RunsFilter(job_name=job_batch.name, statuses=_WAITS_OR_RUNS)
    runs = [*instance.get_runs(cancelled), *instance.get_runs(live)]
    return {UUID(job_id): run for run in runs for job_id in _jobs_of(run)}


def end_orphans(instance: dg.DagsterInstance) -> list[str]:
    """Fail the runs of batches whose process was killed: they would count as running for ever; returns their ids."""
    runs = [run for run in instance.get_runs(dg.RunsFilter(statuses=_WAITS_OR_RUNS)) if BATCH_TAG in run.tags]
    live = {run.run_id for run in instance.get_runs(dg.RunsFilter(job_name=job_batch.name, statuses=_WAITS_OR_RUNS))}
    orphans = [run for run in runs if run.tags[BATCH_TAG] not in live]
    for run in orphans:
        instance.report_run_failed(run, "the batch that worked on it ended before it was done")
    return [run.run_id for run in orphans]


def _jobs_of(run: dg.DagsterRun) -> list[str]:
    config: Any = run.run_config
    return list(config.get("ops", {}).get(run_pending_jobs.name, {}).get("config", {}).get("jobs", ()))
