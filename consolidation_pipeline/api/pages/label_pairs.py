"""The page on which a person labels pairs of memories for the calibration, one at a time."""

from __future__ import annotations

from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline.api.pages.page_route import PageRoute, render_error
from consolidation_pipeline.api.pages.page_session import AdminVisitor, Form, ReaderVisitor, SubmittedForm
from consolidation_pipeline.api.pages.rendering import render
from consolidation_pipeline.errors import ConflictError, UsageError
from consolidation_pipeline.service.review.pair_labels import (
    LABELS,
    count_labels,
    find_answer,
    label_pair,
    list_pairs_to_label,
    mark_texts,
    withdraw_label,
)

router = APIRouter(prefix="/projects", route_class=PageRoute, include_in_schema=False)


@router.get("/{project}/label")
def show_pair(
    request: Request, project: str, visitor: ReaderVisitor, a: UUID | None = None, b: UUID | None = None
) -> Response:
    """Show the next pair to label. ``a`` and ``b``: the pair that was labelled last, for the notice."""
    slug = visitor.find_project(project).slug
    pairs = list_pairs_to_label(visitor.engine, slug, 1, settings=visitor.settings)
    answer = find_answer(visitor.engine, slug, a, b) if a and b else None
    return render(
        request,
        "label.html",
        project=slug,
        pair=pairs[0] if pairs else None,
        sides=mark_texts(pairs[0]) if pairs else (),
        counts=count_labels(visitor.engine, slug),
        last={"a": a, "b": b, "answer": answer} if answer else None,
    )


@router.post("/{project}/label")
def label(request: Request, project: str, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Store the answer and show the next pair."""
    slug = visitor.find_project(project).slug
    a, b = _read_pair(form)
    answer = form.get("answer", "")
    if answer not in LABELS:
        raise UsageError(f"answer {answer!r} is none: it must be {', '.join(LABELS)}")
    try:
        label_pair(visitor.engine, slug, a, b, same=LABELS[answer], labelled_by=visitor.name)
    except ConflictError:
        message = "Somebody else has labelled this pair meanwhile. Your answer changed nothing."
        return render_error(request, 409, message, back=_path(slug))
    return RedirectResponse(f"{_path(slug)}?{urlencode({'a': a, 'b': b})}", 303)


@router.post("/{project}/label/undo")
def undo(project: str, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Withdraw the label of a pair."""
    slug = visitor.find_project(project).slug
    withdraw_label(visitor.engine, slug, *_read_pair(form))
    return RedirectResponse(_path(slug), 303)


def _path(slug: str) -> str:
    return f"/projects/{slug}/label"


def _read_pair(form: Form) -> tuple[UUID, UUID]:
    """Return the ids of the pair in a form. Raise UsageError if they are none."""
    given = form.get("a", ""), form.get("b", "")
    try:
        return UUID(given[0]), UUID(given[1])
    except ValueError:
        raise UsageError(f"{given[0]!r} and {given[1]!r} are not the ids of two memories") from None
