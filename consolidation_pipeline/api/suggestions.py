"""Routes of suggestions (proposed merges): list, approve, reject, keep as variants, withdraw; one or many."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from consolidation_pipeline.api.access import Admin
from consolidation_pipeline.api.models.base import Limit, Offset, Text, enum_schema
from consolidation_pipeline.api.models.suggestions import (
    BulkReply,
    BulkRequest,
    DecisionReply,
    Refusal,
    RejectRequest,
    Status,
    Suggestion,
    SuggestionPage,
    ValidateRequest,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.service.review import suggestion_bulk, suggestion_decisions, suggestions

# Decisions of one request: some seconds.
MAX_DECISIONS = 200

router = APIRouter(prefix="/api/v1", tags=["suggestions"])

_Project = Annotated[
    Text | None,
    Query(max_length=100, description="Only this project, by slug or id. Default: all projects of the key."),
]
_Type = Annotated[str | None, Query(description="Only this memory type.", json_schema_extra=enum_schema(MEMORY_TYPES))]
_Kind = Annotated[
    str | None,
    Query(max_length=200, description="All differences are of this kind: `value`, `value: build #`, `word`."),
]
_Least = Annotated[float | None, Query(ge=0, le=1, description="Minimum similarity.")]


@router.get("/suggestions", summary="List suggestions", responses=declare_problems(400, 404))
def list_suggestions(
    caller: Admin,
    *,
    project: _Project = None,
    status: Annotated[Status, Query(description="pending: waits for a person.")] = "pending",
    type: _Type = None,
    min_similarity: _Least = None,
    differ_only_in: _Kind = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> SuggestionPage:
    """Return suggestions with their originals and the differences between these. Pending: those worth most first."""
    reference = project or caller.principal.project
    slug = None if reference is None else caller.find_project(reference).slug
    found = suggestions.list_suggestions(
        caller.engine,
        slug,
        status=status,
        type=type,
        min_similarity=min_similarity,
        differ_only_in=differ_only_in,
        limit=limit,
        offset=offset,
    )
    page = [Suggestion.model_validate(one) for one in found.suggestions]
    queue = suggestions.describe_queue(caller.engine, slug, settings=caller.settings)
    return SuggestionPage(
        total=found.total,
        groups_beyond_limit=queue.groups_beyond,
        kinds=dict(queue.kinds),
        limit=limit,
        offset=offset,
        suggestions=page,
    )


@router.post("/suggestions/decide", summary="Decide on many merges", responses=declare_problems(400, 404))
def decide(caller: Admin, body: BulkRequest) -> BulkReply:
    """Approve, reject or keep all suggestions of a project that match a rule, each in its own transaction.

    A suggestion that cannot be decided is listed, and the others are decided.
    """
    rule = suggestion_bulk.Rule(
        caller.find_project(body.project).slug,
        min_similarity=body.min_similarity,
        type=body.type,
        differ_only_in=body.differ_only_in,
        limit=body.limit,
    )
    done = suggestion_bulk.decide_matching(
        caller.engine,
        rule,
        body.decision,
        most=MAX_DECISIONS,
        settings=caller.settings,
        decided_by=caller.name,
        note=body.note,
    )
    return BulkReply(
        decided=[DecisionReply.model_validate(one) for one in done.decided],
        refused=[Refusal(id=id_, message=message) for id_, message in done.refused],
        remaining=done.remaining,
    )


@router.get("/suggestions/{id}", summary="A suggestion", responses=declare_problems(404))
def get_suggestion(id: UUID, caller: Admin) -> Suggestion:
    """Return one suggestion with its originals and the differences between these."""
    caller.check_owner([id], noun="suggestion")
    return Suggestion.model_validate(suggestions.get_suggestion(caller.engine, id))


@router.post(
    "/suggestions/{id}/approve", summary="Approve a merge", responses=declare_problems(400, 402, 404, 409, 502)
)
def approve_merge(id: UUID, caller: Admin, body: ValidateRequest | None = None) -> DecisionReply:
    """Merge the originals, or a part of them, into one memory.

    409: it was decided before, or an original or the expected text changed.
    """
    caller.check_owner([id], noun="suggestion")
    request = body or ValidateRequest()
    done = suggestion_decisions.approve_suggestion(
        caller.engine,
        id,
        content=request.content,
        lessons_learned=request.lessons_learned,
        accept_loss=request.accept_loss,
        leave_out=request.leave_out,
        expected=request.expected,
        note=request.note,
        decided_by=caller.name,
        settings=caller.settings,
    )
    return DecisionReply.model_validate(done)


@router.post("/suggestions/{id}/reject", summary="Reject a merge", responses=declare_problems(404, 409))
def reject(id: UUID, caller: Admin, body: RejectRequest | None = None) -> DecisionReply:
    """Keep the originals separate. Of three or more, the next run proposes parts. 409: decided before."""
    caller.check_owner([id], noun="suggestion")
    done = suggestion_decisions.reject_suggestion(
        caller.engine, id, note=body.note if body else None, decided_by=caller.name, settings=caller.settings
    )
    return DecisionReply.model_validate(done)


@router.post("/suggestions/{id}/keep", summary="Keep both as variants", responses=declare_problems(404, 409))
def keep(id: UUID, caller: Admin, body: RejectRequest | None = None) -> DecisionReply:
    """Keep each original as a variant: none is merged with or asked about beside another again. 409: decided before."""
    caller.check_owner([id], noun="suggestion")
    done = suggestion_decisions.keep_variants(
        caller.engine, id, note=body.note if body else None, decided_by=caller.name, settings=caller.settings
    )
    return DecisionReply.model_validate(done)


@router.delete("/suggestions/{id}", summary="Withdraw a suggestion", responses=declare_problems(404, 409))
def withdraw(id: UUID, caller: Admin) -> DecisionReply:
    """Remove a suggestion from the list without a decision; its status becomes expired. 409: it was decided before."""
    caller.check_owner([id], noun="suggestion")
    return DecisionReply.model_validate(
        suggestion_decisions.withdraw_suggestion(caller.engine, id, decided_by=caller.name, settings=caller.settings)
    )
