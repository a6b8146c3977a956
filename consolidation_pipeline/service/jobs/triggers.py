"""Which projects are due, and the job row that stands for the request from the moment it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.jobs.triggers import (
    MAX_ATTEMPTS,
    Due,
    Standing,
    is_due,
    is_nightly_due,
    last_instant,
    may_ask,
)
from consolidation_pipeline.core.knowledge.summary_batches import is_summary_due
from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.jobs.job_requests import append_pending_jobs, build_new_job
from consolidation_pipeline.service.lifecycle.archive import is_any_due
from consolidation_pipeline.service.runs.phases import JOB_PHASES, build_scope
from consolidation_pipeline.service.runs.run_fingerprint import find_complete_job
from consolidation_pipeline.service.runs.run_lifecycle import preview_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.admin.project_counts import Backlog, list_backlogs
from consolidation_pipeline.store.database.engine import Engine, Row
from consolidation_pipeline.store.jobs.jobs import list_failing_jobs
from consolidation_pipeline.store.projects import Project, list_projects

_OVERDUE = timedelta(days=1)  # a schedule that ticks every 15 minutes is off, not late
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)

IsDue = Callable[[Backlog, ConsolidationOptions], Due]


@dataclass(frozen=True)
class TriggeredJob:
    """A pending job to launch, made for just this: nobody else launches it before ``requesting.LOST_AFTER``.

    ``memories``: the active ones of the project.
    """

    slug: str
    job_id: UUID
    memories: int
    timeout_seconds: int
    reason: str


@dataclass(frozen=True)
class TriggerDecision:
    """What a trigger decided: jobs to launch, and for the other projects why not; ``held``: those of them with enough
    memories.
    """

    requests: list[TriggeredJob]
    skipped: dict[str, str]
    held: set[str] = field(default_factory=set)


def describe_skipped(decision: TriggerDecision) -> list[str]:
    """Why the other projects got no job, those first that have enough memories for one."""
    slugs = sorted(decision.skipped, key=lambda slug: (slug not in decision.held, slug))
    return [f"{slug}: {decision.skipped[slug]}" for slug in slugs]


def is_threshold_due(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Enough new memories since the last job."""
    return is_due(backlog.new, threshold=options.new_threshold)


def is_due_tonight(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Anything new, or too many active memories."""
    return is_nightly_due(backlog.active, backlog.new, threshold=options.active_threshold)


def can_summarize(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Enough memories without a summary, or the end of a session in which some were written."""
    if not options.summarize:
        return Due(False, "summarize is off")
    return is_summary_due(backlog.unsummarized, session_ended=backlog.session_ended)


def has_memories(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Any memory, raw or merged, whose relevance fades."""
    del options
    fading = backlog.active + backlog.merged
    return Due(fading > 0, f"{fading} active memories")


def can_associate(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Two memories at least, raw or merged, that may be related."""
    del options
    units = backlog.active + backlog.merged
    return Due(units > 1, f"{units} active memories")


def can_forget(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Memories to judge, in a project that has forgetting switched on."""
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
    """Make a pending ``job`` (a name of ``JOB_PHASES``) for every project that is due and has no live job.

    ``by_cron``: projects are asked by their own option ``schedule``: once each time it came, for what was there then.
    ``settings``: leave out large projects in which a whole run would find nothing to do, see ``find_idle_reason``. Four
    statements, however many projects there are, and with ``settings`` a few for each of those.
    """
    now = now or datetime.now(UTC)
    scope, decision = build_scope(job, JOB_PHASES[job]), TriggerDecision([], {})
    chosen: dict[UUID, tuple[Backlog, ConsolidationOptions, str]] = {}
    for backlog, stands in _load_standings(engine, job, now, by_cron=by_cron):
        options, verdict = _judge(backlog, due)
        allowed = may_ask(stands, now, scheduled=trigger_type == "scheduled") if verdict else verdict
        if (
            allowed
            and settings is not None
            and not backlog.new
            and (idle := find_idle_reason(engine, backlog.slug, settings))
        ):
            verdict = allowed = Due(False, idle)
        if options is not None and allowed:
            chosen[backlog.project_id] = backlog, options, "; ".join(filter(None, (verdict.reason, allowed.reason)))
            continue
        decision.skipped[backlog.slug] = allowed.reason
        if verdict:
            decision.held.add(backlog.slug)
    wanted = [
        build_new_job(id_, scope, options, trigger_type=trigger_type, triggered_by=triggered_by)
        for id_, (_, options, _) in chosen.items()
    ]
    with engine.begin() as connection:
        made = append_pending_jobs(connection, wanted)
    for id_, (backlog, options, reason) in chosen.items():
        if id_ in made:
            decision.requests.append(
                TriggeredJob(backlog.slug, made[id_], backlog.active, options.timeout_seconds, reason)
            )
        else:
            decision.skipped[backlog.slug] = "another job was asked for in the same moment"
    return decision


def find_idle_reason(engine: Engine, slug: str, settings: Settings) -> str | None:
    """Why a whole run of the project would do nothing: its last one left nothing undone, memories, options and use are
    what they were, and none has become stale. None: it might do something.

    Only relevance would fade, which is ``daily_decay``'s and for smaller projects never this schedule's.
    """
    run = preview_run(engine, slug, settings=settings)
    with run.engine.connect() as connection:
        done = find_complete_job(connection, run.project, settings)
        if done is None or is_any_due(connection, run):
            return None
    return f"nothing changed since job {done.id}, and nothing has become stale"


def list_overdue(engine: Engine, now: datetime) -> list[str]:
    """Projects that the nightly schedule should have asked for a day ago, with nothing in the way."""
    standings = _load_standings(engine, "consolidate", now - _OVERDUE, by_cron=True)
    return [
        backlog.slug
        for backlog, stands in standings
        if _judge(backlog, is_due_tonight)[1] and may_ask(stands, now, scheduled=True)
    ]


def _load_standings(engine: Engine, job: str, now: datetime, *, by_cron: bool) -> list[tuple[Backlog, Standing]]:
    with engine.connect() as connection:
        nights = find_last_ticks(list_projects(connection), now) if by_cron else {}
        backlogs = list_backlogs(connection, job=job, as_of=nights)
        failing = {row.project_id: row for row in list_failing_jobs(connection, {job: JOB_PHASES[job]})}
    return [(found, _stand(found, failing.get(found.project_id), nights.get(found.project_id))) for found in backlogs]


def find_last_ticks(projects: Iterable[Project], now: datetime) -> dict[UUID, datetime]:
    """When the ``schedule`` of each project came last; one whose options are wrong is left out."""
    came: dict[str, datetime] = {}
    nights = {}
    for project in projects:
        try:
            cron = parse_options(project.config).schedule
        except InvalidOptionError:
            continue
        if cron not in came:
            came[cron] = last_instant(cron, now) or _NEVER
        nights[project.id] = came[cron]
    return nights


def _stand(backlog: Backlog, failed: Row[Any] | None, came_at: datetime | None) -> Standing:
    return Standing(
        live=None if backlog.live_job is None else f"job {backlog.live_job} is {backlog.live_status}",
        failures=0 if failed is None else failed.retry_count,
        failed_at=None if failed is None else failed.completed_at,
        most=MAX_ATTEMPTS if failed is None else failed.max_retries,
        asked_at=backlog.asked_at,
        cancelled_at=backlog.cancelled_at,
        came_at=came_at,
    )


def _judge(backlog: Backlog, due: IsDue) -> tuple[ConsolidationOptions | None, Due]:
    """The options of one project, and whether enough waits for a job; its bad options do not stop the others."""
    if not backlog.consolidation_enabled:
        return None, Due(False, "consolidation is disabled")
    try:
        options = parse_options(backlog.config)
    except InvalidOptionError as error:
        return None, Due(False, str(error))
    return options, due(backlog, options)
