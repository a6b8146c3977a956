"""Memories, playbook entries and what waits for a person."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, IdList, Reason, Reply, with_examples


class ReasonRequest(Body):
    """Why something is done."""

    model_config = with_examples({"reason": "Superseded by the new deployment"})

    reason: Reason = None


class PinRequest(ReasonRequest):
    """Whether to pin."""

    model_config = with_examples({"pinned": True, "reason": "Must not be archived"})

    pinned: bool = Field(True, description="False takes the pin off.")


class ManualChange(Reply):
    """Something that was changed by hand; rolling `group_id` back undoes just that."""

    model_config = with_examples(
        {
            "id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project": "notes",
            "kind": "raw",
            "group_id": "2b1b5b0c-2d53-4b0e-9d37-5be4a9a1f9d4",
        }
    )

    id: UUID
    project: str
    kind: str
    group_id: UUID


class DecideRequest(Body):
    """What to approve or dismiss."""

    model_config = with_examples({"ids": ["5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f"], "reason": "Good"})

    ids: IdList
    reason: Reason = None


class DecideReply(Reply):
    """What was decided on: all of it."""

    decision: Literal["approved", "dismissed"]
    decided: list[ManualChange]


class ReviewItem(Reply):
    """Something that waits for a person, and why."""

    id: UUID
    kind: Literal["pattern", "principle", "playbook"]
    pattern_type: str | None
    confidence: float | None
    evidence_count: int
    content: str
    best_practices: list[str]
    gotchas: list[str]
    evidence: list[dict[str, Any]]
    why: str
    created_at: datetime


class ReviewReply(Reply):
    """What waits for a person, the surest first."""

    project_id: UUID
    project: str
    totals: dict[str, int] = Field(description="How much waits, of each kind.")
    waiting: list[ReviewItem]


class PlaybookEntry(Reply):
    """An instruction for agents."""

    id: UUID
    content: str
    category: str
    tags: list[str]
    priority: int
    confidence: float | None
    evidence: int = Field(description="How many memories bear it out.")
    supporting_memory_ids: list[UUID]
    source_id: UUID | None
    status: Literal["active", "review", "retired"]
    created_at: datetime
    updated_at: datetime


class PlaybookReply(Reply):
    """What was learned, as instructions for agents, the most urgent first."""

    project_id: UUID
    project: str
    totals: dict[str, int] = Field(description="Entries of each status.")
    entries: list[PlaybookEntry]
