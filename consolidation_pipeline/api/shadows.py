"""Route of shadows: runs of other options on copies of a project, and how they differ."""

from __future__ import annotations

from fastapi import APIRouter

from consolidation_pipeline.api.access import Admin
from consolidation_pipeline.api.models.base import ProjectPath
from consolidation_pipeline.api.models.shadows import ShadowsReply
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.service.shadow.shadows import list_reports

router = APIRouter(prefix="/api/v1", tags=["shadows"])


@router.get("/projects/{project}/shadows", summary="Shadows", responses=declare_problems(404))
def read_shadows(project: ProjectPath, caller: Admin) -> ShadowsReply:
    """Return the shadows of a project with their reports: what other options would merge, keep and cost."""
    found = caller.find_project(project)
    shadows = [{"name": name, "report": report} for name, report in list_reports(caller.engine, found.slug).items()]
    return ShadowsReply.model_validate({"project_id": found.id, "project": found.slug, "shadows": shadows})
