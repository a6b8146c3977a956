"""Patterns (level 2): derived from groups of three or more texts on one topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from consolidation_pipeline.core.knowledge.extractive_patterns import extract_patterns
from consolidation_pipeline.core.knowledge.quality_gates import judge_pattern
from consolidation_pipeline.llm.prompts.pattern import PatternReply, pattern_prompt
from consolidation_pipeline.service.knowledge.derive import DeriveResult, derive_abstractions
from consolidation_pipeline.service.knowledge.reconcile import GroupIds
from consolidation_pipeline.service.knowledge.supersessions import load_current_replacements
from consolidation_pipeline.service.knowledge.text_writers import AbstractionKind
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.store.knowledge.abstractions import load_raw_ids
from consolidation_pipeline.store.similarity.clusters import ClusterMember, load_clusters

PATTERN = AbstractionKind(
    "pattern", "memories", pattern_prompt, PatternReply, judge_pattern, extract_patterns, needs_review=False
)


def derive_patterns(run: ProjectRun) -> DeriveResult:
    """Write or update the patterns of the project's pattern groups; see ``derive_abstractions``.

    Nothing is written while ``summarize`` is off. A run that applies a plan writes only the patterns of the plan.
    """
    if not run.options.summarize:
        return DeriveResult()
    replacements = load_current_replacements(run)
    with run.reading() as connection:
        clusters = load_clusters(connection, run.project.id, "pattern")
        raw_ids = load_raw_ids(connection, [m.member_id for members in clusters.values() for m in members])
    groups = list_pattern_groups(clusters, raw_ids)
    result = derive_abstractions(run, PATTERN, groups, replacements=replacements, texts={})
    return replace(result, changed=result.changed + len(clusters) - len(groups))


def list_pattern_groups(
    clusters: Mapping[str, Sequence[ClusterMember]], raw_ids: Mapping[UUID, Collection[UUID]]
) -> list[GroupIds]:
    """Return the pattern groups whose units are all active.

    Args:
        clusters: members of each group by cluster key.
        raw_ids: the raw memories behind each active unit, by unit id.
    """
    groups = []
    for key, members in clusters.items():
        if all(member.member_id in raw_ids for member in members):
            # The representative first, then by similarity to it; ties by id.
            ordered = sorted(members, key=lambda m: (not m.is_representative, -(m.similarity or 0.0), m.member_id))
            unit_ids = tuple(member.member_id for member in ordered)
            cohesion = next((m.details.get("cohesion_mean") for m in members if m.is_representative), None)
            groups.append(GroupIds(key, unit_ids, frozenset().union(*(raw_ids[id_] for id_ in unit_ids)), cohesion))
    return groups
