"""Proposed merges, and what is said of them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, Reply, with_examples

Status = Literal["pending", "validated", "rejected", "superseded", "expired"]
_MAX_TEXT_CHARS, _MAX_NOTE_CHARS = 100_000, 1000


class Original(Reply):
    """A memory that would be merged."""

    id: UUID
    content: str
    memory_type: str
    kind: str = Field(description="raw, or merged before.")
    learned_at: datetime
    source: str | None
    version: int = Field(description="The version that the suggestion saw.")
    is_current: bool = Field(description="It still has that version and is active.")


class LiteralText(Reply):
    """A literal: as it is compared, as it is written, and where in the original."""

    value: str
    text: str
    start: int


class Conflict(Reply):
    """What stands against each other in two originals."""

    kind: str = Field(description="number, version, date, path, url, identifier, error_code, quoted or polarity.")
    a: list[LiteralText]
    b: list[LiteralText]
    a_id: UUID
    b_id: UUID


class Suggestion(Reply):
    """A proposed merge."""

    id: UUID
    project: str
    status: Status
    memory_type: str | None
    similarity: float | None = Field(description="The lowest cosine among the originals.")
    content: str
    lessons_learned: str | None
    keywords: list[str]
    rationale: str | None
    originals: list[Original]
    conflicts: list[Conflict]
    left_out: list[str] = Field(description="Numbers, names and the like that the originals have and the text lacks.")
    created_at: datetime
    reviewed_by: str | None
    reviewed_at: datetime | None
    review_note: str | None
    memory_id: UUID | None = Field(description="The memory that the approval made.")
    group_id: UUID | None = Field(description="The decision: rolling this back makes it pending again.")


class SuggestionPage(Reply):
    """Suggestions: of those that wait the most similar first, of others the last decided."""

    total: int = Field(description="Suggestions there are, whatever the limit and offset.")
    limit: int
    offset: int
    suggestions: list[Suggestion]


class RejectRequest(Body):
    """Why it is rejected."""

    model_config = with_examples({"note": "Two different gateways"})

    note: str | None = Field(
        None, max_length=_MAX_NOTE_CHARS, description="Stands with the suggestion and in the ledger."
    )


class ValidateRequest(RejectRequest):
    """The text as it is to stand, where it is not the one proposed."""

    model_config = with_examples({"note": "The newer one holds"})

    content: str | None = Field(None, max_length=_MAX_TEXT_CHARS, description="In place of the content proposed.")
    lessons_learned: str | None = Field(
        None, max_length=_MAX_TEXT_CHARS, description='In place of the lessons proposed; "" = none.'
    )


class DecisionReply(Reply):
    """A decision; rolling `group_id` back undoes all of it."""

    suggestion_id: UUID
    status: Status
    memory_id: UUID | None = Field(description="The merged memory that an approval made.")
    group_id: UUID
