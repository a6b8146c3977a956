"""Tools that agents write with: add a memory, say whether one helped."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from consolidation_pipeline.errors import InvalidMemoryError
from consolidation_pipeline.mcp.output_schemas import AddedMemory, FeedbackAnswer
from consolidation_pipeline.mcp.tool_arguments import MemoryId, MemoryType, Project
from consolidation_pipeline.mcp.tool_context import ToolContext, get_caller

_SOURCE = "mcp"


def add_memory(
    ctx: ToolContext,
    content: Annotated[
        str, Field(description="The lesson in full, to be understood by itself; up to 100,000 characters.")
    ],
    project: Project = "",
    *,
    memory_type: MemoryType = "learning",
    goal: Annotated[str, Field(description="What you were after.")] = "",
    result: Annotated[str, Field(description="How it ended.")] = "",
    lessons_learned: Annotated[str, Field(description="What to do next time.")] = "",
    tags: Annotated[list[str] | None, Field(description="Topics, for filters.")] = None,
    files: Annotated[list[str] | None, Field(description="Paths it is about.")] = None,
    success: Annotated[bool | None, Field(description="Whether the task succeeded.")] = None,
    importance: Annotated[
        float, Field(description="0 to 1; 0.7 and more is never forgotten.", ge=0, le=1, allow_inf_nan=False)
    ] = 0.5,
    external_id: Annotated[str, Field(description="Your own id for it; without one it is known by its content.")] = "",
    task_id: str = "",
    session_id: str = "",
    agent_id: str = "",
    user_id: str = "",
) -> AddedMemory:
    """Add one memory: what you learned from a task that is done, with names, numbers and paths as they are.

    Say one thing per memory; do not mind repeating what is known, the next consolidation merges it. Adding the same
    memory again changes nothing. Free. A memory is never rewritten or deleted; a person can archive it.
    """
    from consolidation_pipeline.service.intake.agent_memories import add_memories

    who = get_caller(ctx)
    slug = who.choose(project)
    row = _row(
        content=content,
        memory_type=memory_type,
        goal=goal,
        result=result,
        lessons_learned=lessons_learned,
        tags=tags,
        files=files,
        success=success,
        importance=importance,
        id=external_id,
        task_id=task_id,
        session_id=session_id,
        agent_id=agent_id,
        user_id=user_id,
    )
    done = add_memories(who.engine, slug, [row], source=_SOURCE, changed_by=who.name, settings=who.settings)
    for _, message in done.errors:
        raise InvalidMemoryError(message)
    return AddedMemory(project=slug, id=done.ids[0], added=bool(done.added))


def memory_feedback(
    ctx: ToolContext,
    memory_id: MemoryId,
    helpful: Annotated[bool | None, Field(description="true: it helped; false: it misled you or is outdated.")] = None,
    *,
    note: Annotated[str, Field(description="Why, for people who look after the memories.", max_length=2000)] = "",
) -> FeedbackAnswer:
    """Say whether a memory helped you: its importance moves a step, by which it is kept longer or fades sooner.

    Use it after a task for each memory that decided something, above all for one that was wrong. Its text stays as it
    is; add_memory tells what is right. Free. Undone by giving group_id to rollback_consolidation.
    """
    from consolidation_pipeline.service.intake.agent_memories import give_feedback

    who = get_caller(ctx)
    who.own(memory_id, "memory")
    told = give_feedback(who.engine, memory_id, helpful=helpful, note=note or None, changed_by=who.name)
    return FeedbackAnswer.model_validate(told)


def _row(**fields: Any) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name, value in fields.items() if value not in ("", None)}
