"""Asset `principles`: what several patterns have in common."""

from consolidation_pipeline.defs.asset_checks import check_model, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_derived
from consolidation_pipeline.defs.patterns import patterns
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.service.knowledge.principles import derive_principles
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.merged_memories import LINEAGE_IS_WHOLE


@phase_asset("knowledge", table="consolidated_memories", deps=[patterns])
def principles(run: ProjectRun, phase: PhaseResult) -> None:
    """Level 3: derive what three or more patterns have in common. Without an LLM, results wait for a person."""
    phase.metrics = describe_derived("principles", derive_principles(run))


principles_checks = project_checks(
    principles,
    LINEAGE_IS_WHOLE,
    check_model(principles),
)
