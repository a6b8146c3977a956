"""Jobs: trigger, follow, cancel, list. A job is asked for here and run by the daemon, or ``run --pending``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from starlette.responses import Response

from consolidation_pipeline.api.access import Admin, Caller
from consolidation_pipeline.api.models.base import Limit, Offset, ProjectPath
from consolidation_pipeline.api.models.jobs import CancelReply, JobReply, JobsReply, TriggerReply, TriggerRequest
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.service.jobs.job_requests import RequestedJob, cancel_job, request_job
from consolidation_pipeline.service.jobs.job_scope import check_scope
from consolidation_pipeline.service.jobs.job_status import describe_job, list_jobs

PREFIX = "/api/v1"

router = APIRouter(prefix=PREFIX, tags=["jobs"])

_QUEUED_MESSAGE = "Consolidation job queued"
_LIVE_JOB_MESSAGE = "The project has a live job, which this is; no other was made"
_SCOPE_NOTE = "; the run looks at all memories of the project, also those outside the scope"


def trigger(body: TriggerRequest, caller: Admin, response: Response) -> TriggerReply:
    """Ask for a run of a project. A live job of the project is returned, not doubled.

    400: consolidation is disabled for the project, or `invalid_scope`.
    """
    wider = check_scope(body.scope or {})
    job = request_job(
        caller.engine,
        caller.find_project(body.project_id).slug,
        job=body.job,
        phases=body.phases,
        options=body.options,
        triggered_by=caller.name,
        trigger_type=body.trigger_type,
    )
    return describe_accepted(job, caller, response, note=_SCOPE_NOTE if wider else "")


def describe_accepted(job: RequestedJob, caller: Caller, response: Response, *, note: str = "") -> TriggerReply:
    """The reply for a job that was asked for, with Location where one can follow it."""
    caller.add_log_fields(job=job.job_id)
    response.headers["Location"] = f"{PREFIX}/consolidation/status/{job.job_id}"
    seconds = round(job.estimated_seconds or job.timeout_seconds) or 1
    more: dict[str, Any] = {
        "message": (_QUEUED_MESSAGE if job.created else _LIVE_JOB_MESSAGE) + note,
        "estimated_duration_seconds": seconds,
        "estimated_completion": datetime.now(UTC) + timedelta(seconds=seconds),
    }
    return TriggerReply.model_validate({**vars(job), **more, "phases": list(job.phases)})


def read_status(job_id: UUID, caller: Admin) -> JobReply:
    """How a job is doing, or how it went: phases, counters, ids of changes, what it spent, why it failed."""
    caller.check_owner([job_id], noun="job")
    return JobReply.model_validate(describe_job(caller.engine, str(job_id)))


for path, name in (("/consolidation/trigger", "trigger"), ("/admin/consolidate-memories", "consolidate_memories")):
    router.add_api_route(
        path,
        trigger,
        methods=["POST"],
        name=name,
        status_code=202,
        summary="Trigger a run",
        responses=declare_problems(400, 404),
    )
for path, name in (
    ("/consolidation/status/{job_id}", "read_status"),
    ("/admin/consolidation-status/{job_id}", "consolidation_status"),
):
    router.add_api_route(path, read_status, name=name, summary="Follow a job", responses=declare_problems(404))


@router.post("/consolidation/cancel/{job_id}", summary="Cancel a job", responses=declare_problems(404, 409))
def cancel(job_id: UUID, caller: Admin) -> CancelReply:
    """Cancel a pending or running job. A running one writes nothing more; what it wrote can be rolled back.

    409: it has ended.
    """
    caller.check_owner([job_id], noun="job")
    return CancelReply.model_validate(cancel_job(caller.engine, job_id, cancelled_by=caller.name))


@router.get("/consolidation/jobs/{project}", summary="List jobs", responses=declare_problems(404))
def read_jobs(project: ProjectPath, caller: Admin, limit: Limit = 50, offset: Offset = 0) -> JobsReply:
    """The project's jobs, newest first."""
    found = caller.find_project(project)
    rows = list_jobs(caller.engine, found.slug, limit=limit, offset=offset)
    page = {"limit": limit, "offset": offset, "jobs": rows}
    return JobsReply.model_validate({"project_id": found.id, "project": found.slug, **page})
