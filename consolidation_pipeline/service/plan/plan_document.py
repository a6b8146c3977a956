"""The plan as a document: what it holds, and its file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, ValidationError

from consolidation_pipeline.errors import UsageError


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedSource(_Part):
    """A raw memory that would be merged; ``merged_into``: the merged memory that it is in already."""

    id: UUID
    version: int
    memory_type: str
    learned_at: datetime
    merged_into: UUID | None
    text: str


class MergeGroup(_Part):
    """One merge: the texts before (``sources``) and after (``text``).

    ``similarity``: cosines between the sources in their order, of up to 25; ``supersedes``: merged memories that would
    be taken in; ``dropped``: sentences that would not fit, kept in the details.
    """

    id: UUID
    action: Literal["create", "extend"]
    cluster_key: str
    reason: str
    confidence: float
    lowest_similarity: float | None
    similarity: list[list[float]] | None
    sources: list[PlannedSource]
    supersedes: list[UUID]
    text: str
    dropped: list[str]


class Question(_Part):
    """A group that is left to a person: why, pair by pair."""

    cluster_key: str
    members: list[UUID]
    vetoes: list[dict[str, Any]]
    texts: dict[UUID, str]


class PlannedKnowledge(_Part):
    """A pattern, principle or playbook entry that would be made, change or be retired.

    ``text``: None where a model is to word it; ``sources``: its raw memories; ``rests_on``: what of this plan it is
    made from.
    """

    id: UUID
    kind: Literal["pattern", "principle", "playbook"]
    action: Literal["create", "update", "retire"]
    reason: str
    confidence: float | None
    needs_review: bool
    sources: list[UUID]
    text: str | None
    rests_on: list[UUID]


class PlannedArchive(_Part):
    """A memory that would be archived: by which policy, and why in words."""

    id: UUID
    kind: Literal["raw", "merged"]
    policy: str
    reason: str
    text: str


class Costs(_Part):
    """What a run would be billed for: embedding, and at most for merges, patterns and suggestions; what follows from
    these, and summaries, come on top.
    """

    memories_to_embed: int
    embedding_tokens: int
    completion_calls: int
    completion_tokens: int
    cost_usd: float | None


class Plan(_Part):
    """All that a run of a project would change as of an instant.

    ``held_back``: a run would not do the ``archives`` unasked, as they are too large a share of the project; applying
    the plan does them. ``calibration``: why the thresholds would be taken anew, None = they are held.
    """

    format: Literal[1] = 1
    project: str
    as_of: datetime
    embedding_model: str
    options: dict[str, Any]
    thresholds: dict[str, float]
    calibration: str | None
    memories: int
    merges: list[MergeGroup]
    questions: list[Question]
    knowledge: list[PlannedKnowledge]
    archives: list[PlannedArchive]
    held_back: bool
    pattern_groups: int
    costs: Costs

    def count_totals(self) -> dict[str, int]:
        """How many of each there are."""
        kinds = {"pattern": "patterns", "principle": "principles", "playbook": "playbook"}
        return {
            "merge_groups": len(self.merges),
            "memories_merged": sum(source.merged_into is None for merge in self.merges for source in merge.sources),
            "suggest_groups": len(self.questions),
            "pattern_groups": self.pattern_groups,
            **{name: sum(item.kind == kind for item in self.knowledge) for kind, name in kinds.items()},
            "memories_archived": len(self.archives),
        }


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan as JSON. Raises UsageError: the file cannot be written."""
    try:
        path.write_text(plan.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def load_plan(path: Path) -> Plan:
    """A plan from its file. Raises UsageError: there is none, or it is not one of ours."""
    try:
        return Plan.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise UsageError(f"{path} is no plan that `consolidation plan --out` wrote: {where}: {first['msg']}") from None
