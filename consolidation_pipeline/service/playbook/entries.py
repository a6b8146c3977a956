"""The playbook of a project: updated by a run, read by priority, and rendered as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.knowledge.pattern_layout import tell_in_english
from consolidation_pipeline.core.knowledge.playbook import CATEGORIES
from consolidation_pipeline.core.knowledge.playbook_markdown import Instruction, playbook_document
from consolidation_pipeline.core.knowledge.quality_gates import Verdict
from consolidation_pipeline.core.knowledge.risky_text import find_risks
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.memory_tests.gate import write_checked
from consolidation_pipeline.service.playbook.empty_playbook import explain_empty
from consolidation_pipeline.service.playbook.judgement import PromotionRules, judge_candidate
from consolidation_pipeline.service.playbook.outdated_entries import list_outdated
from consolidation_pipeline.service.playbook.promotion import (
    EntryDraft,
    PlaybookChanges,
    PromotionInputs,
    draft_entries,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.schema import ENTRY_STATUSES
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.knowledge.playbook import (
    EntryChange,
    count_entries,
    list_entries,
    load_candidates,
    load_entries,
    load_entry_vectors,
    load_successors,
    load_withdrawn,
    write_entries,
)
from consolidation_pipeline.store.knowledge.supersessions import Replacements
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension


@dataclass(frozen=True)
class PromotionResult:
    """Counts of the phase, under their stable metadata names.

    ``candidates_in``: active patterns and principles. ``entries_promoted``: entries that became active, both new ones
    and ones that waited. ``entries_proposed``: new entries that wait for a person. ``entries_reinforced``: entries that
    another candidate supports now. ``entries_updated``: other changed entries. ``candidates_below``: those that the
    gates discarded. ``candidates_held_back``: those that wait until a person has decided on others.
    ``entries_active``, ``entries_waiting``: entries after the run. ``refused_by_tests``: entries left as they are, as
    their change would break a memory test.
    """

    candidates_in: int = 0
    entries_promoted: int = 0
    entries_proposed: int = 0
    entries_reinforced: int = 0
    entries_updated: int = 0
    candidates_below: int = 0
    candidates_held_back: int = 0
    entries_active: int = 0
    entries_waiting: int = 0
    refused_by_tests: int = 0

    @property
    def counters(self) -> dict[str, int]:
        """Increments of the job's counter columns."""
        return {"memories_promoted": self.entries_promoted}


def update_playbook(run: ProjectRun, replacements: Replacements) -> PromotionResult:
    """Write the entries that follow from the project's patterns and principles (``draft_entries``).

    An entry takes over the vector of its source; nothing is embedded. There is one transaction. Nothing is written
    while ``promote`` is off. A run that applies a plan writes only the entries of the plan.

    Args:
        run: The run.
        replacements: What newer memories replaced; active entries that rest on it wait for a person.

    Raises:
        ConflictError: A person decided on an entry meanwhile. Nothing is written.
    """
    with run.reading() as connection:
        if not run.options.promote:
            totals = count_entries(connection, run.project.id)
            return PromotionResult(entries_active=totals.get("active", 0), entries_waiting=totals.get("review", 0))
        inputs = load_promotion_inputs(connection, run)
        outdated = list_outdated(connection, run.project.id, inputs.entries, replacements)
        inputs = replace(inputs, outdated=outdated)
    changes = draft_entries(run.project.slug, inputs, PromotionRules.of(run.options))
    changes = replace(changes, drafts=[draft for draft in changes.drafts if run.may_write(draft.entry.id)])
    refused = _write_drafts(run, inputs, changes.drafts) if changes.drafts else set()
    kept = [draft for draft in changes.drafts if draft.entry.id not in refused]
    return replace(_count_changes(inputs, replace(changes, drafts=kept)), refused_by_tests=len(refused))


def load_promotion_inputs(connection: Connection, run: ProjectRun) -> PromotionInputs:
    """Return the inputs of ``draft_entries``, without candidates that have no vector of the run's model.

    Which entries are outdated follows from replacements, which a plan only forecasts.
    """
    project, model = run.project.id, run.embedder.name
    candidates = load_candidates(connection, project, model, scope=run.options.scope)
    dimension = load_dimension(connection, project, model)
    ids = [candidate.id for candidate in candidates]
    vectors = load_entry_vectors(connection, project, model, ids, dimension) if dimension else {}
    inputs = PromotionInputs(
        candidates=[candidate for candidate in candidates if candidate.id in vectors],
        entries=load_entries(connection, project, scope=run.options.scope),
        vectors=vectors,
        successors=load_successors(connection, project),
        withdrawn=load_withdrawn(connection, project),
    )
    return with_source_texts(connection, run, inputs)


def with_source_texts(connection: Connection, run: ProjectRun, inputs: PromotionInputs) -> PromotionInputs:
    """Return the inputs with the texts behind the candidates that would become active without a person."""
    rules = PromotionRules.of(run.options)
    if not rules.is_automatic:
        return inputs
    active = {(entry.source_id, entry.content_hash) for entry in inputs.entries if entry.status == "active"}
    wanted = [
        candidate
        for candidate in inputs.candidates
        if (candidate.id, candidate.content_hash) not in active
        and judge_candidate(candidate, rules).verdict is Verdict.STORE
    ]
    texts = load_texts(connection, [raw_id for candidate in wanted for raw_id in candidate.raw_ids])
    return replace(inputs, texts=texts)


def _is_promoted(draft: EntryDraft) -> bool:
    return draft.entry.status == "active" and (draft.existing is None or draft.existing.status != "active")


def _count_changes(inputs: PromotionInputs, changes: PlaybookChanges) -> PromotionResult:
    drafts = changes.drafts
    existing = [draft for draft in drafts if draft.existing is not None]
    status_by_id = {entry.id: entry.status for entry in inputs.entries} | {d.entry.id: d.entry.status for d in drafts}
    statuses = list(status_by_id.values())
    return PromotionResult(
        candidates_in=len(inputs.candidates),
        entries_promoted=sum(map(_is_promoted, drafts)),
        entries_proposed=sum(draft.existing is None and draft.entry.status == "review" for draft in drafts),
        entries_reinforced=sum(draft.is_reinforced for draft in existing),
        entries_updated=sum(not draft.is_reinforced and not _is_promoted(draft) for draft in existing),
        candidates_below=changes.below,
        candidates_held_back=changes.held_back,
        entries_active=statuses.count("active"),
        entries_waiting=statuses.count("review"),
    )


def _write_drafts(run: ProjectRun, inputs: PromotionInputs, drafts: Sequence[EntryDraft]) -> set[UUID]:
    """Write entries, and return the ids of those that would break a memory test."""
    model = run.embedder.name

    def write(connection: Connection, chosen: Sequence[EntryDraft]) -> None:
        promoted = [_build_change(draft, inputs.vectors, model) for draft in chosen if _is_promoted(draft)]
        others = [_build_change(draft, inputs.vectors, model) for draft in chosen if not _is_promoted(draft)]
        counts = _count_changes(inputs, PlaybookChanges(drafts=list(chosen), below=0, held_back=0))
        payload = {
            "job_id": str(run.job_id),
            "promoted": counts.entries_promoted,
            "proposed": counts.entries_proposed,
            "updated": counts.entries_reinforced + counts.entries_updated,
        }
        write_entries(connection, run.author, promoted, operation="promote", now=run.now)
        write_entries(connection, run.author, others, operation="edit", now=run.now)
        append_event(connection, run.project.id, "playbook.changed", payload)

    _, refused = write_checked(run, "playbook_entries", drafts, write, lambda draft: [draft.entry.id])
    return {draft.entry.id for draft in refused}


# Field of `PlaybookEntry` -> column of `playbook_entries`.
_SAME_NAMES = ("source_id", "status", "content", "content_hash", "category", "tags", "priority", "confidence")
_COLUMNS = {name: name for name in _SAME_NAMES} | {"supporting_ids": "supporting_memory_ids"}


def _build_change(draft: EntryDraft, vectors: Mapping[UUID, Vectors], model: str) -> EntryChange:
    """Return the columns that differ from the stored entry, with the vector if the text does."""
    entry, existing = draft.entry, draft.existing
    values: dict[str, Any] = {
        column: _to_column(getattr(entry, name))
        for name, column in _COLUMNS.items()
        if existing is None or getattr(existing, name) != getattr(entry, name)
    }
    if "content_hash" in values:
        vector = vectors[draft.vector_id]
        values |= {"embedding": vector, "embedding_model": model, "embedding_dim": len(vector)}
    return EntryChange(entry.id, entry.version, uuid4(), values, "; ".join(draft.reasons), entry.confidence)


def _to_column(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def read_playbook(
    engine: Engine,
    slug: str,
    *,
    limit: int,
    status: str = "active",
    category: str | None = None,
    as_of: datetime | None = None,
) -> dict[str, Any]:
    """Return the project's entries of one status, and of one category if given, by priority, and totals by status.

    Each entry has the ``risks`` of its text, in words, and how often and when it was ``seen``, if its source has the
    same text and tells so. ``empty_because`` tells why there is no active entry, and is
    None if there is one. With ``as_of``, the playbook as it was then.

    Raises:
        NotFoundError: There is no such project.
        UsageError: There is no such status or category.
    """
    if status not in ENTRY_STATUSES:
        raise UsageError(f"status {status!r} does not exist; an entry is {', '.join(ENTRY_STATUSES)}")
    if category is not None and category not in CATEGORIES:
        raise UsageError(f"category {category!r} does not exist; the categories are {', '.join(CATEGORIES)}")
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = list_entries(connection, project.id, limit=limit, status=status, category=category, as_of=as_of)
        totals = count_entries(connection, project.id, as_of=as_of)
        empty_because = None if totals.get("active") else explain_empty(connection, project, totals.get("review", 0))
    return {
        "project": slug,
        "totals": {name: totals.get(name, 0) for name in ENTRY_STATUSES},
        "empty_because": empty_because,
        "entries": [
            {
                **row,
                "seen": row["seen"] and tell_in_english(row["seen"]),
                "risks": [risk.reason for risk in find_risks(row["content"])],
            }
            for row in rows
        ],
    }


def to_markdown(playbook: Mapping[str, Any]) -> str:
    """Return the entries of ``read_playbook`` as Markdown for an agent's instructions."""
    entries = [
        Instruction(
            row["id"],
            row["content"],
            row["category"],
            row["priority"],
            row["evidence"],
            row["writers"],
            row["seen"] or "",
        )
        for row in playbook["entries"]
    ]
    return playbook_document(playbook["project"], entries)
