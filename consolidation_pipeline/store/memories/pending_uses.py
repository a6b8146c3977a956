"""Uses of memories that searches counted, and that are not in the rows of the memories yet.

A row of a memory is wide and has many indexes: to count ten uses in such rows takes the server a hundred times as long
as to append ten narrow ones. A run begins by adding them to the memories.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.errors import ForeignKeyViolation
from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.raw_connections import format_uuids
from consolidation_pipeline.store.database.sql import compose

# The commit does not wait for the disk: a count that a crash of the server loses does no harm. The setting is made
# before the first row is written, and ends with the transaction, which is this statement.
_ADD_USES = """
    WITH settings AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
    INSERT INTO consolidation.pending_uses (project_id, memory_id, uses)
    SELECT %(project)s, used.id, used.times
    FROM settings, unnest(%(ids)s::uuid[], %(times)s::integer[]) used (id, times)
"""


def add_uses(connection: Connection, project_id: UUID, uses: Mapping[UUID, int]) -> None:
    """Count uses of memories as of now, in a transaction of its own, which waits for nobody.

    Uses of a project that was deleted meanwhile are dropped.

    Args:
        connection: In autocommit.
    """
    bound = {"project": project_id, "ids": format_uuids(uses), "times": list(uses.values())}
    driver: Any = connection.connection.driver_connection
    with suppress(ForeignKeyViolation):
        driver.execute(_ADD_USES, bound)


_HAS_PENDING = "SELECT EXISTS (SELECT 1 FROM consolidation.pending_uses WHERE project_id = :project)"
# Rows are locked in the order of ids, as by all writers.
_FOLD_USES = """
    WITH locked AS MATERIALIZED (
        SELECT id FROM consolidation./* table */
        WHERE id IN (SELECT memory_id FROM consolidation.pending_uses WHERE project_id = :project)
        ORDER BY id FOR NO KEY UPDATE),
    taken AS (
        DELETE FROM consolidation.pending_uses p USING locked
        WHERE p.project_id = :project AND p.memory_id = locked.id RETURNING p.memory_id, p.uses, p.used_at),
    used AS (SELECT memory_id, sum(uses) AS uses, max(used_at) AS used_at FROM taken GROUP BY memory_id)
    UPDATE consolidation./* table */ m SET /* count */ = /* count */ + used.uses,
        last_accessed_at = greatest(m.last_accessed_at, used.used_at)
    FROM used WHERE m.id = used.memory_id
"""
# Of a memory that was erased after a search had found it.
_DELETE_ORPHANS = """
    DELETE FROM consolidation.pending_uses p WHERE project_id = :project
        AND NOT EXISTS (SELECT 1 FROM consolidation.task_memories WHERE id = p.memory_id)
        AND NOT EXISTS (SELECT 1 FROM consolidation.consolidated_memories WHERE id = p.memory_id)
"""
# Consolidated memories come first, the order in which both tables are locked.
_COUNTS = {"consolidated_memories": "reuse_count", "task_memories": "reused_count"}


def fold_uses(connection: Connection, project_id: UUID) -> None:
    """Add the pending uses of a project to its memories, and delete them, within the caller's transaction."""
    bound = {"project": project_id}
    if not connection.execute(text(_HAS_PENDING), bound).scalar_one():
        return
    for table, count in _COUNTS.items():
        connection.execute(text(compose(_FOLD_USES, table=table, count=count)), bound)
    connection.execute(text(_DELETE_ORPHANS), bound)


_LOAD_PENDING = """
    SELECT coalesce(sum(uses), 0)::integer, max(used_at) FROM consolidation.pending_uses
    WHERE project_id = :project AND memory_id = :id
"""


def load_pending_uses(connection: Connection, project_id: UUID, memory_id: UUID) -> tuple[int, datetime | None]:
    """Return the number of pending uses of a memory, and the time of the last one; 0 and None without any."""
    row = connection.execute(text(_LOAD_PENDING), {"project": project_id, "id": memory_id}).one()
    return row[0], row[1]


def count_with_pending(row: str, count: str) -> str:
    """Return the SQL of the uses of the memory ``row``, in its column ``count`` and pending."""
    return f"({row}.{count} + coalesce((SELECT sum(uses) {_of(row)}), 0)::integer)"


def last_use_with_pending(row: str) -> str:
    """Return the SQL of the last use of the memory ``row``, pending ones included."""
    return f"greatest({row}.last_accessed_at, (SELECT max(used_at) {_of(row)}))"


def _of(row: str) -> str:
    return f"FROM consolidation.pending_uses p WHERE p.project_id = {row}.project_id AND p.memory_id = {row}.id"
