"""Bodies of the routes for manual actions, review and playbook."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, IdList, Reason, Reply, with_examples


class ReasonRequest(Body):
    """Reason of a manual action."""

    model_config = with_examples({"reason": "Superseded by the new deployment"})

    reason: Reason = None


class PinRequest(ReasonRequest):
    """Pin or unpin a memory."""

    model_config = with_examples({"pinned": True, "reason": "Must not be archived"})

    pinned: bool = Field(True, description="False: unpin.")


class ManualChange(Reply):
    """A memory or playbook entry that was changed manually. To undo only this, roll back `group_id`."""

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
    """Items to approve or dismiss."""

    model_config = with_examples({"ids": ["5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f"], "reason": "Good"})

    ids: IdList
    reason: Reason = None
    expected: dict[UUID, str] | None = Field(
        None, description="`text_hash` of the texts that were read, by id. 409 if one was written anew since."
    )


class DecideReply(Reply):
    """The decision and all items that it changed."""

    decision: Literal["approved", "dismissed"]
    decided: list[ManualChange]


class ReviewItem(Reply):
    """A pattern, principle or playbook entry that waits for review."""

    id: UUID
    kind: Literal["pattern", "principle", "playbook"]
    pattern_type: str | None
    confidence: float | None
    evidence_count: int
    content: str
    text_hash: str = Field(description="Hash of the text, for `expected` of a decision.")
    best_practices: list[str]
    gotchas: list[str]
    evidence: list[dict[str, Any]]
    why: str = Field(description="Reason why it waits.")
    risks: list[str] = Field(description="Risks of its text in words: commands, addresses, signs of an injection.")
    created_at: datetime


class ReviewReply(Reply):
    """Items that wait for review, the most confident first."""

    project_id: UUID
    project: str
    totals: dict[str, int] = Field(description="Number of waiting items by kind.")
    waiting: list[ReviewItem]
    supersessions: int = Field(
        description="Memories that may take the place of older ones: /projects/{project}/relations lists them."
    )


class PlaybookEntry(Reply):
    """An instruction for agents."""

    id: UUID
    content: str
    category: str
    tags: list[str]
    priority: int
    confidence: float | None
    evidence: int = Field(description="Number of raw memories behind it; not all of them need say it.")
    writers: int = Field(description="Number of independent writers of these memories.")
    seen: str | None = Field(description="How many of them say it alike, in how many sessions, and when.")
    risks: list[str] = Field(description="Risks of its text in words: commands, addresses, signs of an injection.")
    supporting_memory_ids: list[UUID]
    source_id: UUID | None
    status: Literal["active", "review", "retired"]
    created_at: datetime
    updated_at: datetime


class PlaybookReply(Reply):
    """Instructions for agents, by descending priority."""

    project_id: UUID
    project: str
    totals: dict[str, int] = Field(description="Number of entries by status.")
    empty_because: str | None = Field(description="Why there is no active entry; null if there is one.")
    entries: list[PlaybookEntry]
