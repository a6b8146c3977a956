"""One memory in place of several near-duplicates."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.clusters import clusters
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.knowledge.merged_memories import merge_clusters
from consolidation_pipeline.service.plan.apply import check_plan
from consolidation_pipeline.store.admin.invariants import (
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
    metadata=describe_table("consolidated_memories"),
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


merged_memories_checks = project_checks(
    merged_memories,
    Check(
        "no_literal_is_lost",
        find_lost_literals,
        "Every number, version, path, identifier and quotation of a source stands in its merged memory.",
    ),
    Check(
        "no_memory_is_abandoned",
        find_abandoned,
        "Every hidden memory is represented by a merged memory that exists.",
    ),
    Check(
        "lineage_is_whole",
        find_orphan_lineage,
        "Every lineage edge leads from a row that exists to one that exists.",
    ),
    Check(
        "no_fact_twice",
        find_repeated_facts,
        "No two active merged memories say the same word for word.",
    ),
    Check(
        "every_merge_is_in_the_ledger",
        find_unbalanced_ledger,
        "The ledger holds the newest version of every merged memory, so that it can be undone.",
    ),
)
