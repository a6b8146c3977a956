"""Bodies of the suggestion routes (proposed merges)."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from consolidation_pipeline.api.models.base import Body, ProjectReference, Reply, with_examples
from consolidation_pipeline.core.differences.explanation import PROOFS

Status = Literal["pending", "validated", "rejected", "kept", "superseded", "expired"]
Decision = Literal["approve", "reject", "keep"]
_MAX_TEXT_CHARS, _MAX_NOTE_CHARS = 100_000, 1000


class Original(Reply):
    """A memory that would be merged."""

    id: UUID
    content: str
    memory_type: str
    kind: str = Field(description="raw or merged.")
    learned_at: datetime
    source: str | None
    version: int = Field(description="Version of the memory when the suggestion was made.")
    is_current: bool = Field(description="True: it still has that version and is active.")


class Passage(Reply):
    """A part of an original's content, and its offset."""

    text: str
    start: int


class Difference(Reply):
    """A difference between two originals that is not harmless, and the passages that differ."""

    kind: str = Field(description=f"{', '.join(kind for kind in PROOFS if PROOFS[kind] != 'contains')}.")
    contradicts: bool = Field(description="False: nothing proves that the originals say the same.")
    a: list[Passage]
    b: list[Passage]
    a_id: UUID
    b_id: UUID


class Suggestion(Reply):
    """A proposed merge."""

    id: UUID
    project: str
    status: Status
    memory_type: str | None
    similarity: float | None = Field(description="Lowest cosine similarity among the originals.")
    content: str
    lessons_learned: str | None
    text_hash: str = Field(description="Hash of the proposed text, for `expected` of an approval.")
    keywords: list[str]
    rationale: str | None
    originals: list[Original]
    differences: list[Difference]
    difference_kinds: list[str] = Field(
        description="Kinds of the differences, the most frequent first; values with their place: `value: build #`."
    )
    left_out: list[str] = Field(
        description="Literals, such as numbers and names, that the originals have and the text lacks."
    )
    worth: float | None = Field(description="How much a decision is worth; the highest comes first.")
    method: str = Field(
        description="llm: a model's text; heuristic: the originals' sentences; hybrid: these, as a model lost a fact."
    )
    created_at: datetime
    reviewed_by: str | None
    reviewed_at: datetime | None
    review_note: str | None
    memory_id: UUID | None = Field(description="Id of the merged memory that the approval created.")
    group_id: UUID | None = Field(description="Id of the decision. Roll it back to make the suggestion pending again.")


class SuggestionPage(Reply):
    """Suggestions. Pending: those worth most first; others: the newest decision first."""

    total: int = Field(description="Number of suggestions, regardless of limit and offset.")
    groups_beyond_limit: int = Field(
        description="Groups that wait to be proposed until there is room under `review_limit`, or until the next run."
    )
    kinds: dict[str, int] = Field(description="Pending suggestions that differ only in one kind, by kind.")
    limit: int
    offset: int
    suggestions: list[Suggestion]


class RejectRequest(Body):
    """Note on a rejection."""

    model_config = with_examples({"note": "Two different gateways"})

    note: str | None = Field(
        None, max_length=_MAX_NOTE_CHARS, description="Recorded with the suggestion and in the ledger."
    )


class ValidateRequest(RejectRequest):
    """Note on an approval, and the text if it differs from the proposed one."""

    model_config = with_examples({"note": "The newer one holds"})

    content: str | None = Field(None, max_length=_MAX_TEXT_CHARS, description="Replaces the proposed content.")
    lessons_learned: str | None = Field(
        None, max_length=_MAX_TEXT_CHARS, description='Replaces the proposed lessons; "": none.'
    )
    leave_out: list[UUID] = Field(
        [],
        max_length=1000,
        description="Originals that stay as they are; the proposed text is made anew of the others, at least two.",
    )
    expected: str | None = Field(
        None, max_length=100, description="`text_hash` of the text that was read. 409 if it was written anew since."
    )
    accept_loss: bool = Field(
        False, description="Accept a text that leaves out numbers or names of the originals. Else such a text is 400."
    )


class BulkRequest(RejectRequest):
    """A decision on all suggestions of a project that match a rule."""

    model_config = with_examples(
        {"project": "notes", "decision": "reject", "differ_only_in": "value", "note": "Two releases"}
    )

    project: ProjectReference
    decision: Decision = Field(description="keep: as variants.")
    differ_only_in: str | None = Field(
        None,
        max_length=200,
        description="All differences are of this kind: one of `difference_kinds`, or what is before its colon. "
        "Groups beyond `review_limit` are decided too.",
    )
    min_similarity: float | None = Field(None, ge=0, le=1, description="Minimum similarity.")
    type: str | None = Field(None, description="Memory type.")
    limit: int | None = Field(None, ge=1, description="Most suggestions, those worth most first.")


class Refusal(Reply):
    """A suggestion that could not be decided, and why."""

    id: UUID
    message: str


class DecisionReply(Reply):
    """A decision. To undo all of it, roll back `group_id`."""

    suggestion_id: UUID
    project: str
    status: Status
    memory_id: UUID | None = Field(description="Id of the merged memory that an approval created.")
    group_id: UUID


class BulkReply(Reply):
    """The decisions, each with its own `group_id`, and the suggestions that could not be decided."""

    decided: list[DecisionReply]
    refused: list[Refusal]
    remaining: int = Field(description="Suggestions that match the rule as well; a request decides on 200 at most.")
