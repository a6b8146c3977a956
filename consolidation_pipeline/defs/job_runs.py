"""Dagster runs of jobs: find the run or batch of a job, and fail runs whose process was killed."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import dagster as dg

from consolidation_pipeline.defs.job_batches import job_batch, run_pending_jobs
from consolidation_pipeline.defs.resources import BATCH_TAG, JOB_TAG
from consolidation_pipeline.service.runs.stale_jobs import DIED, list_dead_runs
from consolidation_pipeline.store.database.engine import Engine

_MAX_IDS_PER_QUERY = 500
_STARTED = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
_UNFINISHED = [
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    *_STARTED,
]
# The sensor ends the jobs that a cancelled batch did not begin. It needs far less than this time.
_CANCELLED_WITHIN = timedelta(days=1)


def find_runs(instance: dg.DagsterInstance, jobs: Sequence[UUID]) -> dict[UUID, dg.DagsterRun]:
    """Return the newest run of each job that has one."""
    found: dict[UUID, dg.DagsterRun] = {}
    for start in range(0, len(jobs), _MAX_IDS_PER_QUERY):
        ids = [str(job) for job in jobs[start : start + _MAX_IDS_PER_QUERY]]
        for run in instance.get_runs(dg.RunsFilter(tags={JOB_TAG: ids})):  # newest first
            found.setdefault(UUID(run.tags[JOB_TAG]), run)
    return found


def find_runs_or_batches(instance: dg.DagsterInstance, jobs: Sequence[UUID]) -> dict[UUID, dg.DagsterRun]:
    """Return the newest run of each job, else the batch in which it waits or with which it was cancelled."""
    batches = _find_batches(instance)
    return {job: batches[job] for job in jobs if job in batches} | find_runs(instance, jobs)


def _find_batches(instance: dg.DagsterInstance) -> dict[UUID, dg.DagsterRun]:
    """Return job id -> unfinished or recently cancelled batch. Jobs that other batches left go to the next batch."""
    cancelled = dg.RunsFilter(
        job_name=job_batch.name,
        statuses=[dg.DagsterRunStatus.CANCELED],
        updated_after=datetime.now(UTC) - _CANCELLED_WITHIN,
    )
    unfinished = dg.RunsFilter(job_name=job_batch.name, statuses=_UNFINISHED)
    batches = [*instance.get_runs(cancelled), *instance.get_runs(unfinished)]
    return {job_id: batch for batch in batches for job_id in _list_batch_jobs(batch)}


def _list_batch_jobs(batch: dg.DagsterRun) -> list[UUID]:
    """Return the jobs of a batch; a person may have started one with texts that are no ids, which fails."""
    config: Any = batch.run_config
    jobs = config.get("ops", {}).get(run_pending_jobs.name, {}).get("config", {}).get("jobs", ())
    found = []
    for job in jobs:
        with suppress(ValueError):
            found.append(UUID(job))
    return found


def fail_dead_runs(instance: dg.DagsterInstance, engine: Engine) -> list[str]:
    """Mark runs failed whose process was killed; return their ids.

    Dagster would count them as running for ever, and start no queued run of their project. Its own monitoring ignores
    the runs of ``consolidation run``, since no launcher started them.
    """
    runs = {run.run_id: run for run in instance.get_runs(dg.RunsFilter(statuses=_STARTED))}
    dead = list_dead_runs(engine, list(runs))
    for run_id in dead:
        instance.report_run_failed(runs[run_id], DIED)
    return list(dead)


def fail_orphaned_runs(instance: dg.DagsterInstance) -> list[str]:
    """Mark runs failed whose batch has ended; return their ids.

    If the process of a batch is killed, Dagster would count the run that it worked on as running for ever.
    """
    runs = [run for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED)) if BATCH_TAG in run.tags]
    batches = dg.RunsFilter(job_name=job_batch.name, statuses=_UNFINISHED)
    unfinished = {batch.run_id for batch in instance.get_runs(batches)}
    orphans = [run for run in runs if run.tags[BATCH_TAG] not in unfinished]
    for run in orphans:
        instance.report_run_failed(run, "the batch that executed this run ended before the run did")
    return [run.run_id for run in orphans]
