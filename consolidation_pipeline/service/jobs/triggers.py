"""Triggers of jobs: schedules and thresholds decide which projects are due, and make a pending job for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.jobs.triggers import (
    MAX_ATTEMPTS,
    Due,
    JobState,
    is_due,
    is_nightly_due,
    may_request,
    previous_cron_time,
)
from consolidation_pipeline.core.knowledge.summary_batches import is_summary_due
from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.jobs.job_requests import append_pending_jobs, build_new_job
from consolidation_pipeline.service.lifecycle.archive import has_due_archives
from consolidation_pipeline.service.runs.phases import JOB_PHASES, build_scope
from consolidation_pipeline.service.runs.run_fingerprint import find_complete_job
from consolidation_pipeline.service.runs.run_lifecycle import preview_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_counts import Backlog, list_backlogs
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.jobs.jobs import list_failing_jobs
from consolidation_pipeline.store.projects import Project, list_projects

# A schedule ticks every 15 minutes. One that is late for so long is off.
_OVERDUE = timedelta(days=1)
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)

# Function that decides if a project is due, with the reason.
IsDue = Callable[[Backlog, ConsolidationOptions], Due]


@dataclass(frozen=True)
class TriggeredJob:
    """A pending job that the trigger launches; until ``job_requests.LOST_AFTER``, nobody else launches it.

    ``memories``: number of active memories of the project.
    """

    slug: str
    job_id: UUID
    memories: int
    timeout_seconds: int
    reason: str


@dataclass(frozen=True)
class TriggerDecision:
    """Jobs to launch (``requests``), and the reason for each other project (``skipped``, by slug).

    ``ready``: slugs of skipped projects that are due, but may not have a job now.
    ``invalid``: slugs of skipped projects whose options are invalid. They get no job until a person changes these.
    """

    requests: list[TriggeredJob]
    skipped: dict[str, str]
    ready: set[str] = field(default_factory=set)
    invalid: set[str] = field(default_factory=set)


def describe_skipped(decision: TriggerDecision) -> list[str]:
    """Return a line for each skipped project with the reason, first invalid options, then those that are due."""
    slugs = sorted(decision.skipped, key=lambda slug: (slug not in decision.invalid, slug not in decision.ready, slug))
    return [f"{slug}: {decision.skipped[slug]}" for slug in slugs]


def is_threshold_due(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Return a true Due if there are enough new memories since the last job."""
    return is_due(backlog.new, threshold=options.new_threshold)


def is_due_tonight(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Return a true Due if there are new memories, or too many active ones."""
    return is_nightly_due(backlog.active, backlog.new, threshold=options.active_threshold)


def can_summarize(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Return a true Due if there are enough memories without a summary, or some of a session that has ended."""
    if not options.summarize:
        return Due(False, "summarize is off")
    return is_summary_due(backlog.unsummarized, session_ended=backlog.session_ended)


def has_memories(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Return a true Due if there is an active memory, raw or merged."""
    del options
    return Due(backlog.units > 0, f"{backlog.units} active memories")


def can_associate(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Return a true Due if there are two active memories, raw or merged, that may be related."""
    del options
    return Due(backlog.units > 1, f"{backlog.units} active memories")


def can_forget(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Return a true Due if forgetting is on and there is an active memory."""
    if not options.forgetting:
        return Due(False, "forgetting is off")
    return has_memories(backlog, options)


def request_jobs(
    engine: Engine,
    due: IsDue,
    *,
    job: str,
    trigger_type: str,
    triggered_by: str,
    by_cron: bool = False,
    settings: Settings | None = None,
    now: datetime | None = None,
) -> TriggerDecision:
    """Make a pending job for every project that is due and has no live job.

    It takes four statements for any number of projects, and with ``settings`` a few for each project without new
    memories.

    Args:
        due: Function that decides by the backlog and options of a project.
        job: A key of ``JOB_PHASES``.
        trigger_type: scheduled or threshold.
        triggered_by: Name of the trigger.
        by_cron: Follow the option ``schedule`` of each project: one job per tick, and memories count that are older
            than the tick.
        settings: Skip projects with a ``find_idle_reason``; None = do not check.
        now: Instant of the decision; None = now.
    """
    now = now or datetime.now(UTC)
    scope, decision = build_scope(job, JOB_PHASES[job]), TriggerDecision([], {})
    selected: dict[UUID, tuple[Backlog, ConsolidationOptions, str]] = {}
    for backlog, state in _load_job_states(engine, job, now, by_cron=by_cron):
        options, verdict = _decide(backlog, due, as_of=state.scheduled_at)
        allowed = may_request(state, now, scheduled=trigger_type == "scheduled") if verdict else verdict
        if allowed and settings is not None and not backlog.new:
            idle = find_idle_reason(engine, backlog.slug, settings)
            if idle is not None:
                verdict = allowed = Due(False, idle)
        if options is not None and allowed:
            selected[backlog.project_id] = backlog, options, "; ".join(filter(None, (verdict.reason, allowed.reason)))
            continue
        decision.skipped[backlog.slug] = allowed.reason
        if verdict:
            decision.ready.add(backlog.slug)
        if options is None and backlog.consolidation_enabled:
            decision.invalid.add(backlog.slug)
    wanted = [
        build_new_job(id_, scope, options, trigger_type=trigger_type, triggered_by=triggered_by)
        for id_, (_, options, _) in selected.items()
    ]
    with engine.begin() as connection:
        made = append_pending_jobs(connection, wanted)
    for id_, (backlog, options, reason) in selected.items():
        if id_ not in made:
            decision.skipped[backlog.slug] = "another job was requested at the same moment"
            continue
        launched = TriggeredJob(backlog.slug, made[id_], backlog.active, options.timeout_seconds, reason)
        decision.requests.append(launched)
    return decision


def find_idle_reason(engine: Engine, slug: str, settings: Settings) -> str | None:
    """Return the reason why a whole run of the project would do nothing; None if it might do something.

    It would do nothing if the last run was complete, memories, options and use have not changed, and no memory has
    become stale. The schedule ``consolidation_daily_decay`` computes relevance.
    """
    run = preview_run(engine, slug, settings=settings)
    with run.engine.connect() as connection:
        done = find_complete_job(connection, run.project, settings)
        if done is None or has_due_archives(connection, run):
            return None
    return f"nothing changed since job {done.id}, and nothing has become stale"


def list_overdue(engine: Engine, now: datetime) -> list[str]:
    """Return the slugs of projects that should have got a job of the nightly schedule for a day, but did not."""
    return [
        backlog.slug
        for backlog, state in _load_job_states(engine, "consolidate", now - _OVERDUE, by_cron=True)
        if _decide(backlog, is_due_tonight)[1] and may_request(state, now, scheduled=True)
    ]


def _load_job_states(engine: Engine, job: str, now: datetime, *, by_cron: bool) -> list[tuple[Backlog, JobState]]:
    with engine.connect() as connection:
        ticks = _find_last_ticks(list_projects(connection), now) if by_cron else {}
        backlogs = list_backlogs(connection, job=job, as_of=ticks)
        failing = {row.project_id: row for row in list_failing_jobs(connection, {job: JOB_PHASES[job]})}
    return [(backlog, _build_job_state(backlog, failing, ticks)) for backlog in backlogs]


def _find_last_ticks(projects: Iterable[Project], now: datetime) -> dict[UUID, datetime]:
    """Return the last tick of each project's ``schedule``; projects with invalid options are left out."""
    last: dict[str, datetime] = {}
    ticks = {}
    for project in projects:
        try:
            cron = parse_options(project.config).schedule
        except InvalidOptionError:
            continue
        if cron not in last:
            last[cron] = previous_cron_time(cron, now) or _NEVER
        ticks[project.id] = last[cron]
    return ticks


def _build_job_state(backlog: Backlog, failing: Mapping[UUID, Row[Any]], ticks: Mapping[UUID, datetime]) -> JobState:
    failed = failing.get(backlog.project_id)
    return JobState(
        live=None if backlog.live_job is None else f"job {backlog.live_job} is {backlog.live_status}",
        failures=0 if failed is None else failed.retry_count,
        failed_at=None if failed is None else failed.completed_at,
        max_attempts=MAX_ATTEMPTS if failed is None else failed.max_retries,
        requested_at=backlog.asked_at,
        cancelled_at=backlog.cancelled_at,
        scheduled_at=ticks.get(backlog.project_id),
    )


def _decide(backlog: Backlog, due: IsDue, *, as_of: datetime | None = None) -> tuple[ConsolidationOptions | None, Due]:
    """Return the options of a project, and if it is due. Invalid options are a reason, and no error.

    ``as_of``: time of the project's schedule, by which the backlog was counted; the reason names it.
    """
    if not backlog.consolidation_enabled:
        return None, Due(False, "consolidation is disabled")
    try:
        options = parse_options(backlog.config)
    except InvalidOptionError as error:
        return None, Due(False, str(error))
    verdict = due(backlog, options)
    if as_of is None:
        return options, verdict
    return options, replace(verdict, reason=f"{verdict.reason}, as of its scheduled time {as_of:%Y-%m-%d %H:%M} UTC")
