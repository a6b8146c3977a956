"""What a run would learn: the patterns, principles and playbook entries that follow from the groups of a plan.

The same functions as in a run, on what merging would leave behind, held in memory. With a model the words of a pattern
are known when they are paid for, and what follows from them after that: such patterns are planned without a text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.embed.embedder import is_free
from consolidation_pipeline.service.knowledge.derive import (
    PlannedAbstraction,
    attach_units,
    build_abstraction_columns,
    find_writable_targets,
    select_context_groups,
)
from consolidation_pipeline.service.knowledge.llm_gateway import price_prompts
from consolidation_pipeline.service.knowledge.merged_memories import PlannedMerge, build_merged_columns
from consolidation_pipeline.service.knowledge.patterns import PATTERN, list_pattern_groups
from consolidation_pipeline.service.knowledge.principles import PRINCIPLE, group_patterns
from consolidation_pipeline.service.knowledge.reconcile import GroupIds, find_superseded_rows
from consolidation_pipeline.service.knowledge.text_writers import (
    AbstractionKind,
    GroupDraft,
    build_prompt,
    write_texts,
)
from consolidation_pipeline.service.plan.plan_document import PlannedKnowledge
from consolidation_pipeline.service.playbook.entries import load_promotion_inputs
from consolidation_pipeline.service.playbook.promotion import EntryDraft, draft_entries
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import (
    ActivePattern,
    ExistingRow,
    UnitRow,
    list_active_patterns,
    load_existing_rows,
    load_sessions,
    load_unit_vectors,
    load_units,
)
from consolidation_pipeline.store.knowledge.playbook import Candidate
from consolidation_pipeline.store.similarity.clusters import ClusterMember
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

Clusters = Mapping[str, Sequence[ClusterMember]]


@dataclass(frozen=True)
class KnowledgeForecast:
    """What a run would learn, and the most that each call of a model would be billed that it takes."""

    items: Sequence[PlannedKnowledge] = ()
    bills: Sequence[Bill] = ()


@dataclass(frozen=True)
class _Worded:
    """A row that would be written: its columns and its vector (d,), None where a paid model is to give that."""

    planned: PlannedAbstraction
    columns: Mapping[str, Any]
    vector: Vectors | None

    @property
    def id(self) -> UUID:
        return self.planned.target.id


@dataclass
class _Stage:
    """One kind of knowledge as the run would leave it.

    ``planned``: what would be written; ``worded``: the same, where its words are known; ``retired``: what would take
    the place of an active row, by that row's id; ``outgrown``: those of these that no group needs any more.
    """

    kind: AbstractionKind
    planned: list[PlannedAbstraction] = field(default_factory=list)
    worded: list[_Worded] = field(default_factory=list)
    retired: dict[UUID, UUID] = field(default_factory=dict)
    outgrown: list[ExistingRow] = field(default_factory=list)

    @property
    def written(self) -> set[UUID]:
        """Ids of the rows that would be written."""
        return {plan.target.id for plan in self.planned}

    def leaves_alone(self, id_: UUID) -> bool:
        """Whether a row would stand as it does now."""
        return id_ not in self.retired and id_ not in self.written


def forecast_knowledge(run: ProjectRun, clusters: Clusters, merges: Sequence[PlannedMerge]) -> KnowledgeForecast:
    """What the run would learn from these pattern groups, by cluster key, once ``merges`` were made."""
    stages: list[_Stage] = []
    bills: list[Bill] = []
    with run.engine.connect() as connection:
        if run.options.summarize:
            units = _units_after(connection, clusters, merges)
            outlines = list_pattern_groups(clusters, {id_: unit.raw_ids for id_, unit in units.items()})
            stages.append(_plan_kind(connection, run, PATTERN, outlines, units))
            if run.options.llm_model is not None:
                prompts = [build_prompt(run, PATTERN, plan.group) for plan in stages[0].planned]
                bills = price_prompts(connection, run, prompts, PATTERN.reply)
            elif is_free(run.embedder):
                stages.append(_plan_principles(connection, run, stages[0]))
        drafts = _draft_entries(connection, run, stages) if run.options.promote else []
    merged = {merge.id for merge in merges}
    made = {id_ for stage in stages for id_ in stage.written}
    items = [item for stage in stages for item in _describe(stage, merged | made)]
    return KnowledgeForecast([*items, *(_entry(draft, made) for draft in drafts)], bills)


def _units_after(connection: Connection, clusters: Clusters, merges: Sequence[PlannedMerge]) -> dict[UUID, UnitRow]:
    """The units of the pattern groups as merging would leave them."""
    ids = {member.member_id for members in clusters.values() for member in members}
    merged = {merge.id: _merged_unit(merge) for merge in merges if merge.id in ids}
    return load_units(connection, ids - merged.keys()) | merged


def _merged_unit(merge: PlannedMerge) -> UnitRow:
    raw_ids = tuple(source.id for source in merge.sources)
    return _unit(merge.id, build_merged_columns(merge), raw_ids)


def _unit(id_: UUID, columns: Mapping[str, Any], raw_ids: tuple[UUID, ...]) -> UnitRow:
    return UnitRow(
        id=id_,
        kind=columns["kind"],
        text=columns["content"],
        memory_type=columns["memory_type"],
        pattern_type=columns.get("pattern_type"),
        success=columns["success"],
        importance=columns["importance"],
        tags=tuple(columns["tags"]),
        files=tuple(columns["files"]),
        language=columns["language"],
        learned_at=columns["learned_at"],
        last_accessed_at=columns.get("last_accessed_at"),
        raw_ids=raw_ids,
    )


def _plan_kind(
    connection: Connection,
    run: ProjectRun,
    kind: AbstractionKind,
    outlines: Sequence[GroupIds],
    units: Mapping[UUID, UnitRow],
) -> _Stage:
    """As ``derive_abstractions`` does it, without writing."""
    stage, present = _Stage(kind), frozenset(outline.cluster_key for outline in outlines)
    held = _retire_outgrown(run, stage, present, load_existing_rows(connection, run.project.id, kind.name))
    targets = find_writable_targets(connection, run, kind, outlines, held)
    groups = attach_units(select_context_groups(outlines, targets), units)
    plans = [PlannedAbstraction(targets[one.cluster_key], one) for one in groups if one.cluster_key in targets]
    if run.options.llm_model is None and plans:
        stage.worded = list(
            _word(connection, run, kind, plans, write_texts(run, kind, groups, [p.group for p in plans]))
        )
        plans = [worded.planned for worded in stage.worded]
    stage.planned = plans
    stage.retired |= {id_: plan.target.id for plan in plans for id_, _ in plan.target.superseded}
    _retire_outgrown(run, stage, present, _held_after(held, stage))
    return stage


def _retire_outgrown(
    run: ProjectRun, stage: _Stage, present: Collection[str], held: Sequence[ExistingRow]
) -> list[ExistingRow]:
    """The rows after those that no group needs any more were retired, which the stage notes."""
    found = [(row, by) for row, by in find_superseded_rows(present, held) if run.may_write(row.id)]
    stage.outgrown += [row for row, _ in found]
    stage.retired |= {row.id: by for row, by in found}
    return [replace(row, is_active=False) if row.id in stage.retired else row for row in held]


def _held_after(held: Sequence[ExistingRow], stage: _Stage) -> list[ExistingRow]:
    new = [
        ExistingRow(
            id=plan.target.id,
            version=(plan.target.version or 0) + 1,
            cluster_key=plan.group.cluster_key,
            members=frozenset(),
            raw_ids=frozenset(plan.group.raw_ids),
            is_active=True,
            is_dismissed=False,
            is_kept=False,
        )
        for plan in stage.planned
    ]
    rest = [row for row in held if row.id not in stage.written]
    return [replace(row, is_active=row.is_active and row.id not in stage.retired) for row in rest] + new


def _word(
    connection: Connection,
    run: ProjectRun,
    kind: AbstractionKind,
    plans: Sequence[PlannedAbstraction],
    batches: Iterable[Sequence[GroupDraft]],
) -> Iterator[_Worded]:
    planned_by_key = {plan.group.cluster_key: plan for plan in plans}
    told = [
        (planned_by_key[draft.group.cluster_key], draft.text)
        for batch in batches
        for draft in batch
        if draft.text is not None
    ]
    sessions = load_sessions(connection, (raw_id for planned, _ in told for raw_id in planned.group.raw_ids))
    texts = [said.content for _, said in told]
    vectors: Sequence[Vectors | None] = [None] * len(texts)
    if texts and is_free(run.embedder):
        vectors = list(run.embedder.embed(texts))
    for (planned, said), vector in zip(told, vectors, strict=True):
        yield _Worded(planned, build_abstraction_columns(kind, planned, said, sessions), vector)


def _plan_principles(connection: Connection, run: ProjectRun, patterns: _Stage) -> _Stage:
    """The principles of the patterns that there would be."""
    standing = [row for row in list_active_patterns(connection, run.project.id) if patterns.leaves_alone(row.id)]
    fresh = [(w, w.vector) for w in patterns.worded if w.vector is not None and w.id not in patterns.retired]
    new = [ActivePattern(w.id, w.columns["memory_type"], w.planned.group.raw_ids) for w, _ in fresh]
    dimension = load_dimension(connection, run.project.id, run.embedder.name)
    ids = [row.id for row in standing]
    vectors = load_unit_vectors(connection, ids, run.embedder.name, dimension) if ids and dimension else {}
    vectors |= {w.id: vector for w, vector in fresh}
    units = load_units(connection, ids)
    units |= {w.id: _unit(w.id, w.columns, tuple(w.planned.group.raw_ids)) for w, _ in fresh}
    outlines = group_patterns(run, sorted([*standing, *new], key=lambda row: row.id), vectors)
    return _plan_kind(connection, run, PRINCIPLE, outlines, units)


def _draft_entries(connection: Connection, run: ProjectRun, stages: Sequence[_Stage]) -> list[EntryDraft]:
    """The entries that would change; what a model is still to word can be no candidate yet."""
    material = load_promotion_inputs(connection, run)
    retired = {id_: by for stage in stages for id_, by in stage.retired.items()}
    fresh = [w for stage in stages for w in stage.worded if w.vector is not None and w.id not in retired]
    standing = [c for c in material.candidates if all(stage.leaves_alone(c.id) for stage in stages)]
    after = replace(
        material,
        candidates=sorted([*standing, *map(_candidate, fresh)], key=lambda candidate: candidate.id),
        vectors={**material.vectors, **{w.id: w.vector for w in fresh if w.vector is not None}},
        successors={**{k: retired.get(v, v) for k, v in material.successors.items()}, **retired},
    )
    drafted = draft_entries(run.project.slug, after, t_promote=run.options.t_promote)
    return [draft for draft in drafted.drafts if run.may_write(draft.entry.id)]


def _candidate(worded: _Worded) -> Candidate:
    columns = worded.columns
    return Candidate(
        id=worded.id,
        kind=columns["kind"],
        content=columns["content"],
        content_hash=columns["content_hash"],
        details=columns["details"],
        tags=tuple(columns["tags"]),
        confidence=columns["confidence_score"],
        needs_review=columns["needs_review"],
        is_heuristic=columns["consolidation_method"] == "heuristic",
        raw_ids=tuple(worded.planned.group.raw_ids),
    )


def _describe(stage: _Stage, made: Collection[UUID]) -> Iterator[PlannedKnowledge]:
    columns = {worded.id: worded.columns for worded in stage.worded}
    for plan in stage.planned:
        told = columns.get(plan.target.id, {})
        yield PlannedKnowledge(
            id=plan.target.id,
            kind=stage.kind.name,
            action="create" if plan.target.version is None else "update",
            reason=plan.reason(stage.kind),
            confidence=told.get("confidence_score"),
            needs_review=told.get("needs_review", False),
            sources=plan.group.raw_ids,
            text=told.get("content"),
            rests_on=[unit.id for unit in plan.group.units if unit.id in made],
        )
    for row in stage.outgrown:
        by = stage.retired[row.id]
        yield PlannedKnowledge(
            id=row.id,
            kind=stage.kind.name,
            action="retire",
            reason=f"its group is no more, and {by} has most of its memories",
            confidence=None,
            needs_review=False,
            sources=sorted(row.raw_ids),
            text=None,
            rests_on=[by] if by in made else [],
        )


def _entry(draft: EntryDraft, made: Collection[UUID]) -> PlannedKnowledge:
    entry = draft.entry
    return PlannedKnowledge(
        id=entry.id,
        kind="playbook",
        action="create" if draft.existing is None else "update",
        reason="; ".join(draft.reasons),
        confidence=entry.confidence,
        needs_review=entry.status == "review",
        sources=list(entry.supporting_ids),
        text=entry.content,
        rests_on=[entry.source_id] if entry.source_id in made else [],
    )
