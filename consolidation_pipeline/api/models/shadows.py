"""Bodies of the route of shadows."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Reply
from consolidation_pipeline.service.shadow.report import ShadowReport


class Shadow(Reply):
    """A shadow of a project."""

    name: str
    report: ShadowReport | None = Field(description="Null while its run is not complete.")


class ShadowsReply(Reply):
    """Shadows of a project by name."""

    project_id: UUID
    project: str
    shadows: list[Shadow]
