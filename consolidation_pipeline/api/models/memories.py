"""Memories as agents write them and read them back."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from consolidation_pipeline.api.models.base import Body, ProjectReference, Reply, enum_schema, with_examples
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.row_fields import MAX_ID_CHARS, MAX_TEXT_CHARS
from consolidation_pipeline.options import LANGUAGES
from consolidation_pipeline.service.intake.agent_memories import MAX_NOTE_CHARS

MAX_ROWS = 1000

_TEXT: dict[str, Any] = {"max_length": MAX_TEXT_CHARS}
_NAME: dict[str, Any] = {"max_length": MAX_ID_CHARS}
_ROW: dict[str, Any] = {
    "content": "The search client times out after 30 s; batch the requests.",
    "memory_type": "error_fix",
    "tags": ["search", "timeouts"],
}


class MemoryRow(Body):
    """One memory, written as a row of an import is."""

    content: str = Field(
        validation_alias=AliasChoices("content", "execution_summary"),
        min_length=1,
        description="What happened.",
        **_TEXT,
    )
    id: str | int | None = Field(
        None,
        validation_alias=AliasChoices("id", "external_id"),
        description="The caller's own id; without one, what the memory says identifies it.",
    )
    memory_type: str | None = Field(None, description="Default: learning.", json_schema_extra=enum_schema(MEMORY_TYPES))
    goal: str | None = Field(None, **_TEXT)
    result: str | None = Field(None, **_TEXT)
    feedback: str | None = Field(None, **_TEXT)
    lessons_learned: str | None = Field(None, **_TEXT)
    tags: list[str] | None = Field(None, max_length=1000)
    files: list[str] | None = Field(None, max_length=10_000, description="Paths that it is about.")
    success: bool | None = None
    importance: float | None = Field(None, ge=0, description="Default: 0.5.")
    user_id: str | None = Field(None, **_NAME)
    agent_id: str | None = Field(None, description="Default: the key.", **_NAME)
    session_id: str | None = Field(None, **_NAME)
    task_id: str | None = Field(None, **_NAME)
    created_at: str | float | None = Field(
        None,
        validation_alias=AliasChoices("created_at", "learned_at"),
        description="When it was learned: ISO 8601, or seconds since 1970. Default: now.",
    )
    language: str | None = Field(None, description="Default: the project's.", json_schema_extra=enum_schema(LANGUAGES))
    metadata: dict[str, Any] | None = None
    embedding: list[float] | None = Field(None, description="Its vector, where the caller has one.")
    embedding_model: str | None = Field(None, description="The model of `embedding`.", **_NAME)

    def to_row(self) -> dict[str, Any]:
        """The row as the import reads it."""
        return self.model_dump(exclude_none=True, include=set(MemoryRow.model_fields))


Source = Field("api", min_length=1, max_length=MAX_ID_CHARS, description="Where it comes from; ids are unique in it.")


class AddMemoryRequest(MemoryRow):
    """A memory, and the project that it goes to."""

    model_config = with_examples({"project_id": "notes", **_ROW})

    project_id: ProjectReference = Field(validation_alias=AliasChoices("project_id", "project"))
    source: str = Source


class AddMemoriesRequest(BaseModel):
    """Many memories; what is wrong with one keeps no other out."""

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
        json_schema_extra={"examples": [{"project_id": "notes", "memories": [_ROW]}]},
    )

    project_id: ProjectReference = Field(validation_alias=AliasChoices("project_id", "project"))
    source: ProjectReference = Source
    memories: list[dict[str, Any]] = Field(
        min_length=1, max_length=MAX_ROWS, description="Each as in POST /memories, without project and source."
    )


class AddMemoryReply(Reply):
    """A memory that is stored."""

    model_config = with_examples(
        {
            "id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project_id": "0d6ef1fc-4bd5-4c1c-9b0b-7d41a0a9f4e0",
            "project": "notes",
            "status": "added",
        }
    )

    id: UUID
    project_id: UUID
    project: str
    status: Literal["added", "existing"] = Field(description="existing: it was stored before, just so.")


class InvalidRow(Reply):
    """A row that was not stored, and why."""

    index: int = Field(description="Its place in `memories`, from 0.")
    message: str


class AddMemoriesReply(Reply):
    """What became of many memories."""

    model_config = with_examples(
        {
            "project_id": "0d6ef1fc-4bd5-4c1c-9b0b-7d41a0a9f4e0",
            "project": "notes",
            "added": ["5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f"],
            "existing": [],
            "errors": [{"index": 1, "message": "content is required"}],
            "ids": ["5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f", None],
        }
    )

    project_id: UUID
    project: str
    added: list[UUID]
    existing: list[UUID]
    errors: list[InvalidRow]
    ids: list[UUID | None] = Field(description="One for each row, in their order; null for a bad one.")


class FeedbackRequest(Body):
    """Whether a memory helped."""

    model_config = with_examples({"helpful": True, "note": "Saved me an hour"})

    helpful: bool | None = Field(None, description="Moves its importance up or down; null: a note alone.")
    note: str | None = Field(
        None, validation_alias=AliasChoices("note", "comment"), max_length=MAX_NOTE_CHARS, description="In words."
    )


class FeedbackReply(Reply):
    """What the feedback did; rolling `group_id` back undoes it."""

    model_config = with_examples(
        {
            "id": "5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f",
            "project": "notes",
            "kind": "raw",
            "helpful": True,
            "note": "Saved me an hour",
            "importance_before": 0.5,
            "importance": 0.6,
            "group_id": "2b1b5b0c-2d53-4b0e-9d37-5be4a9a1f9d4",
        }
    )

    id: UUID
    project: str
    kind: str
    helpful: bool | None
    note: str | None
    importance_before: float
    importance: float
    group_id: UUID


class FeedbackGiven(Reply):
    """Feedback that was given."""

    words: str
    importance: float | None = Field(description="After it.")
    changed_by: str | None
    changed_at: datetime
    group_id: UUID


class StoredMemory(Reply):
    """What raw and consolidated memories have in common."""

    id: UUID
    project_id: UUID
    project: str
    kind: Literal["raw", "merged", "pattern", "summary", "principle", "procedural"]
    level: int = Field(description="0 raw, 1 merged, 2 pattern or summary, 3 principle or procedural profile.")
    status: Literal["active", "merged", "archived", "superseded", "retired"]
    successor: UUID | None = Field(description="The memory that stands in its place.")
    content: str
    memory_type: str
    tags: list[str]
    files: list[str]
    importance: float
    pinned: bool
    success: bool | None
    relevance_score: float | None
    last_accessed_at: datetime | None
    archive_reason: str | None
    user_id: str | None
    language: str
    embedding_model: str | None = Field(description="Null: the next run gives it a vector.")
    learned_at: datetime
    created_at: datetime
    version: int
    feedback_given: list[FeedbackGiven] = Field(description="What was said of it, newest first.")


class RawMemory(StoredMemory):
    """A memory as an agent wrote it."""

    kind: Literal["raw"]
    source: str
    external_id: str
    goal: str | None
    result: str | None
    feedback: str | None
    lessons_learned: str | None
    agent_id: str | None
    session_id: str | None
    task_id: str | None
    metadata: dict[str, Any]
    reused_count: int
    archived_at: datetime | None


class ConsolidatedMemory(StoredMemory):
    """A memory that a run made."""

    kind: Literal["merged", "pattern", "summary", "principle", "procedural"]
    abstraction_level: Literal["1", "2", "3"]
    pattern_type: Literal["success", "failure", "decision", "workflow", "gotcha"] | None
    confidence_score: float
    needs_review: bool
    details: dict[str, Any] = Field(description="Such as best_practices and gotchas; dropped: what did not fit.")
    consolidation_method: Literal["llm", "heuristic", "hybrid"]
    source_memory_ids: list[UUID] = Field(description="The raw memories that it rests on.")
    source_count: int
    reuse_count: int
    has_embedding: bool
    consolidated_at: datetime
    updated_at: datetime
    retired_at: datetime | None
