"""Rows of jobs: appended, listed, started, and ended with an event.

A project has at most one running job. Pending ones wait in the order in which they were asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import IntegrityError

from consolidation_pipeline.errors import NotFoundError, ProjectBusyError
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.jobs.project_lock import HELD_LOCKS


@dataclass(frozen=True)
class NewJob:
    """A job to make. ``phases``: all phases of the job that ``scope`` names; a job that completed them is a success."""

    project_id: UUID
    trigger_type: str
    triggered_by: str
    options: Mapping[str, Any]
    scope: Mapping[str, Any] = field(default_factory=dict)
    phases: Sequence[str] = ()


# For a row `w` of project_id, job and phases: the newest failure of this job, unless a later job completed the phases,
# or those that the failure left, as a run that Dagster executes again from its failure does.
_NEWEST_FAILURE = """
    SELECT newest.* FROM (
        SELECT * FROM consolidation.consolidation_jobs j
        WHERE j.project_id = w.project_id AND j.status = 'failed' AND j.retry_count > 0
            AND NOT j.scope ?| ARRAY['phases', 'plan'] AND coalesce(j.scope ->> 'job', 'consolidate') = w.job
        ORDER BY j.created_at DESC LIMIT 1) newest,
        LATERAL (SELECT ARRAY(
            SELECT jsonb_array_elements_text(w.phases) EXCEPT SELECT unnest(newest.phases_completed)
        ) AS phases) remaining
    WHERE NOT EXISTS (
        SELECT FROM consolidation.consolidation_jobs done
        WHERE done.project_id = w.project_id AND done.created_at > newest.created_at
            AND (done.phases_completed @> ARRAY(SELECT jsonb_array_elements_text(w.phases))
                OR done.status = 'completed' AND cardinality(remaining.phases) > 0
                    AND done.phases_completed @> remaining.phases))
"""

_APPEND_JOBS = compose(
    """
    INSERT INTO consolidation.consolidation_jobs (project_id, trigger_type, triggered_by, options, scope, retry_count)
    SELECT w.project_id, w.trigger_type, w.triggered_by, w.options, w.scope, coalesce(f.retry_count, 0)
    FROM (
        SELECT *, coalesce(scope ->> 'job', 'consolidate') AS job FROM jsonb_to_recordset(CAST(:wanted AS jsonb)) AS r(
            project_id uuid, trigger_type text, triggered_by text, options jsonb, scope jsonb, phases jsonb)) w
        LEFT JOIN LATERAL (/* newest_failure */) f
            ON NOT w.scope ?| ARRAY['phases', 'plan'] AND jsonb_array_length(w.phases) > 0
    WHERE :queued OR NOT EXISTS (
        SELECT FROM consolidation.consolidation_jobs live
        WHERE live.project_id = w.project_id AND live.status IN ('pending', 'running'))
    RETURNING project_id, id
    """,
    newest_failure=_NEWEST_FAILURE,
)
# Whoever appends a job looks at the live jobs of the project before: one at a time.
_LOCK_PROJECTS = "SELECT id FROM consolidation.projects WHERE id = ANY(:projects) ORDER BY id FOR NO KEY UPDATE"


def lock_queues(connection: Connection, project_ids: Sequence[UUID]) -> None:
    """Let nobody else append a job to these projects until the transaction ends."""
    connection.execute(text(_LOCK_PROJECTS), {"projects": list(project_ids)})


def append_idle_jobs(connection: Connection, wanted: Sequence[NewJob]) -> dict[UUID, UUID]:
    """Append a pending job for each project that has no pending or running one; return project id -> job id.

    Of several jobs for a project, the first is appended.
    """
    first = {job.project_id: job for job in reversed(wanted)}
    lock_queues(connection, list(first))
    return _append_jobs(connection, list(first.values()), queued=False)


def append_job(
    connection: Connection,
    project_id: UUID,
    *,
    trigger_type: str,
    triggered_by: str,
    options: Mapping[str, Any],
    scope: Mapping[str, Any] | None = None,
    phases: Sequence[str] = (),
) -> UUID:
    """Append a pending job, see ``NewJob``, behind the other live jobs of the project; return its id."""
    wanted = NewJob(project_id, trigger_type, triggered_by, options, scope or {}, phases)
    return _append_jobs(connection, [wanted], queued=True)[project_id]


def _append_jobs(connection: Connection, wanted: Sequence[NewJob], *, queued: bool) -> dict[UUID, UUID]:
    """Append jobs of different projects; each continues the count of failures in a row of the job of its name."""
    parameters = {"wanted": json.dumps([vars(job) for job in wanted], default=str), "queued": queued}
    return {row.project_id: row.id for row in connection.execute(text(_APPEND_JOBS), parameters)}


_LIST_FAILING_JOBS = compose(
    """
    SELECT f.*, w.slug, w.config, w.consolidation_enabled, w.job, EXISTS (
        SELECT FROM consolidation.consolidation_jobs n
        WHERE n.project_id = w.project_id AND n.created_at > f.created_at
            AND NOT n.scope ?| ARRAY['phases', 'plan'] AND coalesce(n.scope ->> 'job', 'consolidate') = w.job
        ) AS asked_since
    FROM (
        SELECT p.id AS project_id, p.slug, p.config, p.consolidation_enabled, j.job, j.phases
        FROM consolidation.projects p, jsonb_each(CAST(:phases AS jsonb)) AS j(job, phases)
        WHERE (CAST(:project AS uuid) IS NULL OR p.id = :project) AND p.id IN (
            SELECT project_id FROM consolidation.consolidation_jobs WHERE status = 'failed' AND retry_count > 0)) w,
        LATERAL (/* newest_failure */) f
    ORDER BY w.slug, w.job
    """,
    newest_failure=_NEWEST_FAILURE,
)


def list_failing_jobs(
    connection: Connection, phases: Mapping[str, Sequence[str]], project_id: UUID | None = None
) -> Sequence[Row[Any]]:
    """Return the newest failure of each project and job that nothing has completed since, by project and job.

    A run of some phases or of a plan is no attempt at the job.

    Args:
        phases: All phases of each job, by its name. A job that completed them all is a success.
        project_id: None = all projects.

    Returns:
        Rows of jobs with ``slug``, ``config`` and ``consolidation_enabled`` of the project, the name ``job``, and
        ``asked_since``: True if a newer job of this name exists, whatever became of it.
    """
    given = {job: list(names) for job, names in phases.items()}
    return connection.execute(text(_LIST_FAILING_JOBS), {"phases": json.dumps(given), "project": project_id}).all()


_LIST_QUEUE = """
    SELECT * FROM consolidation.consolidation_jobs WHERE project_id = :project AND status IN ('pending', 'running')
    ORDER BY status = 'running' DESC, created_at, id
"""


def list_queue(connection: Connection, project_id: UUID) -> Sequence[Row[Any]]:
    """Return the live jobs of a project in the order in which they run: the running one, then the pending ones."""
    return connection.execute(text(_LIST_QUEUE), {"project": project_id}).all()


def find_live_job(connection: Connection, project_id: UUID) -> Row[Any] | None:
    """Return the running job of a project, or else the pending one that is next; None if there is none."""
    return next(iter(list_queue(connection, project_id)), None)


_LIST_LIVE_JOBS = compose(
    """
    WITH held AS (/* held_locks */)
    SELECT j.*, p.slug, p.consolidation_enabled,
        hashtextextended('consolidation:project:' || CAST(j.project_id AS text), 0) IN (SELECT key FROM held) AS busy
    FROM consolidation.consolidation_jobs j JOIN consolidation.projects p ON p.id = j.project_id
    WHERE j.status IN ('pending', 'running') ORDER BY j.created_at, j.id
    """,
    held_locks=HELD_LOCKS,
)


def list_live_jobs(connection: Connection) -> Sequence[Row[Any]]:
    """Return the pending and running jobs of all projects, oldest first.

    Beside the columns of jobs: ``slug``, ``consolidation_enabled``, and ``busy``: True if a process holds the project.
    A project may have a running job and several pending ones.
    """
    return connection.execute(text(_LIST_LIVE_JOBS)).all()


def list_pending_jobs(connection: Connection) -> Sequence[Row[Any]]:
    """Return the rows of ``list_live_jobs`` that are pending in an enabled project."""
    return [job for job in list_live_jobs(connection) if job.status == "pending" and job.consolidation_enabled]


_LIST_CANCELLED_BEFORE_START = """
    SELECT id FROM consolidation.consolidation_jobs
    WHERE status = 'cancelled' AND started_at IS NULL AND completed_at >= :since
"""


def list_cancelled_before_start(connection: Connection, since: datetime) -> Sequence[UUID]:
    """Return the ids of jobs that were cancelled at ``since`` or later and before any run began them."""
    return connection.scalars(text(_LIST_CANCELLED_BEFORE_START), {"since": since}).all()


_LIST_ENDED_RUNS = compose(
    """
    WITH held AS (/* held_locks */)
    SELECT j.dagster_run_id FROM consolidation.consolidation_jobs j
    WHERE j.dagster_run_id = ANY(:runs) AND j.status NOT IN ('pending', 'running')
        AND (j.error_message = :died OR j.completed_at < now() - interval '1 minute')
        AND hashtextextended('consolidation:project:' || CAST(j.project_id AS text), 0)
            NOT IN (SELECT key FROM held)
    ORDER BY 1
    """,
    held_locks=HELD_LOCKS,
)


def list_ended_runs(connection: Connection, runs: Sequence[str], *, died: str) -> Sequence[str]:
    """Return those of the Dagster runs ``runs`` whose job has ended and whose project no process holds.

    A job that ended within the last minute may have been ended by its own run, which is about to end too. It is left
    out unless its error is ``died``, which only other processes write.
    """
    return connection.scalars(text(_LIST_ENDED_RUNS), {"runs": list(runs), "died": died}).all()


_GET_JOB = """
    SELECT j.*, p.slug FROM consolidation.consolidation_jobs j JOIN consolidation.projects p ON p.id = j.project_id
    WHERE j.id = :job
"""


def get_job(connection: Connection, job_id: UUID) -> Row[Any] | None:
    """Return a job with the ``slug`` of its project; None if it does not exist."""
    return connection.execute(text(_GET_JOB), {"job": job_id}).one_or_none()


def require_job(connection: Connection, job_id: UUID) -> Row[Any]:
    """Return a job as ``get_job`` does. Raise NotFoundError if it does not exist."""
    job = get_job(connection, job_id)
    if job is None:
        raise NotFoundError(f"there is no job {job_id}; `consolidation history PROJECT` lists jobs")
    return job


_LOCK_JOB_STATUS = "SELECT id, status, metrics FROM consolidation.consolidation_jobs WHERE id = :job FOR SHARE"


def lock_job_status(connection: Connection, job_id: UUID) -> Row[Any] | None:
    """Return ``id``, ``status`` and ``metrics`` of a job, which cannot change until the transaction ends."""
    return connection.execute(text(_LOCK_JOB_STATUS), {"job": job_id}).one_or_none()


_FIND_JOB_BY_RUN = "SELECT * FROM consolidation.consolidation_jobs WHERE dagster_run_id = :run"


def find_job_by_run(connection: Connection, run_id: str) -> Row[Any] | None:
    """Return the job that a Dagster run executed; None if it executed none."""
    return connection.execute(text(_FIND_JOB_BY_RUN), {"run": run_id}).one_or_none()


_LIST_JOBS = """
    SELECT * FROM consolidation.consolidation_jobs WHERE project_id = :project
    ORDER BY created_at DESC, id LIMIT :limit OFFSET :offset
"""


def list_jobs(connection: Connection, project_id: UUID, *, limit: int, offset: int = 0) -> Sequence[Row[Any]]:
    """Return the jobs of a project, newest first."""
    return connection.execute(text(_LIST_JOBS), {"project": project_id, "limit": limit, "offset": offset}).all()


_FIND_JOB_WITH_FINGERPRINT = """
    SELECT * FROM consolidation.consolidation_jobs WHERE project_id = :project AND metrics ? 'state'
    ORDER BY created_at DESC LIMIT 1
"""


def find_job_with_fingerprint(connection: Connection, project_id: UUID) -> Row[Any] | None:
    """Return the newest job that recorded a fingerprint of the project (``state`` in its metrics)."""
    return connection.execute(text(_FIND_JOB_WITH_FINGERPRINT), {"project": project_id}).one_or_none()


_START_JOB = """
    UPDATE consolidation.consolidation_jobs
    SET status = 'running', started_at = now(), dagster_run_id = :run, options = CAST(:options AS jsonb),
        metrics = metrics || CAST(:metrics AS jsonb)
    WHERE id = :job AND status = 'pending' RETURNING started_at
"""


def start_job(
    connection: Connection,
    job_id: UUID,
    *,
    run_id: str | None,
    options: Mapping[str, Any],
    metrics: Mapping[str, Any] | None = None,
) -> datetime | None:
    """Mark a pending job running; return when it began. None if it is no longer pending.

    ``metrics``: what the job records at its start, under names that no phase has.

    Raises:
        ProjectBusyError: Another job of the project is running, as a restart of the database released its lock.
    """
    told = json.dumps(dict(metrics or {}))
    parameters = {"job": job_id, "run": run_id, "options": json.dumps(dict(options)), "metrics": told}
    try:
        return connection.execute(text(_START_JOB), parameters).scalar_one_or_none()
    except IntegrityError as error:  # consolidation_jobs_running_key
        raise ProjectBusyError(
            f"job {job_id} cannot begin: another run of its project began; try again later"
        ) from error


_RECORD_PHASE = """
    UPDATE consolidation.consolidation_jobs
    SET phases_completed = array_append(array_remove(phases_completed, :phase), :phase),
        phases_failed = array_remove(phases_failed, :phase),
        progress = least(1.0, (cardinality(array_remove(phases_completed, :phase)) + 1)::float8 / :planned),
        metrics = metrics || jsonb_build_object(CAST(:phase AS text), CAST(:metrics AS jsonb)) /* counters */
    WHERE id = :job
"""


def record_phase(
    connection: Connection,
    job_id: UUID,
    phase: str,
    *,
    planned: int,
    metrics: Mapping[str, Any],
    counters: Mapping[str, int],
) -> None:
    """Record a completed phase on the job.

    Args:
        planned: Number of planned phases, by which the progress of the job is computed.
        metrics: Numbers of the phase, stored under its name.
        counters: Column of jobs -> number to add to it.
    """
    added = "".join(f", {name} = {name} + :{name}" for name in counters)
    parameters = {"job": job_id, "phase": phase, "planned": max(planned, 1), "metrics": json.dumps(dict(metrics))}
    connection.execute(text(compose(_RECORD_PHASE, counters=added)), {**parameters, **counters})


_RECORD_FAILED_PHASE = r"""
    UPDATE consolidation.consolidation_jobs
    SET phases_failed = array_append(array_remove(phases_failed, :phase), :phase),
        error_message = coalesce(error_message || E'\n', '') || :error
    WHERE id = :job
"""


def record_failed_phase(connection: Connection, job_id: UUID, phase: str, error: str) -> None:
    """Record a failed phase on the job, which goes on with phases that do not need it."""
    parameters = {"job": job_id, "phase": phase, "error": f"{phase}: {error}".replace("\0", "")}
    connection.execute(text(_RECORD_FAILED_PHASE), parameters)


# The costs are summed here, as the process that ends a job may not be the one that ran it. A run of some phases or of
# a plan is no attempt at the job, so its failure is not counted.
_FINISH_JOB = """
    UPDATE consolidation.consolidation_jobs
    SET status = :status, completed_at = now(),
        duration_seconds = extract(epoch FROM now() - coalesce(started_at, now())),
        progress = CASE WHEN :status = 'completed' THEN 1 ELSE progress END,
        error_message = coalesce(error_message, :error),
        retry_count = retry_count + CAST(:status = 'failed' AND NOT scope ?| ARRAY['phases', 'plan'] AS integer),
        metrics = metrics || CAST(:metrics AS jsonb) || (
            SELECT jsonb_build_object(
                'cost_usd', coalesce(sum(coalesce(cost_usd, reserved_usd)), 0)::float8,
                'tokens', coalesce(sum(prompt_tokens::bigint + completion_tokens), 0)::bigint,
                'calls', count(*) FILTER (WHERE llm_calls.status <> 'cached'))
            FROM consolidation.llm_calls WHERE job_id = :job)
    WHERE id = :job AND status IN ('pending', 'running') RETURNING project_id
"""


def finish_job(
    connection: Connection,
    job_id: UUID,
    status: str,
    *,
    error: str | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> bool:
    """End a pending or running job with ``status``, what it spent, and an event. Return False if it had ended before.

    Args:
        status: completed, failed or cancelled.
        error: Error message, stored if the job has none yet.
        metrics: Numbers to add to those of the job.
    """
    parameters = {"job": job_id, "status": status, "error": error, "metrics": json.dumps(dict(metrics or {}))}
    row = connection.execute(text(_FINISH_JOB), parameters).one_or_none()
    if row is not None:
        append_event(connection, row.project_id, f"consolidation.{status}", {"job_id": str(job_id), "error": error})
    return row is not None
