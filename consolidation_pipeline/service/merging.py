"""Turn merge groups into merged memories: successor first, sources hidden in the same transaction, all in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import numpy as np

from consolidation_pipeline.core.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.memories import consolidated_id, content_hash, embedding_text, normalized_hash
from consolidation_pipeline.core.merging import Merged, merge_capped
from consolidation_pipeline.service.graph import update_similarity_graph
from consolidation_pipeline.service.runs import ProjectRun
from consolidation_pipeline.store.graph import Member, load_clusters
from consolidation_pipeline.store.knowledge import (
    MergedMemory,
    Source,
    load_merged_versions,
    load_source_vectors,
    load_sources,
    write_merged,
)
from consolidation_pipeline.store.memories import TEXT_COLUMNS
from consolidation_pipeline.store.vectors_io import Vectors

# Groups per transaction: a run that is killed has merged whole groups, and the next one does the rest.
BATCH = 500
# Near-duplicates agree; the rest is what wording may hide (pipeline.md).
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Merging:
    """What merging did: memories absorbed, merged memories made and extended, groups left because they changed."""

    absorbed: int
    created: int
    extended: int
    skipped: int


@dataclass(frozen=True)
class _Plan:
    """One merge before it has a vector. ``sources`` by id; ``absorbed`` are those not in the merged memory yet."""

    id: UUID
    version: int | None
    cluster_key: str
    representative: UUID
    sources: Sequence[Source]
    absorbed: Sequence[Source]
    superseded: Sequence[tuple[UUID, int]]
    merged: Merged


def merge_clusters(run: ProjectRun) -> Merging:
    """Merge every group of the merge tier that is not merged yet, and bring the graph up to date with the result.

    Raises:
        ConflictError: a memory changed while it was being merged; what was merged before stays.
    """
    with run.engine.connect() as connection:
        groups = list(load_clusters(connection, run.project.id, "merge").items()) if run.options.merge else []
    absorbed = created = extended = skipped = 0
    for start in range(0, len(groups), BATCH):
        plans, left = _plan_batch(run, dict(groups[start : start + BATCH]))
        _write(run, plans)
        skipped += left
        absorbed += sum(len(plan.absorbed) for plan in plans)
        created += sum(plan.version is None for plan in plans)
        extended += sum(plan.version is not None for plan in plans)
    if created or extended:
        update_similarity_graph(run, renew=False)
    return Merging(absorbed, created, extended, skipped)


def _plan_batch(run: ProjectRun, groups: Mapping[str, Sequence[Member]]) -> tuple[list[_Plan], int]:
    """Plans for the groups that are not merged yet, and how many groups changed since they were formed."""
    ids = [member.member_id for members in groups.values() for member in members]
    with run.engine.connect() as connection:
        sources = load_sources(connection, ids)
        versions = load_merged_versions(connection, [s.consolidated_into_id for s in sources.values()])
    plans, skipped = [], 0
    for key, members in groups.items():
        chosen = [sources[m.member_id] for m in members if m.member_id in sources]
        if len(chosen) < len(members):
            skipped += 1
        elif any(s.consolidated_into_id is None for s in chosen) or len({s.consolidated_into_id for s in chosen}) > 1:
            plans.append(_plan(run, key, members, chosen, versions))
    return plans, skipped


def _plan(
    run: ProjectRun,
    key: str,
    members: Sequence[Member],
    sources: Sequence[Source],
    versions: Mapping[UUID, tuple[int, int]],
) -> _Plan:
    """``members`` and ``sources`` in the same order, the representative first."""
    existing = sorted({s.consolidated_into_id for s in sources if s.consolidated_into_id in versions})  # type: ignore[type-var]
    kept = max(existing, key=lambda id_: (versions[id_][1], -id_.int)) if existing else None
    new_id = consolidated_id(run.project.slug, "merged", [s.id for s in sources], ALGORITHM_VERSION)
    return _Plan(
        id=kept or new_id,
        version=versions[kept][0] if kept else None,
        cluster_key=key,
        representative=members[0].member_id,
        sources=sorted(sources, key=lambda s: s.id),
        absorbed=[s for s in sources if kept is None or s.consolidated_into_id != kept],
        superseded=[(id_, versions[id_][0]) for id_ in existing if id_ != kept],
        merged=merge_capped([_body(s) for s in sources], max_chars=run.options.merge_max_chars),
    )


def _body(source: Source) -> str:
    return embedding_text(**dict(zip(TEXT_COLUMNS, source.texts, strict=True)))  # type: ignore[arg-type]


def _write(run: ProjectRun, plans: Sequence[_Plan]) -> None:
    if not plans:
        return
    vectors = run.embedder.embed([plan.merged.content for plan in plans])
    with run.engine.begin() as connection:
        parents = load_source_vectors(connection, [s.id for p in plans for s in p.sources], vectors.shape[1])
        write_merged(connection, run.author, list(_rows(run, plans, vectors, parents)), now=run.now)


def _rows(
    run: ProjectRun, plans: Sequence[_Plan], vectors: Vectors, parents: Mapping[UUID, Vectors]
) -> Iterator[MergedMemory]:
    for plan, vector in zip(plans, vectors, strict=True):
        lineage = np.stack([parents[s.id] for s in plan.sources]) @ vector
        yield MergedMemory(
            id=plan.id,
            version=plan.version,
            group_id=uuid4(),
            values=_values(plan),
            vector=vector,
            model=run.embedder.name,
            source_ids=[s.id for s in plan.sources],
            similarities=[round(float(similarity), 6) for similarity in lineage],
            absorbed=plan.absorbed,
            reason=f"near-duplicates: {len(plan.sources)} memories say the same",
            superseded=plan.superseded,
        )


def _values(plan: _Plan) -> dict[str, Any]:
    """Columns of the merged memory, recomputed from all of its sources (pipeline.md, merged_memories)."""
    sources = plan.sources
    first = next(s for s in sources if s.id == plan.representative)
    accessed = [s.last_accessed_at for s in sources if s.last_accessed_at is not None]
    return {
        "kind": "merged",
        "abstraction_level": 1,
        "content": plan.merged.content,
        "memory_type": first.memory_type,
        "confidence_score": CONFIDENCE,
        "details": {"dropped": list(plan.merged.dropped)} if plan.merged.dropped else {},
        "tags": list(dict.fromkeys(tag for s in sources for tag in s.tags)),
        "consolidation_method": "heuristic",
        "reuse_count": sum(s.reused_count for s in sources),
        "last_accessed_at": max(accessed, default=None),
        "importance": max(s.importance for s in sources),
        "success": any(s.success for s in sources) if any(s.success is not None for s in sources) else None,
        "pinned": any(s.pinned for s in sources),
        "learned_at": min(s.learned_at for s in sources),
        "cluster_key": plan.cluster_key,
        "language": first.language,
        "content_hash": content_hash(plan.merged.content),
        "normalized_hash": normalized_hash(plan.merged.content),
        "files": sorted({path for s in sources for path in s.files}),
    }
