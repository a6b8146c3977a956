"""Turn merge groups into merged memories: successor first, sources hidden in the same transaction, all ledgered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.core.memories.memories import LEVELS, consolidated_id, content_hash, normalized_hash
from consolidation_pipeline.core.text.text_merge import Merged, merge_capped
from consolidation_pipeline.errors import ConflictError, JobEndedError
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.knowledge.merge_rewrites import DuplicateTexts, Rewrite, Rewriter, is_rewriting
from consolidation_pipeline.service.runs.prefetch import prefetch
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Row
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import APPROVED
from consolidation_pipeline.store.knowledge.merged_memories import (
    LineageEdge,
    MergedMemory,
    MergeSource,
    load_consolidated,
    load_source_vectors,
    load_sources,
    load_unmerged_groups,
    write_merged,
)
from consolidation_pipeline.store.ledger.active_keys import find_by_text
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

# Groups per transaction: a run that is killed has merged whole groups, and the next one does the rest.
BATCH = 1000
# Times that a batch is planned: of those who change its memories meanwhile hardly one comes a third time.
_ATTEMPTS = 3
# Near-duplicates agree; the rest is what wording may hide (pipeline.md).
CONFIDENCE = 0.95
# In ``details``: the text is to be rewritten, but the model or the budget gave out; the next run asks again.
_PENDING = "rewrite_pending"


# Memory type and hash of the normalised text: only one active merged memory has both.
TextKey = tuple[str, str]


@dataclass(frozen=True)
class MergeResult:
    """What merging did: memories absorbed, merged memories made and extended, groups left because they changed.

    ``rewritten``: texts in a model's words; ``refused``: groups of which it would have lost something, and ``failed``:
    to which it gave no reply, so that the lossless union stands; ``stopped``: why it was not asked any more.
    """

    absorbed: int = 0
    created: int = 0
    extended: int = 0
    skipped: int = 0
    rewritten: int = 0
    refused: int = 0
    failed: int = 0
    stopped: str | None = None


@dataclass(frozen=True)
class PlannedMerge:
    """One merge before it has a vector. ``sources`` by id; ``absorbed`` are those not in the merged memory yet.

    ``held`` are the merged memories that the group has already: the first is extended, it takes in the others.
    ``texts``: what the merged text is made of, by id; ``verbatim`` is a source that says it word for word. ``method``:
    heuristic for the lossless union, llm for a rewritten text, hybrid for the union where the rewritten one was
    refused; ``is_pending``: it was not to be had.
    """

    id: UUID
    cluster_key: str
    representative: UUID
    sources: Sequence[MergeSource]
    absorbed: Sequence[MergeSource]
    held: Sequence[Row[Any]]
    merged: Merged
    verbatim: UUID | None
    texts: tuple[str, ...]
    method: str = "heuristic"
    is_pending: bool = False

    @property
    def fresh(self) -> list[UUID]:
        """Sources that are in no merged memory yet."""
        return [source.id for source in self.sources if source.consolidated_into_id is None]

    @property
    def words(self) -> TextKey:
        """What it says, and as what."""
        first = next(s for s in self.sources if s.id == self.representative)
        return first.memory_type, normalized_hash(self.merged.content)

    @property
    def duplicates(self) -> DuplicateTexts:
        """What a model is shown of it."""
        return DuplicateTexts(tuple(dict.fromkeys(self.texts)), tuple(source.language for source in self.sources))

    @property
    def reason(self) -> str:
        """Why, in words."""
        return f"near-duplicates: {len(self.sources)} memories say the same"

    @property
    def version(self) -> int | None:
        """Present version of the merged memory; None when it is made new."""
        return self.held[0].version if self.held else None


@dataclass(frozen=True)
class _Batch:
    """What one transaction writes of some groups, and how many of them were left out of it."""

    groups: Mapping[str, Sequence[UUID]]
    plans: Sequence[PlannedMerge]
    rows: Sequence[MergedMemory]
    skipped: int


def merge_clusters(run: ProjectRun) -> MergeResult:
    """Merge every group of the merge tier that is not merged yet.

    Texts are the lossless union, or rewritten by a model where the project wants that and nothing is lost by it. A
    model or a budget that gives out keeps nothing from being merged: the next run asks for what was not rewritten.

    Raises:
        ConflictError: memories changed again and again while they were being merged. BudgetExhaustedError: a merged
        text could not be embedded any more. What was merged before either stays.
    """
    rewriter = Rewriter(run) if is_rewriting(run) else None
    plans: list[PlannedMerge] = []
    skipped = 0
    said: dict[TextKey, UUID] = {}
    for planned in prefetch(_planned_batches(run, rewriter, said)):
        batch = _write(run, planned, rewriter, said)
        plans += batch.plans
        skipped += batch.skipped
    done = _count(plans, skipped)
    return done if rewriter is None else replace(done, failed=rewriter.failed, stopped=rewriter.stopped)


def _write(run: ProjectRun, batch: _Batch, rewriter: Rewriter | None, said: dict[TextKey, UUID]) -> _Batch:
    """Write a batch; it is planned anew where somebody changed one of its memories meanwhile, say by feedback."""
    left = _ATTEMPTS
    while True:
        left -= 1
        try:
            with run.writing() as connection:
                write_merged(connection, run.author, batch.rows, now=run.now)
            return batch
        except JobEndedError:
            raise
        except ConflictError:
            if not left:
                raise
        batch = _plan_batch(run, batch.groups, rewriter, said)


def _count(plans: Sequence[PlannedMerge], skipped: int) -> MergeResult:
    return MergeResult(
        absorbed=sum(len(plan.absorbed) for plan in plans),
        created=sum(plan.version is None for plan in plans),
        extended=sum(plan.version is not None and bool(plan.absorbed) for plan in plans),
        skipped=skipped,
        rewritten=sum(plan.method == "llm" for plan in plans),
        refused=sum(plan.method == "hybrid" for plan in plans),
    )


def _planned_batches(run: ProjectRun, rewriter: Rewriter | None, said: dict[TextKey, UUID]) -> Iterator[_Batch]:
    """Groups share no memory and no words, so that a batch can be planned before the one ahead of it is written.

    Replies are paid for, so no more are asked for at once than phases ask for that write nothing else.
    """
    if not run.options.merge:
        return
    with run.engine.connect() as connection:
        open_groups = load_unmerged_groups(connection, run.project.id, pending=None if rewriter is None else _PENDING)
    groups = list(open_groups.items())
    size = BATCH if rewriter is None else min(BATCH, llm_gateway.BATCH)
    for start in range(0, len(groups), size):
        yield _plan_batch(run, dict(groups[start : start + size]), rewriter, said)


def _plan_batch(
    run: ProjectRun, groups: Mapping[str, Sequence[UUID]], rewriter: Rewriter | None, said: dict[TextKey, UUID]
) -> _Batch:
    plans, skipped = plan_merges(run, groups, said)
    if run.plan is not None:
        plans = [plan for plan in plans if str(plan.id) in run.plan.merges]
    if rewriter is not None:
        plans = _without_twins(run, _rewrite(plans, rewriter), said)
    return _Batch(groups, plans, _rows(run, plans), skipped)


def _rewrite(plans: Sequence[PlannedMerge], rewriter: Rewriter) -> list[PlannedMerge]:
    """The plans with rewritten texts; of those that are only to be rewritten, those that the model said anything on."""
    groups = {plan.id: plan.duplicates for plan in plans if plan.verbatim is None}
    asked = {id_: group for id_, group in groups.items() if group.can_be_asked_about}
    told = dict(zip(asked, rewriter.rewrite(list(asked.values())), strict=True))
    worded = [_reworded(plan, told[plan.id]) if plan.id in told else plan for plan in plans]
    return [plan for plan in worded if plan.absorbed or not plan.is_pending]


def _reworded(plan: PlannedMerge, rewrite: Rewrite | None) -> PlannedMerge:
    if rewrite is None:
        return replace(plan, is_pending=True)
    if rewrite.content is None:
        return replace(plan, method="hybrid")
    same = next((source.id for source in plan.sources if source.body == rewrite.content), None)
    return replace(plan, method="llm", merged=Merged(rewrite.content, ()), verbatim=same)


def plan_merges(
    run: ProjectRun, groups: Mapping[str, Sequence[UUID]], said: dict[TextKey, UUID]
) -> tuple[list[PlannedMerge], int]:
    """Plans for the groups that are not merged yet, and how many groups changed since they were formed.

    ``groups``: cluster key -> members, the representative first, then by id. ``said``: by whom which words are said
    that were planned before in the same run; the plans' own are added.
    """
    ids = [id_ for members in groups.values() for id_ in members]
    with run.engine.connect() as connection:
        sources = load_sources(connection, ids)
        into = {s.consolidated_into_id for s in sources.values() if s.consolidated_into_id is not None}
        held = load_consolidated(connection, into)
    plans, skipped = [], 0
    for key, members in groups.items():
        chosen = [sources[id_] for id_ in members if id_ in sources]
        stand_in = {s.consolidated_into_id for s in chosen}
        if len(chosen) < len(members):
            skipped += 1
        elif None in stand_in or len(stand_in) > 1 or _awaits_rewriting(run, [held[id_] for id_ in stand_in if id_]):
            plans.append(
                _plan(run, key, chosen, sort_by_source_count(held[id_] for id_ in stand_in if id_ is not None))
            )
    return _without_twins(run, plans, said), skipped


def _without_twins(run: ProjectRun, plans: Sequence[PlannedMerge], said: dict[TextKey, UUID]) -> list[PlannedMerge]:
    """The plans but for those that would make a second merged memory of the same words: then their sources stay.

    Word for word the same, yet in two groups, are memories that a person keeps apart, or that were merged apart.
    """
    words = [plan.words for plan in plans]
    with run.engine.connect() as connection:
        standing = find_by_text(connection, run.project.id, {hash_ for _, hash_ in words})
    return [
        plan
        for plan, spoken in zip(plans, words, strict=True)
        if standing.get(spoken, plan.id) in {plan.id, *(row.id for row in plan.held)}
        and said.setdefault(spoken, plan.id) == plan.id
    ]


def _awaits_rewriting(run: ProjectRun, held: Sequence[Row[Any]]) -> bool:
    return is_rewriting(run) and any(_PENDING in row.details for row in held)


def sort_by_source_count(merged: Iterable[Row[Any]]) -> list[Row[Any]]:
    """Merged memories, the one with most sources first; ties: the smallest id."""
    return sorted(merged, key=lambda row: (-row.source_count, row.id))


def _plan(run: ProjectRun, key: str, sources: Sequence[MergeSource], held: Sequence[Row[Any]]) -> PlannedMerge:
    """``sources``: the representative first, then by id, as their texts are joined.

    Words that a person approved stand for the sources that the person saw, before what others add.
    """
    new_id = consolidated_id(run.project.slug, "merged", [s.id for s in sources], ALGORITHM_VERSION)
    approved = [row for row in held if APPROVED in row.details]
    told = {row.id for row in approved}
    bodies = {s.id: s.body for s in sources if s.consolidated_into_id not in told}
    words = [row.content for row in approved]
    merged = merge_capped([*words, *bodies.values()], max_chars=run.options.merge_max_chars)
    return PlannedMerge(
        id=held[0].id if held else new_id,
        cluster_key=key,
        representative=sources[0].id,
        sources=sorted(sources, key=lambda s: s.id),
        absorbed=[s for s in sources if not held or s.consolidated_into_id != held[0].id],
        held=held,
        merged=merged,
        verbatim=next((id_ for id_, body in bodies.items() if body == merged.content), None),
        texts=(*words, *(bodies[id_] for id_ in sorted(bodies))),
    )


def _embed(run: ProjectRun, plans: Sequence[PlannedMerge], parents: Mapping[UUID, Vectors]) -> list[Vectors]:
    """The vector (d,) of each merged text; nothing is embedded twice, so a source's text has that source's vector."""
    new = [plan.merged.content for plan in plans if plan.verbatim is None]
    embedded = iter(run.embedder.embed(new) if new else ())
    return [next(embedded) if plan.verbatim is None else parents[plan.verbatim] for plan in plans]


def _rows(run: ProjectRun, plans: Sequence[PlannedMerge]) -> list[MergedMemory]:
    with run.engine.connect() as connection:
        dimension = load_dimension(connection, run.project.id, run.embedder.name)
        parents = load_source_vectors(connection, [s.id for p in plans for s in p.sources], dimension)
    return [_row(run, *pair, parents) for pair in zip(plans, _embed(run, plans, parents), strict=True)]


def _row(run: ProjectRun, plan: PlannedMerge, vector: Vectors, parents: Mapping[UUID, Vectors]) -> MergedMemory:
    similarities = (np.stack([parents[s.id] for s in plan.sources]) @ vector).tolist()
    return MergedMemory(
        id=plan.id,
        version=plan.version,
        group_id=uuid4(),
        values=build_merged_columns(plan),
        vector=vector,
        model=run.embedder.name,
        source_ids=[s.id for s in plan.sources],
        lineage=[
            LineageEdge(s.id, "raw", round(alike, 6)) for s, alike in zip(plan.sources, similarities, strict=True)
        ],
        absorbed=plan.absorbed,
        reason=plan.reason,
        superseded=[(row.id, row.version) for row in plan.held[1:]],
    )


def build_merged_columns(plan: PlannedMerge) -> dict[str, Any]:
    """Columns of the merged memory, recomputed from all of its sources (pipeline.md, merged_memories).

    Uses, pins and importance of the merged memories that the group has already are kept: what people and agents said of
    those, their sources do not know.
    """
    sources, held = plan.sources, plan.held
    memory_type, hash_of_words = plan.words
    merged_before = {row.id for row in held}
    new = [s for s in sources if s.consolidated_into_id not in merged_before]
    accessed = [*(s.last_accessed_at for s in sources), *(row.last_accessed_at for row in held)]
    return {
        "kind": "merged",
        "abstraction_level": LEVELS["merged"],
        "content": plan.merged.content,
        "memory_type": memory_type,
        "confidence_score": CONFIDENCE,
        "details": _details(plan),
        "tags": list(dict.fromkeys(tag for s in sources for tag in s.tags)),
        "consolidation_method": plan.method,
        "reuse_count": sum(s.reused_count for s in new) + sum(row.reuse_count for row in held),
        "last_accessed_at": max((time for time in accessed if time is not None), default=None),
        "importance": max([s.importance for s in new] + [row.importance for row in held]),
        "success": any(s.success for s in sources) if any(s.success is not None for s in sources) else None,
        "pinned": any(s.pinned for s in new) or any(row.pinned for row in held),
        "learned_at": min(s.learned_at for s in sources),
        "cluster_key": plan.cluster_key,
        "language": most_frequent(s.language for s in sources),
        "content_hash": content_hash(plan.merged.content),
        "normalized_hash": hash_of_words,
        "files": sorted({path for s in sources for path in s.files}),
    }


def _details(plan: PlannedMerge) -> dict[str, Any]:
    """What did not fit, or was left out of words that a person approved; that there are such; what is still to do."""
    approved = [row for row in plan.held if APPROVED in row.details]
    before = [sentence for row in approved for sentence in row.details.get("dropped", [])]
    dropped = list(dict.fromkeys([*before, *plan.merged.dropped]))
    return {
        **({"dropped": dropped} if dropped else {}),
        **({APPROVED: True} if approved else {}),
        **({_PENDING: True} if plan.is_pending else {}),
    }
