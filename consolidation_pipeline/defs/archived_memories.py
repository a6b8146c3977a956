"""Asset `archived_memories`: memories that a policy hides from search."""

from consolidation_pipeline.defs.asset_checks import Check, check_memory_tests, project_checks
from consolidation_pipeline.defs.decay_scores import decay_scores
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.service.lifecycle.archive import archive_memories, build_archive_metrics
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.admin.invariants import (
    find_archived_pinned,
    find_forgotten_important,
    find_forgotten_relevant,
    find_forgotten_types,
    find_forgotten_young,
    find_lost_memories,
    find_unexplained_archives,
)


@phase_asset("lifecycle", table="task_memories", deps=[decay_scores])
def archived_memories(run: ProjectRun, phase: PhaseResult) -> None:
    """Archive memories that went stale or, if forgetting is on, irrelevant. The job `restore` brings them back."""
    result = archive_memories(run)
    phase.metrics = build_archive_metrics(run.project.slug, result)
    phase.counters = result.counters


archived_memories_checks = project_checks(
    archived_memories,
    check_memory_tests(),
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
