"""Asset `archived_memories`: memories that a policy hides from search."""

from consolidation_pipeline.defs.asset_checks import check_memory_tests, project_checks
from consolidation_pipeline.defs.decay_scores import decay_scores
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.service.lifecycle.archive import archive_memories, build_archive_metrics
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.archives import (
    EVERY_ARCHIVE_HAS_A_REASON,
    NO_DECISION_IS_FORGOTTEN,
    NOTHING_IMPORTANT_IS_FORGOTTEN,
    NOTHING_PINNED_IS_ARCHIVED,
    NOTHING_RELEVANT_IS_FORGOTTEN,
    NOTHING_YOUNG_IS_FORGOTTEN,
)
from consolidation_pipeline.store.checks.merged_memories import NO_MEMORY_IS_ABANDONED


@phase_asset("lifecycle", table="task_memories", deps=[decay_scores])
def archived_memories(run: ProjectRun, phase: PhaseResult) -> None:
    """Archive memories that went stale or, if forgetting is on, irrelevant. The job `restore` brings them back."""
    result = archive_memories(run)
    phase.metrics = build_archive_metrics(run.project.slug, result)
    phase.counters = result.counters


archived_memories_checks = project_checks(
    archived_memories,
    check_memory_tests(),
    NO_DECISION_IS_FORGOTTEN,
    NOTHING_YOUNG_IS_FORGOTTEN,
    NOTHING_IMPORTANT_IS_FORGOTTEN,
    NOTHING_RELEVANT_IS_FORGOTTEN,
    NOTHING_PINNED_IS_ARCHIVED,
    EVERY_ARCHIVE_HAS_A_REASON,
    NO_MEMORY_IS_ABANDONED,
)
