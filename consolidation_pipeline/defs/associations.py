"""Asset `associations`: typed relations between memories."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.defs.similarity_graph import similarity_graph
from consolidation_pipeline.service.lifecycle.associations import associate_memories
from consolidation_pipeline.store.admin.invariants import find_dangling_relations, find_unreviewed_relations


@dg.asset(
    partitions_def=projects,
    deps=[similarity_graph],
    group_name="lifecycle",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("memory_relations"),
)
def associations(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Find typed, scored relations between memories by four rules. A person confirms uncertain ones."""
    run = project_runs.open(context.partition_key)
    with run.phase("associations") as phase:
        result = associate_memories(run)
        phase.metrics = {
            "memories_in": result.memories,
            "relations_found": sum(result.found.values()),
            **result.found,
            "relations_added": result.added,
            "embeddings_failed": result.missing,
            **({"skipped": result.skipped} if result.skipped else {}),
        }
    return dg.MaterializeResult(metadata=phase.metrics)


associations_checks = project_checks(
    associations,
    Check(
        "relations_have_two_ends",
        find_dangling_relations,
        "Every relation links two different memories of its project.",
        blocking=False,
    ),
    Check(
        "candidates_do_not_count",
        find_unreviewed_relations,
        "No contradiction or parallel context counts before a person has confirmed it.",
    ),
)
