"""Bodies of the routes of shadows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, Reply, Text, with_examples
from consolidation_pipeline.service.shadow.report import ShadowReport
from consolidation_pipeline.service.shadow.shadows import DEFAULT_NAME


class Shadow(Reply):
    """A shadow of a project."""

    name: str
    report: ShadowReport | None = Field(description="Null while its run is not complete.")


class ShadowsReply(Reply):
    """Shadows of a project by name."""

    project_id: UUID
    project: str
    shadows: list[Shadow]


class PromoteShadowRequest(Body):
    """A shadow to promote."""

    model_config = with_examples({"name": "next", "confirm": True})

    name: Text = Field(DEFAULT_NAME, description="Name of the shadow.")
    confirm: bool = Field(False, description="False: only try it, and change nothing.")


class PromoteShadowReply(Reply):
    """Result of a promotion."""

    project: str
    name: str
    promoted: bool = Field(description="False: nothing was changed, as `confirm` is false.")
    job_id: UUID = Field(description="Job of the changes; roll it back to undo them and the options.")
    changes: int
    options: dict[str, Any] = Field(description="Options that the project has then.")
    new_memories: int = Field(description="Memories since the snapshot, which the next run consolidates.")
