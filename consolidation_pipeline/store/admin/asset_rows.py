"""Numbers of rows, examples of merges and model failures of a project, for the catalog of Dagster."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from sqlalchemy import Connection, text

# Asset -> its rows: a table, with a condition if several assets share it.
_ROWS: Mapping[str, str] = {
    "task_memories": "task_memories WHERE true",
    "embedding_matrix": "task_memories WHERE embedding IS NOT NULL",
    "threshold_calibration": "similarity_calibrations WHERE true",
    "similarity_graph": "memory_pairs WHERE true",
    "clusters": "memory_clusters WHERE true",
    "merged_memories": "consolidated_memories WHERE kind = 'merged' AND retired_at IS NULL",
    "patterns": "consolidated_memories WHERE kind = 'pattern' AND retired_at IS NULL",
    "principles": "consolidated_memories WHERE kind = 'principle' AND retired_at IS NULL",
    "playbook_entries": "playbook_entries WHERE status = 'active'",
    "consolidation_suggestions": "consolidation_suggestions WHERE status = 'pending'",
    "semantic_summaries": "consolidated_memories WHERE kind = 'summary' AND retired_at IS NULL",
    "procedural_profile": "consolidated_memories WHERE kind = 'procedural' AND retired_at IS NULL",
    "supersessions": "memory_relations WHERE relation_type = 'supersedes'",
    "associations": "memory_relations WHERE relation_type <> 'supersedes'",
    "decay_scores": "relevance_scores WHERE true",
    "archived_memories": "task_memories WHERE archived_at IS NOT NULL",
    "consolidation_report": "consolidation_jobs WHERE metrics ? 'consolidation_report'",
}


def count_rows(connection: Connection, project_id: UUID, asset: str) -> int:
    """Return the number of rows of an asset in a project."""
    statement = text(f"SELECT count(*) FROM consolidation.{_ROWS[asset]} AND project_id = :project")
    return int(connection.execute(statement, {"project": project_id}).scalar_one())


_LIST_LARGEST_MERGES = """
    SELECT id, source_count FROM consolidation.consolidated_memories
    WHERE kind = 'merged' AND retired_at IS NULL AND id IN (
        SELECT entity_id FROM consolidation.consolidation_changes
        WHERE job_id = :job AND operation = 'merge' AND entity_type = 'consolidated_memories')
    ORDER BY source_count DESC, id LIMIT :limit
"""


def list_largest_merges(connection: Connection, job_id: UUID, *, limit: int) -> list[tuple[UUID, int]]:
    """Return merged memories that a job wrote, with their numbers of sources, the largest first."""
    rows = connection.execute(text(_LIST_LARGEST_MERGES), {"job": job_id, "limit": limit})
    return [(row.id, row.source_count) for row in rows]


_FIND_MODEL_FAILURE = """
    SELECT metrics -> :phase ->> 'llm/failed' AS failed, metrics -> :phase ->> 'llm/error' AS error
    FROM consolidation.consolidation_jobs
    WHERE project_id = :project AND metrics ? :phase ORDER BY created_at DESC LIMIT 1
"""


def find_model_failure(connection: Connection, project_id: UUID, phase: str) -> list[str]:
    """Return for how many groups the model gave no text in the newest job with this phase, and why; empty if none."""
    row = connection.execute(text(_FIND_MODEL_FAILURE), {"project": project_id, "phase": phase}).one_or_none()
    if row is None or row.failed is None:
        return []
    return [f"{row.failed} groups without a text of the model: {row.error or 'no reason given'}"]
