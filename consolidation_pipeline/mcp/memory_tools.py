"""Tools that read memories one by one: list, get."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from consolidation_pipeline.mcp.output_schemas import MemoryAnswer, MemoryListAnswer
from consolidation_pipeline.mcp.tool_arguments import MemoryId, Project
from consolidation_pipeline.mcp.tool_context import ToolContext, get_caller


def list_memories(
    ctx: ToolContext,
    project: Project = "",
    *,
    kind: Annotated[
        str, Field(description="raw, merged, pattern, summary, principle, procedural; empty: all.")
    ] = "raw",
    status: Annotated[
        str, Field(description="active, merged, archived, deleted, superseded, retired; empty: all.")
    ] = "",
    memory_type: Annotated[str, Field(description="Only this memory type.")] = "",
    user_id: Annotated[str, Field(description="Only of this user.")] = "",
    session_id: Annotated[str, Field(description="Only of this session.")] = "",
    text: Annotated[str, Field(description="Only memories that contain these words.", max_length=1000)] = "",
    limit: Annotated[int, Field(description="Maximum number of memories.", ge=1, le=1000)] = 50,
    cursor: Annotated[str, Field(description="`next` of the page before.")] = "",
) -> MemoryListAnswer:
    """List a project's memories one by one, those stored last first, deleted ones too.

    To find memories about something, search is better. Free; changes nothing.
    """
    from consolidation_pipeline.service.intake.memory_listing import list_memories as read_page

    caller = get_caller(ctx, of_scope=True)
    page = read_page(
        caller.engine,
        caller.resolve_project(project),
        kind=kind or None,
        status=status or None,
        memory_type=memory_type or None,
        user_id=user_id or None,
        session_id=session_id or None,
        text=text or None,
        scope=caller.principal.scope,
        limit=limit,
        cursor=cursor or None,
    )
    return MemoryListAnswer.model_validate(page)


def get_memory(ctx: ToolContext, memory_id: MemoryId, project: Project = "") -> MemoryAnswer:
    """Return a raw or consolidated memory with all its fields, its version, and the memory that replaced it, if any.

    Free; changes nothing.
    """
    from consolidation_pipeline.service.intake.agent_memories import get_memory as read

    caller = get_caller(ctx)
    return MemoryAnswer(read(caller.engine, caller.find_memory(memory_id, project=project)))
