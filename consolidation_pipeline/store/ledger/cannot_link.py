"""Merges and patterns that a person undid one by one: what later runs keep apart, and do not say again."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.grouping.cannot_link import CannotLink
from consolidation_pipeline.store.database.vector_copy import load_columns

# Common table expressions, for WITH RECURSIVE: the changes of merged memories that were undone as groups, not with a
# whole job, and not redone since. ``groups``: the groups between, the newest rollback first, the merge's own last.
UNDONE_MERGES = """
    undoing AS (
        SELECT r.reverts_change_id AS id, 1 AS turns, ARRAY[r.group_id] AS groups FROM consolidation.consolidation_changes r
        WHERE r.project_id = {project} AND r.reverts_change_id IS NOT NULL AND r.reverts_scope = 'group'
            AND r.entity_type = 'consolidated_memories'
            AND NOT EXISTS (SELECT 1 FROM consolidation.consolidation_changes n WHERE n.reverts_change_id = r.id)
        UNION ALL
        SELECT c.reverts_change_id, u.turns + 1, u.groups || c.group_id
        FROM undoing u JOIN consolidation.consolidation_changes c ON c.id = u.id WHERE c.reverts_change_id IS NOT NULL),
    undone_merges AS (
        SELECT c.seq, c.previous_state, c.new_state, u.groups || c.group_id AS groups
        FROM undoing u JOIN consolidation.consolidation_changes c ON c.id = u.id
        WHERE c.reverts_change_id IS NULL AND mod(u.turns, 2) = 1 AND c.new_state ->> 'kind' = 'merged')
"""

# Sources of a new merged memory are a part each; of one that grew, those it had are one part and the rest another.
_KEPT_APART = f"""
    WITH RECURSIVE {UNDONE_MERGES.format(project="%(project)s")}
    SELECT s.id::uuid, dense_rank() OVER (ORDER BY u.seq)::integer - 1, CASE
        WHEN u.previous_state IS NULL THEN (row_number() OVER (PARTITION BY u.seq ORDER BY s.id))::integer - 1
        ELSE 1 - (u.previous_state -> 'source_memory_ids' ? s.id)::integer END
    FROM undone_merges u, jsonb_array_elements_text(u.new_state -> 'source_memory_ids') AS s(id) ORDER BY u.seq, s.id
"""


def load_cannot_links(connection: Connection, project_id: UUID) -> CannotLink:
    """What the undone merges of a project keep apart; of merges that were undone with their job, nothing."""
    kinds = {"id": "S16", "merge": ">i4", "part": ">i4"}
    return CannotLink(*load_columns(connection, _KEPT_APART, {"project": project_id}, kinds))


def count_cannot_links(connection: Connection, project_id: UUID, rollback_id: UUID) -> int:
    """How many merges later runs do not make again because of one rollback."""
    query = f"""
        WITH RECURSIVE {UNDONE_MERGES.format(project=":project")}
        SELECT count(*) FROM undone_merges WHERE groups[1] = :rollback
    """
    return int(connection.execute(text(query), {"project": project_id, "rollback": rollback_id}).scalar_one())


def load_undone_cluster_keys(connection: Connection, project_id: UUID, kind: str) -> set[str]:
    """Cluster keys of the patterns or principles, by ``kind``, that were undone as groups and not redone since."""
    query = f"""
        WITH RECURSIVE {UNDONE_MERGES.format(project=":project")}
        SELECT DISTINCT c.new_state ->> 'cluster_key' FROM undoing u JOIN consolidation.consolidation_changes c ON c.id = u.id
        WHERE c.reverts_change_id IS NULL AND mod(u.turns, 2) = 1 AND c.new_state ->> 'kind' = :kind
    """
    return set(connection.scalars(text(query), {"project": project_id, "kind": kind}))
