"""Report of a shadow: what it did otherwise than a run with the project's own options would on the same snapshot."""

from __future__ import annotations

import json
import shlex
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ComparedMerge(_Part):
    """A merged memory that only one side has."""

    id: UUID
    texts: dict[UUID, str] = Field(description="Raw memories and their texts.")
    text: str | None = Field(
        description="Text of the merged memory. Null if a language model would have to write it first."
    )


class RewordedMerge(_Part):
    """A merged memory that both sides make of the same memories, in other words."""

    id: UUID
    texts: dict[UUID, str] = Field(description="Raw memories and their texts.")
    text_here: str
    text_there: str


class ComparedKnowledge(_Part):
    """A pattern, principle or playbook entry that only one side has."""

    kind: str = Field(description="pattern, principle or playbook.")
    id: UUID
    text: str | None = Field(description="Null if a language model would have to write it first.")


class Difference(_Part):
    """Results of both sides and of only one. ``here``: the project's own options. ``there``: the shadow's."""

    merges_same: int
    merges_only_here: list[ComparedMerge]
    merges_only_there: list[ComparedMerge]
    merges_reworded: list[RewordedMerge]
    knowledge_same: int
    knowledge_only_here: list[ComparedKnowledge]
    knowledge_only_there: list[ComparedKnowledge]
    archived_only_here: dict[UUID, str] = Field(description="Raw memories and their texts.")
    archived_only_there: dict[UUID, str]


class Labelled(_Part):
    """Fate of the pairs that people labelled."""

    pairs: int
    wrong_merges_here: int = Field(description="Pairs labelled different that are in one merged memory.")
    wrong_merges_there: int
    missed_here: int = Field(description="Pairs labelled same that are not.")
    missed_there: int


class TestResults(_Part):
    """Results of the project's memory tests before and after the shadow's run."""

    tests: int
    passed_before: int
    passed_after: int
    broken: dict[str, str] = Field(description="Tests that passed before and fail after, and why.")
    repaired: list[str] = Field(description="Tests that failed before and pass after.")
    refused_here: dict[str, int] = Field(
        description="Changes that a run does not make, as a test would fail, by the name of the test."
    )
    refused_there: dict[str, int]


class Retrieval(_Part):
    """Search for memories by their own words, before and after the shadow's run."""

    queries: int
    within: int = Field(description="Places that are looked at.")
    found_before: int
    found_after: int
    archived: int = Field(description="Memories that are not found as the shadow archived them.")
    lost: dict[UUID, str] = Field(
        description="Other memories that were found before and are not after, and the queries."
    )


class Spending(_Part):
    """Cost of the shadow's calls to models."""

    usd: float
    tokens: int
    calls: int
    cached: int = Field(description="Replies that were there already.")
    usd_here: float | None = Field(
        description="Highest cost of a run with the project's own options. Null if a price is not known."
    )


class ShadowReport(_Part):
    """Report of a shadow."""

    project: str
    name: str
    options: dict[str, Any] = Field(description="Options that differ from the project's own.")
    snapshot_at: datetime
    job_id: UUID = Field(description="Job of the shadow, and of its promotion.")
    memories: int
    changes: dict[str, int] = Field(description="Changes that a promotion carries out, by operation.")
    difference: Difference
    memory_tests: TestResults
    labelled_pairs: Labelled
    retrieval: Retrieval
    cost: Spending
    stopped: list[str] = Field(description="Reasons why a part of the run ended early.")

    @property
    def next_step(self) -> tuple[str, str]:
        """Step that makes its options the project's, and its command: ``promote``, unless it cannot be promoted."""
        if model := self.options.get("embedding_model"):
            return "change the model", f"consolidation embeddings {self.project} --model {shlex.quote(model)}"
        if self.changes:
            return "promote", f"consolidation shadow {self.project} --name {self.name} --promote"
        values = {key: one if isinstance(one, str) else json.dumps(one) for key, one in self.options.items()}
        assigned = " ".join(shlex.quote(f"{key}={value}") for key, value in values.items())
        return "set its options", f"consolidation projects configure {self.project} {assigned}"
