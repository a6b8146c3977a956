"""Bodies of the routes for relations between memories."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, IdList, Reason, Reply, with_examples


class RelationItem(Reply):
    """Relation between two memories. `a` is the newer one of `supersedes`, the explaining one of `explains`."""

    id: UUID
    relation_type: Literal["contradicts", "explains", "shares_theme", "parallel_context", "supersedes"]
    status: Literal["candidate", "confirmed", "rejected"]
    confidence: float
    similarity: float | None = Field(description="Cosine similarity; null if vectors were not compared.")
    reason: str | None = Field(description="Rule that found it, in words.")
    created_at: datetime
    a_id: UUID
    a_text: str | None = Field(description="Null if the memory was deleted.")
    b_id: UUID
    b_text: str | None


class RelationsReply(Reply):
    """Relations of a project, newest first."""

    project: str
    totals: dict[str, int] = Field(description="Number of relations by status.")
    relations: list[RelationItem]


class DecideRelationsRequest(Body):
    """Relations to confirm or reject."""

    model_config = with_examples({"ids": ["5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f"], "reason": "The port did change."})

    ids: IdList
    reason: Reason = None


class DecidedRelation(Reply):
    """A relation that was decided. To undo it, roll back `group_id`."""

    id: UUID
    group_id: UUID


class DecideRelationsReply(Reply):
    """The decision and the relations that it changed."""

    status: Literal["confirmed", "rejected"]
    relations: list[DecidedRelation]
