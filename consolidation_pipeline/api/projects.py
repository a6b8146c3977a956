"""A project: its plan, its configuration, its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import BoundedSemaphore

from fastapi import APIRouter

from consolidation_pipeline.api.access import Admin, Caller
from consolidation_pipeline.api.models.base import ProjectPath
from consolidation_pipeline.api.models.projects import (
    ConfigurationReply,
    ConfigureRequest,
    PlanReply,
    PlanRequest,
    ProjectMetricsReply,
)
from consolidation_pipeline.api.problems import RefusedError, declare_problems
from consolidation_pipeline.service.admin.projects import configure_project, get_configuration
from consolidation_pipeline.service.jobs.job_status import describe_project
from consolidation_pipeline.service.plan.planner import make_plan
from consolidation_pipeline.store.projects import Project

router = APIRouter(prefix="/api/v1", tags=["projects"])

_LEVELS = ("1", "2", "3")


@router.post("/consolidation/plan", summary="What a run would do", responses=declare_problems(404, 402, 502))
def plan(body: PlanRequest, caller: Admin) -> PlanReply:
    """Every merge, pattern, promotion and archiving that a run would do now, with texts and reasons.

    Nothing is written and no paid call is made. Takes as long as the grouping of a run does. 503 with Retry-After: two
    plans are being made already.
    """
    project = caller.find_project(body.project_id)
    with _plan_slot(caller.request.app.state.plan_slots):
        made = make_plan(caller.engine, project.slug, settings=caller.settings)
    return PlanReply.model_validate({**dict(made), "project_id": project.id, "totals": made.count_totals()})


@contextmanager
def _plan_slot(plans: BoundedSemaphore) -> Iterator[None]:
    """So many plans at once and no more: all threads busy with plans would leave none for searches."""
    if not plans.acquire(blocking=False):
        raise RefusedError(503, "other plans are being made: try again in 5 s", headers={"Retry-After": "5"})
    try:
        yield
    finally:
        plans.release()


@router.get("/consolidation/configure/{project}", summary="Options in force", responses=declare_problems(404))
def read_configuration(project: ProjectPath, caller: Admin) -> ConfigurationReply:
    """The options in force for the project, and those that were set for it."""
    return _read_configuration(caller, caller.find_project(project))


@router.post("/consolidation/configure/{project}", summary="Set options", responses=declare_problems(404))
def configure(project: ProjectPath, body: ConfigureRequest, caller: Admin) -> ConfigurationReply:
    """Set options of the project, by name or alias; null takes one back to its default. All of them or none.

    422: an option is unknown or out of its range; the message names both.
    """
    found = caller.find_project(project)
    given = body.model_extra or {}
    configure_project(
        caller.engine,
        found.slug,
        settings=caller.settings,
        config={name: value for name, value in given.items() if value is not None},
        resets=[name for name, value in given.items() if value is None],
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


def read_metrics(project: ProjectPath, caller: Admin) -> ProjectMetricsReply:
    """The project in numbers: memories, reduction, distributions, cost, last and next run."""
    found = caller.find_project(project)
    told = describe_project(caller.engine, found.slug, settings=caller.settings)
    last = told["last_run"]
    return ProjectMetricsReply.model_validate(
        {
            **told,
            "project_id": found.id,
            "total_memories": told["memories"],
            "raw_count": told["active"],
            "consolidated_count": told["consolidated"],
            "archived_count": told["archived"],
            "merged_count": told["merged"],
            "reduction_percentage": round(100 * (told["reduction"] or 0.0), 4),
            "last_run_time": last and (last["completed_at"] or last["started_at"]),
            "next_run_time": told["next_run"]["at"] if told["enabled"] else None,
            "memory_type_distribution": told["by_type"],
            "abstraction_distribution": dict.fromkeys(_LEVELS, 0) | told["by_level"],
            "kind_distribution": told["by_kind"],
        }
    )


for path, name in (
    ("/consolidation/metrics/{project}", "read_project_metrics"),
    ("/admin/consolidation-metrics/{project}", "consolidation_metrics"),
):
    router.add_api_route(path, read_metrics, name=name, summary="A project in numbers", responses=declare_problems(404))
