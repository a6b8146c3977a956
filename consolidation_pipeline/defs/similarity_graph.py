"""Asset `similarity_graph`: all pairs of similar memories of a project."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.defs.threshold_calibration import threshold_calibration
from consolidation_pipeline.service.similarity.similarity_graph import update_similarity_graph
from consolidation_pipeline.store.admin.invariants import find_bad_pairs


@dg.asset(
    partitions_def=projects,
    deps=[threshold_calibration],
    group_name="similarity",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="2",
    metadata=describe_table("memory_neighbors"),
)
def similarity_graph(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Find all pairs of memories at or above the pattern threshold, exactly. Only new memories are compared."""
    run = project_runs.open(context.partition_key)
    with run.phase("similarity_graph") as phase:
        update = update_similarity_graph(run)
        phase.metrics = {
            "memories_in": update.nodes,
            "memories_compared": update.compared,
            "pairs_added": update.pairs_added,
            "rebuilt": update.rebuilt,
            "calibration_version": update.calibration,
        }
    return dg.MaterializeResult(metadata={**phase.metrics, **run.thresholds})


similarity_graph_checks = project_checks(
    similarity_graph,
    Check(
        "pairs_are_cosines",
        find_bad_pairs,
        "Both memories of every pair exist, and their similarity is between -1 and 1.",
    ),
)
