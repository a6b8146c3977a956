"""Rows of what was told of many memories at once: summaries, and profiles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.core.knowledge.confidence import UNASKED_CONFIDENCE, heuristic_confidence
from consolidation_pipeline.core.knowledge.inherited_columns import most_frequent
from consolidation_pipeline.core.knowledge.summary_batches import split_chunks
from consolidation_pipeline.core.memories.memories import LEVELS, content_hash, normalized_hash
from consolidation_pipeline.service.knowledge.map_reduce import Passage
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import load_unit_vectors
from consolidation_pipeline.store.knowledge.merged_memories import DerivedMemory, LineageEdge, write_derived
from consolidation_pipeline.store.knowledge.summaries import SummarySource
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

# Vectors in memory at once: a first summary may be of a hundred thousand memories.
_VECTORS = 4096


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """What was told of ``materials``, all of one user. ``version`` None = a new row.

    ``cluster_key`` names the set of materials; ``method``: llm or heuristic.
    """

    kind: str
    id: UUID
    version: int | None
    cluster_key: str
    materials: Sequence[SummarySource]
    told: Passage
    details: Mapping[str, Any]
    method: str
    reason: str


def write_summary_rows(run: ProjectRun, digests: Sequence[SummaryRow]) -> None:
    """Write them in one transaction, embedded and with their lineage, each a group of its own in the ledger.

    Raises:
        ConflictError: a row changed meanwhile, or a memory is in another summary by now.
    """
    if not digests:
        return
    vectors = run.embedder.embed([digest.told.text for digest in digests])
    rows = [_row(run, digest, vector) for digest, vector in zip(digests, vectors, strict=True)]
    with run.writing() as connection:
        write_derived(connection, run.author, rows, operation="summarize", now=run.now)


def _row(run: ProjectRun, digest: SummaryRow, vector: Vectors) -> DerivedMemory:
    cosines = _cosines(run, digest.materials, vector)
    return DerivedMemory(
        id=digest.id,
        version=digest.version,
        group_id=uuid4(),
        values=_values(digest, _confidence(digest, cosines)),
        vector=vector,
        model=run.embedder.name,
        # By their numbers: to compare a hundred thousand ids as objects takes three times as long.
        source_ids=sorted({leaf for material in digest.materials for leaf in material.leaves}, key=attrgetter("int")),
        lineage=[LineageEdge(material.id, material.kind, cosines.get(material.id)) for material in digest.materials],
        reason=digest.reason,
    )


def _cosines(run: ProjectRun, materials: Sequence[SummarySource], vector: Vectors) -> dict[UUID, float]:
    """Cosine of the text with each of its materials, by id; those embedded in another model are left out."""
    found: dict[UUID, float] = {}
    model = run.embedder.name
    with run.engine.connect() as connection:
        dimension = load_dimension(connection, run.project.id, model)
        for part in split_chunks([material.id for material in materials], size=_VECTORS):
            vectors = load_unit_vectors(connection, part, model, dimension)
            found |= {id_: round(float(parent @ vector), 6) for id_, parent in vectors.items()}
    return found


def _confidence(digest: SummaryRow, cosines: Mapping[UUID, float]) -> float:
    """A model is not asked how sure it is of a summary; without one it is as sure as it resembles what it covers."""
    if digest.method == "llm":
        return UNASKED_CONFIDENCE
    # Summed exactly: the order in which the database gives them must not show.
    mean = math.fsum(cosines.values()) / len(cosines) if cosines else None
    return round(heuristic_confidence(mean), 6)


def _values(digest: SummaryRow, confidence: float) -> dict[str, Any]:
    """Columns of the row, recomputed from all of its materials; accesses are its own."""
    of = digest.materials
    known = [material.success for material in of if material.success is not None]
    text = digest.told.text
    return {
        "kind": digest.kind,
        "abstraction_level": LEVELS[digest.kind],
        "content": text,
        "memory_type": most_frequent(material.memory_type for material in of),
        "confidence_score": confidence,
        "details": dict(digest.details),
        "tags": sorted({tag for material in of for tag in material.tags}),
        "consolidation_method": digest.method,
        "importance": max(material.importance for material in of),
        "success": any(known) if known else None,
        "learned_at": min(material.learned_at for material in of),
        "cluster_key": digest.cluster_key,
        "user_id": of[0].user_id,
        "language": digest.told.language,
        "content_hash": content_hash(text),
        "normalized_hash": normalized_hash(text),
        "files": sorted({path for material in of for path in material.files}),
    }
