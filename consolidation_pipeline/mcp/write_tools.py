"""Tools that write: add, edit and delete a memory, give feedback on one, report which ones were used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from consolidation_pipeline.errors import InvalidMemoryError
from consolidation_pipeline.mcp.output_schemas import (
    AddedMemory,
    DeletionAnswer,
    EditAnswer,
    FeedbackAnswer,
    UsesAnswer,
)
from consolidation_pipeline.mcp.tool_arguments import MemoryId, MemoryIds, MemoryType, Project, Reason, SessionId
from consolidation_pipeline.mcp.tool_context import ToolContext, get_caller

if TYPE_CHECKING:
    from consolidation_pipeline.service.admin.api_keys import Principal
    from consolidation_pipeline.service.lifecycle.changed_memories import Editor

_SOURCE = "mcp"
# All agents on this machine that have no key.
LOCAL_WRITER = "local"


def add_memory(
    ctx: ToolContext,
    content: Annotated[
        str, Field(description="The complete lesson, understandable on its own; up to 100,000 characters.")
    ],
    project: Project = "",
    *,
    memory_type: MemoryType = "learning",
    goal: Annotated[str, Field(description="Goal of the task.")] = "",
    result: Annotated[str, Field(description="Result of the task.")] = "",
    lessons_learned: Annotated[str, Field(description="What to do next time.")] = "",
    tags: Annotated[list[str] | None, Field(description="Topics, used as search filters.")] = None,
    files: Annotated[list[str] | None, Field(description="Paths of the files it is about.")] = None,
    success: Annotated[bool | None, Field(description="True if the task succeeded.")] = None,
    importance: Annotated[
        float,
        Field(
            description="0 to 1. From 0.7 on, the forgetting policy never archives it.", ge=0, le=1, allow_inf_nan=False
        ),
    ] = 0.5,
    external_id: Annotated[
        str, Field(description="Your own id for it. Without an id, the content identifies the memory.")
    ] = "",
    task_id: str = "",
    session_id: str = "",
    agent_id: str = "",
    user_id: str = "",
) -> AddedMemory:
    """Add one memory: a lesson from a finished task, with exact names, numbers and paths.

    Put one lesson into each memory. Repeating a known lesson is fine: the next consolidation merges duplicates. Adding
    the same memory again changes nothing. Free.
    """
    from consolidation_pipeline.service.intake.agent_memories import add_memories, get_memory

    caller = get_caller(ctx, of_scope=True)
    slug = caller.resolve_project(project)
    fields = {
        "content": content,
        "memory_type": memory_type,
        "goal": goal,
        "result": result,
        "lessons_learned": lessons_learned,
        "tags": tags,
        "files": files,
        "success": success,
        "importance": importance,
        "id": external_id,
        "task_id": task_id,
        "session_id": session_id,
        "agent_id": agent_id,
        "user_id": user_id,
    }
    row = {name: value for name, value in fields.items() if value not in ("", None)}
    done = add_memories(
        caller.engine,
        slug,
        [row],
        source=_SOURCE,
        changed_by=caller.name,
        settings=caller.settings,
        scope=caller.principal.scope,
        writer=_find_writer(caller.principal),
    )
    for _, message in done.errors:
        raise InvalidMemoryError(message)
    (id_,) = done.ids
    assert id_ is not None
    status = "active" if done.added else get_memory(caller.engine, id_)["status"]
    return AddedMemory(project=slug, id=id_, added=bool(done.added), status=status)


def _find_writer(principal: Principal) -> str | None:
    """Return the writer of a caller's memories. Over stdio, the caller is an agent that has no key."""
    return LOCAL_WRITER if principal.key_id is None else principal.writer


def edit_memory(
    ctx: ToolContext,
    memory_id: MemoryId,
    project: Project = "",
    *,
    content: Annotated[str, Field(description="The new lesson; empty: it stays.")] = "",
    memory_type: Annotated[str, Field(description="Its new type; empty: it stays.")] = "",
    goal: Annotated[str, Field(description="Goal of the task.")] = "",
    result: Annotated[str, Field(description="Result of the task.")] = "",
    lessons_learned: Annotated[str, Field(description="What to do next time.")] = "",
    tags: Annotated[list[str] | None, Field(description="Its new tags; [] removes them.")] = None,
    files: Annotated[list[str] | None, Field(description="Its new paths; [] removes them.")] = None,
    success: Annotated[bool | None, Field(description="True if the task succeeded.")] = None,
    importance: Annotated[float | None, Field(description="0 to 1.", ge=0, le=1, allow_inf_nan=False)] = None,
    version: Annotated[
        int | None, Field(description="Version that you read: refused if it is another one now.")
    ] = None,
    reason: Reason = "",
) -> EditAnswer:
    """Correct a raw memory: an agent one that it wrote itself, an admin any. Fields that you leave out stay.

    The ledger keeps the old text. If text or type change, what was derived from it goes out of use, and the next
    consolidation derives it again. Use it for a mistake in a memory; a new fact is a new memory. Free. To undo it, pass
    group_id to rollback_consolidation.
    """
    from consolidation_pipeline.service.intake.agent_memories import embed_edited
    from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory as edit

    caller = get_caller(ctx, of_scope=True)
    id_ = caller.find_memory(memory_id, project=project)
    texts = {
        "content": content,
        "memory_type": memory_type,
        "goal": goal,
        "result": result,
        "lessons_learned": lessons_learned,
    }
    others = {"tags": tags, "files": files, "success": success, "importance": importance}
    fields = {name: value for name, value in (texts | others).items() if value not in ("", None)}
    done = edit(
        caller.engine,
        id_,
        fields,
        changed_by=caller.name,
        reason=reason or None,
        version=version,
        editor=_get_editor(caller.principal),
    )
    embed_edited(caller.engine, done, settings=caller.settings)
    return EditAnswer.model_validate(done)


def delete_memory(
    ctx: ToolContext, memory_id: MemoryId, project: Project = "", *, reason: Reason = ""
) -> DeletionAnswer:
    """Delete a memory: an agent one that it wrote itself, an admin any.

    It is hidden at once from search, context, playbook and the next consolidation, with everything derived from it. A
    merged memory is deleted with the memories that it was made from. Free. To undo it, pass group_id to
    rollback_consolidation.
    """
    from consolidation_pipeline.service.lifecycle.memory_deletion import delete_memories

    caller = get_caller(ctx, of_scope=True)
    id_ = caller.find_memory(memory_id, project=project)
    done = delete_memories(
        caller.engine,
        [id_],
        changed_by=caller.name,
        reason=reason or None,
        editor=_get_editor(caller.principal),
    )
    return DeletionAnswer.model_validate(done)


def _get_editor(principal: Principal) -> Editor:
    from consolidation_pipeline.service.lifecycle.changed_memories import Editor

    return Editor(None if principal.role == "admin" else _find_writer(principal), principal.scope)


def memory_feedback(
    ctx: ToolContext,
    memory_id: MemoryId,
    helpful: Annotated[bool | None, Field(description="true: it helped. false: it misled you or is outdated.")] = None,
    *,
    note: Annotated[str, Field(description="Reason, for the people who maintain the memories.", max_length=2000)] = "",
    session_id: SessionId = "",
    project: Project = "",
) -> FeedbackAnswer:
    """Report whether a memory helped. Its importance rises or falls by 0.1; low importance makes it fade sooner, and
    search ranks it by the votes of all its readers.

    Use it after a task for a memory that misled you or that made the difference; report_used_memories is enough for the
    others. The text does not change; add the correct lesson with add_memory. Repeating a rating on the same day changes
    nothing more. Free. To undo it, pass group_id to rollback_consolidation.
    """
    from consolidation_pipeline.service.intake.agent_memories import give_feedback

    caller = get_caller(ctx)
    id_ = caller.find_memory(memory_id, project=project)
    feedback = give_feedback(
        caller.engine,
        id_,
        helpful=helpful,
        note=note or None,
        changed_by=caller.name,
        voter=caller.principal.identify_voter(session_id),
    )
    return FeedbackAnswer.model_validate(feedback)


def report_used_memories(
    ctx: ToolContext,
    ids: MemoryIds,
    query: Annotated[
        str,
        Field(description="The query or task for which they helped: they rise for similar ones.", max_length=10_000),
    ] = "",
    session_id: SessionId = "",
    *,
    project: Project = "",
) -> UsesAnswer:
    """Report which memories and playbook entries you used: those that your answer or a decision rests on.

    Use it once for each query or task that you are done with. Search and the playbook rank by it, so list only what
    really helped, and nothing that was merely shown. It counts once a day, and less for memories that you wrote. Free.
    """
    from consolidation_pipeline.service.intake.memory_uses import report_used

    caller = get_caller(ctx)
    done = report_used(
        caller.engine,
        caller.find_memories(ids, project=project),
        voter=caller.principal.identify_voter(session_id),
        query=query,
        settings=caller.settings,
    )
    return UsesAnswer.model_validate(done)
