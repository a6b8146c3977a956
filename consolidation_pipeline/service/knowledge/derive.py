"""Derive patterns and principles: reconcile groups with stored rows, make the missing texts, write the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.knowledge.confidence import count_sessions, weigh_evidence
from consolidation_pipeline.core.knowledge.inherited_columns import inherit_columns, most_frequent
from consolidation_pipeline.core.memories.memories import LEVELS, content_hash, normalized_hash
from consolidation_pipeline.errors import BudgetExhaustedError, LLMError
from consolidation_pipeline.service.knowledge.discarded_groups import find_discarded, note_discarded
from consolidation_pipeline.service.knowledge.llm_gateway import STOP_ERRORS
from consolidation_pipeline.service.knowledge.reconcile import (
    GroupIds,
    TargetRow,
    find_outdated_rows,
    find_rows_to_renew,
    find_superseded_rows,
    find_target_rows,
)
from consolidation_pipeline.service.knowledge.replaced_sentences import leave_out_replaced, list_relations
from consolidation_pipeline.service.knowledge.text_writers import (
    AbstractionKind,
    DraftText,
    Group,
    GroupDraft,
    extract_texts,
    mark_pending,
    write_texts,
)
from consolidation_pipeline.service.memory_tests.gate import write_checked
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.knowledge.abstractions import (
    REWRITE_PENDING,
    SEEN,
    SUPERSEDED,
    ExistingRow,
    Origin,
    UnitRow,
    load_existing_rows,
    load_origins,
    load_unit_vectors,
    load_units,
    retire_replaced,
    supersede_rows,
)
from consolidation_pipeline.store.knowledge.compared_sentences import (
    prune_compared_sentences,
    replace_compared_sentences,
)
from consolidation_pipeline.store.knowledge.merged_memories import DerivedMemory, LineageEdge, write_derived
from consolidation_pipeline.store.knowledge.supersessions import Replacements
from consolidation_pipeline.store.ledger.cannot_link import load_undone_cluster_keys
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

# Units that show how rare a term is. A larger sample changes little: a term that is in none of these is rare.
MAX_CONTEXT_UNITS = 5_000


@dataclass(frozen=True)
class PlannedAbstraction:
    """A group that needs a text, and the row that the text is written to."""

    target: TargetRow
    group: Group

    def reason(self, kind: AbstractionKind) -> str:
        """Return the reason that the ledger shows, with the number of raw memories, or of patterns."""
        units, memories = len(self.group.units), len(self.group.raw_ids)
        if kind.name != "pattern" or units == memories:
            return f"what {units} {kind.unit_name} have in common"
        return f"what {memories} memories have in common, {units} without near-duplicates"


def plan_abstraction(target: TargetRow, group: Group) -> PlannedAbstraction:
    """Return the plan to write the text of a group to a row."""
    return PlannedAbstraction(target, replace(group, row_id=target.id))


@dataclass(frozen=True)
class DeriveResult:
    """Counts of a phase.

    Groups: ``covered`` by a stored row, or not wanted by a person or the plan; ``changed``, as a unit was lost;
    ``discarded`` by the confidence gate, now or before. Rows: ``created``, ``updated``, ``superseded``;
    ``needs_review`` of those written wait for a person. ``failures``: (cluster key, error) of groups without a reply of
    the model. ``stopped``: why the model is not asked for more groups, or None. Groups without its text have an
    extracted one. ``refused_by_tests``: rows that were not written, as they would break a memory test.
    """

    groups: int = 0
    covered: int = 0
    changed: int = 0
    created: int = 0
    updated: int = 0
    superseded: int = 0
    needs_review: int = 0
    discarded: int = 0
    failures: tuple[tuple[str, str], ...] = ()
    stopped: str | None = None
    refused_by_tests: int = 0


def derive_abstractions(
    run: ProjectRun,
    kind: AbstractionKind,
    groups: Sequence[GroupIds],
    *,
    replacements: Replacements,
    texts: Mapping[UUID, str],
) -> DeriveResult:
    """Write or update a row for each group that no stored row covers, and retire the rows that are superseded.

    Each batch of texts is written in a transaction of its own. Groups for which the model gives no text, or for which
    the budget is used up, get an extracted one, which the next run replaces. A text of a model stays. What
    ``replacements`` replaced is not told as current (``leave_out_replaced``). Rows that quote what ``texts``, by unit,
    do not say any more are written again.

    Raises:
        ConflictError: a row changed meanwhile; earlier batches stay written.
    """
    present_keys, scope = frozenset(group.cluster_key for group in groups), run.options.scope
    with run.transaction() as connection:
        existing = load_existing_rows(connection, run.project.id, kind.name, scope=scope)
        superseded = _retire_superseded(connection, run, kind, existing, present_keys=present_keys)
        if superseded:
            existing = load_existing_rows(connection, run.project.id, kind.name, scope=scope)
        targets = find_writable_targets(connection, run, kind, groups, existing, replacements=replacements, texts=texts)
        wanted = [group for group in groups if group.cluster_key in targets]
        sample = select_context(groups) if wanted else []
        ids = {id_ for group in (*wanted, *sample) for id_ in group.unit_ids}
        units = load_units(connection, ids, scope=scope) if ids else {}
    context = attach_units(sample, units, replacements)
    plans = {
        one.cluster_key: plan_abstraction(targets[one.cluster_key], one)
        for one in attach_units(wanted, units, replacements)
    }
    with run.reading() as connection:
        known = find_discarded(connection, run, kind, (plan.group for plan in plans.values()))
    changed = len(targets) - len(plans)
    plans = {key: plan for key, plan in plans.items() if key not in known}
    drafts: list[GroupDraft] = []
    refused: set[UUID] = set()

    def write(batches: Iterable[list[GroupDraft]]) -> LLMError | BudgetExhaustedError | None:
        nonlocal superseded
        try:
            for batch in batches:
                replaced, left_out = _write_batch(run, kind, plans, batch)
                superseded += replaced
                refused.update(left_out)
                drafts.extend(batch)
        except STOP_ERRORS as error:
            return error
        return None

    stopped = write(write_texts(run, kind, context, [plan.group for plan in plans.values()])) if plans else None
    # Not those of the texts below, which a model is to write again.
    discarded = [draft.group for draft in drafts if draft.text is None and draft.error is None]
    failures = tuple((draft.group.cluster_key, draft.error) for draft in drafts if draft.error is not None)
    answered = {draft.group.cluster_key for draft in drafts if draft.error is None}
    unanswered = [plan for key, plan in plans.items() if key not in answered]
    without_text = [plan.group for plan in unanswered if not plan.target.keeps_text]
    if without_text and run.options.llm_model is not None:
        stopped = write(mark_pending(extract_texts(run, kind, context, without_text))) or stopped
    run.record_failing(kind.name, len(unanswered), [error for _, error in failures], stopped)
    kept = list_target_rows(targets.values())
    with run.transaction() as connection:
        if drafts:
            existing = load_existing_rows(connection, run.project.id, kind.name, scope=scope)
            superseded += _retire_superseded(connection, run, kind, existing, present_keys=present_keys, kept=kept)
            existing = load_existing_rows(connection, run.project.id, kind.name, scope=scope)
        replaced = find_replaced_rows(drafts, plans, existing)
        replaced += list_writable_outdated(run, present_keys, existing, kept=kept, replacements=replacements)
        if replaced:
            retire_replaced(connection, run.author, replaced, operation=kind.name, now=run.now)
            superseded += len(replaced)
        if drafts or replaced:
            prune_compared_sentences(connection, run.project.id)
        note_discarded(connection, run, kind, discarded, present_keys=present_keys)
    written = [
        (plans[draft.group.cluster_key].target, draft.text)
        for draft in drafts
        if draft.text is not None and plans[draft.group.cluster_key].target.id not in refused
    ]
    stored, versions = [text for _, text in written], [target.version for target, _ in written]
    return DeriveResult(
        groups=len(groups),
        covered=len(groups) - len(targets),
        changed=changed,
        created=sum(version is None for version in versions),
        updated=sum(version is not None for version in versions),
        superseded=superseded,
        needs_review=sum(text.needs_review for text in stored),
        discarded=len(drafts) - len(stored) - len(failures) - len(refused) + len(known),
        failures=failures,
        stopped=None if stopped is None else str(stopped),
        refused_by_tests=len(refused),
    )


def find_writable_targets(
    connection: Connection,
    run: ProjectRun,
    kind: AbstractionKind,
    groups: Sequence[GroupIds],
    existing: Sequence[ExistingRow],
    *,
    replacements: Replacements,
    texts: Mapping[UUID, str],
) -> dict[str, TargetRow]:
    """Return the target rows of ``find_target_rows`` that the run may write, by cluster key.

    There are also those of ``find_rows_to_renew``. Left out are groups whose row a person undid, and rows that are not
    in the plan that the run applies.
    """
    unwanted = load_undone_cluster_keys(connection, run.project.id, kind.name)
    wanted = [group for group in groups if group.cluster_key not in unwanted]
    targets = find_target_rows(run.project.slug, kind.name, wanted, existing)
    targets |= find_rows_to_renew(
        wanted, existing, replacements=replacements, texts=texts, has_model=run.options.llm_model is not None
    )
    return {key: target for key, target in targets.items() if run.may_write(target.id)}


def find_replaced_rows(
    drafts: Iterable[GroupDraft], plans: Mapping[str, PlannedAbstraction], existing: Iterable[ExistingRow]
) -> list[ExistingRow]:
    """Return the stored rows of groups that have no text any more, as newer memories replaced some of theirs.

    Rows that a person keeps are left out.
    """
    without_text = [draft.group for draft in drafts if draft.text is None and draft.error is None]
    ids = {plans[group.cluster_key].target.id for group in without_text if group.relations}
    return [row for row in existing if row.id in ids and row.is_active and not row.is_kept]


def list_target_rows(targets: Iterable[TargetRow]) -> set[UUID]:
    """Return the ids of the rows that were to be written, or to be replaced by what was to be written."""
    return {id_ for target in targets for id_ in (target.id, *(row for row, _ in target.superseded))}


def list_writable_outdated(
    run: ProjectRun,
    present_keys: Collection[str],
    existing: Sequence[ExistingRow],
    *,
    kept: Collection[UUID],
    replacements: Replacements,
) -> list[ExistingRow]:
    """Return the rows of ``find_outdated_rows`` that are not ``kept`` and may be written."""
    found = find_outdated_rows(present_keys, existing, replacements=replacements)
    return [row for row in found if row.id not in kept and run.may_write(row.id)]


def select_context(groups: Iterable[GroupIds]) -> list[GroupIds]:
    """Return groups of ``MAX_CONTEXT_UNITS`` or all units, in which the rarity of terms is counted.

    They have the smallest cluster keys. These are hashes, so it is a random sample. It does not depend on which groups
    are new: a run that continues an interrupted one writes the same texts.
    """
    ordered = sorted(groups, key=lambda group: group.cluster_key)
    before = accumulate((len(group.unit_ids) for group in ordered), initial=0)
    return [group for group, units in zip(ordered, before, strict=False) if units < MAX_CONTEXT_UNITS]


def attach_units(
    selected: Iterable[GroupIds], units: Mapping[UUID, UnitRow], replacements: Replacements
) -> list[Group]:
    """Return the groups with their units, of which each tells what ``leave_out_replaced`` leaves.

    A group that lost a unit meanwhile is left out.
    """
    return [
        Group(
            one.cluster_key,
            leave_out_replaced([units[id_] for id_ in one.unit_ids], replacements),
            one.cohesion,
            relations=list_relations(one.raw_ids, replacements),
        )
        for one in selected
        if units.keys() >= set(one.unit_ids)
    ]


def _retire_superseded(
    connection: Connection,
    run: ProjectRun,
    kind: AbstractionKind,
    existing: Sequence[ExistingRow],
    *,
    present_keys: Collection[str],
    kept: Collection[UUID] = (),
) -> int:
    """Retire the rows of ``find_superseded_rows`` that are not ``kept`` and may be written; return how many."""
    found = find_superseded_rows(present_keys, existing)
    superseded = [(row, by) for row, by in found if row.id not in kept and run.may_write(row.id)]
    supersede_rows(connection, run.author, superseded, operation=kind.name, now=run.now)
    return len(superseded)


def _write_batch(
    run: ProjectRun,
    kind: AbstractionKind,
    plans: Mapping[str, PlannedAbstraction],
    drafts: Sequence[GroupDraft],
) -> tuple[int, set[UUID]]:
    """Write the rows of a batch.

    Returns:
        How many rows they replaced, and the ids of rows that were not written, as they would break a memory test.
    """
    texts = [(plans[draft.group.cluster_key], draft.text) for draft in drafts if draft.text is not None]
    if not texts:
        return 0, set()

    compared = {plan.target.id: text.compared for plan, text in texts}

    def write(connection: Connection, rows: Sequence[DerivedMemory]) -> int:
        write_derived(connection, run.author, rows, operation=kind.name, now=run.now)
        pairs = {row.id: compared[row.id] for row in rows if compared[row.id]}
        replace_compared_sentences(connection, run.project.id, describe_code()["digest"], pairs)
        return sum(len(row.superseded) for row in rows)

    written, refused = write_checked(run, f"{kind.name}s", _build_rows(run, kind, texts), write, lambda row: [row.id])
    return sum(written), {row.id for row in refused}


def _build_rows(
    run: ProjectRun, kind: AbstractionKind, texts: Sequence[tuple[PlannedAbstraction, DraftText]]
) -> list[DerivedMemory]:
    model = run.embedder.name
    with run.reading() as connection:
        dimension = load_dimension(connection, run.project.id, model)
        ids = [unit.id for plan, _ in texts for unit in plan.group.units]
        unit_vectors = load_unit_vectors(connection, ids, model, dimension)
        origins = load_origins(connection, (raw_id for plan, _ in texts for raw_id in plan.group.raw_ids))
    vectors = run.embedder.embed([text.content for _, text in texts])
    return [
        DerivedMemory(
            id=plan.target.id,
            version=plan.target.version,
            group_id=uuid4(),
            values=build_abstraction_columns(kind, plan, text, origins),
            vector=vector,
            model=model,
            source_ids=plan.group.raw_ids,
            lineage=[
                LineageEdge(unit.id, unit.kind, round(float(unit_vectors[unit.id] @ vector), 6))
                for unit in plan.group.units
            ],
            reason=plan.reason(kind),
            superseded=plan.target.superseded,
        )
        for (plan, text), vector in zip(texts, vectors, strict=True)
    ]


def build_abstraction_columns(
    kind: AbstractionKind, plan: PlannedAbstraction, text: DraftText, origins: Mapping[UUID, Origin]
) -> dict[str, Any]:
    """Return the columns of the row. A retired row becomes active again.

    An update leaves ``last_accessed_at`` alone, as a stored row has accesses of its own. ``origins``: by id of raw
    memory.
    """
    units = plan.group.units
    accesses = [unit.last_accessed_at for unit in units if unit.last_accessed_at is not None]
    known = [origins[raw_id] for raw_id in plan.group.raw_ids if raw_id in origins]
    sessions = count_sessions(origin.session_id for origin in known)
    people = len({origin.person for origin in known} - {None})
    return {
        "kind": kind.name,
        "abstraction_level": LEVELS[kind.name],
        "content": text.content,
        "memory_type": units[0].memory_type,
        "pattern_type": text.pattern_type,
        "confidence_score": round(weigh_evidence(text.confidence, len(units), sessions, people), 6),
        "llm_confidence": text.llm_confidence,
        "needs_review": text.needs_review,
        "details": {
            **({"title": text.title} if text.title else {}),
            **({SEEN: text.seen} if text.seen else {}),
            "summary": text.summary,
            "best_practices": list(text.best_practices),
            "gotchas": list(text.gotchas),
            "key_terms": list(text.key_terms),
            "evidence": [{"unit": str(unit), "quote": quote} for unit, quote in text.evidence],
            **({SUPERSEDED: sorted(map(str, plan.group.relations))} if plan.group.relations else {}),
            **({REWRITE_PENDING: True} if text.is_pending else {}),
        },
        "consolidation_method": "heuristic" if text.llm_confidence is None else "llm",
        **({"last_accessed_at": max(accesses, default=None)} if plan.target.version is None else {}),
        **inherit_columns(units),
        "cluster_key": plan.group.cluster_key,
        "scope_key": units[0].scope_key,
        "language": most_frequent(unit.language for unit in units),
        "content_hash": content_hash(text.content),
        "normalized_hash": normalized_hash(text.content),
        "superseded_by_id": None,
        "retired_at": None,
        "archive_reason": None,
    }
