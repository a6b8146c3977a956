"""The plan as a document: its parts."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedSource(_Part):
    """A raw memory that would be merged. ``merged_into``: the merged memory that holds it already."""

    id: UUID
    version: int
    memory_type: str
    learned_at: datetime
    merged_into: UUID | None
    text: str


class MergeGroup(_Part):
    """One merge: the texts before (``sources``) and after (``text``).

    ``similarity``: matrix of the cosines between the sources, None above 25 sources. ``supersedes``: merged memories
    that would be taken in. ``dropped``: sentences that would not fit and are kept in the details.
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


class RefusedMerge(_Part):
    """A group that would not be merged, as search would find the merged memory at a lower place than its memories.

    ``query``: the memory whose text is searched for, None = a query of a reader. ``place_before``: of the best of the
    group; ``place_after``: of the merged memory; ``above``: memory that is found first then, with its text.
    ``texts``: of the group.
    """

    query: UUID | None
    place_before: int
    place_after: int
    above: UUID
    above_text: str | None = None
    texts: dict[UUID, str]


class RefusedByTest(_Part):
    """A change that would not be made, as memory tests would fail that pass now.

    ``phase``: the phase that would make it. ``tests``: name of each test -> why it would fail. ``texts``: of the
    memories to merge or archive, or of the pattern, principle or entry, by id.
    """

    phase: str
    tests: dict[str, str]
    texts: dict[UUID, str]


class Question(_Part):
    """A group that a person decides on, with the reasons pair by pair (``asked_pairs``)."""

    cluster_key: str
    members: list[UUID]
    asked_pairs: list[dict[str, Any]]
    texts: dict[UUID, str]


class PlannedReview(_Part):
    """Numbers of the groups that a person decides on, the ``questions`` of a plan.

    ``asked_before``: they were proposed as they are, or share a memory with a suggestion that waits. ``proposed``: the
    run would propose them. ``beyond_limit``: they wait until there is room under ``review_limit``.
    """

    asked_before: int
    proposed: int
    beyond_limit: int


class PlannedKnowledge(_Part):
    """A pattern, principle or playbook entry that would be created, updated or retired.

    ``text``: None if a language model has to write it. ``sources``: its raw memories. ``rests_on``: rows of this plan
    that it is made from.
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
    """A memory that would be archived, with the policy and the reason. ``memories``: number of raw ones behind it."""

    id: UUID
    kind: Literal["raw", "merged"]
    memories: int = 1
    policy: str
    reason: str
    text: str


class UpcomingArchives(_Part):
    """Number of raw memories that the staleness policy would archive from a date on, if they stay unused."""

    date: date
    memories: int


class PlannedDissolution(_Part):
    """A consolidated memory or playbook entry made of several scopes, which a run would dissolve.

    ``kind``: merged, pattern, summary, principle, procedural or playbook. ``scopes``: number of scopes of its memories.
    """

    id: UUID
    kind: str
    scopes: int
    text: str


class Walls(_Part):
    """Effect of the option ``scope``.

    ``scopes``: number of scopes with active memories. ``repeats``: contents that another scope has too, word for word.
    ``similar_pairs``: pairs of other contents that are as similar as a merge needs, and of different scopes, among the
    ``compared`` ones; all contents, or a sample of a large project.
    """

    scope: str
    scopes: int
    repeats: int
    similar_pairs: int
    compared: int


class PlannedJudge(_Part):
    """The pair judge. ``allowed``: pairs that it confirms merge; ``reason``: why, or why not.

    ``confirmed``: pairs that it confirmed; if it is not allowed, a person is asked about them first. ``waiting``: pairs
    that a run without a plan would ask it about.
    """

    name: str
    allowed: bool
    reason: str
    confirmed: int
    waiting: int


class Costs(_Part):
    """Cost of a run: expected for embedding, at most for judged pairs, rewritten merges, patterns and suggestions.

    Summaries, what follows from patterns, such as principles, and measuring a pair judge come on top.
    """

    memories_to_embed: int
    embedding_tokens: int
    completion_calls: int
    completion_tokens: int
    cost_usd: float | None


class Plan(_Part):
    """All changes that a run of a project would make as of an instant.

    ``held_back``: a run without a plan would not make the ``archives``, as they are too large a share of the project;
    applying the plan makes them. ``upcoming_archives``: those that follow later, dates ascending. ``calibration``:
    reason of a new calibration, None = the current one is kept. ``dissolved``: made of several scopes before the option
    ``scope`` changed; every run dissolves them, with or without a plan. ``walls``: None for a project without walls.
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
    merges_refused_by_recall: list[RefusedMerge] = []
    refused_by_tests: list[RefusedByTest] = []
    questions: list[Question]
    review: PlannedReview | None = None
    knowledge: list[PlannedKnowledge]
    archives: list[PlannedArchive]
    held_back: bool
    upcoming_archives: list[UpcomingArchives] = []
    pattern_groups: int
    pair_judge: PlannedJudge | None = None
    costs: Costs
    dissolved: list[PlannedDissolution] = []
    walls: Walls | None = None

    def describe_upcoming_archives(self) -> str | None:
        """Return in words how many memories become stale later; None if no memory does."""
        if not self.upcoming_archives:
            return None
        first, last = self.upcoming_archives[0], self.upcoming_archives[-1]
        total = sum(one.memories for one in self.upcoming_archives)
        by_last = "" if first is last else f", {total} by {last.date}"
        return f"{first.memories} from {first.date}{by_last} if they are not used"

    def count_totals(self) -> dict[str, int]:
        """Return the number of changes by kind."""
        kinds = {"pattern": "patterns", "principle": "principles", "playbook": "playbook"}
        return {
            "merge_groups": len(self.merges),
            "memories_merged": sum(source.merged_into is None for merge in self.merges for source in merge.sources),
            "merges_refused_by_recall": len(self.merges_refused_by_recall),
            **({"refused_by_tests": len(self.refused_by_tests)} if self.refused_by_tests else {}),
            "suggest_groups": len(self.questions),
            **({} if self.review is None else {f"groups_{name}": n for name, n in self.review.model_dump().items()}),
            "pattern_groups": self.pattern_groups,
            **{name: sum(item.kind == kind for item in self.knowledge) for kind, name in kinds.items()},
            "memories_archived": sum(archive.memories for archive in self.archives),
            "dissolved": len(self.dissolved),
        }
