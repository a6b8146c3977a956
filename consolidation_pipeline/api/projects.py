"""Routes of projects: list, create, plan, options, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from fastapi import APIRouter

from consolidation_pipeline.api.access import Admin, Caller, Reader
from consolidation_pipeline.api.models.base import ListLimit, Offset, ProjectPath
from consolidation_pipeline.api.models.projects import (
    ConfigurationReply,
    ConfigureRequest,
    CreateProjectRequest,
    PlanReply,
    PlanRequest,
    ProjectMetricsReply,
    ProjectsReply,
)
from consolidation_pipeline.api.problems import RefusedError, declare_problems
from consolidation_pipeline.service.admin.projects import (
    configure_project,
    create_project,
    get_configuration,
    list_projects,
)
from consolidation_pipeline.service.jobs.job_status import describe_project
from consolidation_pipeline.service.plan.planner import make_plan
from consolidation_pipeline.store.projects import Project

router = APIRouter(prefix="/api/v1", tags=["projects"])

_LEVELS = ("1", "2", "3")


@router.get("/projects", summary="List projects", responses=declare_problems())
def read_projects(caller: Reader, limit: ListLimit = 100, offset: Offset = 0) -> ProjectsReply:
    """Return the projects that the key may access, by slug, with their active and new memories."""
    found = [one for one in list_projects(caller.engine) if caller.principal.can_access(one.project_id)]
    page = {"total": len(found), "limit": limit, "offset": offset, "projects": found[offset : offset + limit]}
    return ProjectsReply.model_validate(page)


@router.post("/projects", status_code=201, summary="Create a project", responses=declare_problems(400, 409))
def create(body: CreateProjectRequest, caller: Admin) -> ConfigurationReply:
    """Create a project, optionally with options. The first memory of an import creates it too.

    403: the key is for one project. 409: the project exists. 422: an option is unknown or out of range.
    """
    caller.require_all_projects()
    project = create_project(caller.engine, body.project, body.options, settings=caller.settings)
    caller.add_log_fields(project=project.slug)
    return _read_configuration(caller, project)


@router.post("/plan", summary="Preview a run", responses=declare_problems(404, 402, 502))
def plan(body: PlanRequest, caller: Admin) -> PlanReply:
    """Return every merge, pattern, promotion and archiving that a run would do now, with texts and reasons.

    Writes nothing and calls no paid model. Takes as long as the grouping in a run. 503 with Retry-After: two other
    plans are being made.
    """
    project = caller.find_project(body.project)
    with _plan_slot(caller.request.app.state.plan_slots):
        plan = make_plan(caller.engine, project.slug, settings=caller.settings)
    return PlanReply.model_validate({**dict(plan), "project_id": project.id, "totals": plan.count_totals()})


@contextmanager
def _plan_slot(slots: BoundedSemaphore) -> Iterator[None]:
    """Occupy one of the few slots for plans, so that searches find a free thread. Raise RefusedError (503) if none."""
    if not slots.acquire(blocking=False):
        raise RefusedError(503, "other plans are being made; try again in 5 s", headers={"Retry-After": "5"})
    try:
        yield
    finally:
        slots.release()


@router.get("/projects/{project}/options", summary="Options in force", responses=declare_problems(404))
def read_configuration(project: ProjectPath, caller: Admin) -> ConfigurationReply:
    """Return the options in force for the project, and the options that were set for it."""
    return _read_configuration(caller, caller.find_project(project))


@router.post("/projects/{project}/options", summary="Set options", responses=declare_problems(404))
def configure(project: ProjectPath, body: ConfigureRequest, caller: Admin) -> ConfigurationReply:
    """Set options of the project, by name or alias; null resets an option to its default. Sets all of them or none.

    422: an option is unknown or out of range; the message names the option and its range.
    """
    found = caller.find_project(project)
    options = body.model_extra or {}
    configure_project(
        caller.engine,
        found.slug,
        settings=caller.settings,
        config={name: value for name, value in options.items() if value is not None},
        resets=[name for name, value in options.items() if value is None],
        enabled=body.consolidation_enabled,
    )
    return _read_configuration(caller, found)


def _read_configuration(caller: Caller, project: Project) -> ConfigurationReply:
    found, options = get_configuration(caller.engine, project.slug, settings=caller.settings)
    return ConfigurationReply(
        project_id=found.id,
        project=found.slug,
        consolidation_enabled=found.consolidation_enabled,
        config=dict(found.config),
        effective=options.model_dump(mode="json"),
    )


@router.get("/projects/{project}/metrics", summary="Project metrics", responses=declare_problems(404))
def read_project_metrics(project: ProjectPath, caller: Admin) -> ProjectMetricsReply:
    """Return metrics of the project: memories, reduction, distributions, cost, last and next run."""
    found = caller.find_project(project)
    numbers = describe_project(caller.engine, found.slug, settings=caller.settings)
    last = numbers["last_run"]
    return ProjectMetricsReply.model_validate(
        {
            **numbers,
            "project_id": found.id,
            "total_memories": numbers["memories"],
            "raw_count": numbers["active"],
            "consolidated_count": numbers["consolidated"],
            "archived_count": numbers["archived"],
            "merged_count": numbers["merged"],
            "reduction_percentage": round(100 * (numbers["reduction"] or 0.0), 4),
            "last_run_time": last and (last["completed_at"] or last["started_at"]),
            "next_run_time": numbers["next_run"]["at"] if numbers["enabled"] else None,
            "memory_type_distribution": numbers["by_type"],
            "abstraction_distribution": dict.fromkeys(_LEVELS, 0) | numbers["by_level"],
            "kind_distribution": numbers["by_kind"],
        }
    )
