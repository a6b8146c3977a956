"""Patterns (level 2): what three or more distinct units have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from consolidation_pipeline.service.knowledge.derive import DeriveResult, derive_abstractions
from consolidation_pipeline.service.knowledge.reconcile import GroupIds
from consolidation_pipeline.service.knowledge.writers.selection import PATTERN, author_of
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.knowledge.abstractions import load_raw_ids
from consolidation_pipeline.store.similarity.clusters import ClusterMember, load_clusters


def derive_patterns(run: ProjectRun) -> DeriveResult:
    """A pattern of every pattern group that none covers yet; a grown group updates its pattern.

    Nothing is made while ``summarize`` is off; a run that carries out a plan makes those of the plan.

    Raises:
        ConflictError: a pattern changed meanwhile; what was written before stays.
    """
    if not run.options.summarize:
        return DeriveResult()
    with run.engine.connect() as connection:
        clusters = load_clusters(connection, run.project.id, "pattern")
        leaves = load_raw_ids(connection, [m.member_id for members in clusters.values() for m in members])
    outlines = outline_groups(clusters, leaves)
    formed = derive_abstractions(run, PATTERN.name, outlines, author_of(run, PATTERN))
    return replace(formed, changed=formed.changed + len(clusters) - len(outlines))


def outline_groups(
    clusters: Mapping[str, Sequence[ClusterMember]], leaves: Mapping[UUID, Collection[UUID]]
) -> list[GroupIds]:
    """The pattern groups, those left out of which a unit is not active any more.

    ``clusters``: members by cluster key; ``leaves``: the raw memories behind each active unit.
    """
    return [
        GroupIds(
            key,
            tuple(m.member_id for m in _nearest_first(members)),
            frozenset(leaf for m in members for leaf in leaves[m.member_id]),
            _cohesion(members),
        )
        for key, members in clusters.items()
        if all(m.member_id in leaves for m in members)
    ]


def _nearest_first(members: Sequence[ClusterMember]) -> list[ClusterMember]:
    return sorted(members, key=lambda m: (not m.is_representative, -(m.similarity or 0.0), m.member_id))


def _cohesion(members: Sequence[ClusterMember]) -> float | None:
    return next((m.details.get("cohesion_mean") for m in members if m.is_representative), None)
