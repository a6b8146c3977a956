"""Routes that list, edit, delete and erase memories."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import TypeAdapter

from consolidation_pipeline.api.access import Admin, Caller, ScopedAgent, ScopedReader
from consolidation_pipeline.api.models.base import ListLimit, ProjectPath, Text, enum_schema
from consolidation_pipeline.api.models.memories import Kind, Status
from consolidation_pipeline.api.models.memory_edits import (
    DeletionReply,
    EditReply,
    EditRequest,
    EraseReply,
    EraseRequest,
    MemoryListReply,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.row_fields import MAX_ID_CHARS
from consolidation_pipeline.service.admin.erase import Certificate, erase_memories, preview_erasure
from consolidation_pipeline.service.intake.agent_memories import embed_edited
from consolidation_pipeline.service.intake.memory_listing import list_memories
from consolidation_pipeline.service.lifecycle.changed_memories import Editor
from consolidation_pipeline.service.lifecycle.memory_deletion import delete_memories
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline.service.lifecycle.named_memories import MAX_REASON_CHARS

router = APIRouter(prefix="/api/v1", tags=["memories"])

_Name = Annotated[Text | None, Query(max_length=MAX_ID_CHARS)]
_Cursor = Annotated[Text | None, Query(max_length=500, description="`next` of the page before.")]
_Words = Annotated[Text | None, Query(max_length=1000, description="Words that it contains, whatever their case.")]
_Reason = Annotated[Text | None, Query(max_length=MAX_REASON_CHARS, description="Reason, recorded in the ledger.")]
_Type = Annotated[str | None, Query(json_schema_extra=enum_schema(MEMORY_TYPES))]


@router.get("/projects/{project}/memories", summary="List memories", responses=declare_problems(400, 404))
def read_memories(
    project: ProjectPath,
    caller: ScopedReader,
    *,
    kind: Annotated[Kind | None, Query(description="Default: raw memories.")] = "raw",
    status: Annotated[Status | None, Query(description="Default: all.")] = None,
    memory_type: _Type = None,
    user_id: _Name = None,
    session_id: _Name = None,
    text: _Words = None,
    limit: ListLimit = 50,
    cursor: _Cursor = None,
) -> MemoryListReply:
    """Return the memories of a project one by one, those stored last first, deleted ones too."""
    found = caller.find_project(project)
    page = list_memories(
        caller.engine,
        found.slug,
        kind=kind,
        status=status,
        memory_type=memory_type,
        user_id=user_id,
        session_id=session_id,
        text=text,
        scope=caller.principal.scope,
        limit=limit,
        cursor=cursor,
    )
    return MemoryListReply.model_validate(page)


@router.patch("/memories/{id}", summary="Edit a memory", responses=declare_problems(400, 404, 409))
def change_memory(id: UUID, body: EditRequest, caller: ScopedAgent) -> EditReply:
    """Change fields of a raw memory. The ledger keeps the old text.

    If its text or type changes, what was derived from it goes out of use, and the next run derives it again. An agent's
    key changes what it wrote itself. 409: the memory is archived, deleted or was changed, or a run holds the project.
    """
    caller.check_owner([id], noun="memory")
    done = edit_memory(
        caller.engine,
        id,
        body.list_changes(),
        changed_by=caller.name,
        reason=body.reason,
        version=body.version,
        editor=_get_editor(caller),
    )
    embed_edited(caller.engine, done, settings=caller.settings)
    return EditReply.model_validate(done)


@router.delete("/memories/{id}", summary="Delete a memory", responses=declare_problems(400, 404, 409))
def remove_memory(id: UUID, caller: ScopedAgent, reason: _Reason = None) -> DeletionReply:
    """Hide a memory at once from search, context, playbook and the next runs, with everything derived from it.

    A merged memory is deleted with the memories that it was made from. An agent's key deletes what it wrote itself; an
    admin's deletes any. It can be undone. To remove a memory for good, erase it.
    """
    caller.check_owner([id], noun="memory")
    done = delete_memories(caller.engine, [id], changed_by=caller.name, reason=reason, editor=_get_editor(caller))
    return DeletionReply.model_validate(done)


@router.post("/memories/erase", summary="Erase memories for good", responses=declare_problems(400, 404, 409))
def erase(body: EraseRequest, caller: Admin) -> EraseReply:
    """Remove raw memories from every table, the ledger included, with everything that was ever made of them.

    Without `confirm`, only tell what would be erased. It cannot be undone. Older backups, and what webhooks and exports
    took, are not reached. The certificate has salted hashes of the ids and the result of a search for what is left.
    """
    if body.ids:
        caller.check_owner(body.ids, noun="memory")
    project = None if body.project is None else caller.find_project(body.project).slug
    what: dict[str, Any] = {"project": project, "user_id": body.user_id}
    if not body.confirm:
        found = preview_erasure(caller.engine, body.ids, **what)
        return EraseReply(
            project=found.project, erased=False, memories=len(found.memories), rows=dict(found.rows), certificate=None
        )
    done = erase_memories(caller.engine, body.ids, **what, reason=body.reason, changed_by=caller.name)
    content = TypeAdapter(Certificate).dump_python(done, mode="json") | {"is_clean": done.is_clean}
    return EraseReply(
        project=done.project, erased=True, memories=len(done.memories), rows=dict(done.rows), certificate=content
    )


def _get_editor(caller: Caller) -> Editor:
    return Editor(caller.principal.writer, caller.principal.scope)
