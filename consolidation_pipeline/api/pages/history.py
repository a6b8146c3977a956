"""Pages of a project's history, and undo."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline.api.pages.page_route import PageRoute
from consolidation_pipeline.api.pages.page_session import AdminVisitor, ReaderVisitor, SubmittedForm, Visitor
from consolidation_pipeline.api.pages.query_params import OperationChoice, PageNumber
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.service.admin.project_browser import Page, list_groups_with_subjects, list_runs
from consolidation_pipeline.service.jobs.job_status import describe_job
from consolidation_pipeline.service.undo.rollback import list_later_changes, roll_back

router = APIRouter(prefix="/projects/{project}", route_class=PageRoute, include_in_schema=False)

_PAGE_SIZE = 25
_MAX_STEPS = 20


@router.get("/history")
def show_history(request: Request, project: str, visitor: ReaderVisitor, page: PageNumber = 1) -> Response:
    """Show the runs of a project, newest first."""
    slug = visitor.find_project(project).slug
    runs = list_runs(visitor.engine, slug, limit=_PAGE_SIZE + 1, offset=(page - 1) * _PAGE_SIZE)
    shown, more = runs[:_PAGE_SIZE], len(runs) > _PAGE_SIZE
    return render(request, "history.html", project=slug, tab="history", runs=shown, page=page, more=more)


@router.get("/changes")
def show_changes(
    request: Request,
    project: str,
    visitor: ReaderVisitor,
    *,
    job: UUID | None = None,
    group: UUID | None = None,
    operation: OperationChoice = "",
    page: PageNumber = 1,
) -> Response:
    """Show groups of changes, newest first: all of them, those of one run, or one."""
    slug = visitor.find_project(project).slug
    filters = {"job_id": job, "group_id": group, "operation": operation or None}
    if job is not None:
        visitor.check_owner([job], noun="run")
    steps = list_groups_with_subjects(visitor.engine, slug, limit=_PAGE_SIZE, offset=(page - 1) * _PAGE_SIZE, **filters)
    return render(
        request,
        "changes.html",
        project=slug,
        tab="history",
        run=describe_job(visitor.engine, str(job)) if job else None,
        steps=steps,
        filters={"job": job, "group": group, "operation": operation},
        page=page,
        pages=-(-steps.total // _PAGE_SIZE),
    )


@router.get("/undo/{id}")
def ask_undo(request: Request, project: str, id: UUID, visitor: AdminVisitor) -> Response:
    """Ask to confirm the undo of a run or a group of changes."""
    return render_undo(request, visitor, project, id)


def render_undo(
    request: Request, visitor: Visitor, project: str, id_: UUID, *, error: ConflictError | None = None
) -> Response:
    """Return the page that asks to confirm the undo of a job or group. It lists the later changes that depend on it.

    ``error``: the conflict that prevented it.
    """
    slug = visitor.find_project(project).slug
    visitor.check_owner([id_], noun="change")
    steps = list_groups_with_subjects(visitor.engine, slug, limit=_MAX_STEPS, job_id=id_)
    is_run = steps.total > 0
    if not is_run:
        steps = list_groups_with_subjects(visitor.engine, slug, limit=_MAX_STEPS, group_id=id_)
    if not steps.total and not error:
        raise NotFoundError(f"{id_} is not the id of a run or a group of changes of project {slug}")
    known = error or _find_conflict(visitor, id_)
    blocking = Page(0, [])
    if known and known.conflicts:
        ids = list(map(UUID, known.conflicts))
        blocking = list_groups_with_subjects(visitor.engine, slug, limit=_MAX_STEPS, ids=ids)
    return render(
        request,
        "undo.html",
        status=409 if error else 200,
        was_refused=error is not None,
        project=slug,
        tab="history",
        id=id_,
        is_run=is_run,
        steps=steps,
        error=known,
        blocking=blocking,
    )


def _find_conflict(visitor: Visitor, id_: UUID) -> ConflictError | None:
    """Return the conflict that an undo without the later changes would end in, as far as it is known before."""
    try:
        later = list_later_changes(visitor.engine, id_, settings=visitor.settings)
    except ConflictError as error:
        return error
    return ConflictError("later changes depend on it", tuple(map(str, later))) if later else None


@router.post("/undo/{id}")
def undo(request: Request, project: str, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Undo a run or group; if later changes prevent it, show them and offer to undo them too."""
    slug = visitor.find_project(project).slug
    visitor.check_owner([id], noun="change")
    try:
        roll_back(
            visitor.engine,
            id,
            settings=visitor.settings,
            changed_by=visitor.name,
            reason=form.get("note", "").strip()[:1000] or None,
            cascade=form.get("cascade") == "yes",
        )
    except ConflictError as error:
        return render_undo(request, visitor, project, id, error=error)
    return RedirectResponse(f"/projects/{slug}/changes", 303)
