"""What a person says of suggestions: approved, rejected or withdrawn, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION, cluster_key
from consolidation_pipeline.core.knowledge.merge_proposals import find_left_out
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.core.text.text_merge import Merged
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.knowledge.merged_memories import (
    PlannedMerge,
    build_merged_columns,
    sort_by_source_count,
)
from consolidation_pipeline.service.review.suggestions import Suggestion, check_choice, get_suggestion, join_parts
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.knowledge.abstractions import APPROVED
from consolidation_pipeline.store.knowledge.merged_memories import (
    LineageEdge,
    MergedMemory,
    MergeSource,
    load_consolidated,
    load_source_vectors,
    load_sources,
    write_merged,
)
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys_of
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.review import suggestions as store
from consolidation_pipeline.store.review.suggestions import load_originals, lock_originals

# Longer than any text that merging makes.
MAX_CHARS = 100_000


@dataclass(frozen=True)
class Approval:
    """What was approved: the text, its vector (d,) in the project's ``model``, and whether a person edited it."""

    project: str
    content: str
    vector: Vectors
    model: str
    edited: bool


def prepare_approval(
    engine: Engine, shown: Suggestion, content: str | None, lessons_learned: str | None, *, settings: Settings
) -> Approval:
    """The text as it is to stand, embedded before anything is locked; None = as it is proposed.

    Raises:
        UsageError: the text is blank or too long. EmbeddingError, BudgetExhaustedError.
    """
    proposed = join_parts(shown.content, shown.lessons_learned)
    text = join_parts(
        shown.content if content is None else content,
        shown.lessons_learned if lessons_learned is None else lessons_learned,
    )
    if not text:
        raise UsageError("the content is blank: it must say what the originals say")
    if len(text) > MAX_CHARS:
        raise UsageError(f"the content has {len(text):,} characters; {MAX_CHARS:,} are allowed")
    with engine.connect() as connection:
        project = get_project(connection, shown.project)
    embedder = open_embedder(engine, project, effective_options(project, settings), uuid4())
    return Approval(project.slug, text, embedder.embed([text])[0], embedder.name, edited=text != proposed)


def find_changed_originals(connection: Connection, suggestion: Row[Any]) -> dict[UUID, str]:
    """Lock the originals, and say what became of those that are not what the suggestion saw, by id."""
    lock_originals(connection, suggestion.original_memory_ids)
    found = load_originals(connection, suggestion.original_memory_ids)
    seen = zip(suggestion.original_memory_ids, suggestion.original_versions, strict=True)
    told = ((id_, _why_changed(found.get(id_), version)) for id_, version in seen)
    return {id_: why for id_, why in told if why is not None}


def _why_changed(original: Row[Any] | None, version: int) -> str | None:
    if original is None:
        return "was removed"
    if not original.is_active:
        return str(original.gone)
    return None if original.version == version else "was changed"


def write_memory(
    connection: Connection, author: Author, suggestion: Row[Any], approval: Approval, *, group_id: UUID, reason: str
) -> UUID:
    """Write the merged memory and hide the originals, which are locked and unchanged; returns the memory's id.

    Raises:
        ConflictError: another active merged memory says the same word for word.
    """
    raw = lock_originals(connection, suggestion.original_memory_ids)
    sources = load_sources(connection, raw)
    held = sort_by_source_count(load_consolidated(connection, suggestion.original_memory_ids).values())
    plan = _plan(suggestion, sources, held, approval)
    parents = load_source_vectors(connection, raw, len(approval.vector), model=approval.model)
    values = build_merged_columns(plan)
    memory = MergedMemory(
        id=plan.id,
        version=plan.version,
        group_id=group_id,
        values={
            **values,
            "details": {**values["details"], APPROVED: True},
            "tags": list(dict.fromkeys([*values["tags"], *suggestion.suggested_keywords])),
        },
        vector=approval.vector,
        model=approval.model,
        source_ids=[source.id for source in plan.sources],
        lineage=[_edge(source.id, approval.vector, parents) for source in plan.sources],
        absorbed=plan.absorbed,
        reason=reason,
        superseded=[(row.id, row.version) for row in held[1:]],
    )
    write_merged(connection, author, [memory], now=datetime.now(UTC))
    return memory.id


def _plan(
    suggestion: Row[Any], sources: Mapping[UUID, MergeSource], held: Sequence[Row[Any]], approval: Approval
) -> PlannedMerge:
    ordered = [sources[id_] for id_ in sorted(sources)]
    ids = [source.id for source in ordered]
    first = suggestion.original_memory_ids[0]
    texts = tuple(source.body for source in ordered)
    return PlannedMerge(
        id=held[0].id if held else consolidated_id(approval.project, "merged", ids, ALGORITHM_VERSION),
        cluster_key=cluster_key(ids, ALGORITHM_VERSION),
        representative_id=next(s.id for s in ordered if first in (s.id, s.consolidated_into_id)),
        sources=ordered,
        absorbed=[s for s in ordered if not held or s.consolidated_into_id != held[0].id],
        existing=held,
        # What the person left out is not lost: it stands beside the text, as what did not fit does.
        merged=Merged(approval.content, find_left_out(texts, approval.content)),
        verbatim_id=None,
        texts=texts,
        method="hybrid" if approval.edited else "llm",
    )


def _edge(id_: UUID, vector: Vectors, parents: Mapping[UUID, Vectors]) -> LineageEdge:
    return LineageEdge(id_, "raw", round(float(parents[id_] @ vector), 6) if id_ in parents else None)


# What a person says of a suggestion whose status it becomes.
_IN_WORDS = {"validated": "approved", "expired": "withdrawn"}


@dataclass(frozen=True)
class SuggestionDecision:
    """A decision. ``memory_id``: the merged memory an approval made; rolling ``group_id`` back undoes all of it."""

    suggestion_id: UUID
    status: str
    memory_id: UUID | None
    group_id: UUID


@dataclass(frozen=True)
class BulkResult:
    """What became of many: those decided, and id and reason of those that could not be."""

    decided: list[SuggestionDecision]
    refused: list[tuple[UUID, str]]


def approve_suggestion(
    engine: Engine,
    id: UUID,
    *,
    content: str | None = None,
    lessons_learned: str | None = None,
    note: str | None = None,
    decided_by: str,
    settings: Settings | None = None,
) -> SuggestionDecision:
    """Merge the originals into one memory, in the words proposed or in the person's ``content`` and lessons.

    The memory, its lineage, the hiding of the originals and the status come in one transaction. Of merged originals the
    largest grows and takes in the others. ``settings``: None = those of the environment.

    Raises:
        NotFoundError: no such suggestion. UsageError: the text is blank or too long. ConflictError: it was decided
        before; an original is gone, archived, merged or changed, and it is superseded now; or another merged memory
        says the same. EmbeddingError, BudgetExhaustedError: the text could not be embedded; nothing was decided.
    """
    shown = get_suggestion(engine, id)
    _refuse_decided(shown)
    approval = prepare_approval(engine, shown, content, lessons_learned, settings=settings or Settings())
    write = partial(_approve, approval=approval, changed_by=decided_by)
    return _decide(engine, id, "validated", note=note, decided_by=decided_by, write=write)


def reject_suggestion(engine: Engine, id: UUID, *, note: str | None = None, decided_by: str) -> SuggestionDecision:
    """Leave the originals as they are; they are not proposed again unless their group changes.

    Raises:
        NotFoundError: no such suggestion. ConflictError: it was decided before.
    """
    return _decide(engine, id, "rejected", note=note, decided_by=decided_by)


def withdraw_suggestion(engine: Engine, id: UUID, *, decided_by: str) -> SuggestionDecision:
    """Take a suggestion back without a word on whether it was right: it is expired, and teaches nothing.

    Raises:
        NotFoundError: no such suggestion. ConflictError: it was decided before.
    """
    return _decide(engine, id, "expired", note=None, decided_by=decided_by)


def list_pending(
    engine: Engine, slug: str, *, min_similarity: float | None = None, type: str | None = None, limit: int | None = None
) -> list[UUID]:
    """The pending suggestions of a project that a rule names, the most similar first; None = whatever, all.

    Raises:
        NotFoundError: no such project. UsageError: no such memory type.
    """
    check_choice("pending", type)
    with engine.connect() as connection:
        project = get_project(connection, slug)
        return store.list_pending_ids(
            connection, project.id, memory_type=type, min_similarity=min_similarity, limit=limit
        )


def decide_each(
    engine: Engine, ids: Iterable[UUID], decide: Callable[[Engine, UUID], SuggestionDecision]
) -> BulkResult:
    """Approve or reject (``decide``) suggestions one by one: what stands in the way of one does not of the others."""
    decided, refused = list[SuggestionDecision](), list[tuple[UUID, str]]()
    for id_ in ids:
        try:
            decided.append(decide(engine, id_))
        except ConflictError as error:
            refused.append((id_, str(error)))
    return BulkResult(decided, refused)


_Write = Callable[[Connection, Row[Any], UUID, str], UUID]


def _decide(
    engine: Engine, id_: UUID, status: str, *, note: str | None, decided_by: str, write: _Write | None = None
) -> SuggestionDecision:
    """The decision under lock, with what it ``write``s; of one that comes too late only that it is superseded stays."""
    group_id = uuid4()
    with engine.begin() as connection:
        lock_active_keys_of(connection, [id_])
        suggestion = _lock(connection, id_)
        changed = find_changed_originals(connection, suggestion) if write is not None else {}
        reason = "an original has changed since" if changed else _words(note) or f"{_say(status)} by {decided_by}"
        memory_id = write(connection, suggestion, group_id, reason) if write is not None and not changed else None
        signed = {"reviewed_by": decided_by, "reviewed_at": datetime.now(UTC), "review_note": _words(note)}
        said = {"result_memory_id": memory_id, **signed} if not changed else {}
        said["status"] = final = "superseded" if changed else status
        author = Author(suggestion.project_id, None, decided_by)
        store.decide_suggestion(connection, author, suggestion, said, group_id=group_id, reason=reason)
        _tell_listeners(connection, suggestion, final, memory_id, group_id)
    if changed:
        first, why = next(iter(changed.items()))
        raise ConflictError(
            f"suggestion {id_} is superseded, and nothing was merged: memory {first} {why} since it was made",
            tuple(map(str, changed)),
        )
    return SuggestionDecision(id_, status, memory_id, group_id)


def _lock(connection: Connection, id_: UUID) -> Row[Any]:
    """The suggestion, locked, if it waits. Raises NotFoundError, ConflictError."""
    suggestion = store.lock_suggestion(connection, id_)
    if suggestion is None:
        raise NotFoundError(f"there is no suggestion {id_}: `consolidation suggestions list` shows ids")
    _refuse_decided(suggestion)
    return suggestion


def _refuse_decided(suggestion: Row[Any] | Suggestion) -> None:
    """Raises ConflictError, saying who was quicker, where a suggestion does not wait any more."""
    if suggestion.status == "pending":
        return
    by = f" by {suggestion.reviewed_by}" if suggestion.reviewed_by else ""
    when = f" at {suggestion.reviewed_at:%Y-%m-%d %H:%M} UTC" if suggestion.reviewed_at else ""
    raise ConflictError(
        f"suggestion {suggestion.id} does not wait any more: it was {_say(suggestion.status)}{by}{when}",
        (str(suggestion.id),),
    )


def _say(status: str) -> str:
    return _IN_WORDS.get(status, status)


def _words(note: str | None) -> str | None:
    return (note or "").strip() or None


def _approve(
    connection: Connection, suggestion: Row[Any], group_id: UUID, reason: str, *, approval: Approval, changed_by: str
) -> UUID:
    author = Author(suggestion.project_id, None, changed_by)
    return write_memory(connection, author, suggestion, approval, group_id=group_id, reason=reason)


def _tell_listeners(
    connection: Connection, suggestion: Row[Any], status: str, memory_id: UUID | None, group_id: UUID
) -> None:
    payload = {"suggestion_id": str(suggestion.id), "status": status, "group_id": str(group_id)}
    made = {"memory_id": str(memory_id)} if memory_id else {}
    append_event(connection, suggestion.project_id, "suggestion.decided", payload | made)
