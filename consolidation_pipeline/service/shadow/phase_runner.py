"""All phases of a run in order, in this process and without Dagster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from consolidation_pipeline.service.jobs.run_report import write_report
from consolidation_pipeline.service.knowledge.merged_memories import merge_clusters
from consolidation_pipeline.service.knowledge.patterns import derive_patterns
from consolidation_pipeline.service.knowledge.principles import derive_principles
from consolidation_pipeline.service.knowledge.profiles import update_profiles
from consolidation_pipeline.service.knowledge.summaries import summarize_memories
from consolidation_pipeline.service.knowledge.supersessions import load_current_replacements, record_supersessions
from consolidation_pipeline.service.lifecycle.archive import archive_memories
from consolidation_pipeline.service.lifecycle.associations import associate_memories
from consolidation_pipeline.service.lifecycle.decay import score_relevance
from consolidation_pipeline.service.plan.apply import check_plan
from consolidation_pipeline.service.playbook.entries import update_playbook
from consolidation_pipeline.service.review.suggestion_proposals import propose_merges
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.project_run import ProjectRun
from consolidation_pipeline.service.similarity.calibration import calibrate_thresholds
from consolidation_pipeline.service.similarity.clusters import form_clusters
from consolidation_pipeline.service.similarity.embedding import embed_memories
from consolidation_pipeline.service.similarity.similarity_graph import update_similarity_graph

STEPS: Mapping[str, Callable[[ProjectRun], Any]] = {
    "embedding_matrix": embed_memories,
    "threshold_calibration": calibrate_thresholds,
    "similarity_graph": update_similarity_graph,
    "clusters": form_clusters,
    "merged_memories": merge_clusters,
    "supersessions": record_supersessions,
    "patterns": derive_patterns,
    "principles": derive_principles,
    "playbook_entries": lambda run: update_playbook(run, load_current_replacements(run)),
    "consolidation_suggestions": propose_merges,
    "semantic_summaries": summarize_memories,
    "procedural_profile": update_profiles,
    "decay_scores": score_relevance,
    "archived_memories": archive_memories,
    "consolidation_report": write_report,
    "associations": associate_memories,
}


def run_phases(run: ProjectRun, phases: Sequence[str] = PHASES) -> dict[str, Any]:
    """Run phases of an open run; return the result of each."""
    results = {}
    for name in phases:
        with run.phase(name) as phase:
            if name == "merged_memories":
                check_plan(run)
            results[name] = STEPS[name](run)
            phase.counters = getattr(results[name], "counters", {})
            if name == "semantic_summaries":
                phase.metrics = {"due": results[name].is_due}
    return results
