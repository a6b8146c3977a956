"""Asset `clusters`: groups of similar memories."""

from typing import Any

import dagster as dg

from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.asset_metadata import build_table
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.similarity_graph import similarity_graph
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.service.similarity.clusters import ClusterSummary, form_clusters
from consolidation_pipeline.service.similarity.recall_gate import count_falls
from consolidation_pipeline.store.checks.groups import MERGE_GROUPS_DO_NOT_CHAIN, ONE_MERGE_GROUP_PER_MEMORY

# Refused groups that are listed.
_EXAMPLES = 20


@phase_asset("similarity", table="memory_clusters", deps=[similarity_graph])
def clusters(run: ProjectRun, phase: PhaseResult) -> dict[str, Any]:
    """Group memories in three tiers: near-duplicates to merge, cases for a person, memories on one topic."""
    result = form_clusters(run)
    phase.metrics = _describe(result)
    return {"sizes": _sizes_table(result), **_refused_table(result)}


def _describe(result: ClusterSummary) -> dict[str, Any]:
    counts = {f"{tier}_groups": number for tier, number in result.groups.items()}
    members = {f"{tier}_members": number for tier, number in result.members.items()}
    cohesion = {"cohesion_mean": result.cohesion_mean, "cohesion_min": result.cohesion_min}
    known = {name: value for name, value in cohesion.items() if value is not None}
    refused = {"merges_refused_by_recall": len(result.refused), "recall_falls": count_falls(result.refused)}
    return {"contents": result.contents, **counts, **members, "pairs_asked": result.pairs_asked, **refused, **known}


def _refused_table(result: ClusterSummary) -> dict[str, dg.TableMetadataValue]:
    """Return the figures of the groups that the recall gate refused, without texts, which would outlive an erase."""
    columns = {"query": "string", "memories": "int", "before": "int", "after": "int", "above": "string"}
    rows = (
        (str(one.query or "of a reader"), len(one.memories), one.before, one.after, str(one.above))
        for one in result.refused[:_EXAMPLES]
    )
    return {"merges_refused": build_table(columns, rows)} if result.refused else {}


def _sizes_table(result: ClusterSummary) -> dg.TableMetadataValue:
    rows = ((tier, size, count) for tier, sizes in result.sizes.items() for size, count in sizes.items())
    return build_table({"tier": "string", "members": "int", "groups": "int"}, rows)


clusters_checks = project_checks(
    clusters,
    MERGE_GROUPS_DO_NOT_CHAIN,
    ONE_MERGE_GROUP_PER_MEMORY,
)
