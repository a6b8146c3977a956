"""Pages of connected stores: what was read, what would be written, what was written and how to undo it."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline.api.pages.page_route import PageRoute
from consolidation_pipeline.api.pages.page_session import AdminVisitor, Form, ReaderVisitor, SubmittedForm, Visitor
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.errors import NotFoundError, UsageError
from consolidation_pipeline.service.sources.connections import find_source
from consolidation_pipeline.service.sources.overview import describe_source
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline.store.sources.sources import Source

router = APIRouter(prefix="/projects/{project}/sources", route_class=PageRoute, include_in_schema=False)

_LISTED = 25


@router.get("/{id}")
def show_source(request: Request, project: str, id: UUID, visitor: ReaderVisitor) -> Response:
    """Show a connected store. Nothing is read from it."""
    return _render(request, visitor, project, id)


@router.post("/{id}/write")
def write(request: Request, project: str, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Write one group into the store; if it is refused, tell why."""
    source = _find(visitor, project, id)
    done = write_source(visitor.engine, source.name, memory_ids=[_read_group(form)])
    if done.refused:
        return _render(request, visitor, project, id, refusal=next(iter(done.refused.values())))
    return _redirect(project, id)


@router.post("/{id}/undo")
def undo(request: Request, project: str, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Undo the write of one group in the store only; if rows stand in the way, list them."""
    source = _find(visitor, project, id)
    conflicts = undo_writes(visitor.engine, source.name, [_read_group(form)])
    listed = [f"{one.reason}: {one.place}" for found in conflicts.values() for one in found]
    if listed:
        return _render(request, visitor, project, id, refusal="; ".join(listed[:5]))
    return _redirect(project, id)


def _render(request: Request, visitor: Visitor, project: str, id_: UUID, *, refusal: str | None = None) -> Response:
    source = _find(visitor, project, id_)
    overview = describe_source(visitor.engine, source, limit=_LISTED)
    status = 409 if refusal else 200
    return render(
        request,
        "source.html",
        status=status,
        project=source.project,
        tab="",
        found=overview,
        refusal=refusal,
        limit=_LISTED,
    )


def _find(visitor: Visitor, project: str, id_: UUID) -> Source:
    slug = visitor.find_project(project).slug
    source = find_source(visitor.engine, id_)
    if source is None or source.project != slug:
        raise NotFoundError(f"there is no source {id_} in project {slug}")
    return source


def _read_group(form: Form) -> UUID:
    try:
        return UUID(form.get("group", ""))
    except ValueError:
        raise UsageError("the form names no group") from None


def _redirect(project: str, id_: UUID) -> Response:
    return RedirectResponse(f"/projects/{project}/sources/{id_}", 303)
