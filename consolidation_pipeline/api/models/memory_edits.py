"""Bodies of the routes that list, edit, delete and erase memories."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import MAX_REFERENCE_CHARS, Body, Reply, Text, with_examples
from consolidation_pipeline.api.models.memories import Kind, Status
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.row_fields import MAX_ID_CHARS, MAX_TEXT_CHARS
from consolidation_pipeline.service.lifecycle.named_memories import MAX_REASON_CHARS

_TEXT: dict[str, Any] = {"max_length": MAX_TEXT_CHARS}
_Reason = Annotated[str | None, Field(max_length=MAX_REASON_CHARS, description="Reason, recorded in the ledger.")]


class ListedMemory(Reply):
    """A memory of a list."""

    id: UUID
    project: str
    kind: Kind
    status: Status
    memory_type: str
    content: str
    tags: list[str]
    user_id: str | None
    session_id: str | None
    agent_id: str | None
    importance: float
    pinned: bool
    archive_reason: str | None
    learned_at: datetime
    created_at: datetime
    version: int


class MemoryListReply(Reply):
    """A page of memories, those stored last first."""

    project: str
    memories: list[ListedMemory]
    next: str | None = Field(description="Cursor of the next page; null: this is the last one.")


def _hide_default(schema: dict[str, Any]) -> None:
    """Remove the default from a field's schema: a generated client would send it, and so change the field."""
    schema.pop("default")


class EditRequest(Body):
    """Fields of a raw memory to change. A field that is left out stays; null empties it."""

    model_config = with_examples({"content": "The search client times out after 20 s.", "reason": "was 30 s"})

    content: str = Field(
        "", min_length=1, description="What happened or was learned.", json_schema_extra=_hide_default, **_TEXT
    )
    goal: str | None = Field(None, **_TEXT)
    result: str | None = Field(None, **_TEXT)
    feedback: str | None = Field(None, **_TEXT)
    lessons_learned: str | None = Field(None, **_TEXT)
    memory_type: str = Field("", description=f"One of {', '.join(MEMORY_TYPES)}.", json_schema_extra=_hide_default)
    tags: list[str] | None = Field(None, max_length=1000)
    files: list[str] | None = Field(None, max_length=10_000, description="Paths of the files it is about.")
    success: bool | None = None
    importance: float = Field(0.5, ge=0, json_schema_extra=_hide_default)
    version: int | None = Field(None, description="Version that the caller read. 409 if it is another one now.")
    reason: _Reason = None

    def list_changes(self) -> dict[str, Any]:
        """Return the fields that the caller gave."""
        return self.model_dump(include=self.model_fields_set - {"version", "reason"})


class EditReply(Reply):
    """Effect of an edit. To undo it, roll back `group_id`."""

    model_config = with_examples(
        {
            "id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project": "notes",
            "changed": ["content"],
            "derived": {"merged": 1, "pattern": 1},
            "version": 3,
            "group_id": "2b1b5b0c-2d53-4b0e-9d37-5be4a9a1f9d4",
        }
    )

    id: UUID
    project: str
    changed: list[str] = Field(description="Fields that are new; empty: nothing was to be changed.")
    derived: dict[str, int] = Field(
        description="Number of rows by kind that were derived from the old text. They are out of use: the next run "
        "derives them again."
    )
    version: int
    group_id: UUID | None = Field(description="Null: nothing was changed.")


class DeletionReply(Reply):
    """Effect of a deletion. To undo it, roll back `group_id`."""

    model_config = with_examples(
        {
            "project": "notes",
            "memories": ["5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f"],
            "derived": {"pattern": 1},
            "group_id": "2b1b5b0c-2d53-4b0e-9d37-5be4a9a1f9d4",
        }
    )

    project: str
    memories: list[UUID] = Field(description="Deleted memories: of a merged memory, those that it was made from.")
    derived: dict[str, int] = Field(description="Number of other rows by kind that went out of use with them.")
    group_id: UUID


class EraseRequest(Body):
    """Memories to erase for good: by id, or all of a user."""

    model_config = with_examples({"project": "notes", "user_id": "ada", "confirm": True})

    project: Text | None = Field(
        None, max_length=MAX_REFERENCE_CHARS, description="Slug or id of the project; may be left out with ids."
    )
    ids: list[UUID] = Field([], max_length=1000, description="Ids of raw memories, at most 1000.")
    user_id: str | None = Field(None, min_length=1, max_length=MAX_ID_CHARS, description="All memories of this user.")
    reason: _Reason = None
    confirm: bool = Field(False, description="False: only tell what would be erased.")


class EraseReply(Reply):
    """Rows that were erased, or would be."""

    project: str
    erased: bool = Field(description="False: nothing was erased, as `confirm` is false.")
    memories: int = Field(description="Number of raw memories.")
    rows: dict[str, int] = Field(description="Number of rows by table.")
    certificate: dict[str, Any] | None = Field(description="Certificate of the erasure, without content: keep it.")
