"""The playbook of a project: updated by a run, read by priority, and rendered as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.knowledge.playbook import CATEGORIES
from consolidation_pipeline.core.knowledge.playbook import STATUSES as ENTRY_STATUSES
from consolidation_pipeline.core.knowledge.playbook_markdown import Instruction, playbook_document
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.playbook.promotion import (
    EntryDraft,
    PlaybookChanges,
    PromotionInputs,
    draft_entries,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection, Engine
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
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension


@dataclass(frozen=True)
class PromotionResult:
    """The result of the phase.

    ``candidates``: active patterns and principles. ``promoted``: entries that became active, new or waiting before.
    ``proposed``: new entries that wait for a person. ``reinforced``: entries with more supporting memories.
    ``updated``: entries that followed their source. ``below``: candidates that no gate let through. ``held_back``:
    candidates that wait until a person has decided on others. ``active``, ``waiting``: entries after the run.
    """

    candidates: int = 0
    promoted: int = 0
    proposed: int = 0
    reinforced: int = 0
    updated: int = 0
    below: int = 0
    held_back: int = 0
    active: int = 0
    waiting: int = 0


def describe_promotion(result: PromotionResult) -> dict[str, Any]:
    """Return the numbers of the result under their stable metadata names."""
    return {
        "candidates_in": result.candidates,
        "entries_promoted": result.promoted,
        "entries_proposed": result.proposed,
        "entries_reinforced": result.reinforced,
        "entries_updated": result.updated,
        "candidates_below": result.below,
        "candidates_held_back": result.held_back,
        "entries_active": result.active,
        "entries_waiting": result.waiting,
    }


def update_playbook(run: ProjectRun) -> PromotionResult:
    """Write the entries that follow from the project's patterns and principles (``draft_entries``).

    An entry takes over the vector of its source; nothing is embedded. All in one transaction. Nothing is written while
    ``promote`` is off. A run that applies a plan writes the entries of the plan only.

    Raises:
        ConflictError: a person decided on an entry meanwhile; nothing is written then.
    """
    if not run.options.promote:
        with run.engine.connect() as connection:
            totals = count_entries(connection, run.project.id)
        return PromotionResult(active=totals.get("active", 0), waiting=totals.get("review", 0))
    with run.engine.connect() as connection:
        inputs = load_promotion_inputs(connection, run)
    changes = draft_entries(run.project.slug, inputs, t_promote=run.options.t_promote)
    changes = replace(changes, drafts=[draft for draft in changes.drafts if run.may_write(draft.entry.id)])
    result = _count_changes(inputs, changes)
    if changes.drafts:
        _write_drafts(run, inputs, changes.drafts, result)
    return result


def load_promotion_inputs(connection: Connection, run: ProjectRun) -> PromotionInputs:
    """Return the inputs of ``draft_entries``; candidates without a vector of the run's model are left out."""
    project, model = run.project.id, run.embedder.name
    candidates = load_candidates(connection, project, model)
    dimension = load_dimension(connection, project, model)
    ids = [candidate.id for candidate in candidates]
    vectors = load_entry_vectors(connection, project, model, ids, dimension) if dimension else {}
    return PromotionInputs(
        candidates=[candidate for candidate in candidates if candidate.id in vectors],
        entries=load_entries(connection, project),
        vectors=vectors,
        successors=load_successors(connection, project),
        withdrawn=load_withdrawn(connection, project),
    )


def _is_promoted(draft: EntryDraft) -> bool:
    return draft.entry.status == "active" and (draft.existing is None or draft.existing.status != "active")


def _count_changes(inputs: PromotionInputs, changes: PlaybookChanges) -> PromotionResult:
    drafts = changes.drafts
    existing = [draft for draft in drafts if draft.existing is not None]
    status_by_id = {entry.id: entry.status for entry in inputs.entries} | {d.entry.id: d.entry.status for d in drafts}
    statuses = list(status_by_id.values())
    return PromotionResult(
        candidates=len(inputs.candidates),
        promoted=sum(map(_is_promoted, drafts)),
        proposed=sum(draft.existing is None and draft.entry.status == "review" for draft in drafts),
        reinforced=sum(draft.is_reinforced for draft in existing),
        updated=sum(not draft.is_reinforced and not _is_promoted(draft) for draft in existing),
        below=changes.below,
        held_back=changes.held_back,
        active=statuses.count("active"),
        waiting=statuses.count("review"),
    )


def _write_drafts(
    run: ProjectRun, inputs: PromotionInputs, drafts: Sequence[EntryDraft], result: PromotionResult
) -> None:
    model = run.embedder.name
    promoted = [_build_change(draft, inputs.vectors, model) for draft in drafts if _is_promoted(draft)]
    others = [_build_change(draft, inputs.vectors, model) for draft in drafts if not _is_promoted(draft)]
    payload = {
        "job_id": str(run.job_id),
        "promoted": result.promoted,
        "proposed": result.proposed,
        "updated": result.reinforced + result.updated,
    }
    with run.transaction() as connection:
        write_entries(connection, run.author, promoted, operation="promote", now=run.now)
        write_entries(connection, run.author, others, operation="edit", now=run.now)
        append_event(connection, run.project.id, "playbook.changed", payload)


# Field of `PlaybookEntry` -> column of `playbook_entries`.
_COLUMNS = {
    "source_id": "source_id",
    "status": "status",
    "content": "content",
    "content_hash": "content_hash",
    "category": "category",
    "tags": "tags",
    "priority": "priority",
    "confidence": "confidence",
    "supporting_ids": "supporting_memory_ids",
}


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
    engine: Engine, slug: str, *, limit: int, status: str = "active", category: str | None = None
) -> dict[str, Any]:
    """Return the project's entries of one status, and of one category if given, by priority, and totals by status.

    Raises:
        NotFoundError: no such project.
        UsageError: no such status or category.
    """
    if status not in ENTRY_STATUSES:
        raise UsageError(f"status {status!r} does not exist; an entry is {', '.join(ENTRY_STATUSES)}")
    if category is not None and category not in CATEGORIES:
        raise UsageError(f"category {category!r} does not exist; the categories are {', '.join(CATEGORIES)}")
    with engine.connect() as connection:
        project = get_project(connection, slug)
        rows = list_entries(connection, project.id, limit=limit, status=status, category=category)
        totals = count_entries(connection, project.id)
    return {
        "project": slug,
        "totals": {name: totals.get(name, 0) for name in ENTRY_STATUSES},
        "entries": [dict(row._mapping) for row in rows],
    }


def to_markdown(playbook: Mapping[str, Any]) -> str:
    """Return the entries of ``read_playbook`` as Markdown for an agent's instructions."""
    entries = [
        Instruction(row["id"], row["content"], row["category"], row["priority"], row["evidence"])
        for row in playbook["entries"]
    ]
    return playbook_document(playbook["project"], entries)
