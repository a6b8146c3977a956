"""Routes of quarantine: memories of a writer out of use, with everything that was derived from them."""

from __future__ import annotations

from fastapi import APIRouter

from consolidation_pipeline.api.access import Admin, Caller
from consolidation_pipeline.api.models.quarantine import (
    BlastRadiusReply,
    BlastRadiusRequest,
    QuarantineReply,
    QuarantineRequest,
)
from consolidation_pipeline.api.problems import declare_problems
from consolidation_pipeline.service.lifecycle.quarantine import WriterFilter, find_blast_radius, quarantine

router = APIRouter(prefix="/api/v1/quarantine", tags=["memories"])


@router.post("/preview", summary="Blast radius", responses=declare_problems(400, 404, 409))
def preview(body: BlastRadiusRequest, caller: Admin) -> BlastRadiusReply:
    """Return what a quarantine would take out of use. Nothing is changed."""
    where, project = _read_filter(body, caller)
    return BlastRadiusReply.model_validate(find_blast_radius(caller.engine, where, project=project))


@router.post("", summary="Quarantine", responses=declare_problems(400, 404, 409))
def take_out(body: QuarantineRequest, caller: Admin) -> QuarantineReply:
    """Take raw memories out of use, with everything that was derived from them, as one change.

    They are hidden from search, context and grouping. The next run derives knowledge again from what is left. To
    release them, roll back `group_id`. 409: no memory is left to take out, or a run holds the project.
    """
    where, project = _read_filter(body, caller)
    done = quarantine(caller.engine, where, project=project, reason=body.reason, changed_by=caller.name)
    return QuarantineReply.model_validate(done)


def _read_filter(body: BlastRadiusRequest, caller: Caller) -> tuple[WriterFilter, str | None]:
    """Return the filter and the slug of the project; the key must have access to both."""
    if body.ids:
        caller.check_owner(body.ids, noun="memory")
    project = None if body.project is None else caller.find_project(body.project).slug
    where = WriterFilter(
        ids=body.ids,
        agent_id=body.agent_id,
        session_id=body.session_id,
        user_id=body.user_id,
        key_id=body.key_id,
    )
    return where, project
