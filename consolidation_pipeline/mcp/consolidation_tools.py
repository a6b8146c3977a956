"""Tools that change what is known as a whole: preview a run, run, look how it goes, undo."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any
from uuid import UUID

import anyio
from anyio.to_thread import run_sync
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from consolidation_pipeline.mcp.output_schemas import PlanAnswer, RollbackAnswer, RunAnswer
from consolidation_pipeline.mcp.plan_summary import summarize_plan
from consolidation_pipeline.mcp.run_backends import FINAL_STATUSES, PollRun
from consolidation_pipeline.mcp.tool_arguments import Project, Reason
from consolidation_pipeline.mcp.tool_context import ToolContext, get_caller

# Clients give up on a call after a minute; what takes longer is looked after with consolidation_status.
_DEFAULT_WAIT_SECONDS = 45.0
_POLL_SECONDS = 0.5

Phases = Annotated[list[str] | None, Field(description="Only these phases, such as merged_memories; default: all.")]


def plan_consolidation(
    ctx: ToolContext,
    project: Project = "",
    limit: Annotated[int, Field(description="Show so many of each sort.", ge=0, le=100)] = 5,
) -> PlanAnswer:
    """What run_consolidation would do now: merges with the text before and after, what is left to a person and why,
    patterns, principles, playbook entries, archiving, and what it would cost.

    Use it before a run whenever somebody should look first. Free, calls no paid model, writes nothing; takes seconds.
    """
    from consolidation_pipeline.service.plan.planner import make_plan

    who = get_caller(ctx)
    slug = who.choose(project)
    if not who.door.plans.acquire(blocking=False):
        raise ToolError("busy: other plans are being made; try again in 5 s")
    try:
        return summarize_plan(make_plan(who.engine, slug, settings=who.settings), limit)
    finally:
        who.door.plans.release()


async def run_consolidation(
    ctx: ToolContext,
    project: Project = "",
    phases: Phases = None,
    *,
    wait_seconds: Annotated[
        float | None,
        Field(
            description="Wait so long for the run to end, then answer how far it is. Default: 45 where this server "
            "runs it itself (stdio), 0 where it only asks for it (HTTP).",
            ge=0,
            le=3600,
            allow_inf_nan=False,
        ),
    ] = None,
) -> RunAnswer:
    """Consolidate a project: near-duplicates become one memory, groups become patterns and principles, the best become
    playbook entries, unused memories are archived.

    Use it after adding a batch of memories, at most a few times a day. Nothing is deleted: give `undo` of the answer to
    rollback_consolidation and all is as before. Free unless the project has a paid model; then within its budgets. A
    run that is under way is joined, not doubled; where nothing changed since the last run, nothing is done. Over stdio
    this server does the run and tells its progress; over HTTP it becomes a pending job, which a daemon takes up.
    """
    who = await run_sync(get_caller, ctx)
    slug = await run_sync(who.choose, project)
    runs = who.door.runs
    look = await run_sync(lambda: runs.start(who.engine, slug, phases=phases, triggered_by=who.name))
    patience = wait_seconds if wait_seconds is not None else _DEFAULT_WAIT_SECONDS if runs.here else 0.0
    seen = await _wait_for_run(ctx, look, time.monotonic() + patience)
    return _build_answer(seen or {"project": slug, "status": "pending"})


async def _wait_for_run(ctx: ToolContext, look: PollRun, deadline: float) -> Mapping[str, Any] | None:
    """The run when it is over or the time is, telling the client how far it is meanwhile."""
    told = 0.0
    while True:
        seen = await run_sync(look)
        if (seen and seen["status"] in FINAL_STATUSES) or time.monotonic() >= deadline:
            return seen
        if seen and seen["progress"] > told:
            told = seen["progress"]
            await ctx.report_progress(told, 1.0, f"done: {', '.join(seen['phases_completed'][-1:])}")
        await anyio.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def consolidation_status(
    ctx: ToolContext,
    job_id: Annotated[UUID | None, Field(description="Of a run; default: the newest of the project.")] = None,
    project: Project = "",
) -> RunAnswer:
    """How a run goes or went. Use it when run_consolidation answered before the run was over. Free, changes nothing."""
    from consolidation_pipeline.service.jobs.job_status import describe_job

    who = get_caller(ctx)
    if job_id is None:
        return _build_answer(describe_job(who.engine, who.choose(project)))
    who.own(job_id, "job")
    return _build_answer(describe_job(who.engine, str(job_id)))


def rollback_consolidation(
    ctx: ToolContext,
    target: Annotated[UUID, Field(description="A job (`undo` of a run), a group, a change, or a rollback to redo.")],
    reason: Reason = "",
    *,
    cascade: Annotated[bool, Field(description="Undo what was built on it too, instead of refusing.")] = False,
) -> RollbackAnswer:
    """Undo a run, a group of changes or an earlier rollback, exactly and all at once.

    Refused, with nothing changed, where something stands on it or was changed since: the answer lists the changes; undo
    those first or say cascade. Possible for 7 days unless the project says otherwise. Free. Itself undone by its
    rollback_id. After undoing a whole job the next run would do the same again, after undoing a group it would not.
    """
    from consolidation_pipeline.service.undo.rollback import roll_back

    who = get_caller(ctx)
    who.own(target, "change, group or job")
    done = roll_back(
        who.engine, target, settings=who.settings, changed_by=who.name, reason=reason or None, cascade=cascade
    )
    return RollbackAnswer.model_validate(done)


_NEXT_STEPS = {
    "pending": "it waits for its turn; ask consolidation_status",
    "running": "it goes on; ask consolidation_status",
    "failed": "what its finished phases did stands; run_consolidation goes on from there",
    "unchanged": "nothing changed since this job; no run was needed",
}


def _build_answer(job: Mapping[str, Any]) -> RunAnswer:
    undo = job["job_id"] if job.get("consolidation_changes_total") else None
    known = {name: job[name] for name in RunAnswer.model_fields if name in job}
    return RunAnswer(**known, error=job.get("error_message"), undo=undo, next=_NEXT_STEPS.get(job["status"]))
