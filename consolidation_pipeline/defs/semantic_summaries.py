"""One text for the memories that no other summary covers."""

from typing import Any

import dagster as dg

from consolidation_pipeline.core.knowledge.summary_batches import TARGET_RATIO
from consolidation_pipeline.defs.asset_checks import Check, project_checks
from consolidation_pipeline.defs.asset_metadata import AFTER_SUGGESTIONS, describe_failures, describe_table
from consolidation_pipeline.defs.embedding_matrix import embedding_matrix
from consolidation_pipeline.defs.partitions import projects
from consolidation_pipeline.defs.resources import ProjectRuns
from consolidation_pipeline.service.knowledge.summaries import SummaryResult, summarize_memories
from consolidation_pipeline.store.admin.invariants import find_misplaced_episodes


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
    """Level 2: what lasts of a batch of memories, per user, in one text; episodic becomes semantic."""
    run = project_runs.open(context.partition_key)
    with run.phase("semantic_summaries") as phase:
        done = summarize_memories(run)
        phase.metrics = _describe(done)
        phase.counters = {"summaries_created": done.created}
    return dg.MaterializeResult(metadata=phase.metrics)


def _describe(done: SummaryResult) -> dict[str, Any]:
    return {
        "memories_in": done.memories,
        "due": done.is_due,
        "reason": done.reason,
        "summaries_created": done.created,
        "memories_summarized": done.covered,
        "chunks": done.chunks,
        "chunks_failed": done.failed_chunks,
        "waiting": done.waiting,
        **({} if done.ratio is None else {"compression_ratio": round(done.ratio, 3)}),
        "compression_target": TARGET_RATIO,
        **describe_failures(done.failures, done.stopped),
    }


semantic_summaries_checks = project_checks(
    semantic_summaries,
    Check(
        "every_episode_is_in_its_summary",
        find_misplaced_episodes,
        "A memory says that it is in a summary just when the summary says so.",
    ),
)
