"""Asset `merged_memories`: one memory that replaces several near-duplicates."""

from typing import Any

from consolidation_pipeline.defs.asset_checks import check_memory_tests, check_model, project_checks
from consolidation_pipeline.defs.asset_metadata import build_table
from consolidation_pipeline.defs.clusters import clusters
from consolidation_pipeline.defs.phase_asset import phase_asset
from consolidation_pipeline.service.knowledge.merged_memories import merge_clusters
from consolidation_pipeline.service.plan.apply import check_plan
from consolidation_pipeline.service.runs.project_run import PhaseResult, ProjectRun
from consolidation_pipeline.store.admin.asset_rows import list_largest_merges
from consolidation_pipeline.store.checks.merged_memories import (
    EVERY_MERGE_IS_IN_THE_LEDGER,
    LINEAGE_IS_WHOLE,
    NO_FACT_TWICE,
    NO_LITERAL_IS_LOST,
    NO_MEMORY_CROSSES_SCOPES,
    NO_MEMORY_IS_ABANDONED,
)

_EXAMPLES = 3


@phase_asset("knowledge", table="consolidated_memories", deps=[clusters])
def merged_memories(run: ProjectRun, phase: PhaseResult) -> dict[str, Any]:
    """Level 1: merge each group of near-duplicates into one memory without loss. Sources are hidden, never deleted."""
    check_plan(run)
    result = merge_clusters(run)
    phase.metrics = {
        "memories_merged": result.absorbed,
        "merged_created": result.created,
        "merged_extended": result.extended,
        "groups_skipped": result.skipped,
        "merged_rewritten": result.rewritten,
        "rewrites_refused": result.refused,
        "rewrites_failed": result.failed,
        **({"stopped": result.stopped} if result.stopped else {}),
    }
    phase.counters = result.counters
    with run.reading() as connection:
        merges = list_largest_merges(connection, run.job_id, limit=_EXAMPLES)
    # No texts: the records of Dagster would keep them after the memory was erased.
    rows = [(str(id_), sources, f"consolidation lineage {id_}") for id_, sources in merges]
    return {"examples": build_table({"memory": "string", "sources": "int", "texts": "string"}, rows)} if rows else {}


merged_memories_checks = project_checks(
    merged_memories,
    check_memory_tests(),
    NO_LITERAL_IS_LOST,
    NO_MEMORY_IS_ABANDONED,
    LINEAGE_IS_WHOLE,
    NO_FACT_TWICE,
    NO_MEMORY_CROSSES_SCOPES,
    EVERY_MERGE_IS_IN_THE_LEDGER,
    check_model(merged_memories),
)
