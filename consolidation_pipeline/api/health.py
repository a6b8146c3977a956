"""Liveness and readiness probes. They need no key."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Depends
from pydantic import BaseModel
from starlette.requests import Request

from consolidation_pipeline.api.problems import DECLARED_INVALID, Problem
from consolidation_pipeline.api.query_parameters import refuse_unknown_parameters
from consolidation_pipeline.service.admin.health import check_ready

router = APIRouter(
    prefix="/health", tags=["health"], dependencies=[Depends(refuse_unknown_parameters)], responses=DECLARED_INVALID
)


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    """The process can work."""

    status: Literal["ready"] = "ready"


@router.get("/live", summary="Is the process alive?")
async def live() -> Alive:
    """Return 200 whatever the state of the database and of other requests. Restart a process that does not answer."""
    return Alive()


@router.get(
    "/ready",
    summary="Can it work?",
    responses={
        503: {"model": Problem, "description": "The database is unreachable, or its schema is of another version"}
    },
)
def ready(request: Request) -> Ready:
    """Return 200 if the database answers and its schema is of this version, else 503: send no requests here."""
    check_ready(request.app.state.engine)
    return Ready()
