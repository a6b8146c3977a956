"""Job rows, the project lock that says whether a run is alive, and the outbox."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, select, text
from sqlalchemy.exc import OperationalError

from consolidation_pipeline.errors import ConflictError, ProjectBusyError
from consolidation_pipeline.store.database.schema import LIVE_JOB_STATUSES, consolidation_jobs, projects

# Of a row of jobs: the job that it names, and whether it is all of that job and not some phases of it or a plan.
JOB_NAME = "coalesce({}.scope ->> 'job', 'consolidate')"
WHOLE_JOB = "NOT {}.scope ?| ARRAY['phases', 'plan']"
# What a job spent by now; who ends it may not be who ran it.
_SPENT = """(SELECT jsonb_build_object('cost_usd', coalesce(sum(coalesce(cost_usd, reserved_usd)), 0)::float8,
    'tokens', coalesce(sum(prompt_tokens::bigint + completion_tokens), 0)::bigint,
    'calls', count(*) FILTER (WHERE llm_calls.status <> 'cached')) FROM consolidation.llm_calls WHERE job_id = :job)"""
_LOCK = "hashtextextended('consolidation:project:' || CAST({} AS text), 0)"
_LOCK_OF_PROJECT = _LOCK.format(":project")
_HELD = """SELECT (l.classid::bigint << 32) | l.objid::bigint AS key FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


@contextmanager
def project_lock(engine: Engine, project_id: UUID, slug: str, *, wait_seconds: float) -> Iterator[None]:
    """Hold the project: one run or rollback at a time. The server drops the lock when this process dies.

    Raises:
        ProjectBusyError: another process still holds the project after ``wait_seconds``.
    """
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        if not _acquire(connection, project_id, wait_seconds):
            raise ProjectBusyError(
                f"project {slug} is busy: another run or rollback holds it; try again when it is done"
            )
        yield
    finally:
        _release(connection, project_id)


def _acquire(connection: Connection, project_id: UUID, wait_seconds: float) -> bool:
    deadline = time.monotonic() + wait_seconds
    while True:
        got = connection.execute(
            text(f"SELECT pg_try_advisory_lock({_LOCK_OF_PROJECT})"), {"project": project_id}
        ).scalar()
        if got or time.monotonic() >= deadline:
            return bool(got)
        time.sleep(0.1)


def _release(connection: Connection, project_id: UUID) -> None:
    try:
        if not connection.invalidated:  # else it was cut, and the lock is gone with it
            connection.execute(text(f"SELECT pg_advisory_unlock({_LOCK_OF_PROJECT})"), {"project": project_id})
    except OperationalError:
        connection.invalidate()
    finally:
        connection.close()


def is_project_busy(connection: Connection, project_id: UUID) -> bool:
    """Whether a live process holds the project."""
    query = f"SELECT {_LOCK_OF_PROJECT} IN ({_HELD})"
    return bool(connection.execute(text(query), {"project": project_id}).scalar())


@dataclass(frozen=True)
class NewJob:
    """A job to make. ``phases``: those of the whole job that its ``scope`` names, by which a success is known."""

    project_id: UUID
    trigger_type: str
    triggered_by: str
    options: Mapping[str, Any]
    scope: Mapping[str, Any] = field(default_factory=dict)
    phases: Sequence[str] = ()


def append_jobs(connection: Connection, wanted: Sequence[NewJob]) -> dict[UUID, UUID]:
    """New pending jobs: project -> job. A project that has a pending or running job gets none and is left out.

    Each takes over how often the same job has failed in a row.
    """
    query = f"""
        INSERT INTO consolidation.consolidation_jobs (project_id, trigger_type, triggered_by, options, scope, retry_count)
        SELECT w.project_id, w.trigger_type, w.triggered_by, w.options, w.scope, coalesce(f.retry_count, 0)
        FROM jsonb_to_recordset(CAST(:wanted AS jsonb))
            AS w(project_id uuid, trigger_type text, triggered_by text, options jsonb, scope jsonb, phases jsonb)
            LEFT JOIN LATERAL ({_newest_failure("w.project_id", JOB_NAME.format("w"), "w.phases")}) f
            ON {WHOLE_JOB.format("w")} AND jsonb_array_length(w.phases) > 0
        ON CONFLICT (project_id) WHERE status IN ('pending', 'running') DO NOTHING RETURNING project_id, id
    """
    values = json.dumps([vars(job) for job in wanted], default=str)
    return {row.project_id: row.id for row in connection.execute(text(query), {"wanted": values})}


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
    """A new pending job; see ``NewJob``.

    Raises:
        ConflictError: the project has a pending or running job; ``conflicts`` holds its id.
    """
    wanted = NewJob(project_id, trigger_type, triggered_by, options, scope or {}, phases)
    # Where the job that was in the way has ended by the time it is looked for, there is room for a new one.
    while (job_id := append_jobs(connection, [wanted]).get(project_id)) is None:
        if (live := find_live_job(connection, project_id)) is not None:
            raise ConflictError(f"the project has a live job already: {live.id}", (str(live.id),))
    return job_id


def list_failing_jobs(
    connection: Connection, phases: Mapping[str, Sequence[str]], project_id: UUID | None = None
) -> Sequence[Row[Any]]:
    """Of each project and job the newest failure, where nothing did the job since, with ``slug`` and ``job``.

    ``phases``: what each job consists of; whatever completed all of them did the job. ``asked_since``: a newer job of
    this name is there, whatever became of it. A run of some phases or of a plan is no attempt at the job.
    """
    query = f"""
        SELECT f.*, p.slug, p.config, p.consolidation_enabled, w.job,
            EXISTS (SELECT FROM consolidation.consolidation_jobs n WHERE n.project_id = p.id AND n.created_at > f.created_at
                AND {WHOLE_JOB.format("n")} AND {JOB_NAME.format("n")} = w.job) AS asked_since
        FROM consolidation.projects p, jsonb_each(CAST(:phases AS jsonb)) AS w(job, phases),
            LATERAL ({_newest_failure("p.id", "w.job", "w.phases")}) f
        WHERE p.id IN (SELECT project_id FROM consolidation.consolidation_jobs WHERE status = 'failed' AND retry_count > 0)
            AND (CAST(:project AS uuid) IS NULL OR p.id = :project)
        ORDER BY p.slug, w.job
    """
    given = {job: list(names) for job, names in phases.items()}
    return connection.execute(text(query), {"phases": json.dumps(given), "project": project_id}).all()


def _newest_failure(project: str, job: str, phases: str) -> str:
    return f"""
        SELECT * FROM (
            SELECT * FROM consolidation.consolidation_jobs j WHERE j.project_id = {project} AND j.status = 'failed' AND j.retry_count > 0
                AND {WHOLE_JOB.format("j")} AND {JOB_NAME.format("j")} = {job}
            ORDER BY j.created_at DESC LIMIT 1) newest
        WHERE NOT EXISTS (SELECT FROM consolidation.consolidation_jobs done WHERE done.project_id = {project}
            AND done.created_at > newest.created_at
            AND done.phases_completed @> ARRAY(SELECT jsonb_array_elements_text({phases})))
    """


def find_live_job(connection: Connection, project_id: UUID) -> Row[Any] | None:
    """The project's pending or running job."""
    jobs = consolidation_jobs.c
    return connection.execute(
        select(consolidation_jobs).where(jobs.project_id == project_id, jobs.status.in_(LIVE_JOB_STATUSES))
    ).one_or_none()


def list_live_jobs(connection: Connection) -> Sequence[Row[Any]]:
    """Pending and running jobs of all projects, oldest first, with ``slug``, ``consolidation_enabled`` and ``busy``:
    whether the project is held.
    """
    query = f"""
        WITH held AS ({_HELD})
        SELECT j.*, p.slug, p.consolidation_enabled, {_LOCK.format("j.project_id")} IN (SELECT key FROM held) AS busy
        FROM consolidation.consolidation_jobs j JOIN consolidation.projects p ON p.id = j.project_id
        WHERE j.status IN ('pending', 'running') ORDER BY j.created_at, j.id
    """
    return connection.execute(text(query)).all()


def list_pending_jobs(connection: Connection) -> Sequence[Row[Any]]:
    """The pending ones of enabled projects among ``list_live_jobs``."""
    return [job for job in list_live_jobs(connection) if job.status == "pending" and job.consolidation_enabled]


def list_unopened(connection: Connection, since: datetime) -> Sequence[UUID]:
    """Jobs that were cancelled ``since`` then before anybody began them."""
    jobs = consolidation_jobs.c
    query = select(jobs.id).where(jobs.status == "cancelled", jobs.started_at.is_(None), jobs.completed_at >= since)
    return connection.execute(query).scalars().all()


def list_ended_runs(connection: Connection, runs: Sequence[str], *, died: str) -> Sequence[str]:
    """Of the Dagster runs with these ids those whose job has ended, and whose project nobody holds.

    A job that ended just now may have done so by its own run, which has to say so yet: it counts after a minute, or if
    its error is ``died``, as nobody writes of himself.
    """
    query = f"""
        WITH held AS ({_HELD})
        SELECT j.dagster_run_id FROM consolidation.consolidation_jobs j
        WHERE j.dagster_run_id = ANY(:runs) AND j.status NOT IN ('pending', 'running')
            AND (j.error_message = :died OR j.completed_at < now() - interval '1 minute')
            AND {_LOCK.format("j.project_id")} NOT IN (SELECT key FROM held)
        ORDER BY 1
    """
    return connection.execute(text(query), {"runs": list(runs), "died": died}).scalars().all()


def get_job(connection: Connection, job_id: UUID) -> Row[Any] | None:
    """A job with its project's slug."""
    return connection.execute(
        select(consolidation_jobs, projects.c.slug)
        .join(projects, projects.c.id == consolidation_jobs.c.project_id)
        .where(consolidation_jobs.c.id == job_id)
    ).one_or_none()


def hold_job(connection: Connection, job_id: UUID) -> Row[Any] | None:
    """``id``, ``status`` and ``metrics`` of a job, which stays as it is until the transaction ends."""
    query = "SELECT id, status, metrics FROM consolidation.consolidation_jobs WHERE id = :job FOR SHARE"
    return connection.execute(text(query), {"job": job_id}).one_or_none()


def find_job_of_run(connection: Connection, run_id: str) -> Row[Any] | None:
    """The job that a Dagster run executed."""
    jobs = consolidation_jobs
    return connection.execute(select(jobs).where(jobs.c.dagster_run_id == run_id)).one_or_none()


def list_jobs(connection: Connection, project_id: UUID, *, limit: int, offset: int = 0) -> Sequence[Row[Any]]:
    """Jobs of a project, newest first."""
    jobs = consolidation_jobs.c
    return connection.execute(
        select(consolidation_jobs)
        .where(jobs.project_id == project_id)
        .order_by(jobs.created_at.desc(), jobs.id)
        .limit(limit)
        .offset(offset)
    ).all()


def find_job_with_state(connection: Connection, project_id: UUID) -> Row[Any] | None:
    """The newest job that noted the state which it left behind."""
    jobs = consolidation_jobs.c
    query = select(consolidation_jobs).where(jobs.project_id == project_id, jobs.metrics.has_key("state"))
    return connection.execute(query.order_by(jobs.created_at.desc()).limit(1)).one_or_none()


def start_job(connection: Connection, job_id: UUID, *, run_id: str | None, options: Mapping[str, Any]) -> bool:
    """pending -> running. False when the job is not pending any more."""
    return bool(
        connection.execute(
            text(
                "UPDATE consolidation.consolidation_jobs SET status = 'running', started_at = now(), dagster_run_id = :run, "
                "options = CAST(:options AS jsonb) WHERE id = :job AND status = 'pending'"
            ),
            {"job": job_id, "run": run_id, "options": json.dumps(dict(options))},
        ).rowcount
    )


def record_phase(
    connection: Connection,
    job_id: UUID,
    phase: str,
    *,
    planned: int,
    metrics: Mapping[str, Any],
    counters: Mapping[str, int],
) -> None:
    """Note a finished phase, its numbers and the share of the planned phases that is done."""
    added = "".join(f", {name} = {name} + :{name}" for name in counters)
    connection.execute(
        text(
            "UPDATE consolidation.consolidation_jobs SET phases_completed = array_append(array_remove(phases_completed, :phase), :phase), "
            "phases_failed = array_remove(phases_failed, :phase), "
            "progress = least(1.0, (cardinality(array_remove(phases_completed, :phase)) + 1)::float8 / :planned), "
            f"metrics = metrics || jsonb_build_object(CAST(:phase AS text), CAST(:metrics AS jsonb)){added} "
            "WHERE id = :job"
        ),
        {"job": job_id, "phase": phase, "planned": max(planned, 1), "metrics": json.dumps(dict(metrics)), **counters},
    )


def record_failed_phase(connection: Connection, job_id: UUID, phase: str, error: str) -> None:
    """Note a failed phase; the others may go on."""
    connection.execute(
        text(
            "UPDATE consolidation.consolidation_jobs SET phases_failed = array_append(array_remove(phases_failed, :phase), :phase), "
            "error_message = coalesce(error_message || E'\\n', '') || :error WHERE id = :job"
        ),
        {"job": job_id, "phase": phase, "error": f"{phase}: {error}".replace("\0", "")},
    )


def finish_job(
    connection: Connection,
    job_id: UUID,
    status: str,
    *,
    error: str | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> bool:
    """pending or running -> ``status``, with what it spent; writes the event too. False when it had ended before."""
    counts = WHOLE_JOB.format("consolidation_jobs")  # a run of some phases or of a plan is no attempt at the job
    row = connection.execute(
        text(
            "UPDATE consolidation.consolidation_jobs SET status = :status, completed_at = now(), "
            "duration_seconds = extract(epoch FROM now() - coalesce(started_at, now())), "
            "progress = CASE WHEN :status = 'completed' THEN 1 ELSE progress END, "
            "error_message = coalesce(error_message, :error), "
            f"retry_count = retry_count + CAST(:status = 'failed' AND {counts} AS integer), "
            f"metrics = metrics || CAST(:metrics AS jsonb) || {_SPENT} "
            "WHERE id = :job AND status IN ('pending', 'running') RETURNING project_id, metrics"
        ),
        {"job": job_id, "status": status, "error": error, "metrics": json.dumps(dict(metrics or {}))},
    ).one_or_none()
    if row is not None:
        append_event(connection, row.project_id, f"consolidation.{status}", {"job_id": str(job_id), "error": error})
    return row is not None


def append_event(connection: Connection, project_id: UUID, kind: str, payload: Mapping[str, Any]) -> None:
    """Put an event into the outbox, in the transaction that it describes, and wake listeners at commit."""
    connection.execute(
        text(
            "WITH event AS (INSERT INTO consolidation.consolidation_events (project_id, type, payload) "
            "VALUES (:project, :type, CAST(:payload AS jsonb)) RETURNING id) "
            "SELECT pg_notify('consolidation', id::text) FROM event"
        ),
        {"project": project_id, "type": kind, "payload": json.dumps(dict(payload))},
    )
