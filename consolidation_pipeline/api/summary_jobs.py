"""Summaries and the procedural profile, made by jobs of their own."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from consolidation_pipeline.api.access import Admin
from consolidation_pipeline.api.jobs import describe_accepted
from consolidation_pipeline.api.models.base import ProjectPath
from consolidation_pipeline.api.models.jobs import TriggerReply
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.service.jobs.job_requests import request_job

router = APIRouter(prefix="/api/v1", tags=["jobs"])

_SUMMARIES = ("embedding_matrix", "semantic_summaries")
_PROFILE = ("procedural_profile",)


def _ask(project: str, phases: tuple[str, ...], caller: Admin, response: Response) -> TriggerReply:
    slug = caller.find_project(project).slug
    job = request_job(caller.engine, slug, job="summarize", phases=phases, triggered_by=caller.name)
    return describe_accepted(job, caller, response)


@router.post("/summaries/{project}", status_code=202, summary="Summarize", responses=declare_problems(400, 404))
def summarize(project: ProjectPath, caller: Admin, response: Response) -> TriggerReply:
    """Ask for a summary of the memories that have none. A live job of the project is returned, not doubled."""
    return _ask(project, _SUMMARIES, caller, response)


@router.post(
    "/procedural/{project}", status_code=202, summary="Renew the profile", responses=declare_problems(400, 404)
)
def profile(project: ProjectPath, caller: Admin, response: Response) -> TriggerReply:
    """Ask for the profile of how the project works, from all its summaries. A live job is returned, not doubled."""
    return _ask(project, _PROFILE, caller, response)
