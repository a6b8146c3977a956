"""Memories that must not be merged again, and groups that must not be derived again, after a person undid them."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.core.grouping.cannot_link import CannotLink
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import load_columns

# Common table expressions for WITH RECURSIVE, to follow `project (id)`.
# - `undone`: chains of rollbacks of groups, each from its newest rollback back to the original change of a consolidated
#   memory. The change `id` is undone if `turns` is odd, and redone if it is even. Rollbacks of whole jobs do not count.
# - `undone_merges`: original changes that wrote a merged memory and are undone. `groups`: newest rollback first, the
#   group of the change itself last.
UNDONE_MERGES = """
    undone AS (
        SELECT r.reverts_change_id AS id, 1 AS turns, ARRAY[r.group_id] AS groups
        FROM project p JOIN consolidation.consolidation_changes r ON r.project_id = p.id
        WHERE r.reverts_change_id IS NOT NULL AND r.reverts_scope = 'group'
            AND r.entity_type = 'consolidated_memories'
            AND NOT EXISTS (SELECT 1 FROM consolidation.consolidation_changes n WHERE n.reverts_change_id = r.id)
        UNION ALL
        SELECT c.reverts_change_id, u.turns + 1, u.groups || c.group_id
        FROM undone u JOIN consolidation.consolidation_changes c ON c.id = u.id
        WHERE c.reverts_change_id IS NOT NULL),
    undone_merges AS (
        SELECT c.seq, c.previous_state, c.new_state, u.groups || c.group_id AS groups
        FROM undone u JOIN consolidation.consolidation_changes c ON c.id = u.id
        WHERE c.reverts_change_id IS NULL AND mod(u.turns, 2) = 1 AND c.new_state ->> 'kind' = 'merged')
"""

# If the undone change created a merged memory, each source is a part of its own. If it extended one, the sources that
# it had before are part 0 and the added ones part 1.
_LOAD_CANNOT_LINKS = compose(
    """
    WITH RECURSIVE project AS (SELECT CAST(%(project)s AS uuid) AS id), /* undone_merges */
    SELECT s.id::uuid, dense_rank() OVER (ORDER BY u.seq)::integer - 1, CASE
        WHEN u.previous_state IS NULL THEN (row_number() OVER (PARTITION BY u.seq ORDER BY s.id))::integer - 1
        ELSE 1 - (u.previous_state -> 'source_memory_ids' ? s.id)::integer END
    FROM undone_merges u, jsonb_array_elements_text(u.new_state -> 'source_memory_ids') AS s(id) ORDER BY u.seq, s.id
    """,
    undone_merges=UNDONE_MERGES,
)


def load_cannot_links(connection: Connection, project_id: UUID) -> CannotLink:
    """Return the memories of merges that were undone as groups. Merges undone with their whole job do not count."""
    kinds = {"id": "S16", "merge": ">i4", "part": ">i4"}
    return CannotLink(*load_columns(connection, _LOAD_CANNOT_LINKS, {"project": project_id}, kinds))


_COUNT_CANNOT_LINKS = compose(
    """
    WITH RECURSIVE project AS (SELECT CAST(:project AS uuid) AS id), /* undone_merges */
    SELECT count(*) FROM undone_merges WHERE groups[1] = :rollback
    """,
    undone_merges=UNDONE_MERGES,
)


def count_cannot_links(connection: Connection, project_id: UUID, rollback_id: UUID) -> int:
    """Count the merges that later runs do not repeat because of one rollback."""
    parameters = {"project": project_id, "rollback": rollback_id}
    return int(connection.execute(text(_COUNT_CANNOT_LINKS), parameters).scalar_one())


_LOAD_UNDONE_CLUSTER_KEYS = compose(
    """
    WITH RECURSIVE project AS (SELECT CAST(:project AS uuid) AS id), /* undone_merges */
    SELECT DISTINCT c.new_state ->> 'cluster_key'
    FROM undone u JOIN consolidation.consolidation_changes c ON c.id = u.id
    WHERE c.reverts_change_id IS NULL AND mod(u.turns, 2) = 1 AND c.new_state ->> 'kind' = :kind
    """,
    undone_merges=UNDONE_MERGES,
)


def load_undone_cluster_keys(connection: Connection, project_id: UUID, kind: str) -> set[str]:
    """Return the cluster keys of rows of ``kind``, such as pattern, that were undone as groups and not redone."""
    return set(connection.scalars(text(_LOAD_UNDONE_CLUSTER_KEYS), {"project": project_id, "kind": kind}))
