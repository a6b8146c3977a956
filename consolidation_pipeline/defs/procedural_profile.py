"""Asset `procedural_profile`: how a project, or one of its users, works."""

from typing import Any

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import AFTER_SUGGESTIONS, describe_failures, describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.defs.semantic_summaries import semantic_summaries
from consolidation_pipeline.service.knowledge.profiles import ProfileResult, update_profiles
from consolidation_pipeline.store.admin.invariants import find_invalid_profiles


@dg.asset(
    partitions_def=projects,
    deps=[semantic_summaries],
    group_name="knowledge",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("consolidated_memories"),
    op_tags=AFTER_SUGGESTIONS,
)
def procedural_profile(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Level 3: derive working habits from all summaries. One profile per user; a new one replaces the old one."""
    run = project_runs.open(context.partition_key)
    with run.phase("procedural_profile") as phase:
        result = update_profiles(run)
        phase.metrics = _describe(result)
    return dg.MaterializeResult(metadata=phase.metrics)


def _describe(result: ProfileResult) -> dict[str, Any]:
    return {
        "summaries_in": result.summaries,
        "profiles_created": result.created,
        "profiles_updated": result.updated,
        "profiles_unchanged": result.unchanged,
        "profiles_failed": len(result.failures),
        **describe_failures(result.failures, result.stopped),
    }


procedural_profile_checks = project_checks(
    procedural_profile,
    Check(
        "profiles_rest_on_summaries",
        find_invalid_profiles,
        "Each user has at most one active profile, made from existing summaries of that user.",
    ),
)
