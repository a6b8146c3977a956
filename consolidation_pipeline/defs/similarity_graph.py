"""Asset `similarity_graph`: all pairs of similar memories of a project."""

from typing import Any

from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.threshold_calibration import threshold_calibration
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.service.similarity.similarity_graph import update_similarity_graph
from consolidation_pipeline.store.checks.groups import PAIRS_ARE_COSINES


@phase_asset("similarity", table="memory_neighbors", deps=[threshold_calibration], code_version="2")
def similarity_graph(run: ProjectRun, phase: PhaseResult) -> dict[str, Any]:
    """Find all pairs of memories at or above the pattern threshold, exactly. Only new memories are compared.

    Memories of different scopes are not compared. What was consolidated across scopes is dissolved before.
    """
    update = update_similarity_graph(run)
    phase.metrics = {
        "memories_in": update.nodes,
        "memories_compared": update.compared,
        "pairs_added": update.pairs_added,
        "rebuilt": update.rebuilt,
        "memories_dissolved": update.walls.dissolved,
        "calibration_version": update.calibration,
        **({} if update.judged is None else update.judged.metrics),
    }
    return dict(run.thresholds)


similarity_graph_checks = project_checks(
    similarity_graph,
    PAIRS_ARE_COSINES,
)
