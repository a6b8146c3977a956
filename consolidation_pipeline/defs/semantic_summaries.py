"""Asset `semantic_summaries`: summaries of memories that no other summary covers."""

from typing import Any

import dagster as dg

from consolidation_pipeline.core.knowledge.summary_batches import TARGET_RATIO
from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import AFTER_SUGGESTIONS, describe_failures, describe_table
from consolidation_pipeline.defs.embedding_matrix import embedding_matrix
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.knowledge.summaries import SummaryResult, summarize_memories
from consolidation_pipeline.store.admin.invariants import find_inconsistent_summaries


@dg.asset(
    partitions_def=projects,
    deps=[embedding_matrix],
    group_name="knowledge",
    kinds={"python", "postgres"},
    owners=["team:memory"],
    code_version="1",
    metadata=describe_table("consolidated_memories"),
    op_tags=AFTER_SUGGESTIONS,
)
def semantic_summaries(
    context: dg.AssetExecutionContext, project_runs: dg.ResourceParam[ProjectRuns]
) -> dg.MaterializeResult[None]:
    """Level 2: summarize what lasts from a batch of a user's memories in one text (episodic to semantic)."""
    run = project_runs.open(context.partition_key)
    with run.phase("semantic_summaries") as phase:
        result = summarize_memories(run)
        phase.metrics = _describe(result)
        phase.counters = {"summaries_created": result.created}
    return dg.MaterializeResult(metadata=phase.metrics)


def _describe(result: SummaryResult) -> dict[str, Any]:
    return {
        "memories_in": result.memories,
        "due": result.is_due,
        "reason": result.reason,
        "summaries_created": result.created,
        "memories_summarized": result.covered,
        "chunks": result.chunks,
        "chunks_failed": result.failed_chunks,
        "waiting": result.waiting,
        **({} if result.ratio is None else {"compression_ratio": round(result.ratio, 3)}),
        "compression_target": TARGET_RATIO,
        **describe_failures(result.failures, result.stopped),
    }


semantic_summaries_checks = project_checks(
    semantic_summaries,
    Check(
        "every_episode_is_in_its_summary",
        find_inconsistent_summaries,
        "Each summarized memory refers to its summary, and the summary lists that memory.",
    ),
)
