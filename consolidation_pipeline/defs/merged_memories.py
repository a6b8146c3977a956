"""One memory in place of several near-duplicates."""

import dagster as dg

from consolidation_pipeline.defs.checks import project_check
from consolidation_pipeline.defs.clusters import clusters
from consolidation_pipeline.defs.columns import table_metadata
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.merging import merge_clusters
from consolidation_pipeline.service.plan import check_plan
from consolidation_pipeline.store.invariants import (
    find_abandoned,
    find_lost_literals,
    find_orphan_lineage,
    find_repeated_facts,
    find_unbalanced_ledger,
)


@dg.asset(
    partitions_def=projects,
    deps=[clusters],
    group_name="knowledge",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=table_metadata("consolidated_memories"),
)
def merged_memories(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Level 1: one lossless memory in place of each group of near-duplicates; the sources are hidden, never deleted."""
    run = project_runs.open(context.partition_key)
    with run.phase("merged_memories") as phase:
        check_plan(run)
        done = merge_clusters(run)
        phase.metrics = {
            "memories_merged": done.absorbed,
            "merged_created": done.created,
            "merged_extended": done.extended,
            "groups_skipped": done.skipped,
            "merged_rewritten": done.rewritten,
            "rewrites_refused": done.refused,
            "rewrites_failed": done.failed,
            **({"stopped": done.stopped} if done.stopped else {}),
        }
        phase.counters = {"memories_merged": done.absorbed, "clusters_merged": done.created + done.extended}
    return dg.MaterializeResult(metadata=phase.metrics)


no_literal_is_lost = project_check(
    "no_literal_is_lost",
    merged_memories,
    find_lost_literals,
    description="Every number, version, path, identifier and quotation of a source stands in its merged memory.",
)

no_memory_is_abandoned = project_check(
    "no_memory_is_abandoned",
    merged_memories,
    find_abandoned,
    description="Every hidden memory is represented by a merged memory that exists.",
)

lineage_is_whole = project_check(
    "lineage_is_whole",
    merged_memories,
    find_orphan_lineage,
    description="Every lineage edge leads from a row that exists to one that exists.",
)

no_fact_twice = project_check(
    "no_fact_twice",
    merged_memories,
    find_repeated_facts,
    description="No two active merged memories say the same word for word.",
)

every_merge_is_in_the_ledger = project_check(
    "every_merge_is_in_the_ledger",
    merged_memories,
    find_unbalanced_ledger,
    description="The ledger holds the newest version of every merged memory, so that it can be undone.",
)
