"""Bodies of the routes for connected stores."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, IdList, Reply, with_examples


class SourceItem(Reply):
    """A connected store."""

    id: UUID
    name: str
    kind: str
    table: str
    mode: Literal["mirror", "review", "write"]
    synced_at: datetime | None = Field(description="Null before the first sync.")
    last_sync: dict[str, Any] = Field(
        description="Numbers of the last sync; `changed`: those of the last that changed something, and when it ended; "
        "`failing`: updates that failed since."
    )


class SourcesReply(Reply):
    """Connected stores of a project, by name."""

    project: str
    sources: list[SourceItem]


class PlannedWrite(Reply):
    """A merged memory and the rows of its sources in the store."""

    id: UUID = Field(description="Group of changes that made the memory, as `POST /rollback` takes it.")
    memory_id: UUID
    keep: str | None = Field(description="Key of the row that says everything and stays; null: `text` is a new row.")
    text: str
    hidden: list[str] = Field(description="Keys of the rows that are hidden.")
    texts: dict[str, str] = Field(description="Text of each row by key.")


class PlannedRestore(Reply):
    """An earlier write that a write of its id undoes, as its merged memory is not there any more."""

    id: UUID = Field(description="Group of changes that made the memory.")
    memory_id: UUID
    texts: dict[str, str] = Field(description="Text of each row that is shown again, by key.")
    removed: str | None = Field(description="Text of the row that the write added, which goes; null: it kept one.")


class SourceDiffReply(Reply):
    """Merged memories that can be written now. Nothing is changed."""

    total: int
    groups: list[PlannedWrite]
    restores: list[PlannedRestore] = Field(description="Earlier writes that can be undone now.")


class SourceMemoriesRequest(Body):
    """Groups by the ids of the diff of the source, or their merged memories."""

    model_config = with_examples({"ids": ["3da4125e-7674-5b2b-8df6-0dbdb0e6c7e3"]})

    ids: IdList


class SourceWriteReply(Reply):
    """Groups that were written. A rollback of their merges undoes both sides."""

    written: int
    hidden: int
    inserted: int
    waiting: int = Field(description="Groups that were not written yet.")
    waiting_for: dict[str, int] = Field(
        description="Their number by reason: `review`, `recent` = a row changed a moment ago, `share` of a scope."
    )
    restored: int = Field(description="Earlier writes undone, as their merged memories are not there any more.")
    refused: dict[str, str] = Field(description="Reason by group, as the diff names it.")
    notes: list[str] = Field(description="Sentences for people, as on rows that came back with other values.")


class SourceConflict(Reply):
    """A row that its program changed after it was written."""

    memory_id: UUID = Field(description="The id that was named.")
    table: str
    key: str = Field(description="Empty: all rows of the table.")
    reason: str


class SourceUndoReply(Reply):
    """Result of an undo in the store. The project stays as it is."""

    undone: list[UUID] = Field(description="Those of the ids without open writes now.")
    conflicts: list[SourceConflict] = Field(description="Rows that stand in the way; their groups stay written.")
    notes: list[str] = Field(description="What came back with other values, as triggers and the table set them.")
