"""Tools for consolidation runs: plan, run, status, rollback."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import anyio
from anyio.to_thread import run_sync
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from consolidation_pipeline.mcp.output_schemas import (
    BlockedMerge,
    PlanAnswer,
    PlannedArchive,
    PlannedKnowledge,
    PlannedMerge,
    RollbackAnswer,
    RunAnswer,
)
from consolidation_pipeline.mcp.run_backends import FINAL_STATUSES, PollRun
from consolidation_pipeline.mcp.tool_arguments import Project, Reason
from consolidation_pipeline.mcp.tool_context import ToolContext, get_caller

if TYPE_CHECKING:
    from consolidation_pipeline.service.plan.plan_document import MergeGroup, Plan, Question

# Clients give up on a call after about a minute; consolidation_status reports on runs that take longer.
_DEFAULT_WAIT_SECONDS = 45.0
_POLL_SECONDS = 0.5
# Enough to see what a memory is about; the whole plan may hold every text of the project.
_MAX_TEXT_CHARS = 1000

Phases = Annotated[list[str] | None, Field(description="Run only these phases, such as merged_memories. Default: all.")]


def plan_consolidation(
    ctx: ToolContext,
    project: Project = "",
    limit: Annotated[int, Field(description="Maximum number of items in each list.", ge=0, le=100)] = 5,
) -> PlanAnswer:
    """Preview what run_consolidation would do now, with its cost: merges with their texts before and after, memories
    that are left to a person and why, patterns, principles, playbook entries, archiving.

    Use it when a person should check the changes before a run. Free: calls no paid model and writes nothing. Takes
    seconds.
    """
    from consolidation_pipeline.service.plan.planner import make_plan

    caller = get_caller(ctx)
    slug = caller.resolve_project(project)
    if not caller.context.plan_slots.acquire(blocking=False):
        raise ToolError("busy: other plans are being made; try again in 5 s")
    try:
        return _summarize_plan(make_plan(caller.engine, slug, settings=caller.settings), limit)
    finally:
        caller.context.plan_slots.release()


def _summarize_plan(plan: Plan, limit: int) -> PlanAnswer:
    """Return the plan's totals and at most ``limit`` items of each kind, the surest knowledge first; texts are cut."""
    costs = plan.costs
    surest = sorted(plan.knowledge, key=lambda item: -(item.confidence or 0.0))
    return PlanAnswer(
        project=plan.project,
        as_of=plan.as_of,
        memories=plan.memories,
        totals=plan.count_totals(),
        merges=[_summarize_merge(merge) for merge in plan.merges[:limit]],
        left_to_a_person=[_summarize_question(question) for question in plan.questions[:limit]],
        knowledge=[PlannedKnowledge.model_validate(item) for item in surest[:limit]],
        archives=[PlannedArchive.model_validate(item) for item in plan.archives[:limit]],
        archives_held_back=plan.held_back,
        archives_later=plan.describe_upcoming_archives(),
        cost_usd=costs.cost_usd,
        tokens=costs.embedding_tokens + costs.completion_tokens,
        model_calls=costs.completion_calls,
    )


def _summarize_merge(merge: MergeGroup) -> PlannedMerge:
    return PlannedMerge(
        action=merge.action,
        reason=merge.reason,
        lowest_similarity=merge.lowest_similarity,
        sources={source.id: _cut(source.text) for source in merge.sources},
        text=_cut(merge.text),
    )


def _summarize_question(question: Question) -> BlockedMerge:
    return BlockedMerge(
        texts={id_: _cut(text) for id_, text in question.texts.items()},
        reasons=[
            f"{'; '.join(asked['differences'])} (similarity {asked['similarity']:.2f})"
            for asked in question.asked_pairs
        ],
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]} ... ({len(text):,} characters)"


async def run_consolidation(
    ctx: ToolContext,
    project: Project = "",
    phases: Phases = None,
    *,
    wait_seconds: Annotated[
        float | None,
        Field(
            description="Seconds to wait for the run to end; then its progress is returned. Default: 45 over stdio, "
            "where this server executes the run; 0 over HTTP, where it only queues the run.",
            ge=0,
            le=3600,
            allow_inf_nan=False,
        ),
    ] = None,
) -> RunAnswer:
    """Consolidate a project: merge near-duplicates into one memory, derive patterns and principles from groups, promote
    the best to playbook entries, archive unused memories.

    Use it after adding a batch of memories, at most a few times a day. Deletes nothing: pass `undo` of the answer to
    rollback_consolidation to restore the state before. Free unless the project has a paid model, which stays within the
    project's budgets. If the project has a live run, the call joins it. If nothing changed since the last run, nothing
    is done. Over stdio, this server executes the run and reports progress. Over HTTP, it queues a job for the daemon.
    """
    caller = await run_sync(get_caller, ctx)
    slug = await run_sync(caller.resolve_project, project)
    backend = caller.context.run_backend
    poll = await run_sync(lambda: backend.start(caller.engine, slug, phases=phases, triggered_by=caller.name))
    if wait_seconds is None:
        wait_seconds = _DEFAULT_WAIT_SECONDS if backend.in_process else 0.0
    job = await _wait_for_run(ctx, poll, time.monotonic() + wait_seconds)
    return _describe_job(job or {"project": slug, "status": "pending"})


async def _wait_for_run(ctx: ToolContext, poll: PollRun, deadline: float) -> Mapping[str, Any] | None:
    """Return the job when it has ended or at the deadline; report its progress to the client until then."""
    reported = 0.0
    while True:
        job = await run_sync(poll)
        if (job and job["status"] in FINAL_STATUSES) or time.monotonic() >= deadline:
            return job
        if job and job["progress"] > reported:
            reported = job["progress"]
            await ctx.report_progress(reported, 1.0, f"done: {', '.join(job['phases_completed'][-1:])}")
        await anyio.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def consolidation_status(
    ctx: ToolContext,
    job_id: Annotated[UUID | None, Field(description="Job of a run. Default: the project's live or last job.")] = None,
    project: Project = "",
) -> RunAnswer:
    """Return the status of a run. Use it if run_consolidation returned before the run ended. Free; changes nothing."""
    from consolidation_pipeline.service.jobs.job_status import describe_job

    caller = get_caller(ctx)
    if job_id is None:
        return _describe_job(describe_job(caller.engine, caller.resolve_project(project)))
    caller.check_owner(job_id, "job", project=project)
    return _describe_job(describe_job(caller.engine, str(job_id)))


def rollback_consolidation(
    ctx: ToolContext,
    target: Annotated[
        UUID, Field(description="Id of a job (`undo` of a run), a group of changes, a change, or a rollback to redo.")
    ],
    reason: Reason = "",
    *,
    cascade: Annotated[bool, Field(description="Also undo later changes that depend on it.")] = False,
    project: Project = "",
) -> RollbackAnswer:
    """Undo a run, a group of changes or an earlier rollback, exactly and in one transaction.

    Refused without any change if later changes depend on it: the error lists them. Undo those first, or set cascade.
    Possible for 7 days unless the project sets another limit. Free. To redo, pass rollback_id to this tool. After the
    rollback of a whole job, the next run would make the same changes again; after that of a group, it would not.
    """
    from consolidation_pipeline.service.undo.rollback import roll_back

    caller = get_caller(ctx)
    caller.check_owner(target, "change, group or job", project=project)
    done = roll_back(
        caller.engine, target, settings=caller.settings, changed_by=caller.name, reason=reason or None, cascade=cascade
    )
    return RollbackAnswer.model_validate(done)


_NEXT_STEPS = {
    "pending": "the run has not started; call consolidation_status",
    "running": "the run continues; call consolidation_status",
    "failed": "changes of its finished phases remain; run_consolidation continues from there",
    "unchanged": "nothing changed since this job; no run was needed",
}


def _describe_job(job: Mapping[str, Any]) -> RunAnswer:
    undo = job["job_id"] if job.get("consolidation_changes_total") else None
    fields = {name: job[name] for name in RunAnswer.model_fields if name in job}
    return RunAnswer(**fields, undo=undo, next=_NEXT_STEPS.get(job["status"]))
