"""Routes of manual actions: archive, restore and pin memories, review what waits, read the playbook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from consolidation_pipeline.api.access import Admin, Caller, Reader
from consolidation_pipeline.api.models.base import ListLimit, ProjectPath, enum_schema
from consolidation_pipeline.api.models.review import (
    DecideReply,
    DecideRequest,
    ManualChange,
    PinRequest,
    PlaybookReply,
    ReasonRequest,
    ReviewReply,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.core.knowledge.playbook import CATEGORIES
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.lifecycle import manual_actions
from consolidation_pipeline.service.playbook.entries import read_playbook, to_markdown
from consolidation_pipeline.service.review.review_queue import decide_review, list_review
from consolidation_pipeline.service.search.as_of import parse_as_of

router = APIRouter(prefix="/api/v1")

_MARKDOWN = "text/markdown"


@router.post("/memories/{id}/archive", tags=["memories"], summary="Archive", responses=declare_problems(400, 404, 409))
def archive(id: UUID, caller: Admin, body: ReasonRequest | None = None) -> ManualChange:
    """Archive a memory of any kind: hidden from search, kept, and restorable. 409: it is archived, merged or pinned."""
    return _change(manual_actions.archive_manually, id, caller, body)


@router.post("/memories/{id}/restore", tags=["memories"], summary="Restore", responses=declare_problems(404, 409))
def restore(id: UUID, caller: Admin, body: ReasonRequest | None = None) -> ManualChange:
    """Restore an archived memory. 409: it is not archived, or an active memory has the same key or content."""
    return _change(manual_actions.restore_memories, id, caller, body)


@router.post("/memories/{id}/pin", tags=["memories"], summary="Pin", responses=declare_problems(404, 409))
def pin(id: UUID, caller: Admin, body: PinRequest | None = None) -> ManualChange:
    """Pin a memory, so that no policy archives it, or unpin it. 409: nothing to change, or it is archived or merged."""
    return _change(partial(manual_actions.pin_memories, pinned=body is None or body.pinned), id, caller, body)


def _change(
    action: Callable[..., Sequence[manual_actions.ManualChange]], id_: UUID, caller: Caller, body: ReasonRequest | None
) -> ManualChange:
    """Carry out an action on one memory of the key's project."""
    caller.check_owner([id_], noun="memory")
    (changed,) = action(caller.engine, [id_], reason=body.reason if body else None, changed_by=caller.name)
    return ManualChange.model_validate(changed)


@router.get("/projects/{project}/review", tags=["review"], summary="Review queue", responses=declare_problems(404))
def read_review(
    project: ProjectPath,
    caller: Admin,
    kind: Annotated[Literal["pattern", "principle", "playbook"] | None, Query(description="Only this kind.")] = None,
    limit: ListLimit = 50,
) -> ReviewReply:
    """Return patterns, principles and playbook entries that wait for review, the most confident first, and why."""
    found = caller.find_project(project)
    waiting = list_review(caller.engine, found.slug, limit=limit, kind=kind)
    return ReviewReply.model_validate({"project_id": found.id, **waiting})


@router.post("/review/approve", tags=["review"], summary="Approve", responses=declare_problems(400, 404, 409))
def approve(body: DecideRequest, caller: Admin) -> DecideReply:
    """Approve items: entries become active; the next run promotes patterns and principles. All of them or none."""
    return _decide(body, caller, "approved")


@router.post("/review/dismiss", tags=["review"], summary="Dismiss", responses=declare_problems(400, 404, 409))
def dismiss(body: DecideRequest, caller: Admin) -> DecideReply:
    """Dismiss waiting or active items: they are retired and not derived again from the same memories. All or none."""
    return _decide(body, caller, "dismissed")


def _decide(body: DecideRequest, caller: Caller, decision: Literal["approved", "dismissed"]) -> DecideReply:
    caller.check_owner(body.ids, noun="memory")
    done = decide_review(
        caller.engine,
        body.ids,
        approved=decision == "approved",
        changed_by=caller.name,
        reason=body.reason,
        expected=body.expected,
    )
    return DecideReply(decision=decision, decided=[ManualChange.model_validate(one) for one in done])


@router.get(
    "/projects/{project}/playbook",
    tags=["playbook"],
    summary="The playbook",
    response_model=PlaybookReply,
    responses={
        **declare_problems(400, 404),
        200: {
            "model": PlaybookReply,
            "description": "Entries; with `format=md` a document",
            "content": {_MARKDOWN: {"schema": {"type": "string"}}},
        },
    },
)
def read_entries(
    project: ProjectPath,
    caller: Reader,
    *,
    status: Annotated[
        Literal["active", "review", "retired"], Query(description="Only entries of this status.")
    ] = "active",
    category: Annotated[
        str | None, Query(description="Only this category.", json_schema_extra=enum_schema(CATEGORIES))
    ] = None,
    limit: ListLimit = 200,
    as_of: Annotated[
        str | None,
        Query(max_length=40, description="The playbook as it was then: a day (to its end) or an ISO 8601 time."),
    ] = None,
    format: Annotated[
        Literal["json", "md"], Query(description="md: a Markdown document of the active entries, for agents.")
    ] = "json",
) -> Response | PlaybookReply:
    """Return the playbook, instructions for agents, by descending priority."""
    found = caller.find_project(project)
    if format == "md" and status != "active":
        raise UsageError(
            f"format=md holds only active entries, because agents act on them; status={status} needs format=json"
        )
    playbook = read_playbook(
        caller.engine, found.slug, limit=limit, status=status, category=category, as_of=parse_as_of(as_of)
    )
    if format == "md":
        return Response(to_markdown(playbook), media_type=_MARKDOWN)
    return PlaybookReply.model_validate({"project_id": found.id, **playbook})
