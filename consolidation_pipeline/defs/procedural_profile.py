"""Asset `procedural_profile`: how a project, or one of its users, works."""

from consolidation_pipeline.defs.asset_checks import check_model, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_failures
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.semantic_summaries import semantic_summaries
from consolidation_pipeline.service.knowledge.profiles import update_profiles
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.knowledge import PROFILES_REST_ON_SUMMARIES


@phase_asset("knowledge", table="consolidated_memories", deps=[semantic_summaries])
def procedural_profile(run: ProjectRun, phase: PhaseResult) -> None:
    """Level 3: derive working habits from all summaries. One profile per user; a new one replaces the old one."""
    result = update_profiles(run)
    phase.metrics = {
        "summaries_in": result.summaries,
        "profiles_created": result.created,
        "profiles_updated": result.updated,
        "profiles_unchanged": result.unchanged,
        "profiles_failed": len(result.failures),
        **describe_failures(result.failures, result.stopped),
    }


procedural_profile_checks = project_checks(
    procedural_profile,
    PROFILES_REST_ON_SUMMARIES,
    check_model(procedural_profile),
)
