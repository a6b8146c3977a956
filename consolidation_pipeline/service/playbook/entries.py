"""The playbook: instructions for agents, promoted from patterns and principles, and read by priority."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.knowledge.playbook import CATEGORIES
from consolidation_pipeline.core.knowledge.playbook import STATUSES as ENTRY_STATUSES
from consolidation_pipeline.core.knowledge.playbook_markdown import Instruction, playbook_document
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.playbook.drafts import EntryDraft
from consolidation_pipeline.service.playbook.promotion import PlaybookChanges, PromotionInputs, draft_entries
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
    """What a run did to the playbook. ``candidates``: active patterns and principles.

    ``promoted``: entries that became active, new ones and such as waited; ``proposed``: new ones that wait for a
    person; ``reinforced``: those that more memories bear out now; ``updated``: those that followed what they were made
    from; ``below``: candidates that no gate let through; ``held_back``: those that wait until a person has decided on
    others; ``active``, ``waiting``: entries there are now.
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


def describe_promotion(done: PromotionResult) -> dict[str, Any]:
    """The numbers of a run's work on the playbook under their stable names."""
    return {
        "candidates_in": done.candidates,
        "entries_promoted": done.promoted,
        "entries_proposed": done.proposed,
        "entries_reinforced": done.reinforced,
        "entries_updated": done.updated,
        "candidates_below": done.below,
        "candidates_held_back": done.held_back,
        "entries_active": done.active,
        "entries_waiting": done.waiting,
    }


def update_playbook(run: ProjectRun) -> PromotionResult:
    """Bring the project's playbook up to what its patterns and principles say (``promoting.draft_entries``).

    An entry has the vector of what it was made from; nothing is embedded. All in one transaction. Nothing is done while
    ``promote`` is off; a run that carries out a plan writes the entries of the plan.

    Raises:
        ConflictError: a person decided on an entry meanwhile; nothing is written then.
    """
    if not run.options.promote:
        return _count_alone(run)
    with run.engine.connect() as connection:
        material = load_promotion_inputs(connection, run)
    drafted = draft_entries(run.project.slug, material, t_promote=run.options.t_promote)
    drafted = replace(drafted, drafts=[draft for draft in drafted.drafts if run.may_write(draft.entry.id)])
    done = _count(material, drafted)
    if drafted.drafts:
        _write(run, material, drafted.drafts, done)
    return done


def load_promotion_inputs(connection: Connection, run: ProjectRun) -> PromotionInputs:
    """What the playbook is judged by: as the store holds it, in the vectors of the run's model."""
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


def _count_alone(run: ProjectRun) -> PromotionResult:
    with run.engine.connect() as connection:
        totals = count_entries(connection, run.project.id)
    return PromotionResult(active=totals.get("active", 0), waiting=totals.get("review", 0))


def _was_promoted(draft: EntryDraft) -> bool:
    return draft.entry.status == "active" and (draft.held is None or draft.held.status != "active")


def _count(material: PromotionInputs, drafted: PlaybookChanges) -> PromotionResult:
    drafts = drafted.drafts
    held = [draft for draft in drafts if draft.held is not None]
    now = {entry.id: entry.status for entry in material.entries} | {d.entry.id: d.entry.status for d in drafts}
    statuses = list(now.values())
    return PromotionResult(
        candidates=len(material.candidates),
        promoted=sum(map(_was_promoted, drafts)),
        proposed=sum(draft.held is None and draft.entry.status == "review" for draft in drafts),
        reinforced=sum(draft.reinforced for draft in held),
        updated=sum(not draft.reinforced and not _was_promoted(draft) for draft in held),
        below=drafted.below,
        held_back=drafted.held_back,
        active=statuses.count("active"),
        waiting=statuses.count("review"),
    )


def _write(run: ProjectRun, material: PromotionInputs, drafts: Sequence[EntryDraft], done: PromotionResult) -> None:
    model = run.embedder.name
    promoted = [_change(draft, material.vectors, model) for draft in drafts if _was_promoted(draft)]
    others = [_change(draft, material.vectors, model) for draft in drafts if not _was_promoted(draft)]
    told = {"promoted": done.promoted, "proposed": done.proposed, "updated": done.reinforced + done.updated}
    with run.writing() as connection:
        write_entries(connection, run.author, promoted, operation="promote", now=run.now)
        write_entries(connection, run.author, others, operation="edit", now=run.now)
        append_event(connection, run.project.id, "playbook.changed", {"job_id": str(run.job_id), **told})


_COLUMNS = {
    "source_id": "source_id",
    "status": "status",
    "content": "content",
    "content_hash": "content_hash",
    "category": "category",
    "tags": "tags",
    "priority": "priority",
    "confidence": "confidence",
    "supporting": "supporting_memory_ids",
}


def _change(draft: EntryDraft, vectors: Mapping[UUID, Vectors], model: str) -> EntryChange:
    """The columns that differ, and the vector where the text does."""
    entry, held = draft.entry, draft.held
    values: dict[str, Any] = {
        column: _plain(getattr(entry, name))
        for name, column in _COLUMNS.items()
        if held is None or getattr(held, name) != getattr(entry, name)
    }
    if "content_hash" in values:
        vector = vectors[draft.words_from]
        values |= {"embedding": vector, "embedding_model": model, "embedding_dim": len(vector)}
    return EntryChange(entry.id, entry.version, uuid4(), values, "; ".join(draft.reasons), entry.confidence)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def read_playbook(
    engine: Engine, slug: str, *, limit: int, status: str = "active", category: str | None = None
) -> dict[str, Any]:
    """The project's entries of one status, and of one category if given, most urgent first; and how many there are.

    Raises:
        NotFoundError: no such project. UsageError: no such status or category.
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
    """What ``read_playbook`` found as Markdown for an agent's instructions."""
    entries = [
        Instruction(row["id"], row["content"], row["category"], row["priority"], row["evidence"])
        for row in playbook["entries"]
    ]
    return playbook_document(playbook["project"], entries)
