"""Pages of projects: list, overview, playbook, knowledge, map."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from consolidation_pipeline.api.pages.page_route import PageRoute
from consolidation_pipeline.api.pages.page_session import (
    AdminVisitor,
    Form,
    ReaderVisitor,
    SubmittedForm,
    Visitor,
    redirect_back,
)
from consolidation_pipeline.api.pages.query_params import (
    DayChoice,
    MinScore,
    PageNumber,
    TypeChoice,
    end_of_day,
    start_of_day,
)
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.admin.project_browser import (
    KINDS,
    describe_knowledge,
    draw_map,
    list_knowledge,
    list_runs,
)
from consolidation_pipeline.service.admin.projects import list_projects
from consolidation_pipeline.service.jobs.job_status import describe_project
from consolidation_pipeline.service.playbook.entries import read_playbook
from consolidation_pipeline.service.review.review_queue import decide_review, list_review
from consolidation_pipeline.service.review.suggestions import list_suggestions
from consolidation_pipeline.service.sources.connections import list_connected
from consolidation_pipeline.store.admin.project_browser import KnowledgeFilter

router = APIRouter(prefix="/projects", route_class=PageRoute, include_in_schema=False)

Kind = Literal["principle", "procedural", "pattern", "summary", "merged", "raw"]
_PAGE_SIZE = 25
_OVERVIEW_ROWS = 5
_MAX_ENTRIES = 200
_CONFIDENCES = (0.95, 0.85, 0.75, 0.5)


@router.get("")
def show_projects(request: Request, visitor: ReaderVisitor) -> Response:
    """Show the projects that the visitor may see."""
    own = visitor.principal.project
    projects = [project for project in list_projects(visitor.engine) if own in (None, project.slug)]
    waiting = list_suggestions(visitor.engine, own, limit=1).total
    return render(request, "projects.html", projects=projects, waiting=waiting)


@router.get("/{project}")
def show_project(request: Request, project: str, visitor: ReaderVisitor, done: UUID | None = None) -> Response:
    """Show an overview of the project, with links to its other pages."""
    own = visitor.find_project(project)
    slug = own.slug
    metrics = describe_project(visitor.engine, slug, settings=visitor.settings)
    kind = _find_top_kind(metrics)
    return render(
        request,
        "project.html",
        project=slug,
        tab="overview",
        metrics=metrics,
        playbook=read_playbook(visitor.engine, slug, limit=_OVERVIEW_ROWS),
        waiting=read_playbook(visitor.engine, slug, limit=3, status="review"),
        kind=kind,
        knowledge=list_knowledge(visitor.engine, slug, KnowledgeFilter(kind), limit=_OVERVIEW_ROWS),
        runs=list_runs(visitor.engine, slug, limit=_OVERVIEW_ROWS),
        suggestions=list_suggestions(visitor.engine, slug, limit=1).total,
        candidates=list_review(visitor.engine, slug, limit=1)["supersessions"],
        sources=list_connected(visitor.engine, own.id),
        done=done,
    )


def _find_top_kind(metrics: dict[str, Any]) -> str:
    """Return the most general kind of knowledge that the project has."""
    return next((kind for kind in KINDS if metrics["by_kind"].get(kind)), "raw")


@router.get("/{project}/playbook")
def show_playbook(request: Request, project: str, visitor: ReaderVisitor, done: UUID | None = None) -> Response:
    """Show the active playbook entries and those that wait for review."""
    slug = visitor.find_project(project).slug
    active = read_playbook(visitor.engine, slug, limit=_MAX_ENTRIES)
    waiting = read_playbook(visitor.engine, slug, limit=_MAX_ENTRIES, status="review")
    return render(request, "playbook.html", project=slug, tab="playbook", playbook=active, waiting=waiting, done=done)


@router.get("/{project}/knowledge")
def show_knowledge(
    request: Request,
    project: str,
    visitor: ReaderVisitor,
    *,
    kind: Kind | None = None,
    type: TypeChoice = "",
    confidence: MinScore = None,
    since: DayChoice = None,
    until: DayChoice = None,
    page: PageNumber = 1,
) -> Response:
    """Show the memories of one kind; each opens to its sources."""
    slug = visitor.find_project(project).slug
    metrics = describe_project(visitor.engine, slug, settings=visitor.settings)
    selected = kind or _find_top_kind(metrics)
    filters = KnowledgeFilter(selected, type or None, confidence, start_of_day(since), end_of_day(until))
    knowledge = list_knowledge(visitor.engine, slug, filters, limit=_PAGE_SIZE, offset=(page - 1) * _PAGE_SIZE)
    return render(
        request,
        "knowledge.html",
        project=slug,
        tab="knowledge",
        counts={**metrics["by_kind"], "raw": metrics["active"]},
        kinds=KINDS,
        types=MEMORY_TYPES,
        confidences=_CONFIDENCES,
        filters={"kind": selected, "type": type, "confidence": confidence, "since": since, "until": until},
        knowledge=knowledge,
        page=page,
        pages=-(-knowledge.total // _PAGE_SIZE),
    )


@router.get("/{project}/memories/{id}")
def show_memory(
    request: Request, project: str, id: UUID, visitor: ReaderVisitor, page: PageNumber = 1, done: UUID | None = None
) -> Response:
    """Show a memory or playbook entry, its sources and what was derived from it.

    ``done``: group of changes of a decision on it that was just made.
    """
    return _render_memory(request, "memory.html", visitor, project, id, page=page, done=done)


@router.get("/{project}/memories/{id}/sources")
def show_sources(request: Request, project: str, id: UUID, visitor: ReaderVisitor, page: PageNumber = 1) -> Response:
    """Return the sources of a memory as a fragment of HTML, which the page puts into its tree."""
    return _render_memory(request, "sources.html", visitor, project, id, page=page)


@router.post("/{project}/memories/{id}/approve")
def approve(project: str, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Approve a pattern, principle or playbook entry that waits for review."""
    return _decide(visitor, project, id, form, approved=True)


@router.post("/{project}/memories/{id}/dismiss")
def dismiss(project: str, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Dismiss a pattern, principle or playbook entry: it is retired and not derived again from the same sources."""
    return _decide(visitor, project, id, form, approved=False)


def _decide(visitor: Visitor, project: str, id_: UUID, form: Form, *, approved: bool) -> Response:
    slug, _ = _find_memory(visitor, project, id_)
    (decided,) = decide_review(visitor.engine, [id_], approved=approved, changed_by=visitor.name)
    return redirect_back(form, decided.group_id, default=f"/projects/{slug}/memories/{id_}")


def _find_memory(visitor: Visitor, project: str, id_: UUID) -> tuple[str, dict[str, Any]]:
    """Return the project's slug and the memory or playbook entry. Raise NotFoundError if it is in another project."""
    slug = visitor.find_project(project).slug
    memory = describe_knowledge(visitor.engine, id_)
    if memory["project"] != slug:
        raise NotFoundError(f"there is no memory {id_} in project {slug}")
    return slug, memory


def _render_memory(
    request: Request, template: str, visitor: Visitor, project: str, id_: UUID, *, page: int, **values: Any
) -> Response:
    slug, memory = _find_memory(visitor, project, id_)
    first = (page - 1) * _PAGE_SIZE
    return render(
        request,
        template,
        project=slug,
        tab="knowledge",
        memory=memory,
        waits=memory["status"] == "review" or (memory["needs_review"] and memory["status"] == "active"),
        sources=memory["sources"][first : first + _PAGE_SIZE],
        page=page,
        pages=-(-len(memory["sources"]) // _PAGE_SIZE),
        **values,
    )


@router.get("/{project}/map.svg")
def show_map(project: str, visitor: ReaderVisitor) -> Response:
    """Return a map of the project's memories as SVG."""
    svg = draw_map(visitor.engine, visitor.find_project(project).slug)
    if svg is None:
        raise NotFoundError("there is no map yet: it needs two memories and a run")
    headers = {"Cache-Control": "private, max-age=60"}
    return Response(svg, media_type="image/svg+xml", headers=headers)
