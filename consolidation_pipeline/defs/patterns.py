"""Asset `patterns`: what several memories have in common."""

from typing import Any

from consolidation_pipeline.defs.asset_checks import check_model, project_checks
from consolidation_pipeline.defs.asset_metadata import build_image, describe_derived
from consolidation_pipeline.defs.merged_memories import merged_memories
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.supersessions import supersessions
from consolidation_pipeline.service.admin.project_browser import draw_map
from consolidation_pipeline.service.knowledge.patterns import derive_patterns
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.knowledge import EVIDENCE_POINTS_TO_UNITS, ONE_PATTERN_PER_GROUP


@phase_asset("knowledge", table="consolidated_memories", deps=[merged_memories, supersessions])
def patterns(run: ProjectRun, phase: PhaseResult) -> dict[str, Any]:
    """Level 2: derive what three or more distinct memories have in common, from their sentences or by an LLM."""
    phase.metrics = describe_derived("patterns", derive_patterns(run))
    picture = draw_map(run.engine, run.project.slug)
    return {} if picture is None else {"map": build_image("map of the project", picture)}


patterns_checks = project_checks(
    patterns,
    EVIDENCE_POINTS_TO_UNITS,
    ONE_PATTERN_PER_GROUP,
    check_model(patterns),
)
