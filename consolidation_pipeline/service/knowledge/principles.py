"""Principles (level 3): what several patterns have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION, cluster_key, cluster_rows
from consolidation_pipeline.core.grouping.cohesion import summarize_groups
from consolidation_pipeline.core.grouping.labels import list_members
from consolidation_pipeline.core.similarity.similarity_join import similarity_join
from consolidation_pipeline.service.knowledge.derive import DeriveResult, derive_abstractions
from consolidation_pipeline.service.knowledge.reconcile import GroupIds
from consolidation_pipeline.service.knowledge.writers.selection import PRINCIPLE, author_of
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.graph_nodes import center_vectors
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import ActivePattern, list_active_patterns, load_unit_vectors
from consolidation_pipeline.store.similarity.similarity_graph import load_dimension

# pipeline.md, principles.
FEWEST_PATTERNS = 3


def derive_principles(run: ProjectRun) -> DeriveResult:
    """A principle of every group of patterns that none covers yet; without a model a person looks at it first.

    Nothing is made while ``summarize`` is off; a run that carries out a plan makes those of the plan.

    Raises:
        ConflictError: a principle changed meanwhile; what was written before stays.
    """
    if not run.options.summarize:
        return DeriveResult()
    return derive_abstractions(run, PRINCIPLE.name, group_patterns(run), author_of(run, PRINCIPLE))


def group_patterns(run: ProjectRun) -> list[GroupIds]:
    """The groups of the active patterns."""
    with run.engine.connect() as connection:
        active = list_active_patterns(connection, run.project.id, "pattern")
        dimension = load_dimension(connection, run.project.id, run.embedder.name)
        ids = [row.id for row in active]
        vectors = load_unit_vectors(connection, ids, run.embedder.name, dimension) if ids else {}
    return group_rows(run, active, vectors)


def group_rows(run: ProjectRun, active: Iterable[ActivePattern], vectors: Mapping[UUID, Vectors]) -> list[GroupIds]:
    """Patterns by average linkage at ``t_principle``, as memories are grouped: centred, within one type.

    ``active``: by id; those without a plain vector (d,) in ``vectors`` are left out.
    """
    patterns = [row for row in active if row.id in vectors]
    if len(patterns) < FEWEST_PATTERNS:
        return []
    x = np.stack([vectors[pattern.id] for pattern in patterns])
    return _group(run, patterns, x if run.calibration is None else center_vectors(x, run.calibration))


def _group(run: ProjectRun, patterns: Sequence[ActivePattern], x: Vectors) -> list[GroupIds]:
    threshold = run.thresholds["t_principle"]
    pairs = similarity_join(x, threshold)
    if not run.options.cross_type:
        types = np.array([pattern.memory_type for pattern in patterns])
        pairs = pairs.select(types[pairs.i] == types[pairs.j])
    labels = cluster_rows(x, pairs, method="average", threshold=threshold, min_size=FEWEST_PATTERNS)
    found = summarize_groups(x, labels, minimum=False)
    groups = []
    for number, rows in enumerate(list_members(labels)):
        # Of equally central ones the smallest id: patterns stand in the order of their ids.
        central = [patterns[row] for row in rows[np.argsort(-found.mean_similarity[rows], kind="stable")]]
        leaves = frozenset(leaf for pattern in central for leaf in pattern.leaves)
        key = cluster_key([patterns[row].id for row in rows], ALGORITHM_VERSION)
        groups.append(GroupIds(key, tuple(pattern.id for pattern in central), leaves, float(found.mean[number])))
    return groups
