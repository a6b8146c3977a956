"""Asset `supersessions`: which memories take the place of older ones."""

from consolidation_pipeline.defs.asset_checks import project_checks
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.defs.similarity_graph import similarity_graph
from consolidation_pipeline.service.knowledge.supersessions import record_supersessions
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.relations import NEWER_SUPERSEDES_OLDER


@phase_asset("lifecycle", table="memory_relations", deps=[similarity_graph])
def supersessions(run: ProjectRun, phase: PhaseResult) -> None:
    """Find newer memories that contradict older ones on the same thing. A person confirms what no rule does."""
    result = record_supersessions(run)
    phase.metrics = {
        "memories_in": result.memories,
        "memories_compared": result.compared,
        "supersessions_found": result.found,
        "supersessions_confirmed": result.confirmed,
        "supersessions_added": result.added,
        "supersessions_proposed": result.proposed,
        "supersessions_changed": result.changed,
        "supersessions_withdrawn": result.withdrawn,
        **({} if result.judged is None else result.judged.metrics),
    }


supersessions_checks = project_checks(
    supersessions,
    NEWER_SUPERSEDES_OLDER,
)
