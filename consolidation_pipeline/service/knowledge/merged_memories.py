"""Merge groups of near-duplicates: write a merged memory and hide its sources in one transaction of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.knowledge.inherited_columns import any_success, most_frequent
from consolidation_pipeline.core.memories.memories import LEVELS, content_hash, normalized_hash
from consolidation_pipeline.core.text.counted_nouns import counted
from consolidation_pipeline.core.text.text_merge import MergedText
from consolidation_pipeline.errors import ConflictError, JobEndedError
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.knowledge.merge_rewrites import DuplicateTexts, Rewrite, Rewriter, is_rewriting
from consolidation_pipeline.service.memory_tests.gate import write_checked
from consolidation_pipeline.service.runs.prefetch import prefetch
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.clusters import form_clusters
from consolidation_pipeline.service.similarity.merge_groups import name_merged
from consolidation_pipeline.service.similarity.successors import find_merged_text, select_bodies, sort_by_source_count
from consolidation_pipeline.store.database.engine import Connection, Row
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import APPROVED, REWRITE_PENDING, load_unit_vectors
from consolidation_pipeline.store.knowledge.merged_memories import (
    LineageEdge,
    MergedMemory,
    MergeSource,
    find_crossing,
    load_consolidated,
    load_sources,
    load_unmerged_groups,
    write_merged,
)
from consolidation_pipeline.store.ledger.active_keys import find_by_text
from consolidation_pipeline.store.memories.pending_uses import fold_uses
from consolidation_pipeline.store.similarity.clusters import mark_groups_merged
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

# Groups per transaction.
BATCH = 1000
# Attempts to write a batch whose memories others change meanwhile. A third conflict is very rare.
_ATTEMPTS = 3
# Confidence of every merged memory. Near-duplicates agree; the missing 0.05 allows for differences that wording hides.
CONFIDENCE = 0.95

# Columns of an active merged memory that a retired one has to get back.
_ACTIVE = {"superseded_by_id": None, "retired_at": None, "archive_reason": None}

# Memory type, hash of the normalised text and scope key: unique among the active merged memories of a project.
TextKey = tuple[str, str, str]


@dataclass(frozen=True)
class MergeResult:
    """The result of merging.

    ``absorbed``: memories hidden. ``created``, ``extended``: merged memories. ``skipped``: groups that changed since
    they were formed. ``rewritten``: texts written by the model. ``refused``: rewrites that would have lost a fact.
    ``failed``: rewrites without a reply. Refused and failed groups keep the lossless union. ``stopped``: why the model
    was not asked for all rewrites, None if it was. ``refused_by_tests``: groups that would break a memory test.
    """

    absorbed: int = 0
    created: int = 0
    extended: int = 0
    skipped: int = 0
    rewritten: int = 0
    refused: int = 0
    failed: int = 0
    stopped: str | None = None
    refused_by_tests: int = 0

    @property
    def counters(self) -> dict[str, int]:
        """Increments of the job's counter columns."""
        return {"memories_merged": self.absorbed, "clusters_merged": self.created + self.extended}


@dataclass(frozen=True)
class PlannedMerge:
    """One merge before its text is embedded.

    ``sources``: all raw memories of the group, by id; ``absorbed``: those that are not in the merged memory yet.
    ``existing``: the merged memories of the group so far; the first is extended and supersedes the others. ``merged``:
    the text and the sentences that did not fit. ``verbatim_id``: a source with exactly this text. ``texts``: the inputs
    of the text, approved texts first, then by id. ``method``: heuristic for the lossless union, llm for a rewritten
    text, hybrid for the union after a refused rewrite. ``is_pending``: the rewrite got no reply yet.
    ``retired_version``: of a retired merged memory of the same sources, which becomes active again.
    """

    id: UUID
    cluster_key: str
    representative_id: UUID
    sources: Sequence[MergeSource]
    absorbed: Sequence[MergeSource]
    existing: Sequence[Row[Any]]
    merged: MergedText
    verbatim_id: UUID | None
    texts: tuple[str, ...]
    method: str = "heuristic"
    is_pending: bool = False
    retired_version: int | None = None

    @property
    def new_source_ids(self) -> list[UUID]:
        """Sources that are in no merged memory yet."""
        return [source.id for source in self.sources if source.consolidated_into_id is None]

    @property
    def text_key(self) -> TextKey:
        """Key that no other active merged memory of the project may have."""
        representative = next(s for s in self.sources if s.id == self.representative_id)
        return representative.memory_type, normalized_hash(self.merged.content), representative.scope_key or ""

    @property
    def duplicate_texts(self) -> DuplicateTexts:
        """The texts that a model rewrites."""
        return DuplicateTexts(tuple(dict.fromkeys(self.texts)), tuple(source.language for source in self.sources))

    @property
    def reason(self) -> str:
        """Reason that the ledger shows."""
        return f"near-duplicates: {counted(len(self.sources), 'memory')} say the same"

    @property
    def version(self) -> int | None:
        """Stored version of the merged memory, None if it is new."""
        return self.existing[0].version if self.existing else self.retired_version


@dataclass(frozen=True)
class _Batch:
    """The rows of one transaction, and the groups that they are planned from.

    ``skipped``: number of changed groups. ``refused``: raw memories of groups that would break a memory test.
    """

    groups: Mapping[str, Sequence[UUID]]
    plans: Sequence[PlannedMerge]
    rows: Sequence[MergedMemory]
    skipped: int
    refused: Sequence[Sequence[UUID]] = ()


def merge_clusters(run: ProjectRun) -> MergeResult:
    """Merge every group of the merge tier that is not merged yet.

    The text is the lossless union or, with the option ``merge_style``, a rewrite by a model that loses no fact. If the
    budget is used up or the model does not answer, the groups are merged without rewrites, and the next run asks again.
    Groups that would break a memory test stay as they are, and all groups are formed again without them.

    Raises:
        ConflictError: the memories of a batch changed at each of three attempts; earlier batches stay written.
        BudgetExhaustedError: the budget does not pay for the vector of a merged text; earlier batches stay written.
    """
    with run.transaction() as connection:  # a merged memory takes over the uses of its sources
        fold_uses(connection, run.project.id)
    rewriter = Rewriter(run) if is_rewriting(run) else None
    plans: list[PlannedMerge] = []
    skipped = 0
    apart: list[Sequence[UUID]] = []
    planned_keys: dict[TextKey, UUID] = {}
    for planned in prefetch(_plan_batches(run, rewriter, planned_keys)):
        batch = _write_batch(run, planned, rewriter, planned_keys)
        plans += batch.plans
        skipped += batch.skipped
        apart += batch.refused
    run.unfinished |= _changes_answers(run, plans)
    if apart:
        form_clusters(run, apart=apart)
    run.merged_texts.clear()
    if rewriter is not None:
        rewriter.record_failing()
    return MergeResult(
        absorbed=sum(len(plan.absorbed) for plan in plans),
        created=sum(not plan.existing for plan in plans),
        extended=sum(bool(plan.existing and plan.absorbed) for plan in plans),
        skipped=skipped,
        rewritten=sum(plan.method == "llm" for plan in plans),
        refused=sum(plan.method == "hybrid" for plan in plans),
        failed=0 if rewriter is None else len(rewriter.failures),
        stopped=None if rewriter is None or rewriter.stop is None else str(rewriter.stop),
        refused_by_tests=len(apart),
    )


def _changes_answers(run: ProjectRun, plans: Sequence[PlannedMerge]) -> bool:
    """Return whether the recall gate refused a merge in a scope of ``plans``: beside other memories it may pass now."""
    if not plans or not run.refused_by_recall:
        return False
    with run.reading() as connection:
        refused = load_sources(connection, run.refused_by_recall, scope=run.options.scope)
    scopes = {source.scope_key for source in refused.values()}
    return any(plan.sources[0].scope_key in scopes for plan in plans)


def _write_rows(run: ProjectRun, connection: Connection, rows: Sequence[MergedMemory]) -> None:
    write_merged(connection, run.author, rows, now=run.now)
    mark_groups_merged(connection, run.project.id, [row.values["cluster_key"] for row in rows])


def _write_batch(
    run: ProjectRun,
    batch: _Batch,
    rewriter: Rewriter | None,
    planned_keys: dict[TextKey, UUID],
    *,
    attempts: int = _ATTEMPTS,
) -> _Batch:
    """Write a batch; plan it again if one of its memories changed meanwhile, for example by feedback."""
    try:
        _, refused = write_checked(
            run,
            "merged_memories",
            batch.rows,
            partial(_write_rows, run),
            list_merged_sources,
        )
        return _leave_out(batch, refused)
    except ConflictError as error:
        if attempts == 1 or isinstance(error, JobEndedError):
            raise
    batch = _plan_batch(run, batch.groups, rewriter, planned_keys)
    return _write_batch(run, batch, rewriter, planned_keys, attempts=attempts - 1)


def list_merged_sources(row: MergedMemory) -> Sequence[UUID]:
    """Return the raw memories of a merged memory."""
    return row.source_ids


def _leave_out(batch: _Batch, refused: Sequence[MergedMemory]) -> _Batch:
    """Return what was written of a batch."""
    ids = {row.id for row in refused}
    return replace(
        batch,
        plans=[plan for plan in batch.plans if plan.id not in ids],
        rows=[row for row in batch.rows if row.id not in ids],
        refused=[row.source_ids for row in refused],
    )


def _plan_batches(run: ProjectRun, rewriter: Rewriter | None, planned_keys: dict[TextKey, UUID]) -> Iterator[_Batch]:
    """Yield the batches of the run.

    Groups share no memory and no text key, so a batch can be planned before the previous one is written. With a model,
    batches are small, so that few paid replies wait to be written.
    """
    if not run.options.merge:
        return
    with run.reading() as connection:
        pending = None if rewriter is None else REWRITE_PENDING
        unmerged = load_unmerged_groups(connection, run.project.id, pending=pending)
    size = BATCH if rewriter is None else min(BATCH, llm_gateway.BATCH)
    for groups in split_chunks(list(unmerged.items()), size=size):
        yield _plan_batch(run, dict(groups), rewriter, planned_keys)


def _plan_batch(
    run: ProjectRun, groups: Mapping[str, Sequence[UUID]], rewriter: Rewriter | None, planned_keys: dict[TextKey, UUID]
) -> _Batch:
    plans, skipped = plan_merges(run, groups, planned_keys)
    if run.plan is not None:
        plans = [plan for plan in plans if str(plan.id) in run.plan.merges]
    if rewriter is not None:
        plans = _drop_duplicates(run, _rewrite_texts(plans, rewriter), planned_keys)
    return _Batch(groups, plans, _build_rows(run, plans), skipped)


def _rewrite_texts(plans: Sequence[PlannedMerge], rewriter: Rewriter) -> list[PlannedMerge]:
    """Return the plans with rewritten texts. A plan that only asks for a rewrite again is dropped without a reply."""
    texts = {plan.id: plan.duplicate_texts for plan in plans if plan.verbatim_id is None}
    rewritable = {id_: group for id_, group in texts.items() if group.is_rewritable}
    rewrites = dict(zip(rewritable, rewriter.rewrite(list(rewritable.values())), strict=True))
    rewritten = [_apply_rewrite(plan, rewrites[plan.id]) if plan.id in rewrites else plan for plan in plans]
    return [plan for plan in rewritten if plan.absorbed or not plan.is_pending]


def _apply_rewrite(plan: PlannedMerge, rewrite: Rewrite | None) -> PlannedMerge:
    if rewrite is None:
        return replace(plan, is_pending=True)
    if rewrite.content is None:
        return replace(plan, method="hybrid")
    verbatim_id = next((source.id for source in plan.sources if source.body == rewrite.content), None)
    return replace(plan, method="llm", merged=MergedText(rewrite.content, ()), verbatim_id=verbatim_id)


def plan_merges(
    run: ProjectRun, groups: Mapping[str, Sequence[UUID]], planned_keys: dict[TextKey, UUID]
) -> tuple[list[PlannedMerge], int]:
    """Plan the merges of the groups that are not merged yet.

    Args:
        groups: members by cluster key, the representative first, then by id.
        planned_keys: merged memory by text key of all merges planned so far in this run; the new plans are added.

    Returns:
        The plans, and how many groups changed since they were formed.
    """
    ids = [id_ for members in groups.values() for id_ in members]
    with run.reading() as connection:
        sources = load_sources(connection, ids, scope=run.options.scope)
        merged_ids = {s.consolidated_into_id for s in sources.values() if s.consolidated_into_id is not None}
        crossing = find_crossing(connection, merged_ids, scope=run.options.scope)
        merged = load_consolidated(connection, merged_ids - crossing)
    for id_, source in sources.items() if crossing else ():
        if source.consolidated_into_id in crossing:
            sources[id_] = replace(source, consolidated_into_id=None)
    plans, skipped = [], 0
    for key, members in groups.items():
        found = [sources[id_] for id_ in members if id_ in sources]
        into_ids = {s.consolidated_into_id for s in found if s.consolidated_into_id is not None}
        existing = sort_by_source_count(merged[id_] for id_ in into_ids if id_ in merged)
        is_whole = all(set(row.source_memory_ids).issubset(members) for row in existing)
        if len(found) < len(members) or len(existing) < len(into_ids) or not is_whole:
            skipped += 1
            continue
        is_pending = is_rewriting(run) and any(REWRITE_PENDING in row.details for row in existing)
        if len(into_ids) != 1 or any(s.consolidated_into_id is None for s in found) or is_pending:
            plans.append(_plan_merge(run, key, found, existing))
    with run.reading() as connection:
        plans = find_retired(connection, plans)
    return _drop_duplicates(run, plans, planned_keys), skipped


def find_retired(connection: Connection, plans: Sequence[PlannedMerge]) -> list[PlannedMerge]:
    """Return the plans with the ``retired_version`` of each; one was dissolved if the option ``scope`` was narrower."""
    retired = load_consolidated(connection, [plan.id for plan in plans if not plan.existing])
    return [replace(plan, retired_version=retired[plan.id].version) if plan.id in retired else plan for plan in plans]


def _drop_duplicates(
    run: ProjectRun, plans: Sequence[PlannedMerge], planned_keys: dict[TextKey, UUID]
) -> list[PlannedMerge]:
    """Return the plans whose text no other merged memory has; the sources of the others stay active.

    Two groups can have the same text if a person keeps their memories separate, or if they were merged separately.
    """
    keys = [plan.text_key for plan in plans]
    with run.reading() as connection:
        hashes = {text_hash for _, text_hash, _ in keys}
        active = find_by_text(connection, run.project.id, hashes, scope=run.options.scope)
    return [
        plan
        for plan, key in zip(plans, keys, strict=True)
        if active.get(key, plan.id) in {plan.id, *(row.id for row in plan.existing)}
        and planned_keys.setdefault(key, plan.id) == plan.id
    ]


def _plan_merge(
    run: ProjectRun, key: str, sources: Sequence[MergeSource], existing: Sequence[Row[Any]]
) -> PlannedMerge:
    """Plan one merge.

    Args:
        sources: the representative first, then by id: the order in which their texts are joined.
    """
    new_id = name_merged(run, [s.id for s in sources])
    into = {s.id: s.consolidated_into_id for s in sources}
    bodies = select_bodies({s.id: s.body for s in sources}, into, existing)
    merged = find_merged_text(run.merged_texts, bodies, max_chars=run.options.merge_max_chars)
    return PlannedMerge(
        id=existing[0].id if existing else new_id,
        cluster_key=key,
        representative_id=sources[0].id,
        sources=sorted(sources, key=lambda s: s.id),
        absorbed=[s for s in sources if not existing or s.consolidated_into_id != existing[0].id],
        existing=existing,
        merged=merged,
        verbatim_id=next((id_ for id_, body in bodies.others.items() if body == merged.content), None),
        texts=(*bodies.approved, *(bodies.others[id_] for id_ in sorted(bodies.others))),
    )


def _build_rows(run: ProjectRun, plans: Sequence[PlannedMerge]) -> list[MergedMemory]:
    def load(ids: Sequence[UUID]) -> Mapping[UUID, Vectors]:
        with run.reading() as connection:
            dimension = load_dimension(connection, run.project.id, run.embedder.name)
            return load_unit_vectors(connection, ids, run.embedder.name, dimension)

    return build_merged_rows(run, plans, lambda texts, _: list(run.embedder.embed(texts)) if texts else [], load)


def build_merged_rows(
    run: ProjectRun,
    plans: Sequence[PlannedMerge],
    embed: Callable[[Sequence[str], Sequence[Vectors]], Sequence[Vectors]],
    load_vectors: Callable[[Sequence[UUID]], Mapping[UUID, Vectors]],
) -> list[MergedMemory]:
    """Return the rows of merges.

    ``embed``: returns the vector (d,) of each text; it is given the vectors (s, d) of the sources of each too.
    ``load_vectors``: returns the vectors (d,) of raw memories.
    """
    source_vectors = load_vectors([source.id for plan in plans for source in plan.sources])
    new = [plan for plan in plans if plan.verbatim_id is None]
    stacked = [np.stack([source_vectors[s.id] for s in plan.sources]) for plan in new]
    embedded = iter(embed([plan.merged.content for plan in new], stacked))
    rows = []
    for plan in plans:
        # A text that equals a source's has the same vector.
        vector = next(embedded) if plan.verbatim_id is None else source_vectors[plan.verbatim_id]
        cosines = (np.stack([source_vectors[s.id] for s in plan.sources]) @ vector).tolist()
        edges = zip(plan.sources, cosines, strict=True)
        rows.append(
            MergedMemory(
                id=plan.id,
                version=plan.version,
                group_id=uuid4(),
                values=build_merged_columns(plan),
                vector=vector,
                model=run.embedder.name,
                source_ids=[s.id for s in plan.sources],
                lineage=[LineageEdge(s.id, "raw", round(cosine, 6)) for s, cosine in edges],
                absorbed=plan.absorbed,
                reason=plan.reason,
                superseded=[(row.id, row.version) for row in plan.existing[1:]],
            )
        )
    return rows


def build_merged_columns(plan: PlannedMerge) -> dict[str, Any]:
    """Return the columns of the merged memory.

    Sources that were merged before do not count for uses, pins and importance: the existing merged memories have them.
    """
    sources, existing = plan.sources, plan.existing
    memory_type, text_hash, _ = plan.text_key
    existing_ids = {row.id for row in existing}
    new = [s for s in sources if s.consolidated_into_id not in existing_ids]
    accesses = [*(s.last_accessed_at for s in sources), *(row.last_accessed_at for row in existing)]
    return {
        "kind": "merged",
        "abstraction_level": LEVELS["merged"],
        "content": plan.merged.content,
        "memory_type": memory_type,
        "confidence_score": CONFIDENCE,
        "details": _build_details(plan),
        "tags": list(dict.fromkeys(tag for s in sources for tag in s.tags)),
        "consolidation_method": plan.method,
        "reuse_count": sum(s.reused_count for s in new) + sum(row.reuse_count for row in existing),
        "last_accessed_at": max((time for time in accesses if time is not None), default=None),
        "importance": max([s.importance for s in new] + [row.importance for row in existing]),
        "success": any_success(s.success for s in sources),
        "pinned": any(s.pinned for s in new) or any(row.pinned for row in existing),
        "learned_at": max(s.learned_at for s in sources),
        "cluster_key": plan.cluster_key,
        "scope_key": sources[0].scope_key,
        "language": most_frequent(s.language for s in sources),
        "content_hash": content_hash(plan.merged.content),
        "normalized_hash": text_hash,
        "files": sorted({path for s in sources for path in s.files}),
        **(_ACTIVE if plan.retired_version is not None else {}),
    }


def _build_details(plan: PlannedMerge) -> dict[str, Any]:
    """Return the sentences that the text left out, and the marks of an approved text and a pending rewrite."""
    approved = [row for row in plan.existing if APPROVED in row.details]
    dropped_before = [sentence for row in approved for sentence in row.details.get("dropped", [])]
    dropped = list(dict.fromkeys([*dropped_before, *plan.merged.dropped]))
    return {
        **({"dropped": dropped} if dropped else {}),
        **({APPROVED: True} if approved else {}),
        **({REWRITE_PENDING: True} if plan.is_pending else {}),
    }
