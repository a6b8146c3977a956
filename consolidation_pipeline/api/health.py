"""Whether the process is alive, and whether it can work. Neither needs a key."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request

from consolidation_pipeline.api.problems import Problem
from consolidation_pipeline.service.admin.health import check_ready

router = APIRouter(prefix="/health", tags=["health"])


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    """The process can work."""

    status: Literal["ready"] = "ready"


@router.get("/live", summary="Is the process alive?")
async def live() -> Alive:
    """Always 200, whatever the database and the other requests do: without an answer, restart it."""
    return Alive()


@router.get(
    "/ready",
    summary="Can it work?",
    responses={503: {"model": Problem, "description": "The database is gone, or its schema is not this version's"}},
)
def ready(request: Request) -> Ready:
    """200 when the database answers and its schema is this version's, else 503: send no requests here for now."""
    check_ready(request.app.state.engine)
    return Ready()
