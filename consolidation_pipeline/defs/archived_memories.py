"""Asset `archived_memories`: memories that a policy hides from search."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.decay_scores import decay_scores
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.lifecycle.archive import archive_memories, build_archive_metrics
from consolidation_pipeline.store.admin.invariants import (
    find_archived_pinned,
    find_forgotten_important,
    find_forgotten_relevant,
    find_forgotten_types,
    find_forgotten_young,
    find_lost_memories,
    find_unexplained_archives,
)


@dg.asset(
    partitions_def=projects,
    deps=[decay_scores],
    group_name="lifecycle",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("task_memories"),
)
def archived_memories(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Archive memories that went stale or, if forgetting is on, irrelevant. The job `restore` brings them back."""
    run = project_runs.open(context.partition_key)
    with run.phase("archived_memories") as phase:
        result = archive_memories(run)
        phase.metrics = build_archive_metrics(run.project.slug, result)
        phase.counters = {"memories_archived": result.units}
    return dg.MaterializeResult(metadata=phase.metrics)


archived_memories_checks = project_checks(
    archived_memories,
    Check(
        "no_decision_is_forgotten",
        find_forgotten_types,
        "No decision or discovery was forgotten; they are exempt at any relevance and age.",
    ),
    Check(
        "nothing_young_is_forgotten",
        find_forgotten_young,
        "No memory was forgotten before it was 90 days old.",
    ),
    Check(
        "nothing_important_is_forgotten",
        find_forgotten_important,
        "No memory with an importance of 0.7 or more was forgotten.",
    ),
    Check(
        "nothing_relevant_is_forgotten",
        find_forgotten_relevant,
        "Every forgotten memory had a relevance below the configured threshold.",
    ),
    Check(
        "nothing_pinned_is_archived",
        find_archived_pinned,
        "No policy archived a pinned memory.",
    ),
    Check(
        "every_archive_has_a_reason",
        find_unexplained_archives,
        "Every archived memory has an archive reason, and no other memory has one.",
    ),
    Check(
        "no_memory_is_abandoned",
        find_lost_memories,
        "Every memory that was merged away is in a merged memory that is active or archived.",
    ),
)
