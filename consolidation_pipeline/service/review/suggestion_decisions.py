"""Decisions on suggestions: approve, reject, keep as variants or withdraw, each in its own transaction.

An approved suggestion becomes a merged memory with the text that the person approved. Each decision makes room for the
next group of the queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION, cluster_key
from consolidation_pipeline.core.knowledge.difference_kinds import list_kinds
from consolidation_pipeline.core.knowledge.merge_proposals import find_left_out
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.core.text.text_merge import MergedText, find_missing_literals
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.knowledge.merged_memories import PlannedMerge, build_merged_columns, find_retired
from consolidation_pipeline.service.review.expected_text import check_expected
from consolidation_pipeline.service.review.suggestion_queue import refill_queue
from consolidation_pipeline.service.review.suggestion_texts import merge_originals
from consolidation_pipeline.service.review.suggestions import Suggestion, get_suggestion, join_parts
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.service.similarity.successors import sort_by_source_count
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.jobs.event_outbox import append_event
from consolidation_pipeline.store.knowledge.abstractions import APPROVED, load_unit_vectors
from consolidation_pipeline.store.knowledge.merged_memories import (
    LineageEdge,
    MergedMemory,
    MergeSource,
    load_consolidated,
    load_sources,
    write_merged,
)
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys_of
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import find_project, get_project
from consolidation_pipeline.store.review import suggestions as store

# Longer than any text that merging makes.
MAX_CHARS = 100_000
# Decision by the status of a decided suggestion, where they differ.
_DECISIONS = {"validated": "approved", "kept": "kept as variants", "expired": "withdrawn"}
# Facts that an error lists.
_MAX_LISTED = 5


@dataclass(frozen=True)
class SuggestionDecision:
    """A decision; a rollback of ``group_id`` undoes it. ``memory_id``: merged memory that an approval made."""

    suggestion_id: UUID
    project: str
    status: str
    memory_id: UUID | None
    group_id: UUID


def approve_suggestion(
    engine: Engine,
    id: UUID,
    *,
    content: str | None = None,
    lessons_learned: str | None = None,
    accept_loss: bool = False,
    leave_out: Collection[UUID] = (),
    expected: str | None = None,
    note: str | None = None,
    decided_by: str,
    settings: Settings | None = None,
    refill: bool = True,
) -> SuggestionDecision:
    """Merge the originals of a suggestion, or a part of them, into one memory.

    The memory, its lineage, the hiding of the originals and the status are written in one transaction. If originals are
    merged memories, the one with the most sources is extended and takes in the others.

    Args:
        content: Text of the memory; None = as proposed.
        lessons_learned: Lessons, appended to the content; None = as proposed.
        accept_loss: Accept a text that leaves out facts which the proposed one has.
        leave_out: Originals that stay as they are. The proposed text is made anew of the others, and the suggestion is
            kept as one to merge those.
        expected: Hash of the proposed text that the person read (``text_hash``); None = not checked.
        settings: None = those of the environment.
        refill: Propose the next group at once.

    Raises:
        NotFoundError: There is no such suggestion.
        UsageError: The text is blank or too long, or it leaves out facts. Or what is to be left out is no original, or
            fewer than two are left.
        ConflictError: The suggestion was decided before. Or an original is gone, archived, merged or changed, and the
            suggestion is superseded now. Or the proposed text is another one than expected. Or another merged memory
            has the same text.
        EmbeddingError, BudgetExhaustedError: The text could not be embedded. Nothing was decided.
    """
    settings = settings or Settings()
    suggestion = get_suggestion(engine, id)
    _refuse_decided(suggestion)
    check_expected("suggestion", id, join_parts(suggestion.content, suggestion.lessons_learned), expected)
    left_out = frozenset(leave_out)
    suggestion = _choose_part(engine, suggestion, left_out, settings) if left_out else suggestion
    text = _read_edit(suggestion, content, lessons_learned, accept_loss=accept_loss)
    approval = _prepare_approval(engine, suggestion, text, left_out, settings=settings)
    return _decide(
        engine, id, "validated", note=note, decided_by=decided_by, settings=settings, refill=refill, approval=approval
    )


def reject_suggestion(
    engine: Engine,
    id: UUID,
    *,
    note: str | None = None,
    decided_by: str,
    settings: Settings | None = None,
    refill: bool = True,
) -> SuggestionDecision:
    """Keep the originals separate: they are not proposed again as they are, but of three or more, parts of them are.

    Raises:
        NotFoundError: There is no such suggestion.
        ConflictError: It was decided before.
    """
    return _decide(engine, id, "rejected", note=note, decided_by=decided_by, settings=settings, refill=refill)


def keep_variants(
    engine: Engine,
    id: UUID,
    *,
    note: str | None = None,
    decided_by: str,
    settings: Settings | None = None,
    refill: bool = True,
) -> SuggestionDecision:
    """Keep each original as a variant of its own: no run merges two of them or asks about them again.

    Raises:
        NotFoundError: There is no such suggestion.
        ConflictError: It was decided before.
    """
    return _decide(engine, id, "kept", note=note, decided_by=decided_by, settings=settings, refill=refill)


def withdraw_suggestion(
    engine: Engine, id: UUID, *, decided_by: str, settings: Settings | None = None
) -> SuggestionDecision:
    """Let a suggestion expire without a decision, so that calibration does not learn from it.

    Raises:
        NotFoundError: There is no such suggestion.
        ConflictError: It was decided before.
    """
    return _decide(engine, id, "expired", note=None, decided_by=decided_by, settings=settings, refill=True)


@dataclass(frozen=True)
class _Approval:
    """The approved text and its vector (d,) of ``model``.

    ``project``: slug. ``scope``: the project's option. ``method``: how the text was made. ``dropped``: sentences of the
    originals for which the proposed text had no room. ``left_out``: originals that stay.
    """

    project: str
    scope: str
    content: str
    vector: Vectors
    model: str
    method: str
    dropped: tuple[str, ...]
    left_out: frozenset[UUID]


def _choose_part(engine: Engine, suggestion: Suggestion, left_out: frozenset[UUID], settings: Settings) -> Suggestion:
    """Return a suggestion to merge the other originals. Raise UsageError if they are no two, or one is no original."""
    known = {original.id for original in suggestion.originals}
    if unknown := left_out - known:
        raise UsageError(f"{min(unknown)} is no original of suggestion {suggestion.id}, so it cannot be left out")
    originals = [original for original in suggestion.originals if original.id not in left_out]
    if len(originals) < 2:
        raise UsageError(f"{len(left_out)} of {len(known)} originals are left out, and a merge needs two: reject it")
    with engine.connect() as connection:
        options = effective_options(get_project(connection, suggestion.project), settings)
        found = store.load_originals(connection, [original.id for original in originals])
    rows = [found[original.id] for original in originals if original.id in found]
    content = merge_originals(rows, max_chars=options.merge_max_chars).content
    return replace(suggestion, originals=originals, content=content, lessons_learned=None, method="heuristic")


def _read_edit(suggestion: Suggestion, content: str | None, lessons_learned: str | None, *, accept_loss: bool) -> str:
    """Return the text of the memory. Raise UsageError if it is blank, too long, or leaves out facts."""
    text = join_parts(
        suggestion.content if content is None else content,
        suggestion.lessons_learned if lessons_learned is None else lessons_learned,
    )
    if not text:
        raise UsageError("the content is blank: it must say what the originals say")
    if len(text) > MAX_CHARS:
        raise UsageError(f"the content has {len(text):,} characters; {MAX_CHARS:,} are allowed")
    proposed = join_parts(suggestion.content, suggestion.lessons_learned)
    originals = [original.content for original in suggestion.originals]
    lost = find_missing_literals(originals, text) - find_missing_literals(originals, proposed)
    if lost and not accept_loss:
        named = sorted(literal.text for literal in lost)
        listed = ", ".join(named[:_MAX_LISTED]) + (f" and {len(named) - _MAX_LISTED} more" * (len(named) > _MAX_LISTED))
        raise UsageError(f"the text leaves out what the originals say: {listed}. Add it, or accept the loss")
    return text


def _prepare_approval(
    engine: Engine, suggestion: Suggestion, text: str, left_out: frozenset[UUID], *, settings: Settings
) -> _Approval:
    """Embed the approved text, before anything is locked. Raise the errors of ``approve_suggestion``."""
    edited = text != join_parts(suggestion.content, suggestion.lessons_learned)
    with engine.connect() as connection:
        project = get_project(connection, suggestion.project)
        found = store.load_originals(connection, [original.id for original in suggestion.originals])
    options = effective_options(project, settings)
    rows = [found[original.id] for original in suggestion.originals if original.id in found]
    merged = merge_originals(rows, max_chars=options.merge_max_chars)
    embedder = open_embedder(engine, project, options, uuid4())
    return _Approval(
        project.slug,
        options.scope,
        text,
        embedder.embed([text])[0],
        embedder.name,
        method="hybrid" if edited else "llm" if suggestion.method == "llm" else "heuristic",
        dropped=() if edited or suggestion.method == "llm" else merged.dropped,
        left_out=left_out,
    )


def _decide(
    engine: Engine,
    id_: UUID,
    status: str,
    *,
    note: str | None,
    decided_by: str,
    settings: Settings | None,
    refill: bool,
    approval: _Approval | None = None,
) -> SuggestionDecision:
    """Write a decision under lock, and the merged memory of an approval; then propose the next group.

    If an original has changed, an approval is refused and the suggestion is marked as superseded.
    """
    group_id, note = uuid4(), (note or "").strip() or None
    with engine.begin() as connection:
        lock_active_keys_of(connection, [id_])
        suggestion = _lock_pending(connection, id_)
        author = Author(suggestion.project_id, None, decided_by)
        changed = {} if approval is None else _find_changed_originals(connection, suggestion, approval)
        memory_id = None
        if changed:
            reason = "an original has changed since"
            values: dict[str, Any] = {"status": "superseded"}
        else:
            reason = note or f"{_DECISIONS.get(status, status)} by {decided_by}"
            if approval is not None:
                memory_id = _write_memory(connection, author, suggestion, approval, group_id=group_id, reason=reason)
            values = {
                "status": status,
                "result_memory_id": memory_id,
                "reviewed_by": decided_by,
                "reviewed_at": datetime.now(UTC),
                "review_note": note,
                **({} if approval is None else _narrow(connection, suggestion, approval)),
            }
        store.decide_suggestion(connection, author, suggestion, values, group_id=group_id, reason=reason)
        payload = {"suggestion_id": str(id_), "status": values["status"], "group_id": str(group_id)}
        merged = {"memory_id": str(memory_id)} if memory_id else {}
        append_event(connection, suggestion.project_id, "suggestion.decided", payload | merged)
        project = find_project(connection, str(suggestion.project_id))
    if refill:
        refill_queue(engine, project.id, effective_options(project, settings or Settings()), changed_by=decided_by)
    if changed:
        first, change = next(iter(changed.items()))
        raise ConflictError(
            f"suggestion {id_} is superseded, and nothing was merged: memory {first} {change} since it was made",
            tuple(map(str, changed)),
        )
    return SuggestionDecision(id_, project.slug, status, memory_id, group_id)


def _lock_pending(connection: Connection, id_: UUID) -> Row[Any]:
    """Lock and return a suggestion. Raise NotFoundError, or ConflictError if it is not pending."""
    suggestion = store.lock_suggestion(connection, id_)
    if suggestion is None:
        raise NotFoundError(f"there is no suggestion {id_}: `consolidation suggestions list` shows ids")
    _refuse_decided(suggestion)
    return suggestion


def _refuse_decided(suggestion: Row[Any] | Suggestion) -> None:
    """Raise ConflictError if a suggestion is not pending; the message says who decided it and when."""
    if suggestion.status == "pending":
        return
    decision = _DECISIONS.get(suggestion.status, suggestion.status)
    by = f" by {suggestion.reviewed_by}" if suggestion.reviewed_by else ""
    when = f" at {suggestion.reviewed_at:%Y-%m-%d %H:%M} UTC" if suggestion.reviewed_at else ""
    raise ConflictError(
        f"suggestion {suggestion.id} is not pending: it was {decision}{by}{when}",
        (str(suggestion.id),),
    )


def _find_changed_originals(connection: Connection, suggestion: Row[Any], approval: _Approval) -> dict[UUID, str]:
    """Lock the originals to merge; return by id what happened to those that changed since the suggestion was made."""
    versions = dict(_list_originals(suggestion, approval))
    store.lock_originals(connection, [*versions])
    found = store.load_originals(connection, [*versions], scope=approval.scope)
    changes = ((id_, _describe_change(found.get(id_), version)) for id_, version in versions.items())
    changed = {id_: change for id_, change in changes if change is not None}
    keys = {row.scope_key for row in found.values()}
    return changed or dict.fromkeys(found if len(keys) > 1 else (), "is kept apart by the option scope")


def _list_originals(suggestion: Row[Any], approval: _Approval) -> list[tuple[UUID, int]]:
    """Return id and version of the originals to merge."""
    listed = zip(suggestion.original_memory_ids, suggestion.original_versions, strict=True)
    return [(id_, version) for id_, version in listed if id_ not in approval.left_out]


def _narrow(connection: Connection, suggestion: Row[Any], approval: _Approval) -> dict[str, Any]:
    """Return the values by which a suggestion becomes one to merge the approved part; none if it is the whole.

    So nothing learns from the approval that the others say the same.
    """
    if not approval.left_out:
        return {}
    originals = _list_originals(suggestion, approval)
    found = store.load_originals(connection, [id_ for id_, _ in originals])
    kinds = list_kinds([store.read_text(found[id_]) for id_, _ in originals], word_similarity)
    return {
        "rationale": f"a person approved {len(originals)} of {len(suggestion.original_memory_ids)} memories",
        "original_memory_ids": [id_ for id_, _ in originals],
        "original_versions": [version for _, version in originals],
        "difference_kinds": list(kinds),
        "suggested_content": approval.content,
        "suggested_lessons_learned": None,
        "suggested_keywords": [],
        "method": approval.method,
    }


def _describe_change(original: Row[Any] | None, version: int) -> str | None:
    if original is None:
        return "was removed"
    if not original.is_active:
        return str(original.gone)
    return None if original.version == version else "was changed"


def _write_memory(
    connection: Connection, author: Author, suggestion: Row[Any], approval: _Approval, *, group_id: UUID, reason: str
) -> UUID:
    """Write the merged memory and hide its originals, which are locked and unchanged; return the memory's id."""
    ids = [id_ for id_, _ in _list_originals(suggestion, approval)]
    raw = store.lock_originals(connection, ids)
    sources = load_sources(connection, raw, scope=approval.scope)
    existing = sort_by_source_count(load_consolidated(connection, ids).values())
    (plan,) = find_retired(connection, [_plan_merge(suggestion, sources, existing, approval)])
    vectors = load_unit_vectors(connection, raw, approval.model, len(approval.vector))
    cosines = {id_: round(float(vector @ approval.vector), 6) for id_, vector in vectors.items()}
    values = build_merged_columns(plan)
    keywords = [] if approval.left_out else suggestion.suggested_keywords
    memory = MergedMemory(
        id=plan.id,
        version=plan.version,
        group_id=group_id,
        values={
            **values,
            "details": {**values["details"], APPROVED: True},
            "tags": list(dict.fromkeys([*values["tags"], *keywords])),
        },
        vector=approval.vector,
        model=approval.model,
        source_ids=[source.id for source in plan.sources],
        lineage=[LineageEdge(source.id, "raw", cosines.get(source.id)) for source in plan.sources],
        absorbed=plan.absorbed,
        reason=reason,
        superseded=[(row.id, row.version) for row in existing[1:]],
    )
    write_merged(connection, author, [memory], now=datetime.now(UTC))
    return memory.id


def _plan_merge(
    suggestion: Row[Any], sources: Mapping[UUID, MergeSource], existing: Sequence[Row[Any]], approval: _Approval
) -> PlannedMerge:
    ordered = [sources[id_] for id_ in sorted(sources)]
    ids = [source.id for source in ordered]
    first = _list_originals(suggestion, approval)[0][0]
    texts = tuple(source.body for source in ordered)
    left_out = find_left_out(texts, approval.content)
    return PlannedMerge(
        id=existing[0].id if existing else consolidated_id(approval.project, "merged", ids, ALGORITHM_VERSION),
        cluster_key=cluster_key(ids, ALGORITHM_VERSION),
        representative_id=next(s.id for s in ordered if first in (s.id, s.consolidated_into_id)),
        sources=ordered,
        absorbed=[s for s in ordered if not existing or s.consolidated_into_id != existing[0].id],
        existing=existing,
        # Sentences that the person left out are kept in the details, like those that do not fit.
        merged=MergedText(approval.content, tuple(dict.fromkeys([*approval.dropped, *left_out]))),
        verbatim_id=None,
        texts=texts,
        method=approval.method,
    )
