"""Asset `associations`: typed relations between memories."""

from datetime import timedelta

import dagster as dg

from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.similarity_graph import similarity_graph
from consolidation_pipeline.service.lifecycle.associations import associate_memories
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.relations import CANDIDATES_DO_NOT_COUNT, RELATIONS_HAVE_TWO_ENDS

# `weekly_associations`, a day late, and two weeks late.
_FRESHNESS = dg.FreshnessPolicy.time_window(warn_window=timedelta(days=8), fail_window=timedelta(days=21))


@phase_asset("lifecycle", table="memory_relations", deps=[similarity_graph], freshness=_FRESHNESS)
def associations(run: ProjectRun, phase: PhaseResult) -> None:
    """Find typed, scored relations between memories by four rules. A person confirms uncertain ones."""
    result = associate_memories(run)
    phase.metrics = {
        "memories_in": result.memories,
        "relations_found": sum(result.found.values()),
        **result.found,
        "relations_added": result.added,
        "embeddings_failed": result.missing,
        **({"skipped": result.skipped} if result.skipped else {}),
    }


associations_checks = project_checks(
    associations,
    RELATIONS_HAVE_TWO_ENDS,
    CANDIDATES_DO_NOT_COUNT,
)
