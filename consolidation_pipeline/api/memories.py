"""Routes of memories: add, read one, give feedback."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.responses import Response

from consolidation_pipeline.api.access import Agent, Caller, ScopedAgent
from consolidation_pipeline.api.models.memories import (
    AddMemoriesReply,
    AddMemoriesRequest,
    AddMemoryReply,
    AddMemoryRequest,
    ConsolidatedMemory,
    FeedbackReply,
    FeedbackRequest,
    InvalidRow,
    MemoryRow,
    RawMemory,
    UsesReply,
    UsesRequest,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.core.invalid_values import describe_errors
from consolidation_pipeline.errors import InvalidMemoryError
from consolidation_pipeline.service.intake.agent_memories import add_memories, get_memory, give_feedback
from consolidation_pipeline.service.intake.memory_uses import report_used

router = APIRouter(prefix="/api/v1/memories", tags=["memories"])

_EXISTING_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"model": AddMemoryReply, "description": "The same memory was stored before"}
}
_NONE_NEW_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"model": AddMemoriesReply, "description": "No memory is new"}
}


@router.post(
    "", status_code=201, summary="Add a memory", responses={**_EXISTING_RESPONSE, **declare_problems(400, 404)}
)
def add_memory(body: AddMemoryRequest, caller: ScopedAgent, response: Response) -> AddMemoryReply:
    """Store a memory. Search finds it at once by keywords; also by meaning, if the project's embedding model is free.

    If the same memory exists, its id is returned. 422: the memory is not valid, or its id exists with other content.
    """
    project = caller.find_project(body.project)
    rows = [body.to_row()]
    added = add_memories(
        caller.engine,
        project.slug,
        rows,
        source=body.source,
        changed_by=caller.name,
        settings=caller.settings,
        scope=caller.principal.scope,
        writer=caller.principal.writer,
    )
    for _, message in added.errors:
        raise InvalidMemoryError(message)
    if not added.added:
        response.status_code = 200
    status = "added" if added.added else "existing"
    (id_,) = added.ids
    caller.add_log_fields(memory=id_)
    return AddMemoryReply.model_validate(
        {"id": id_, "project_id": project.id, "project": project.slug, "status": status}
    )


@router.post(
    "/bulk",
    status_code=201,
    summary="Add many memories",
    responses={**_NONE_NEW_RESPONSE, **declare_problems(400, 404)},
)
def add_many(body: AddMemoriesRequest, caller: ScopedAgent, response: Response) -> AddMemoriesReply:
    """Store up to 1000 memories. Invalid rows are listed in `errors`; the others are stored."""
    project = caller.find_project(body.project)
    rows, errors = _validate_rows(body.memories)
    added = add_memories(
        caller.engine,
        project.slug,
        list(rows.values()),
        source=body.source,
        changed_by=caller.name,
        settings=caller.settings,
        scope=caller.principal.scope,
        writer=caller.principal.writer,
    )
    positions = list(rows)
    errors |= {positions[at]: message for at, message in added.errors}
    if not added.added:
        response.status_code = 200
    ids = dict(zip(positions, added.ids, strict=True))
    return AddMemoriesReply(
        project_id=project.id,
        project=project.slug,
        added=added.added,
        existing=added.existing,
        errors=[InvalidRow(index=at, message=errors[at]) for at in sorted(errors)],
        ids=[ids.get(at) for at in range(len(body.memories))],
    )


def _validate_rows(given: list[dict[str, Any]]) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """Return the valid rows by position, and the error messages of the others by position."""
    rows, errors = {}, {}
    for at, row in enumerate(given):
        try:
            rows[at] = MemoryRow.model_validate(row).to_row()
        except ValidationError as error:
            errors[at] = describe_errors(error.errors(), MemoryRow.model_fields)
    return rows, errors


@router.get("/{id}", summary="A memory", responses=declare_problems(404))
def read_memory(id: UUID, caller: Agent) -> RawMemory | ConsolidatedMemory:
    """Return a raw or consolidated memory with all its fields and the memory that replaced it, if any."""
    return describe_memory(id, caller)


def describe_memory(id: UUID, caller: Caller) -> RawMemory | ConsolidatedMemory:
    """Return the memory. Raise NotFoundError if it does not exist or belongs to another project."""
    caller.check_owner([id], noun="memory")
    found = get_memory(caller.engine, id)
    if found["kind"] == "raw":
        return RawMemory.model_validate(found)
    return ConsolidatedMemory.model_validate(
        {
            **found,
            "abstraction_level": str(found["level"]),
            "has_embedding": found["embedding_model"] is not None,
            "consolidated_at": found["updated_at"],
        }
    )


@router.post("/{id}/feedback", summary="Give feedback", responses=declare_problems(400, 404, 409))
def add_feedback(id: UUID, body: FeedbackRequest, caller: Agent) -> FeedbackReply:
    """Report whether a memory helped. Its importance rises or falls by 0.1, once a day; its text stays.

    Search ranks it by the votes of all its readers. 409: the memory is archived or merged.
    """
    caller.check_owner([id], noun="memory")
    done = give_feedback(
        caller.engine,
        id,
        helpful=body.helpful,
        note=body.note,
        changed_by=caller.name,
        voter=caller.principal.identify_voter(body.session_id),
    )
    return FeedbackReply.model_validate(done)


@router.post("/used", summary="Report used memories", responses=declare_problems(400, 404))
def add_uses(body: UsesRequest, caller: Agent) -> UsesReply:
    """Report the memories and playbook entries that the caller used. Search and the playbook rank by it.

    It counts once a day for each id and query, and less for memories that the caller's key wrote. With a query, it
    counts for similar ones.
    """
    caller.check_owner(body.ids, noun="memory")
    done = report_used(
        caller.engine,
        body.ids,
        voter=caller.principal.identify_voter(body.session_id),
        query=body.query,
        settings=caller.settings,
    )
    return UsesReply.model_validate(vars(done))
