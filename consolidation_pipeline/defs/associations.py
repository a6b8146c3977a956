"""What memories have to do with each other."""

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
    """Typed, scored relations between memories, found by four rules; a person confirms where these are no proof."""
    run = project_runs.open(context.partition_key)
    with run.phase("associations") as phase:
        done = associate_memories(run)
        phase.metrics = {
            "memories_in": done.memories,
            "relations_found": sum(done.found.values()),
            **done.found,
            "relations_added": done.added,
            "embeddings_failed": done.missing,
            **({"skipped": done.skipped} if done.skipped else {}),
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
        "No contradiction and no parallel context counts without a person's word.",
    ),
)
