"""Routes of suggestions (proposed merges): list, approve, reject, withdraw."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from consolidation_pipeline.api.access import Admin
from consolidation_pipeline.api.models.base import Limit, Offset, Text, enum_schema
from consolidation_pipeline.api.models.suggestions import (
    DecisionReply,
    RejectRequest,
    Status,
    Suggestion,
    SuggestionPage,
    ValidateRequest,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.service.review import suggestion_decisions, suggestions

router = APIRouter(prefix="/api/v1", tags=["suggestions"])

_Project = Annotated[
    Text | None,
    Query(max_length=100, description="Only this project, by slug or id. Default: all projects of the key."),
]
_Type = Annotated[str | None, Query(description="Only this memory type.", json_schema_extra=enum_schema(MEMORY_TYPES))]
_Least = Annotated[float | None, Query(ge=0, le=1, description="Minimum similarity.")]


@router.get("/suggestions", summary="List suggestions", responses=declare_problems(400, 404))
def list_suggestions(
    caller: Admin,
    *,
    project: _Project = None,
    status: Annotated[Status, Query(description="pending: waits for a person.")] = "pending",
    type: _Type = None,
    min_similarity: _Least = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> SuggestionPage:
    """Return suggestions with their originals and the differences between these. Pending: the most similar first."""
    reference = project or caller.principal.project
    found = suggestions.list_suggestions(
        caller.engine,
        None if reference is None else caller.find_project(reference).slug,
        status=status,
        type=type,
        min_similarity=min_similarity,
        limit=limit,
        offset=offset,
    )
    page = [Suggestion.model_validate(one) for one in found.suggestions]
    return SuggestionPage(total=found.total, limit=limit, offset=offset, suggestions=page)


@router.get("/suggestions/{id}", summary="A suggestion", responses=declare_problems(404))
def get_suggestion(id: UUID, caller: Admin) -> Suggestion:
    """Return one suggestion with its originals and the differences between these."""
    caller.check_owner([id], noun="suggestion")
    return Suggestion.model_validate(suggestions.get_suggestion(caller.engine, id))


@router.post(
    "/suggestions/{id}/validate", summary="Approve a merge", responses=declare_problems(400, 402, 404, 409, 502)
)
def validate(id: UUID, caller: Admin, body: ValidateRequest | None = None) -> DecisionReply:
    """Merge the originals into one memory. 409: it was decided before, or an original has changed."""
    caller.check_owner([id], noun="suggestion")
    request = body or ValidateRequest()
    done = suggestion_decisions.approve_suggestion(
        caller.engine,
        id,
        content=request.content,
        lessons_learned=request.lessons_learned,
        note=request.note,
        decided_by=caller.name,
        settings=caller.settings,
    )
    return DecisionReply.model_validate(done)


@router.post("/suggestions/{id}/reject", summary="Reject a merge", responses=declare_problems(404, 409))
def reject(id: UUID, caller: Admin, body: RejectRequest | None = None) -> DecisionReply:
    """Keep the originals separate. They are not proposed again unless their group changes. 409: decided before."""
    caller.check_owner([id], noun="suggestion")
    note = body.note if body else None
    return DecisionReply.model_validate(
        suggestion_decisions.reject_suggestion(caller.engine, id, note=note, decided_by=caller.name)
    )


@router.delete("/suggestions/{id}", summary="Withdraw a suggestion", responses=declare_problems(404, 409))
def withdraw(id: UUID, caller: Admin) -> DecisionReply:
    """Remove a suggestion from the list without a decision; its status becomes expired. 409: it was decided before."""
    caller.check_owner([id], noun="suggestion")
    return DecisionReply.model_validate(
        suggestion_decisions.withdraw_suggestion(caller.engine, id, decided_by=caller.name)
    )
