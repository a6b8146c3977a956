"""An approved suggestion becomes a merged memory: as merging makes one, in the words that a person approved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION, cluster_key
from consolidation_pipeline.core.knowledge.merge_proposals import find_left_out
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.core.text.text_merge import Merged
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.service.knowledge.merged_memories import (
    PlannedMerge,
    build_merged_columns,
    sort_by_source_count,
)
from consolidation_pipeline.service.review.suggestion_views import Suggestion, join_parts
from consolidation_pipeline.service.runs.effective_options import effective_options
from consolidation_pipeline.service.runs.model_access import open_embedder
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import Connection, Engine, Row
from consolidation_pipeline.store.database.vector_copy import Vectors
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
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.projects import get_project
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
