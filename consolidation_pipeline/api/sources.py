"""Routes of connected stores: list them, see what would be written, write and undo.

Stores are connected on the command line only: the name of an environment variable must not come from a client.
"""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter

from consolidation_pipeline.api.access import Admin, Caller, Reader
from consolidation_pipeline.api.models.base import ListLimit, ProjectPath
from consolidation_pipeline.api.models.sources import (
    PlannedRestore,
    PlannedWrite,
    SourceConflict,
    SourceDiffReply,
    SourceItem,
    SourceMemoriesRequest,
    SourcesReply,
    SourceUndoReply,
    SourceWriteReply,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.errors import NotFoundError
from consolidation_pipeline.service.sources.connections import describe_table, find_source, list_connected
from consolidation_pipeline.service.sources.write_back import undo_writes, write_source
from consolidation_pipeline.service.sources.write_plan import plan_restores, plan_writes
from consolidation_pipeline.store.sources.sources import Source

router = APIRouter(prefix="/api/v1", tags=["sources"])


@router.get("/projects/{project}/sources", summary="Connected stores", responses=declare_problems(404))
def read_sources(project: ProjectPath, caller: Reader) -> SourcesReply:
    """Return the connected stores of a project with their last sync."""
    found = caller.find_project(project)
    sources = [
        SourceItem(
            id=source.id,
            name=source.name,
            kind=source.config["kind"],
            table=describe_table(source),
            mode=source.mode,
            synced_at=source.synced_at,
            last_sync=dict(source.last_sync),
        )
        for source in list_connected(caller.engine, found.id)
    ]
    return SourcesReply(project=found.slug, sources=sources)


@router.get("/sources/{id}/diff", summary="Diff of a source", responses=declare_problems(404))
def read_diff(id: UUID, caller: Reader, limit: ListLimit = 50) -> SourceDiffReply:
    """Return what a write would keep, add and hide in the store now, group by group. Nothing is changed."""
    name = _find(caller, id).name
    planned = plan_writes(caller.engine, name)
    groups = [PlannedWrite.model_validate(plan) for plan in planned[:limit]]
    restores = [PlannedRestore.model_validate(one) for one in plan_restores(caller.engine, name)[:limit]]
    return SourceDiffReply(total=len(planned), groups=groups, restores=restores)


@router.post("/sources/{id}/write", summary="Write to a source", responses=declare_problems(400, 404, 409))
def write_memories(id: UUID, body: SourceMemoriesRequest, caller: Admin) -> SourceWriteReply:
    """Write merged memories into the store, each in a transaction.

    A group is refused, with the reason, if its rows changed, or if the store's own search would find the successor
    worse. 400: the source is in mode mirror. 409: a sync or another write of it is running.
    """
    done = write_source(caller.engine, _find(caller, id).name, memory_ids=body.ids)
    return SourceWriteReply.model_validate(done)


@router.post("/sources/{id}/undo", summary="Undo writes to a source", responses=declare_problems(404, 409))
def undo_memories(id: UUID, body: SourceMemoriesRequest, caller: Admin) -> SourceUndoReply:
    """Undo the writes of merged memories in the store only. `POST /rollback` undoes a merge on both sides."""
    notes: list[str] = []
    conflicts = undo_writes(caller.engine, _find(caller, id).name, body.ids, tell=notes.append)
    listed = [
        SourceConflict(memory_id=memory_id, table=one.table, key=one.key, reason=one.reason)
        for memory_id, found in conflicts.items()
        for one in found
    ]
    return SourceUndoReply(undone=[id_ for id_ in body.ids if id_ not in conflicts], conflicts=listed, notes=notes)


def _find(caller: Caller, id: UUID) -> Source:
    """Return the source. Raise NotFoundError if there is none, or if it is of a project that the key cannot access."""
    source = find_source(caller.engine, id)
    if source is None or not caller.principal.can_access(source.project_id):
        raise NotFoundError(f"there is no source {id}")
    caller.add_log_fields(project=source.project, source=source.name)
    return source
