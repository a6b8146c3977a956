"""Routes of relations between memories: list them, confirm or reject them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from consolidation_pipeline.api.access import Admin, Caller
from consolidation_pipeline.api.models.base import ListLimit, ProjectPath
from consolidation_pipeline.api.models.relations import (
    DecidedRelation,
    DecideRelationsReply,
    DecideRelationsRequest,
    RelationsReply,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.service.lifecycle.relations import decide_relations, list_relations

router = APIRouter(prefix="/api/v1", tags=["relations"])


@router.get("/projects/{project}/relations", summary="Relations", responses=declare_problems(404))
def read_relations(
    project: ProjectPath,
    caller: Admin,
    *,
    status: Annotated[
        Literal["candidate", "confirmed", "rejected"] | None, Query(description="Only this status.")
    ] = None,
    relation_type: Annotated[
        Literal["contradicts", "explains", "shares_theme", "parallel_context", "supersedes"] | None,
        Query(description="Only this type."),
    ] = None,
    limit: ListLimit = 50,
) -> RelationsReply:
    """Return relations between memories, newest first. Candidates wait for a decision and have no effect yet."""
    slug = caller.find_project(project).slug
    found = list_relations(caller.engine, slug, limit=limit, status=status, relation_type=relation_type)
    return RelationsReply.model_validate(found)


@router.post("/relations/confirm", summary="Confirm relations", responses=declare_problems(404, 409))
def confirm_relations(body: DecideRelationsRequest, caller: Admin) -> DecideRelationsReply:
    """Confirm relations, all or none. A memory that supersedes another one is then found before it."""
    return _decide(body, caller, "confirmed")


@router.post("/relations/reject", summary="Reject relations", responses=declare_problems(404, 409))
def reject_relations(body: DecideRelationsRequest, caller: Admin) -> DecideRelationsReply:
    """Reject relations, all or none. They have no effect and are not proposed again."""
    return _decide(body, caller, "rejected")


def _decide(
    body: DecideRelationsRequest, caller: Caller, status: Literal["confirmed", "rejected"]
) -> DecideRelationsReply:
    caller.check_owner(body.ids, noun="relation")
    groups = decide_relations(caller.engine, body.ids, status, changed_by=caller.name, reason=body.reason)
    decided = [DecidedRelation(id=id_, group_id=group) for id_, group in groups.items()]
    return DecideRelationsReply(status=status, relations=decided)
