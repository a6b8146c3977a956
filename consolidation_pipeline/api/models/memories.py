"""Bodies of the memory routes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from consolidation_pipeline.api.models.base import Body, ProjectReference, Reply, enum_schema, with_examples
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.core.memories.row_fields import MAX_ID_CHARS, MAX_TEXT_CHARS
from consolidation_pipeline.options import LANGUAGES
from consolidation_pipeline.service.intake.agent_memories import MAX_NOTE_CHARS
from consolidation_pipeline.service.intake.memory_uses import MAX_USE_CHARS, MAX_USED

MAX_ROWS = 1000
Status = Literal["active", "merged", "archived", "deleted", "superseded", "retired"]
Kind = Literal["raw", "merged", "pattern", "summary", "principle", "procedural"]

_TEXT: dict[str, Any] = {"max_length": MAX_TEXT_CHARS}
_NAME: dict[str, Any] = {"max_length": MAX_ID_CHARS}
_ROW: dict[str, Any] = {
    "content": "The search client times out after 30 s; batch the requests.",
    "memory_type": "error_fix",
    "tags": ["search", "timeouts"],
}


class MemoryRow(Body):
    """A memory in the format of an import row."""

    content: str = Field(
        validation_alias=AliasChoices("content", "execution_summary"),
        min_length=1,
        description="What happened or was learned.",
        **_TEXT,
    )
    id: str | int | None = Field(
        None,
        validation_alias=AliasChoices("id", "external_id"),
        description="The caller's own id. Without one, the content identifies the memory.",
    )
    memory_type: str | None = Field(None, description="Default: learning.", json_schema_extra=enum_schema(MEMORY_TYPES))
    goal: str | None = Field(None, **_TEXT)
    result: str | None = Field(None, **_TEXT)
    feedback: str | None = Field(None, **_TEXT)
    lessons_learned: str | None = Field(None, **_TEXT)
    tags: list[str] | None = Field(None, max_length=1000)
    files: list[str] | None = Field(None, max_length=10_000, description="Paths of the files it is about.")
    success: bool | None = None
    importance: float | None = Field(None, ge=0, description="Default: 0.5.")
    user_id: str | None = Field(None, **_NAME)
    agent_id: str | None = Field(None, description="Default: name of the key.", **_NAME)
    session_id: str | None = Field(None, **_NAME)
    task_id: str | None = Field(None, **_NAME)
    learned_at: str | float | None = Field(
        None,
        validation_alias=AliasChoices("learned_at", "created_at"),
        description="Time of learning: ISO 8601 or seconds since 1970. Default: now.",
    )
    language: str | None = Field(
        None, description="Default: by the project's option.", json_schema_extra=enum_schema(LANGUAGES)
    )
    metadata: dict[str, Any] | None = None
    embedding: list[float] | None = Field(None, description="Embedding vector, if the caller has one.")
    embedding_model: str | None = Field(None, description="Model of `embedding`.", **_NAME)

    def to_row(self) -> dict[str, Any]:
        """Return the row as the importer reads it."""
        return self.model_dump(exclude_none=True, include=set(MemoryRow.model_fields))


Source = Field(
    "api", min_length=1, max_length=MAX_ID_CHARS, description="Origin of the memories; an `id` is unique within it."
)


class AddMemoryRequest(MemoryRow):
    """A memory and its project."""

    model_config = with_examples({"project": "notes", **_ROW})

    project: ProjectReference
    source: str = Source


class AddMemoriesRequest(BaseModel):
    """Memories to add. Invalid rows do not keep valid ones out."""

    model_config = ConfigDict(
        extra="forbid",
        populate_by_name=True,
        json_schema_extra={"examples": [{"project": "notes", "memories": [_ROW]}]},
    )

    project: ProjectReference
    source: str = Source
    memories: list[dict[str, Any]] = Field(
        min_length=1, max_length=MAX_ROWS, description="Rows as in POST /memories, without project and source."
    )


class AddMemoryReply(Reply):
    """A stored memory."""

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
    status: Literal["added", "existing"] = Field(description="existing: the same memory was stored before.")


class InvalidRow(Reply):
    """A row that was not stored, and the reason."""

    index: int = Field(description="Position in `memories`, from 0.")
    message: str


class AddMemoriesReply(Reply):
    """Result of adding memories."""

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
    ids: list[UUID | None] = Field(description="One id for each row, in their order; null for an invalid row.")


SessionId = Annotated[
    str,
    Field(max_length=200, description="Session of the caller. Sessions that an admin names count apart."),
]


class FeedbackRequest(Body):
    """Feedback on a memory."""

    model_config = with_examples({"helpful": True, "note": "Saved me an hour"})

    helpful: bool | None = Field(None, description="True raises the importance, false lowers it; null: only a note.")
    note: str | None = Field(
        None,
        validation_alias=AliasChoices("note", "comment"),
        max_length=MAX_NOTE_CHARS,
        description="Feedback in words.",
    )
    session_id: SessionId = ""


class UsesRequest(Body):
    """Memories and playbook entries that helped."""

    model_config = with_examples({"ids": ["5f64cb86-e67f-4e46-a3a2-4e6bdbe8ee3f"], "query": "Deploy the workers"})

    ids: list[UUID] = Field(min_length=1, max_length=MAX_USED, description="As search and context return them.")
    query: str = Field(
        "", max_length=MAX_USE_CHARS, description="Query or task for which they helped: they rise for similar ones."
    )
    session_id: SessionId = ""


class UsesReply(Reply):
    """Numbers of the reported uses."""

    model_config = with_examples({"recorded": 1, "repeated": 0})

    recorded: int = Field(description="Ids whose use counts now.")
    repeated: int = Field(description="Ids that counted for today already.")


class FeedbackReply(Reply):
    """Effect of the feedback. To undo it, roll back `group_id`."""

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
    """Earlier feedback on a memory."""

    words: str
    importance: float | None = Field(description="Importance after the feedback.")
    changed_by: str | None
    changed_at: datetime
    group_id: UUID


class StoredMemory(Reply):
    """Fields that raw and consolidated memories share."""

    id: UUID
    project_id: UUID
    project: str
    kind: Literal["raw", "merged", "pattern", "summary", "principle", "procedural"]
    level: int = Field(description="0 raw, 1 merged, 2 pattern or summary, 3 principle or procedural profile.")
    status: Status
    successor: UUID | None = Field(description="The memory that replaced it.")
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
    embedding_model: str | None = Field(description="Null: the next run embeds it.")
    learned_at: datetime
    created_at: datetime
    version: int
    feedback_given: list[FeedbackGiven] = Field(description="Earlier feedback, newest first.")


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
    writer: str | None = Field(
        description="`key:ID` of the agent's key, or `local`. Null: an import or an operator, whose fields are trusted."
    )
    claimed: list[str] = Field(description="Fields that the agent set itself: they do not count as evidence.")
    task_id: str | None
    metadata: dict[str, Any]
    reused_count: int
    archived_at: datetime | None


class ConsolidatedMemory(StoredMemory):
    """A memory that a run derived from others."""

    kind: Literal["merged", "pattern", "summary", "principle", "procedural"]
    abstraction_level: Literal["1", "2", "3"]
    pattern_type: Literal["success", "failure", "decision", "workflow", "gotcha"] | None
    confidence_score: float
    needs_review: bool
    details: dict[str, Any] = Field(
        description="For example best_practices and gotchas; dropped: sentences that did not fit."
    )
    consolidation_method: Literal["llm", "heuristic", "hybrid"]
    source_memory_ids: list[UUID] = Field(description="Ids of its raw memories.")
    source_count: int
    reuse_count: int
    has_embedding: bool
    consolidated_at: datetime
    updated_at: datetime
    retired_at: datetime | None
