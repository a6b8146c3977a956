"""Routes of the ledger: history, changes, rollback."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from consolidation_pipeline.api.access import Admin
from consolidation_pipeline.api.models.base import Limit, Offset, ProjectPath, enum_schema
from consolidation_pipeline.api.models.ledger import Change, ChangesReply, HistoryReply, RollbackReply, RollbackRequest
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.service.undo.history import (
    count_change_groups,
    list_change_groups,
    list_ledger,
    stream_ledger,
)
from consolidation_pipeline.service.undo.rollback import roll_back
from consolidation_pipeline.store.database.schema import OPERATIONS

router = APIRouter(prefix="/api/v1", tags=["ledger"])

_JSONL_TYPE = "application/x-ndjson"
_CHANGES_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ChangesReply,
        "description": "A page of changes; with `format=jsonl` or Accept, one change per line",
        "content": {_JSONL_TYPE: {"schema": {"type": "string"}}},
    }
}

Operation = Annotated[str | None, Query(description="Only this operation.", json_schema_extra=enum_schema(OPERATIONS))]
Since = Annotated[datetime | None, Query(description="At this time or later; UTC if no zone is given.")]
Until = Annotated[datetime | None, Query(description="Before this time.")]


@router.get("/projects/{project}/history", summary="History", responses=declare_problems(400, 404))
def read_history(
    project: ProjectPath,
    caller: Admin,
    *,
    limit: Limit = 50,
    offset: Offset = 0,
    operation: Operation = None,
    since: Since = None,
    until: Until = None,
) -> HistoryReply:
    """Return groups of changes, newest first: operation, reason, number of changes, rolled back or not."""
    found = caller.find_project(project)
    filters = {"operation": operation, "since": since, "until": until}
    groups = list_change_groups(caller.engine, found.slug, limit=limit, offset=offset, **filters)
    total = count_change_groups(caller.engine, found.slug, **filters)
    page = {"total": total, "limit": limit, "offset": offset, "history": groups}
    return HistoryReply.model_validate({"project_id": found.id, "project": found.slug, **page})


@router.get(
    "/projects/{project}/changes",
    summary="Changes",
    response_model=ChangesReply,
    responses={**declare_problems(400, 404), **_CHANGES_RESPONSE},
)
def read_changes(
    project: ProjectPath,
    caller: Admin,
    request: Request,
    *,
    limit: Annotated[
        int | None, Query(ge=1, le=10_000, description="Maximum number of changes. Default: 50 as JSON, all as JSONL.")
    ] = None,
    offset: Offset = 0,
    operation: Operation = None,
    job_id: Annotated[UUID | None, Query(description="Only changes of this job.")] = None,
    since: Since = None,
    until: Until = None,
    format: Annotated[Literal["json", "jsonl"] | None, Query(description="Overrides Accept.")] = None,
) -> Response | ChangesReply:
    """Return changes with the state before and after, newest first.

    As JSONL (`format=jsonl` or `Accept: application/x-ndjson`), the whole ledger is streamed, one change per line.
    """
    found = caller.find_project(project)
    filters: dict[str, Any] = {"operation": operation, "job_id": job_id, "since": since, "until": until}
    if format == "jsonl" or (format is None and _JSONL_TYPE in request.headers.get("accept", "")):
        rows = stream_ledger(caller.engine, found.slug, limit=limit, offset=offset, **filters)
        return StreamingResponse(_write_jsonl(rows), media_type=_JSONL_TYPE)
    most = min(limit or 50, 1000)
    page = list_ledger(caller.engine, found.slug, limit=most, offset=offset, **filters)
    return ChangesReply.model_validate({"project_id": found.id, "limit": most, "offset": offset, **page})


def _write_jsonl(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield Change.model_validate(row).model_dump_json() + "\n"


@router.post("/rollback", summary="Roll back", responses=declare_problems(400, 404, 409))
def undo(body: RollbackRequest, caller: Admin) -> RollbackReply:
    """Undo a job or a group of changes, exactly. To redo it, roll back the reply's `rollback_id`.

    409: a row has changed since, or later changes depend on it; `conflicts` lists them. 400: the changes are older than
    the option `rollback_days` allows.
    """
    caller.check_owner([body.target], noun="change")
    done = roll_back(
        caller.engine,
        body.target,
        settings=caller.settings,
        changed_by=caller.name,
        reason=body.reason,
        cascade=body.cascade,
    )
    return RollbackReply.model_validate(done)
