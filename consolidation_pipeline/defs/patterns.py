"""Asset `patterns`: what several memories have in common."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_derived, describe_table
from consolidation_pipeline.defs.merged_memories import merged_memories
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.knowledge.patterns import derive_patterns
from consolidation_pipeline.store.admin.invariants import find_duplicate_patterns, find_foreign_evidence


@dg.asset(
    partitions_def=projects,
    deps=[merged_memories],
    group_name="knowledge",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("consolidated_memories"),
)
def patterns(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Level 2: derive what three or more distinct memories have in common, from their sentences or by an LLM."""
    run = project_runs.open(context.partition_key)
    with run.phase("patterns") as phase:
        result = derive_patterns(run)
        phase.metrics = describe_derived("patterns", result)
    return dg.MaterializeResult(metadata=phase.metrics)


patterns_checks = project_checks(
    patterns,
    Check(
        "evidence_points_to_units",
        find_foreign_evidence,
        "Every quotation of a pattern or principle is from one of its sources.",
    ),
    Check(
        "one_pattern_per_group",
        find_duplicate_patterns,
        "No two active patterns, and no two active principles, belong to the same group.",
    ),
)
