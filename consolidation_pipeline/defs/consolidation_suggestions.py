"""Asset `consolidation_suggestions`: proposed merges that a person decides on."""

from consolidation_pipeline.defs.asset_checks import check_model, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_failures
from consolidation_pipeline.defs.clusters import clusters
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.service.review.suggestion_proposals import propose_merges
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.knowledge import (
    EVERY_APPROVAL_MADE_A_MEMORY,
    ONE_PENDING_SUGGESTION_PER_MEMORY,
)


@phase_asset("knowledge", table="consolidation_suggestions", deps=[clusters])
def consolidation_suggestions(run: ProjectRun, phase: PhaseResult) -> None:
    """Propose merges to a person: the groups that must not be merged automatically and are worth most to decide."""
    result = propose_merges(run)
    phase.metrics = {
        "groups_in": result.groups,
        "groups_by_words": result.by_terms,
        "suggestions_created": result.created,
        "suggestions_superseded": result.superseded,
        "suggestions_outranked": result.outranked,
        "suggestions_waiting": result.waiting,
        "groups_asked_before": result.proposed_before,
        "groups_skipped": result.skipped,
        "groups_beyond_limit": result.beyond_limit,
        "groups_left_by_plan": result.left_by_plan,
        "texts_by_model": result.rewritten,
        "texts_refused": result.refused,
        "texts_failed": len(result.failures),
        **describe_failures(result.failures, result.stopped),
    }


consolidation_suggestions_checks = project_checks(
    consolidation_suggestions,
    ONE_PENDING_SUGGESTION_PER_MEMORY,
    EVERY_APPROVAL_MADE_A_MEMORY,
    check_model(consolidation_suggestions),
)
