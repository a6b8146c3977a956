"""Which projects are due, and the job row that stands for the request from the moment it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.compression import is_summary_due
from consolidation_pipeline.core.triggers import Due, is_due, is_nightly_due
from consolidation_pipeline.errors import InvalidOptionError
from consolidation_pipeline.options import ConsolidationOptions, parse_options
from consolidation_pipeline.service.requesting import pend_job
from consolidation_pipeline.service.runs import JOB_PHASES, scope_of
from consolidation_pipeline.store.engine import Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.statistics import Backlog, list_backlogs

IsDue = Callable[[Backlog, ConsolidationOptions], Due]


@dataclass(frozen=True)
class JobRequest:
    """A pending job to launch: its id is the run key, so that asking twice launches one run."""

    slug: str
    job_id: UUID
    timeout_seconds: int
    reason: str


@dataclass(frozen=True)
class Decision:
    """What a trigger decided: jobs to launch, and for the other projects why not."""

    requests: list[JobRequest]
    skipped: dict[str, str]


def is_threshold_due(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Enough new memories since the last job."""
    return is_due(backlog.new, threshold=options.new_threshold)


def is_due_tonight(backlog: Backlog, options: ConsolidationOptions) -> Due:
    """Anything new, or too many active memories."""
    return is_nightly_due(backlog.active, backlog.new, threshold=options.active_threshold)


def is_ripe_for_summary(backlog: Backlog, options: ConsolidationOptions) -> Due:
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


def may_forget(backlog: Backlog, options: ConsolidationOptions) -> Due:
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
) -> Decision:
    """Make a pending ``job`` (a name of ``JOB_PHASES``) for every project that is due.

    A pending one is asked for again, for its first request may have been lost; while another is live there is none.
    """
    with engine.connect() as connection:
        backlogs = list_backlogs(connection)
    decision = Decision([], {})
    for backlog in backlogs:
        outcome = _decide(engine, backlog, due, job, trigger_type, triggered_by)
        if isinstance(outcome, JobRequest):
            decision.requests.append(outcome)
        else:
            decision.skipped[backlog.slug] = outcome
    return decision


def _decide(
    engine: Engine, backlog: Backlog, due: IsDue, job: str, trigger_type: str, triggered_by: str
) -> JobRequest | str:
    """The job to launch for one project, or why there is none; one project's bad options do not stop the others."""
    if not backlog.consolidation_enabled:
        return "consolidation is disabled"
    try:
        options = parse_options(backlog.config)
    except InvalidOptionError as error:
        return str(error)
    verdict = due(backlog, options)
    if not verdict:
        return verdict.reason
    job_id, why_not = _pend(engine, backlog.slug, options, job, trigger_type, triggered_by)
    if job_id is None:
        return why_not
    return JobRequest(backlog.slug, job_id, options.timeout_seconds, verdict.reason)


def _pend(
    engine: Engine, slug: str, options: ConsolidationOptions, job: str, trigger_type: str, triggered_by: str
) -> tuple[UUID | None, str]:
    """The project's pending ``job``, made when there is none; or None and why not."""
    scope = scope_of(job, JOB_PHASES[job])
    with engine.begin() as connection:
        project = get_project(connection, slug)
        live, created = pend_job(
            connection,
            project.id,
            scope=scope,
            options=options,
            trigger_type=trigger_type,
            triggered_by=triggered_by,
        )
    if not created and (live.status != "pending" or live.scope != scope):
        return None, f"job {live.id} is {live.status}"
    return live.id, ""
