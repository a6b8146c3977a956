"""Bodies of the routes for quarantine."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import AliasChoices, Field

from consolidation_pipeline.api.models.base import MAX_REFERENCE_CHARS, Body, Reply, Text, with_examples
from consolidation_pipeline.core.memories.row_fields import MAX_ID_CHARS
from consolidation_pipeline.service.lifecycle.named_memories import MAX_REASON_CHARS

_Name = Annotated[str | None, Field(min_length=1, max_length=MAX_ID_CHARS)]


class BlastRadiusRequest(Body):
    """Raw memories, by id or by who wrote them. All given conditions must be met."""

    model_config = with_examples({"project": "notes", "agent_id": "indexer-7"})

    project: Text | None = Field(
        None,
        validation_alias=AliasChoices("project", "project_id"),
        min_length=1,
        max_length=MAX_REFERENCE_CHARS,
        description="Slug or id; may be left out with ids.",
    )
    ids: list[UUID] = Field([], max_length=1000, description="Ids of raw memories, at most 1000.")
    agent_id: _Name = None
    session_id: _Name = None
    user_id: _Name = None
    key_id: UUID | None = Field(None, description="Id of the key with which an agent wrote them.")


class QuarantineRequest(BlastRadiusRequest):
    """Raw memories to take out of use."""

    model_config = with_examples({"project": "notes", "agent_id": "indexer-7", "reason": "planted instructions"})

    reason: str | None = Field(None, max_length=MAX_REASON_CHARS, description="Reason, recorded in the ledger.")


class AffectedRow(Reply):
    """A row that was derived from the memories."""

    id: UUID
    kind: str = Field(description="Kind of the memory, or playbook, suggestion or relation.")
    effect: str = Field(description="What happens to it.")
    content: str


class BlastRadiusReply(Reply):
    """Memories that a quarantine takes out of use, and all that is derived from them."""

    project: str
    memories: list[UUID] = Field(description="Raw memories.")
    shown_again: int = Field(description="Other raw memories that are active again: their merged memory is dissolved.")
    totals: dict[str, int] = Field(description="Number of affected rows by kind.")
    affected: list[AffectedRow] = Field(description="Lowest level first.")


class QuarantineReply(BlastRadiusReply):
    """Memories and derived rows taken out of use. To release them, roll back `group_id`."""

    group_id: UUID
