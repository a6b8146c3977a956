"""What nobody uses any more, out of sight and reversibly so."""

import dagster as dg

from consolidation_pipeline.defs.checks import project_check
from consolidation_pipeline.defs.columns import table_metadata
from consolidation_pipeline.defs.decay_scores import decay_scores
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.archiving import archive_memories, describe_archived
from consolidation_pipeline.store.invariants import (
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
    metadata=table_metadata("task_memories"),
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


no_decision_is_forgotten = project_check(
    "no_decision_is_forgotten",
    archived_memories,
    find_forgotten_types,
    description="Decisions and discoveries are never forgotten, whatever their relevance and age.",
)

nothing_young_is_forgotten = project_check(
    "nothing_young_is_forgotten",
    archived_memories,
    find_forgotten_young,
    description="No memory is forgotten before it is 90 days old.",
)

nothing_important_is_forgotten = project_check(
    "nothing_important_is_forgotten",
    archived_memories,
    find_forgotten_important,
    description="No memory with an importance of 0.7 or more is forgotten.",
)

nothing_relevant_is_forgotten = project_check(
    "nothing_relevant_is_forgotten",
    archived_memories,
    find_forgotten_relevant,
    description="What was forgotten had a relevance below the threshold in force.",
)

nothing_pinned_is_archived = project_check(
    "nothing_pinned_is_archived",
    archived_memories,
    find_archived_pinned,
    description="No policy archives a pinned memory.",
)

every_archive_has_a_reason = project_check(
    "every_archive_has_a_reason",
    archived_memories,
    find_unexplained_archives,
    description="Every archived memory says why it is, and no other one does.",
)

no_memory_is_abandoned = project_check(
    "no_memory_is_abandoned",
    archived_memories,
    find_abandoned,
    description="Every hidden memory is represented by a merged memory that is active or archived.",
)
