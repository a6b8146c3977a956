"""Principles (level 3): derived from groups of three or more patterns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION, cluster_key, cluster_rows
from consolidation_pipeline.core.grouping.cohesion import summarize_groups
from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.knowledge.extractive_patterns import extract_principles
from consolidation_pipeline.core.knowledge.pattern_layout import read_statements
from consolidation_pipeline.core.knowledge.quality_gates import judge_principle
from consolidation_pipeline.core.similarity.scoped_join import scoped_similarity_join
from consolidation_pipeline.llm.prompts.principle import PrincipleReply, principle_prompt
from consolidation_pipeline.service.knowledge.derive import DeriveResult, derive_abstractions
from consolidation_pipeline.service.knowledge.reconcile import GroupIds
from consolidation_pipeline.service.knowledge.text_writers import AbstractionKind
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import center_vectors
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import ActivePattern, list_active_patterns, load_unit_vectors
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

PRINCIPLE = AbstractionKind(
    "principle", "patterns", principle_prompt, PrincipleReply, judge_principle, extract_principles, needs_review=True
)
# Lowest number of patterns in the group of a principle.
MIN_PATTERNS = 3


def derive_principles(run: ProjectRun) -> DeriveResult:
    """Write or update the principles of groups of patterns; see ``derive_abstractions``.

    Extracted principles wait for a person. Nothing is written while ``summarize`` is off. A run that applies a plan
    writes only the principles of the plan.
    """
    if not run.options.summarize:
        return DeriveResult()
    with run.reading() as connection:
        patterns = list_active_patterns(connection, run.project.id, scope=run.options.scope)
        dimension = load_dimension(connection, run.project.id, run.embedder.name)
        ids = [pattern.id for pattern in patterns]
        vectors = load_unit_vectors(connection, ids, run.embedder.name, dimension) if ids else {}
    groups, texts = group_patterns(run, patterns, vectors), read_patterns(patterns)
    return derive_abstractions(run, PRINCIPLE, groups, replacements={}, texts=texts)


def read_patterns(patterns: Iterable[ActivePattern]) -> dict[UUID, str]:
    """Return what a principle may quote of each pattern, by id."""
    return {pattern.id: read_statements(pattern.content, pattern.title) for pattern in patterns}


def group_patterns(
    run: ProjectRun, patterns: Iterable[ActivePattern], vectors: Mapping[UUID, Vectors]
) -> list[GroupIds]:
    """Group patterns by average linkage at ``t_principle``, on centred vectors.

    A group has one scope, and one memory type unless ``cross_type`` is on.

    Args:
        patterns: sorted by id.
        vectors: plain vector float32 (d,) by pattern id. A pattern without one is left out.
    """
    found = [pattern for pattern in patterns if pattern.id in vectors]
    if len(found) < MIN_PATTERNS:
        return []
    plain = np.stack([vectors[pattern.id] for pattern in found])
    x = plain if run.calibration is None else center_vectors(plain, run.calibration)
    threshold = run.thresholds["t_principle"]
    scopes = np.unique([pattern.scope_key or "" for pattern in found], return_inverse=True)[1].reshape(-1)
    pairs = scoped_similarity_join(x, threshold, scopes)
    if not run.options.cross_type:
        types = np.array([pattern.memory_type for pattern in found])
        pairs = pairs.select(types[pairs.i] == types[pairs.j])
    labels = cluster_rows(x, pairs, method="average", threshold=threshold, min_size=MIN_PATTERNS)
    cohesion = summarize_groups(x, labels, minimum=False)
    groups = []
    for number, rows in enumerate(list_members(labels)):
        # Most central first; ties by id, as the patterns are sorted by id and the sort is stable.
        central = [found[row] for row in rows[np.argsort(-cohesion.mean_similarity[rows], kind="stable")]]
        raw_ids = frozenset(raw_id for pattern in central for raw_id in pattern.raw_ids)
        key = cluster_key([found[row].id for row in rows], ALGORITHM_VERSION)
        unit_ids = tuple(pattern.id for pattern in central)
        groups.append(GroupIds(key, unit_ids, raw_ids, float(cohesion.mean[number])))
    return groups
