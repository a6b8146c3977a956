"""Routes of jobs: trigger, follow, cancel, list, summaries, profile.

A job is queued here; the daemon or ``consolidation run --pending`` runs it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from consolidation_pipeline.api.access import Admin, Caller
from consolidation_pipeline.api.models.base import Limit, Offset, ProjectPath
from consolidation_pipeline.api.models.jobs import CancelReply, JobReply, JobsReply, TriggerReply, TriggerRequest
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.service.jobs.job_requests import RequestedJob, cancel_job, request_job
from consolidation_pipeline.service.jobs.job_scope import check_scope
from consolidation_pipeline.service.jobs.job_status import describe_job, list_jobs
from consolidation_pipeline.service.reports.documents import CONTENT_TYPES, PAGE_POLICY, make_document

PREFIX = "/api/v1"

router = APIRouter(prefix=PREFIX, tags=["jobs"])

_QUEUED_MESSAGE = "Consolidation job queued"
_LIVE_JOB_MESSAGE = "The same job is pending or running already and is returned; no job was created"
_SCOPE_NOTE = "; the run looks at all memories of the project, also those outside the scope"
_SUMMARY_PHASES = ("embedding_matrix", "semantic_summaries")
_PROFILE_PHASES = ("procedural_profile",)


@router.post("/jobs", status_code=202, summary="Request a run", responses=declare_problems(400, 404, 409))
def trigger(body: TriggerRequest, caller: Admin, response: Response) -> TriggerReply:
    """Queue a run of a project, behind its pending and running jobs. If one of them is the same, it is returned.

    Jobs of the same name, phases and options are the same. 400: consolidation is disabled for the project, or
    `invalid_scope`. 409: too many jobs of the project are pending.
    """
    is_restricted = check_scope(body.scope or {})
    job = request_job(
        caller.engine,
        caller.find_project(body.project).slug,
        job=body.job,
        phases=body.phases,
        options=body.options,
        triggered_by=caller.name,
        trigger_type=body.trigger_type,
        settings=caller.settings,
    )
    return _describe_accepted(job, caller, response, note=_SCOPE_NOTE if is_restricted else "")


def _describe_accepted(job: RequestedJob, caller: Caller, response: Response, *, note: str = "") -> TriggerReply:
    """Return the reply for a requested job; set ``Location`` to its status route."""
    caller.add_log_fields(job=job.job_id)
    response.headers["Location"] = f"{PREFIX}/jobs/{job.job_id}"
    seconds = round(job.estimated_seconds or job.timeout_seconds) or 1
    return TriggerReply.model_validate(
        {
            **vars(job),
            "phases": list(job.phases),
            "message": (_describe_queued(job.jobs_ahead) if job.created else _LIVE_JOB_MESSAGE) + note,
            "estimated_duration_seconds": seconds,
            "estimated_completion": datetime.now(UTC) + timedelta(seconds=seconds),
        }
    )


def _describe_queued(jobs_ahead: int) -> str:
    behind = f" behind {jobs_ahead} {'job' if jobs_ahead == 1 else 'jobs'} of the project" if jobs_ahead else ""
    return f"{_QUEUED_MESSAGE}{behind}"


@router.get("/jobs/{job_id}", summary="Follow a job", responses=declare_problems(404))
def read_status(job_id: UUID, caller: Admin) -> JobReply:
    """Return the state of a job: phases, counters, ids of changes, cost, error."""
    caller.check_owner([job_id], noun="job")
    return JobReply.model_validate(describe_job(caller.engine, str(job_id)))


@router.get(
    "/jobs/{job_id}/report",
    summary="Report of a job",
    response_class=Response,
    responses={
        **declare_problems(404),
        200: {
            "description": "The report",
            "content": {
                "application/json": {"schema": {"type": "object"}},
                "text/html": {"schema": {"type": "string"}},
            },
        },
    },
)
def read_report(
    job_id: UUID,
    caller: Admin,
    format: Annotated[
        Literal["json", "html"], Query(description="json: one fact a line, for diff; html: one page without scripts.")
    ] = "json",
) -> Response:
    """Return what a job changed and why, with texts, what it cost, and which checks hold now. It is not signed."""
    caller.check_owner([job_id], noun="job")
    text = make_document(caller.engine, job_id, format)
    return Response(text, media_type=CONTENT_TYPES[format], headers={"Content-Security-Policy": PAGE_POLICY})


@router.post("/jobs/{job_id}/cancel", summary="Cancel a job", responses=declare_problems(404, 409))
def cancel(job_id: UUID, caller: Admin) -> CancelReply:
    """Cancel a pending or running job. A running job stops writing; what it wrote can be rolled back.

    409: the job has ended.
    """
    caller.check_owner([job_id], noun="job")
    return CancelReply.model_validate(cancel_job(caller.engine, job_id, cancelled_by=caller.name))


@router.get("/projects/{project}/jobs", summary="List jobs", responses=declare_problems(404))
def read_jobs(project: ProjectPath, caller: Admin, limit: Limit = 50, offset: Offset = 0) -> JobsReply:
    """Return the project's jobs, newest first."""
    found = caller.find_project(project)
    rows = list_jobs(caller.engine, found.slug, limit=limit, offset=offset)
    page = {"limit": limit, "offset": offset, "jobs": rows}
    return JobsReply.model_validate({"project_id": found.id, "project": found.slug, **page})


def _request_phases(project: str, phases: tuple[str, ...], caller: Caller, response: Response) -> TriggerReply:
    slug = caller.find_project(project).slug
    job = request_job(caller.engine, slug, job="summarize", phases=phases, triggered_by=caller.name)
    return _describe_accepted(job, caller, response)


@router.post(
    "/projects/{project}/summaries",
    status_code=202,
    summary="Summarize",
    responses=declare_problems(400, 404, 409),
)
def summarize(project: ProjectPath, caller: Admin, response: Response) -> TriggerReply:
    """Queue a job that summarizes the memories without a summary, as `trigger` does."""
    return _request_phases(project, _SUMMARY_PHASES, caller, response)


@router.post(
    "/projects/{project}/profile",
    status_code=202,
    summary="Renew the profile",
    responses=declare_problems(400, 404, 409),
)
def profile(project: ProjectPath, caller: Admin, response: Response) -> TriggerReply:
    """Queue a job that rebuilds the procedural profile from all summaries, as `trigger` does."""
    return _request_phases(project, _PROFILE_PHASES, caller, response)
