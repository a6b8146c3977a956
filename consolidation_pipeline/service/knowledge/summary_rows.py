"""Rows of summaries and profiles: their columns, vectors and lineage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.knowledge.confidence import UNRATED_LLM_CONFIDENCE, heuristic_confidence
from consolidation_pipeline.core.knowledge.inherited_columns import inherit_columns, most_frequent
from consolidation_pipeline.core.memories.memories import LEVELS, content_hash, normalized_hash
from consolidation_pipeline.service.knowledge.map_reduce import Passage
from consolidation_pipeline.service.memory_tests.gate import write_checked
from consolidation_pipeline.service.runs.code_version import describe_code
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import load_unit_vectors
from consolidation_pipeline.store.knowledge.compared_sentences import replace_compared_sentences
from consolidation_pipeline.store.knowledge.merged_memories import (
    DerivedMemory,
    LineageEdge,
    load_consolidated,
    write_derived,
)
from consolidation_pipeline.store.knowledge.summaries import SummarySource
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

# Vectors in memory at once: a first summary may have a hundred thousand sources.
_VECTOR_BATCH = 4096


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """A summary or profile to write.

    ``version``: stored version that is updated, None for a new row. ``cluster_key``: identifies the set of sources.
    ``sources``: at least one, all of one user and scope. ``method``: llm or heuristic. ``is_rewritten``: it replaces a
    text that was made as the model failed. ``compared``: as of ``TopicSummary``.
    """

    kind: str
    id: UUID
    version: int | None
    cluster_key: str
    sources: Sequence[SummarySource]
    passage: Passage
    details: Mapping[str, Any]
    method: str
    reason: str
    is_rewritten: bool = False
    compared: bytes = b""


def write_summary_rows(run: ProjectRun, rows: Sequence[SummaryRow]) -> None:
    """Embed the rows and write them with their lineage in one transaction; each is a group of its own in the ledger.

    Raises:
        ConflictError: a row changed meanwhile, or a memory is in another summary by now.
    """
    if not rows:
        return
    with run.reading() as connection:
        known = load_consolidated(connection, [row.id for row in rows])
    # A summary that was dissolved, as it was of several scopes, is written again when the scopes are wider.
    rows = [replace(row, version=known[row.id].version) if row.id in known else row for row in rows]
    stored = {id_: row.source_memory_ids for id_, row in known.items() if row.kind == "summary"}
    vectors = run.embedder.embed([row.passage.text for row in rows])
    cosines = _compute_cosines(run, rows, vectors)
    derived = [
        _derive_memory(run, row, vector, found, stored.get(row.id, ()))
        for row, vector, found in zip(rows, vectors, cosines, strict=True)
    ]
    compared = {row.id: row.compared for row in rows if row.compared}

    def write(connection: Connection, whole: Sequence[Sequence[DerivedMemory]]) -> None:
        write_derived(connection, run.author, whole[0], operation="summarize", now=run.now)
        replace_compared_sentences(connection, run.project.id, describe_code()["digest"], compared)

    # A summary may rest on others of the batch.
    write_checked(run, "semantic_summaries", [derived], write, lambda whole: [row.id for row in whole])


def _derive_memory(
    run: ProjectRun, row: SummaryRow, vector: Vectors, cosines: Mapping[UUID, float], stored_ids: Sequence[UUID]
) -> DerivedMemory:
    """Return the memory to write.

    ``cosines``: of its sources. ``stored_ids``: the raw memories of the summary that it replaces the text of.
    """
    # Sorted as numbers: comparing a hundred thousand UUID objects takes three times as long.
    source_ids = sorted({raw_id for source in row.sources for raw_id in source.raw_ids}, key=attrgetter("int"))
    return DerivedMemory(
        id=row.id,
        version=row.version,
        group_id=uuid4(),
        values=_build_columns(row, _compute_confidence(row, cosines)),
        vector=vector,
        model=run.embedder.name,
        source_ids=source_ids,
        lineage=[LineageEdge(source.id, source.kind, cosines.get(source.id)) for source in row.sources],
        reason=row.reason,
        keeps_sources=source_ids == [*stored_ids],
    )


def _compute_cosines(run: ProjectRun, rows: Sequence[SummaryRow], vectors: Vectors) -> list[dict[UUID, float]]:
    """Return the cosines of each text with its sources, by id; sources embedded by another model are left out."""
    cosines: list[dict[UUID, float]] = [{} for _ in rows]
    sources = [(at, source.id) for at, row in enumerate(rows) for source in row.sources]
    model = run.embedder.name
    with run.reading() as connection:
        dimension = load_dimension(connection, run.project.id, model)
        for part in split_chunks(sources, size=_VECTOR_BATCH):
            loaded = load_unit_vectors(connection, [id_ for _, id_ in part], model, dimension)
            for at, id_ in part:
                if id_ in loaded:
                    cosines[at][id_] = round(float(loaded[id_] @ vectors[at]), 6)
    return cosines


def _compute_confidence(row: SummaryRow, cosines: Mapping[UUID, float]) -> float:
    """Return a constant for a model's text; for an extracted text, a value from its mean cosine with the sources."""
    if row.method == "llm":
        return UNRATED_LLM_CONFIDENCE
    # fsum: the same result in whatever order the database returns the vectors.
    mean = math.fsum(cosines.values()) / len(cosines) if cosines else None
    return round(heuristic_confidence(mean), 6)


def _build_columns(row: SummaryRow, confidence: float) -> dict[str, Any]:
    """Return the columns of the row. ``last_accessed_at`` is left alone, as the row has accesses of its own."""
    text = row.passage.text
    return {
        "kind": row.kind,
        "abstraction_level": LEVELS[row.kind],
        "content": text,
        "memory_type": most_frequent(source.memory_type for source in row.sources),
        "confidence_score": confidence,
        "details": dict(row.details),
        "consolidation_method": row.method,
        **inherit_columns(row.sources),
        "cluster_key": row.cluster_key,
        "user_id": row.sources[0].user_id,
        "scope_key": row.sources[0].scope_key,
        "language": row.passage.language,
        "content_hash": content_hash(text),
        "normalized_hash": normalized_hash(text),
        "retired_at": None,
        "archive_reason": None,
    }
