"""Routes of shadows: runs of other options on copies of a project, how they differ, promotion, and drop."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from consolidation_pipeline.api.access import Admin, Caller
from consolidation_pipeline.api.models.base import ProjectPath, Text
from consolidation_pipeline.api.models.shadows import PromoteShadowReply, PromoteShadowRequest, ShadowsReply
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.service.shadow.promotion import promote
from consolidation_pipeline.service.shadow.shadows import DEFAULT_NAME, drop, list_reports
from consolidation_pipeline.store.projects import Project

router = APIRouter(prefix="/api/v1/projects/{project}/shadows", tags=["shadows"])


@router.get("", summary="Shadows", responses=declare_problems(404))
def read_shadows(project: ProjectPath, caller: Admin) -> ShadowsReply:
    """Return the shadows of a project with their reports: what other options would merge, keep and cost."""
    return _list(caller, caller.find_project(project))


@router.post("/promote", summary="Promote a shadow", responses=declare_problems(400, 404, 409))
def promote_shadow(project: ProjectPath, body: PromoteShadowRequest, caller: Admin) -> PromoteShadowReply:
    """Make the changes of a shadow and its options the project's, exactly as its report shows, in one job.

    Without `confirm`, only try it: all checks are made, and nothing is changed. 409: rows of the project changed since
    the snapshot, listed in `conflicts`; the shadow was promoted before; or a memory test would fail. 400: the shadow
    changes no row, or has another embedding model. To undo it, roll back `job_id`.
    """
    slug = caller.find_project(project).slug
    done = promote(
        caller.engine,
        slug,
        body.name,
        settings=caller.settings,
        promoted_by=caller.name,
        confirmed=body.confirm,
    )
    return PromoteShadowReply.model_validate(done)


@router.delete("", summary="Drop a shadow", responses=declare_problems(404))
def drop_shadow(
    project: ProjectPath,
    caller: Admin,
    name: Annotated[Text, Query(description="Name of the shadow.")] = DEFAULT_NAME,
) -> ShadowsReply:
    """Drop a shadow with all it holds, and return the others."""
    found = caller.find_project(project)
    drop(caller.engine, found.slug, name)
    return _list(caller, found)


def _list(caller: Caller, project: Project) -> ShadowsReply:
    reports = list_reports(caller.engine, project.slug)
    shadows = [{"name": name, "report": report} for name, report in reports.items()]
    return ShadowsReply.model_validate({"project_id": project.id, "project": project.slug, "shadows": shadows})
