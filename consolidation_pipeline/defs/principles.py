"""Asset `principles`: what several patterns have in common."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_derived, describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.patterns import patterns
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.knowledge.principles import derive_principles
from consolidation_pipeline.store.admin.invariants import find_orphan_lineage


@dg.asset(
    partitions_def=projects,
    deps=[patterns],
    group_name="knowledge",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("consolidated_memories"),
)
def principles(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Level 3: derive what three or more patterns have in common. Without an LLM, results wait for a person."""
    run = project_runs.open(context.partition_key)
    with run.phase("principles") as phase:
        result = derive_principles(run)
        phase.metrics = describe_derived("principles", result)
    return dg.MaterializeResult(metadata=phase.metrics)


principles_checks = project_checks(
    principles,
    Check(
        "lineage_is_whole",
        find_orphan_lineage,
        "Both rows of every lineage edge exist.",
    ),
)
