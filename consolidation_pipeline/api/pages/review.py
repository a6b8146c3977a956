"""The review page: one suggestion at a time, its originals side by side; approve, reject or keep as variants.

Suggestions that differ only in one kind of difference can be decided together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from consolidation_pipeline.api.models.suggestions import Status
from consolidation_pipeline.api.pages.history import render_undo
from consolidation_pipeline.api.pages.page_route import PageRoute, describe_error, render_error
from consolidation_pipeline.api.pages.page_session import (
    AdminVisitor,
    Form,
    ReaderVisitor,
    SubmittedForm,
    Visitor,
    redirect_back,
)
from consolidation_pipeline.api.pages.query_params import (
    DifferenceChoice,
    MinScore,
    ProjectChoice,
    QueuePosition,
    TypeChoice,
    resolve_local_path,
)
from consolidation_pipeline.api.pages.rendering import STATUS_LABELS, format_time, person_name, render
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.text.word_diff import Piece, compare_texts, mark_new
from consolidation_pipeline.errors import ConflictError, ConsolidationError, NotFoundError
from consolidation_pipeline.service.admin.projects import list_projects
from consolidation_pipeline.service.review.suggestion_bulk import Rule, count_matching, decide_matching
from consolidation_pipeline.service.review.suggestion_decisions import (
    approve_suggestion,
    keep_variants,
    reject_suggestion,
)
from consolidation_pipeline.service.review.suggestions import (
    Original,
    Suggestion,
    SuggestionPage,
    describe_queue,
    get_suggestion,
    list_suggestions,
)
from consolidation_pipeline.service.undo.rollback import roll_back

router = APIRouter(prefix="/review", route_class=PageRoute, include_in_schema=False)

# Suggestions listed beside the current one.
_PAGE_SIZE = 10
_QUEUE_PATH = "/review"
_SIMILARITIES = (0.98, 0.95, 0.93, 0.9, 0.85)
# Suggestions that are decided together at a time: some seconds.
_MOST_TOGETHER = 200
# Kinds of differences that the page lists.
_LISTED_KINDS = 8


@dataclass(frozen=True)
class MarkedOriginal:
    """An original and the pieces of its text, marked where it differs."""

    original: Original
    pieces: Sequence[Piece]


def mark_originals(suggestion: Suggestion) -> list[MarkedOriginal]:
    """Return the originals of a suggestion, each with its text in pieces that differ or conflict."""
    spans: dict[UUID, list[tuple[int, int]]] = {original.id: [] for original in suggestion.originals}
    for one in suggestion.differences:
        for id_, side in ((one.a_id, one.a), (one.b_id, one.b)) if one.contradicts else ():
            spans[id_] += [(passage.start, passage.start + len(passage.text)) for passage in side]
    texts = [original.content for original in suggestion.originals]
    marked = compare_texts(texts, list(spans.values()))
    return [MarkedOriginal(original, pieces) for original, pieces in zip(suggestion.originals, marked, strict=True)]


def _read_filters(
    project: ProjectChoice = "", type: TypeChoice = "", similarity: MinScore = None, differ: DifferenceChoice = ""
) -> dict[str, Any]:
    """Return the filters of pending suggestions, by their names in the query."""
    return {"project": project, "status": "pending", "type": type, "similarity": similarity, "differ": differ}


Filters = Annotated[dict[str, Any], Depends(_read_filters)]


@router.get("")
def show_queue(
    request: Request,
    visitor: ReaderVisitor,
    filters: Filters,
    *,
    status: Status = "pending",
    at: QueuePosition = 0,
    done: UUID | None = None,
    decided: QueuePosition | None = None,
    left: QueuePosition = 0,
) -> Response:
    """Show the suggestion at position ``at`` of the filtered queue, beside the list of its page.

    ``decided``: number of suggestions that were just decided together; ``left``: of those that could not be.
    """
    filters["status"] = status
    slug = visitor.find_project(filters["project"]).slug if filters["project"] else visitor.principal.project
    queue = describe_queue(
        visitor.engine,
        slug,
        settings=visitor.settings,
        type=filters["type"] or None,
        min_similarity=filters["similarity"],
    )
    page, first, at = _load_page(visitor, slug, filters, at)
    own = visitor.principal.project
    return render(
        request,
        "review.html",
        filters=filters,
        total=page.total,
        at=at,
        first=first,
        listed=page.suggestions,
        projects=[own] if own else [one.slug for one in list_projects(visitor.engine)],
        types=MEMORY_TYPES,
        similarities=_SIMILARITIES,
        queue=queue,
        kinds=dict(list(queue.kinds.items())[:_LISTED_KINDS]),
        decided=decided,
        left=left,
        done=_find_decided(visitor, done),
        **_describe_suggestion(page.suggestions[at - first] if page.suggestions else None),
    )


def _load_page(
    visitor: Visitor, slug: str | None, filters: Mapping[str, Any], at: int
) -> tuple[SuggestionPage, int, int]:
    """Return the page of the queue with position ``at``, the position of its first item, and ``at`` itself.

    A position after the end becomes the last one.
    """
    first = at - at % _PAGE_SIZE
    page = list_suggestions(
        visitor.engine,
        slug,
        status=filters["status"],
        type=filters["type"] or None,
        min_similarity=filters["similarity"],
        differ_only_in=filters["differ"] or None,
        limit=_PAGE_SIZE,
        offset=first,
    )
    if at >= page.total > 0:
        return _load_page(visitor, slug, filters, page.total - 1)
    return page, first, at if page.total else 0


def _describe_suggestion(suggestion: Suggestion | None) -> dict[str, Any]:
    if suggestion is None:
        return {"suggestion": None}
    texts = [original.content for original in suggestion.originals]
    return {
        "suggestion": suggestion,
        "sides": mark_originals(suggestion),
        "differences": suggestion.list_differences(),
        "remarks": (suggestion.rationale or "").partition("; ")[2],
        "proposed": mark_new(suggestion.content, texts),
        "lessons": mark_new(suggestion.lessons_learned or "", texts),
        "edit": {
            "content": suggestion.content,
            "lessons_learned": suggestion.lessons_learned or "",
            "accept_loss": "",
            "note": "",
        },
        "refusal": "",
    }


def _find_decided(visitor: Visitor, id_: UUID | None) -> Suggestion | None:
    """Return the suggestion that was just decided, for the notice with its undo button; None if there is none."""
    try:
        return None if id_ is None else _find_suggestion(visitor, id_)
    except NotFoundError:
        return None


def _find_suggestion(visitor: Visitor, id_: UUID) -> Suggestion:
    suggestion = get_suggestion(visitor.engine, id_)
    visitor.check_project(suggestion.project, id_)
    return suggestion


@router.get("/decide")
def ask_together(request: Request, visitor: AdminVisitor, filters: Filters, project: ProjectChoice) -> Response:
    """Ask to confirm a decision on all suggestions that match the filters, and tell their number."""
    return _render_together(request, visitor, filters, _read_rule(visitor, project, filters))


def _read_rule(visitor: Visitor, project: str, filters: Mapping[str, Any]) -> Rule:
    slug = visitor.find_project(project).slug
    return Rule(slug, filters["similarity"], filters["type"] or None, filters["differ"] or None)


def _render_together(
    request: Request, visitor: Visitor, filters: Mapping[str, Any], rule: Rule, *, error: ConflictError | None = None
) -> Response:
    return render(
        request,
        "together.html",
        status=409 if error else 200,
        filters={**filters, "project": rule.project},
        count=count_matching(visitor.engine, rule, settings=visitor.settings),
        listed=_load_page(visitor, rule.project, filters, 0)[0].suggestions,
        most=_MOST_TOGETHER,
        error=error,
    )


@router.get("/{id}")
def show_one(request: Request, id: UUID, visitor: ReaderVisitor, done: UUID | None = None) -> Response:
    """Show one suggestion alone."""
    return render(
        request,
        "suggestion.html",
        done=_find_decided(visitor, done),
        **_describe_suggestion(_find_suggestion(visitor, id)),
    )


@router.post("/decide")
def decide_together(
    request: Request,
    visitor: AdminVisitor,
    form: SubmittedForm,
    filters: Filters,
    *,
    project: ProjectChoice,
    count: QueuePosition,
) -> Response:
    """Decide all suggestions that match the filters, if they are as many as the page told: ``count``."""
    rule = _read_rule(visitor, project, filters)
    try:
        done = decide_matching(
            visitor.engine,
            rule,
            form.get("decision", ""),
            most=_MOST_TOGETHER,
            expected=count,
            settings=visitor.settings,
            decided_by=visitor.name,
            note=form.get("note", "").strip() or None,
        )
    except ConflictError as error:
        return _render_together(request, visitor, filters, rule, error=error)
    counts = {"project": rule.project, "decided": len(done.decided), "left": len(done.refused) + done.remaining}
    return RedirectResponse(f"{_QUEUE_PATH}?{urlencode(counts)}", 303)


@router.post("/{id}/approve")
def approve(request: Request, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Merge the originals without those that are left out, with the proposed or the edited text."""
    suggestion = _find_suggestion(visitor, id)

    def merge() -> None:
        approve_suggestion(
            visitor.engine,
            id,
            content=_read_edit(form, "content", suggestion.content),
            lessons_learned=_read_edit(form, "lessons_learned", suggestion.lessons_learned or ""),
            accept_loss=bool(form.get("accept_loss")),
            leave_out=[one.id for one in suggestion.originals if form.get(f"leave_out_{one.id}")],
            note=form.get("note", "").strip() or None,
            decided_by=visitor.name,
            settings=visitor.settings,
        )

    return _decide(request, suggestion, form, merge)


def _read_edit(form: Form, field: str, proposed: str) -> str | None:
    """Return the field of a form, None if it is missing or equal to the proposed text."""
    text = form.get(field)
    return None if text is None or text.strip() == proposed.replace("\r\n", "\n").strip() else text.strip()


@router.post("/{id}/reject")
def reject(request: Request, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Keep the originals separate."""
    return _decide_simply(request, id, visitor, form, reject_suggestion)


@router.post("/{id}/keep")
def keep(request: Request, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Keep the originals as variants."""
    return _decide_simply(request, id, visitor, form, keep_variants)


def _decide_simply(
    request: Request, id_: UUID, visitor: Visitor, form: Form, decision: Callable[..., object]
) -> Response:
    """Carry out a decision that needs nothing but a note."""
    suggestion = _find_suggestion(visitor, id_)
    how = {"note": form.get("note", "").strip() or None, "decided_by": visitor.name, "settings": visitor.settings}
    return _decide(request, suggestion, form, lambda: decision(visitor.engine, id_, **how))


@router.post("/{id}/undo")
def undo(request: Request, id: UUID, visitor: AdminVisitor, form: SubmittedForm) -> Response:
    """Undo the decision: the suggestion is pending again."""
    suggestion = _find_suggestion(visitor, id)
    if suggestion.group_id is None:
        raise ConflictError("This suggestion has no decision to undo. Nothing was changed.")
    try:
        roll_back(visitor.engine, suggestion.group_id, settings=visitor.settings, changed_by=visitor.name)
    except ConflictError as error:
        return render_undo(request, visitor, suggestion.project, suggestion.group_id, error=error)
    return redirect_back(form, id, default=_QUEUE_PATH)


def _decide(request: Request, suggestion: Suggestion, form: Form, decision: Callable[[], object]) -> Response:
    """Carry out a decision and redirect to the queue; on an error, show it, with the form if it can be sent again."""
    back = resolve_local_path(form.get("back", ""), default=_QUEUE_PATH)
    try:
        decision()
    except ConflictError as error:
        kept = _read_edit(form, "content", suggestion.content) or ""
        return render_error(request, 409, _explain_conflict(request, suggestion.id, error), back=back, kept=kept)
    except ConsolidationError as error:
        status, message = describe_error(error)
        values = {**_describe_suggestion(suggestion), "refusal": message}
        values["edit"] = {**values["edit"], **form}
        return render(request, "suggestion.html", status=status, done=None, back=back, **values)
    return redirect_back(form, suggestion.id, default=_QUEUE_PATH)


def _explain_conflict(request: Request, id_: UUID, error: ConflictError) -> str:
    """Return why a decision came too late, without ids."""
    suggestion = get_suggestion(request.app.state.engine, id_)
    if suggestion.status == "superseded":
        return (
            "One of these memories was changed, archived or merged after the suggestion was made, or others were worth "
            "more, so nothing was merged. If they are still similar, a later run proposes them again."
        )
    if suggestion.status != "pending":
        decision = f"{STATUS_LABELS[suggestion.status]} by {person_name(suggestion.reviewed_by)}"
        return f"This suggestion was {decision}, {format_time(suggestion.reviewed_at)}. Your decision changed nothing."
    return f"{error}. Nothing was changed."
