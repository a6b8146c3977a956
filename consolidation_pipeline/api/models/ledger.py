"""Bodies of the ledger routes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import AliasChoices, Field

from consolidation_pipeline.api.models.base import Body, Reason, Reply, with_examples


class ChangeGroup(Reply):
    """Group of changes that belong together, such as one merge."""

    group_id: UUID
    job_id: UUID | None
    operation: str
    changes: int
    changed_at: datetime
    changed_by: str | None
    reason: str | None
    confidence: float | None
    rolled_back: bool


class HistoryReply(Reply):
    """Groups of changes in a project, newest first."""

    model_config = with_examples(
        {
            "project_id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project": "notes",
            "total": 1,
            "limit": 50,
            "offset": 0,
            "history": [
                {
                    "group_id": "2b1b5b0c-2d53-4b0e-9d37-5be4a9a1f9d4",
                    "job_id": "0a4d55a8-d778-4022-abe1-6cdcc50e17d1",
                    "operation": "merge",
                    "changes": 4,
                    "changed_at": "2026-01-08T15:00:12Z",
                    "changed_by": "api:nightly",
                    "reason": "3 memories that say the same",
                    "confidence": 0.95,
                    "rolled_back": False,
                }
            ],
        }
    )

    project_id: UUID
    project: str
    total: int = Field(description="Number of groups, regardless of limit and offset.")
    limit: int
    offset: int
    history: list[ChangeGroup]


class Change(Reply):
    """A row of the ledger: one entity and its state before and after. Null: it did not exist."""

    seq: int
    id: UUID
    job_id: UUID | None
    group_id: UUID
    operation: str
    entity_type: str
    entity_id: UUID
    previous_state: dict[str, Any] | None
    new_state: dict[str, Any] | None
    version_before: int | None
    version_after: int | None
    reason: str | None
    confidence: float | None
    changed_by: str | None
    changed_at: datetime
    reverts_change_id: UUID | None
    reverts_scope: Literal["group", "job"] | None


class ChangesReply(Reply):
    """The ledger of a project, newest first."""

    project_id: UUID
    project: str
    total: int = Field(description="Number of changes, regardless of limit and offset.")
    limit: int
    offset: int
    changes: list[Change]


class RollbackRequest(Body):
    """Changes to undo."""

    model_config = with_examples({"target": "0a4d55a8-d778-4022-abe1-6cdcc50e17d1", "reason": "Incorrect merge"})

    target: UUID = Field(
        validation_alias=AliasChoices("target", "consolidation_id", "id", "job_id", "group_id", "change_id"),
        description="Id of a job, of a group of changes, or of a change, which is undone with its group.",
    )
    reason: Reason = None
    cascade: bool = Field(False, description="Also undo later changes that depend on it.")


class RollbackReply(Reply):
    """Result of a rollback."""

    model_config = with_examples(
        {
            "success": True,
            "rollback_id": "2b1b5b0c-2d53-4b0e-9d37-5be4a9a1f9d4",
            "scope": "job",
            "changes": 48,
            "memories_restored": 45,
            "memories_deleted": 3,
            "memories_recreated": 0,
            "redone": False,
            "warnings": [],
        }
    )

    success: Literal[True] = True
    rollback_id: UUID = Field(description="Roll this back to redo.")
    scope: Literal["group", "job"]
    changes: int
    memories_restored: int
    memories_deleted: int
    memories_recreated: int
    redone: bool = Field(description="True: a rollback was undone, so its changes are in force again.")
    warnings: list[str] = Field(
        description="What came back in connected stores with other values, and what later runs will do."
    )
