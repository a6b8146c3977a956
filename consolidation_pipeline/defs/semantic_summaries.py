"""Asset `semantic_summaries`: summaries of memories that no other summary covers."""

from consolidation_pipeline.core.knowledge.summary_batches import TARGET_RATIO
from consolidation_pipeline.defs.asset_checks import check_model, project_checks
from consolidation_pipeline.defs.asset_metadata import describe_failures
from consolidation_pipeline.defs.embedding_matrix import embedding_matrix
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.service.knowledge.summaries import summarize_memories
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.checks.knowledge import EVERY_EPISODE_IS_IN_ITS_SUMMARY


@phase_asset("knowledge", table="consolidated_memories", deps=[embedding_matrix])
def semantic_summaries(run: ProjectRun, phase: PhaseResult) -> None:
    """Level 2: summarize what lasts from a batch of a user's memories in one text (episodic to semantic)."""
    result = summarize_memories(run)
    phase.metrics = {
        "memories_in": result.memories,
        "due": result.is_due,
        "reason": result.reason,
        "summaries_created": result.created,
        "memories_summarized": result.covered,
        **({"summaries_rewritten": result.rewritten} if result.rewritten else {}),
        "chunks": result.chunks,
        "chunks_failed": result.failed_chunks,
        "waiting": result.waiting,
        **({} if result.ratio is None else {"compression_ratio": round(result.ratio, 3)}),
        "compression_target": TARGET_RATIO,
        **({} if result.per_summary is None else {"memories_per_summary": round(result.per_summary, 3)}),
        **describe_failures(result.failures, result.stopped),
    }
    phase.counters = result.counters


semantic_summaries_checks = project_checks(
    semantic_summaries,
    EVERY_EPISODE_IS_IN_ITS_SUMMARY,
    check_model(semantic_summaries),
)
