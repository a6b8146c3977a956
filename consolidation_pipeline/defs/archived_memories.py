"""What nobody uses any more, out of sight and reversibly so."""

import dagster as dg

from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_table
from consolidation_pipeline.defs.decay_scores import decay_scores
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.lifecycle.archive import archive_memories, describe_archived
from consolidation_pipeline.store.admin.invariants import (
    find_abandoned,
    find_archived_pinned,
    find_forgotten_important,
    find_forgotten_relevant,
    find_forgotten_types,
    find_forgotten_young,
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
    """Memories that went stale or, where forgetting is on, irrelevant: out of sight, and back with `restore`."""
    run = project_runs.open(context.partition_key)
    with run.phase("archived_memories") as phase:
        done = archive_memories(run)
        phase.metrics = describe_archived(run.project.slug, done)
        phase.counters = {"memories_archived": done.units}
    return dg.MaterializeResult(metadata=phase.metrics)


archived_memories_checks = project_checks(
    archived_memories,
    Check(
        "no_decision_is_forgotten",
        find_forgotten_types,
        "Decisions and discoveries are never forgotten, whatever their relevance and age.",
    ),
    Check(
        "nothing_young_is_forgotten",
        find_forgotten_young,
        "No memory is forgotten before it is 90 days old.",
    ),
    Check(
        "nothing_important_is_forgotten",
        find_forgotten_important,
        "No memory with an importance of 0.7 or more is forgotten.",
    ),
    Check(
        "nothing_relevant_is_forgotten",
        find_forgotten_relevant,
        "What was forgotten had a relevance below the threshold in force.",
    ),
    Check(
        "nothing_pinned_is_archived",
        find_archived_pinned,
        "No policy archives a pinned memory.",
    ),
    Check(
        "every_archive_has_a_reason",
        find_unexplained_archives,
        "Every archived memory says why it is, and no other one does.",
    ),
    Check(
        "no_memory_is_abandoned",
        find_abandoned,
        "Every hidden memory is represented by a merged memory that is active or archived.",
    ),
)
