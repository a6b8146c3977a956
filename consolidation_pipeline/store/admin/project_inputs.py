"""Inputs of a run: hashes of what it reads of a project, by which a replay knows that it has the same."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, text

# Sums of row hashes have no order, so each part takes one scan. Left out are caches, vectors, and versions of rows.
_HASH_INPUTS = """
    SELECT part, count(*) || ':' || coalesce(sum(hashtextextended(image, 0)::numeric), 0) FROM (
        SELECT 'memories' AS part, concat_ws('|', id, memory_type, goal, execution_summary, result, feedback,
            lessons_learned, tags, success, importance, pinned, learned_at, user_id, agent_id, session_id, task_id,
            writer, metadata, language, consolidated_into_id, archived_at IS NULL, archive_reason) AS image
        FROM consolidation.task_memories WHERE project_id = :project
        UNION ALL
        SELECT 'uses', concat_ws('|', id, reused_count, last_accessed_at)
        FROM consolidation.task_memories WHERE project_id = :project
        UNION ALL
        SELECT 'uses', concat_ws('|', id, reuse_count, last_accessed_at)
        FROM consolidation.consolidated_memories WHERE project_id = :project
        UNION ALL
        SELECT 'knowledge', concat_ws('|', id, kind, content, details, needs_review, pinned, superseded_by_id,
            retired_at IS NULL, archive_reason)
        FROM consolidation.consolidated_memories WHERE project_id = :project
        UNION ALL
        SELECT 'relations', concat_ws('|', id, status) FROM consolidation.memory_relations WHERE project_id = :project
        UNION ALL
        SELECT 'playbook', concat_ws('|', id, content, status)
        FROM consolidation.playbook_entries WHERE project_id = :project
        UNION ALL
        SELECT 'suggestions', concat_ws('|', id, status, fingerprint)
        FROM consolidation.consolidation_suggestions WHERE project_id = :project
        UNION ALL
        SELECT 'votes', concat_ws('|', memory_id, voter, day, query_hash, verdict)
        FROM consolidation.memory_votes WHERE project_id = :project
        UNION ALL
        SELECT 'memory tests', concat_ws('|', name, kind, body, enabled)
        FROM consolidation.memory_tests WHERE project_id = :project
        UNION ALL
        SELECT 'labelled pairs', concat_ws('|', a, b, same)
        FROM consolidation.labelled_pairs WHERE project_id = :project) rows
    GROUP BY part ORDER BY part
"""


def hash_inputs(connection: Connection, project_id: UUID) -> dict[str, str]:
    """Return part of the inputs -> number of rows and hash, such as ``486:-123``; parts without rows are left out."""
    return dict(connection.execute(text(_HASH_INPUTS), {"project": project_id}).tuples().all())
