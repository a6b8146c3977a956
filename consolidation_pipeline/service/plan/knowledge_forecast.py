"""Forecast of knowledge: the patterns, principles and playbook entries that would follow from the groups of a plan.

It is computed in memory by the functions of a run, from the units that merging would leave. A language model's text is
not known before it is paid for. Such patterns are planned without a text, and nothing that would follow from them.
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
    find_replaced_rows,
    find_writable_targets,
    list_target_rows,
    list_writable_outdated,
    plan_abstraction,
    select_context,
)
from consolidation_pipeline.service.knowledge.discarded_groups import find_discarded
from consolidation_pipeline.service.knowledge.llm_gateway import price_prompts
from consolidation_pipeline.service.knowledge.merged_memories import PlannedMerge, build_merged_columns
from consolidation_pipeline.service.knowledge.patterns import PATTERN, list_pattern_groups
from consolidation_pipeline.service.knowledge.principles import PRINCIPLE, group_patterns, read_patterns
from consolidation_pipeline.service.knowledge.reconcile import GroupIds, find_superseded_rows
from consolidation_pipeline.service.knowledge.supersessions import forecast_replacements
from consolidation_pipeline.service.knowledge.text_writers import AbstractionKind, GroupDraft, build_prompt, write_texts
from consolidation_pipeline.service.plan.plan_document import PlannedKnowledge
from consolidation_pipeline.service.playbook.entries import load_promotion_inputs, with_source_texts
from consolidation_pipeline.service.playbook.judgement import PromotionRules
from consolidation_pipeline.service.playbook.outdated_entries import list_outdated
from consolidation_pipeline.service.playbook.promotion import EntryDraft, draft_entries
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import (
    REPLACED_REASON,
    ActivePattern,
    ExistingRow,
    UnitRow,
    list_active_patterns,
    load_existing_rows,
    load_origins,
    load_unit_vectors,
    load_units,
)
from consolidation_pipeline.store.knowledge.playbook import Candidate, load_writers
from consolidation_pipeline.store.knowledge.supersessions import Replacements
from consolidation_pipeline.store.similarity.clusters import ClusterMember
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

Clusters = Mapping[str, Sequence[ClusterMember]]


@dataclass(frozen=True)
class KnowledgeForecast:
    """Knowledge that would change, and the highest possible bill of each model call that this takes."""

    items: Sequence[PlannedKnowledge] = ()
    bills: Sequence[Bill] = ()


@dataclass(frozen=True)
class _NewRow:
    """A row that would be written: its columns and its vector (d,), None if a paid model has to compute it."""

    plan: PlannedAbstraction
    columns: Mapping[str, Any]
    vector: Vectors | None

    @property
    def id(self) -> UUID:
        return self.plan.target.id


@dataclass
class _KindForecast:
    """Patterns or principles as the run would leave them.

    ``plans``: groups that would be written. ``rows``: their rows, if the text is known. ``successors``: active row that
    would be retired -> row that replaces it. ``superseded``: those of them that are retired as no group needs them.
    ``replaced``: rows that would be retired as newer memories replaced what they tell.
    """

    kind: AbstractionKind
    plans: list[PlannedAbstraction] = field(default_factory=list)
    rows: list[_NewRow] = field(default_factory=list)
    successors: dict[UUID, UUID] = field(default_factory=dict)
    superseded: list[ExistingRow] = field(default_factory=list)
    replaced: list[ExistingRow] = field(default_factory=list)

    @property
    def written_ids(self) -> set[UUID]:
        """Ids of the rows that would be written."""
        return {plan.target.id for plan in self.plans}

    def is_unchanged(self, id_: UUID) -> bool:
        """Return True if the run would not write or retire a row."""
        is_retired = id_ in self.successors or any(row.id == id_ for row in self.replaced)
        return not is_retired and id_ not in self.written_ids


def forecast_knowledge(run: ProjectRun, clusters: Clusters, merges: Sequence[PlannedMerge]) -> KnowledgeForecast:
    """Return the knowledge that the run would derive after ``merges`` from these pattern groups, by cluster key."""
    forecasts: list[_KindForecast] = []
    bills: list[Bill] = []
    replacements = forecast_replacements(run) if run.options.summarize or run.options.promote else {}
    with run.engine.connect() as connection:
        if run.options.summarize:
            units = _load_units_after(connection, run, clusters, merges)
            groups = list_pattern_groups(clusters, {id_: unit.raw_ids for id_, unit in units.items()})
            patterns = _forecast_kind(connection, run, PATTERN, groups, units, replacements=replacements, texts={})
            forecasts.append(patterns)
            if run.options.llm_model is not None:
                prompts = [build_prompt(run, PATTERN, plan.group) for plan in patterns.plans]
                bills = price_prompts(run, prompts, PATTERN.reply)
            elif is_free(run.embedder):
                forecasts.append(_forecast_principles(connection, run, patterns))
        entries = _forecast_entries(connection, run, forecasts, replacements) if run.options.promote else []
    written = {id_ for forecast in forecasts for id_ in forecast.written_ids}
    in_plan = written | {merge.id for merge in merges}
    items = [item for forecast in forecasts for item in _list_items(forecast, in_plan)]
    return KnowledgeForecast([*items, *(_to_item(draft, written) for draft in entries)], bills)


def _load_units_after(
    connection: Connection, run: ProjectRun, clusters: Clusters, merges: Sequence[PlannedMerge]
) -> dict[UUID, UnitRow]:
    """Return the units of the pattern groups as merging would leave them."""
    ids = {member.member_id for members in clusters.values() for member in members}
    merged = {
        merge.id: _build_unit(merge.id, build_merged_columns(merge), [source.id for source in merge.sources])
        for merge in merges
        if merge.id in ids
    }
    return load_units(connection, ids - merged.keys(), scope=run.options.scope) | merged


def _build_unit(id_: UUID, columns: Mapping[str, Any], raw_ids: Sequence[UUID]) -> UnitRow:
    return UnitRow(
        id=id_,
        kind=columns["kind"],
        text=columns["content"],
        memory_type=columns["memory_type"],
        pattern_type=columns.get("pattern_type"),
        title=columns["details"].get("title"),
        success=columns["success"],
        importance=columns["importance"],
        tags=tuple(columns["tags"]),
        files=tuple(columns["files"]),
        language=columns["language"],
        learned_at=columns["learned_at"],
        last_accessed_at=columns.get("last_accessed_at"),
        raw_ids=tuple(raw_ids),
        scope_key=columns["scope_key"],
    )


def _forecast_kind(
    connection: Connection,
    run: ProjectRun,
    kind: AbstractionKind,
    groups: Sequence[GroupIds],
    units: Mapping[UUID, UnitRow],
    *,
    replacements: Replacements,
    texts: Mapping[UUID, str],
) -> _KindForecast:
    """Return the rows that ``derive_abstractions`` would write and retire."""
    forecast, present_keys = _KindForecast(kind), frozenset(group.cluster_key for group in groups)
    existing = load_existing_rows(connection, run.project.id, kind.name, scope=run.options.scope)
    existing = _retire_superseded(run, forecast, present_keys, existing)
    targets = find_writable_targets(connection, run, kind, groups, existing, replacements=replacements, texts=texts)
    wanted = attach_units((group for group in groups if group.cluster_key in targets), units, replacements)
    known = find_discarded(connection, run, kind, wanted)
    plans = [plan_abstraction(targets[one.cluster_key], one) for one in wanted if one.cluster_key not in known]
    if run.options.llm_model is None and plans:
        context = attach_units(select_context(groups), units, replacements)
        batches = write_texts(run, kind, context, [plan.group for plan in plans])
        drafts = [draft for batch in batches for draft in batch]
        forecast.rows = _build_rows(connection, run, kind, plans, drafts)
        forecast.replaced = find_replaced_rows(drafts, {plan.group.cluster_key: plan for plan in plans}, existing)
        plans = [row.plan for row in forecast.rows]
    forecast.plans = plans
    forecast.successors |= {id_: plan.target.id for plan in plans for id_, _ in plan.target.superseded}
    rows = _retire_superseded(run, forecast, present_keys, _list_rows_after(existing, forecast))
    kept = list_target_rows(targets.values())
    forecast.replaced += list_writable_outdated(run, present_keys, rows, kept=kept, replacements=replacements)
    return forecast


def _retire_superseded(
    run: ProjectRun, forecast: _KindForecast, present_keys: Collection[str], existing: Sequence[ExistingRow]
) -> list[ExistingRow]:
    """Add the rows that no group needs any more to the forecast; return all rows as they are when these are retired."""
    found = [(row, by) for row, by in find_superseded_rows(present_keys, existing) if run.may_write(row.id)]
    forecast.superseded += [row for row, _ in found]
    forecast.successors |= {row.id: by for row, by in found}
    return [replace(row, is_active=False) if row.id in forecast.successors else row for row in existing]


def _list_rows_after(existing: Sequence[ExistingRow], forecast: _KindForecast) -> list[ExistingRow]:
    """Return the stored rows as they would be after the rows of the forecast were written."""
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
        for plan in forecast.plans
    ]
    others = [row for row in existing if row.id not in forecast.written_ids]
    return [replace(row, is_active=row.is_active and row.id not in forecast.successors) for row in others] + new


def _build_rows(
    connection: Connection,
    run: ProjectRun,
    kind: AbstractionKind,
    plans: Sequence[PlannedAbstraction],
    drafts: Iterable[GroupDraft],
) -> list[_NewRow]:
    """Return the new rows of the drafts that have a text."""
    plan_of = {plan.group.cluster_key: plan for plan in plans}
    texts = [(plan_of[draft.group.cluster_key], draft.text) for draft in drafts if draft.text is not None]
    origins = load_origins(connection, (raw_id for plan, _ in texts for raw_id in plan.group.raw_ids))
    vectors: Sequence[Vectors | None] = [None] * len(texts)
    if texts and is_free(run.embedder):
        vectors = list(run.embedder.embed([text.content for _, text in texts]))
    return [
        _NewRow(plan, build_abstraction_columns(kind, plan, text, origins), vector)
        for (plan, text), vector in zip(texts, vectors, strict=True)
    ]


def _forecast_principles(connection: Connection, run: ProjectRun, patterns: _KindForecast) -> _KindForecast:
    """Return the principles that would follow from the patterns after the run."""
    active_rows = list_active_patterns(connection, run.project.id, scope=run.options.scope)
    unchanged = [row for row in active_rows if patterns.is_unchanged(row.id)]
    new = [(row, row.vector) for row in patterns.rows if row.vector is not None and row.id not in patterns.successors]
    active = [
        ActivePattern(
            row.id,
            row.columns["memory_type"],
            row.plan.group.raw_ids,
            row.columns["scope_key"],
            row.columns["content"],
            row.columns["details"].get("title", ""),
        )
        for row, _ in new
    ]
    dimension = load_dimension(connection, run.project.id, run.embedder.name)
    ids = [row.id for row in unchanged]
    vectors = load_unit_vectors(connection, ids, run.embedder.name, dimension) if ids and dimension else {}
    vectors |= {row.id: vector for row, vector in new}
    units = load_units(connection, ids, scope=run.options.scope)
    units |= {row.id: _build_unit(row.id, row.columns, row.plan.group.raw_ids) for row, _ in new}
    after = sorted([*unchanged, *active], key=lambda row: row.id)
    groups = group_patterns(run, after, vectors)
    return _forecast_kind(connection, run, PRINCIPLE, groups, units, replacements={}, texts=read_patterns(after))


def _forecast_entries(
    connection: Connection, run: ProjectRun, forecasts: Sequence[_KindForecast], replacements: Replacements
) -> list[EntryDraft]:
    """Return the playbook entries that would change. Patterns without a text are no candidates yet."""
    inputs = load_promotion_inputs(connection, run)
    successors = {id_: by for forecast in forecasts for id_, by in forecast.successors.items()}
    new = [
        (row, row.vector)
        for forecast in forecasts
        for row in forecast.rows
        if row.vector is not None and row.id not in successors
    ]
    unchanged = [c for c in inputs.candidates if all(forecast.is_unchanged(c.id) for forecast in forecasts)]
    retired, written = {row.id for forecast in forecasts for row in forecast.replaced}, {row.id for row, _ in new}
    writers = load_writers(connection, [id_ for row, _ in new for id_ in row.plan.group.raw_ids])
    made = [_to_candidate(row, writers) for row, _ in new]
    after = replace(
        inputs,
        candidates=sorted([*unchanged, *made], key=lambda candidate: candidate.id),
        vectors={**inputs.vectors, **{row.id: vector for row, vector in new}},
        successors={**{k: successors.get(v, v) for k, v in inputs.successors.items()}, **successors},
        outdated=list_outdated(
            connection, run.project.id, inputs.entries, replacements, retired=retired, written=written
        ),
    )
    after = with_source_texts(connection, run, after)
    drafted = draft_entries(run.project.slug, after, PromotionRules.of(run.options))
    return [draft for draft in drafted.drafts if run.may_write(draft.entry.id)]


def _to_candidate(row: _NewRow, writers: Mapping[UUID, str]) -> Candidate:
    columns = row.columns
    return Candidate(
        id=row.id,
        kind=columns["kind"],
        content=columns["content"],
        content_hash=columns["content_hash"],
        details=columns["details"],
        tags=tuple(columns["tags"]),
        confidence=columns["confidence_score"],
        needs_review=columns["needs_review"],
        is_heuristic=columns["consolidation_method"] == "heuristic",
        raw_ids=tuple(row.plan.group.raw_ids),
        writers=frozenset(writers[id_] for id_ in row.plan.group.raw_ids),
        scope_key=columns["scope_key"],
    )


def _list_items(forecast: _KindForecast, in_plan: Collection[UUID]) -> Iterator[PlannedKnowledge]:
    """Yield the patterns or principles that would be written or retired. ``in_plan``: ids of all rows to be written."""
    columns_of = {row.id: row.columns for row in forecast.rows}
    for plan in forecast.plans:
        columns = columns_of.get(plan.target.id, {})
        yield PlannedKnowledge(
            id=plan.target.id,
            kind=forecast.kind.name,
            action="create" if plan.target.version is None else "update",
            reason=plan.reason(forecast.kind),
            confidence=columns.get("confidence_score"),
            needs_review=columns.get("needs_review", False),
            sources=plan.group.raw_ids,
            text=columns.get("content"),
            rests_on=[unit.id for unit in plan.group.units if unit.id in in_plan],
        )
    for row in [*forecast.superseded, *forecast.replaced]:
        successor = forecast.successors.get(row.id)
        reason = f"its group no longer exists, and {successor} has most of its memories"
        yield PlannedKnowledge(
            id=row.id,
            kind=forecast.kind.name,
            action="retire",
            reason=REPLACED_REASON if successor is None else reason,
            confidence=None,
            needs_review=False,
            sources=sorted(row.raw_ids),
            text=None,
            rests_on=[successor] if successor in in_plan else [],
        )


def _to_item(draft: EntryDraft, written: Collection[UUID]) -> PlannedKnowledge:
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
        rests_on=[entry.source_id] if entry.source_id in written else [],
    )
