"""Routes that agents search with: search, single memories, lineage, context for a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from consolidation_pipeline.api.access import Reader, ScopedReader
from consolidation_pipeline.api.memories import describe_memory
from consolidation_pipeline.api.models.memories import ConsolidatedMemory
from consolidation_pipeline.api.models.search import ContextReply, ContextRequest, Lineage, SearchReply, SearchRequest
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.api.usage_buffer import UsageBuffer
from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.search.as_of import parse_as_of
from consolidation_pipeline.service.search.context import build_context
from consolidation_pipeline.service.search.hybrid_search import search_project
from consolidation_pipeline.service.undo.lineage import trace_memory

router = APIRouter(prefix="/api/v1", tags=["search"])

Depth = Annotated[int, Query(ge=1, le=20, description="Number of source levels.")]


@router.post("/search", summary="Search", response_model=SearchReply, responses=declare_problems(400, 404))
def search_memories(body: SearchRequest, caller: ScopedReader) -> Response:
    """Search a project by meaning and by keywords. Each result counts as used once.

    Raw memories that were not merged are found too; `levels` excludes them.
    """
    project = caller.find_project(body.project, allow_cached=True)
    query = replace(body.to_query(), scope=caller.limit_scope(body.scope, project))
    found = search_project(caller.engine, project, query, settings=caller.settings, count_use=False)
    usage_buffer: UsageBuffer = caller.request.app.state.usage_buffer
    if query.as_of is None:
        usage_buffer.add(project.id, found.results)
    reply = SearchReply.model_validate(found)
    # Serialized in this thread: FastAPI would validate the reply once more, in another thread.
    return Response(reply.model_dump_json(), media_type="application/json")


@router.get("/consolidated-memories/{id}", summary="A consolidated memory", responses=declare_problems(404))
def read_consolidated(id: UUID, caller: Reader) -> ConsolidatedMemory:
    """Return a merged memory, pattern, summary, principle or profile. Raw memories are at /memories/{id}."""
    found = describe_memory(id, caller)
    if not isinstance(found, ConsolidatedMemory):
        raise NotFoundError(f"there is no consolidated memory {id}; it is a raw memory: GET /api/v1/memories/{id}")
    return found


@router.get("/memories/{id}/lineage", summary="Lineage", responses=declare_problems(404))
def read_lineage(id: UUID, caller: Reader, depth: Depth = 5) -> Lineage:
    """Return the tree of sources of a memory or playbook entry, with similarities, and what was derived from it."""
    caller.check_owner([id], noun="memory")
    return Lineage.model_validate(trace_memory(caller.engine, str(id), depth=depth))


@router.post("/context", summary="Context for a task", responses=declare_problems(404))
def read_context(body: ContextRequest, caller: ScopedReader) -> ContextReply:
    """Return what a project knows about a task, each fact once, within a token budget. Results count as used once."""
    project = caller.find_project(body.project, allow_cached=True)
    context = build_context(
        caller.engine,
        project.slug,
        body.task,
        settings=caller.settings,
        token_budget=body.token_budget,
        scope=caller.limit_scope(body.scope, project),
        as_of=parse_as_of(body.as_of),
    )
    return ContextReply.model_validate(context)
