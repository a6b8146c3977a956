"""Numbers and last writes of a connected store, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.scope_keys import raw_scope_key
from consolidation_pipeline.store.database.sql import compose

_COUNT_ROWS = """
    SELECT state, count(*) FROM consolidation.source_rows WHERE source_id = :source GROUP BY 1 ORDER BY 2 DESC, 1
"""


def count_rows(connection: Connection, source_id: UUID) -> dict[str, int]:
    """Return the number of rows of a store by state."""
    return {row[0]: row[1] for row in connection.execute(text(_COUNT_ROWS), {"source": source_id})}


@dataclass(frozen=True)
class ScopeRows:
    """Rows of one scope: ``shown`` in the store and ``hidden`` there. ``key``: scope key; None without walls."""

    key: str | None
    shown: int
    hidden: int


_COUNT_SCOPES = """
    SELECT /* scope_key */, count(*) FILTER (WHERE r.state = 'mirrored'), count(*) FILTER (WHERE r.state = 'hidden'),
        count(*) OVER ()
    FROM consolidation.source_rows r JOIN consolidation.task_memories t ON t.id = r.memory_id
    WHERE r.source_id = :source AND r.state IN ('mirrored', 'hidden')
    GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT :limit
"""


def count_scopes(connection: Connection, source_id: UUID, *, scope: str, limit: int) -> tuple[int, list[ScopeRows]]:
    """Return the number of scopes of a store, and the largest ones. ``scope``: the project's option."""
    statement = compose(_COUNT_SCOPES, scope_key=raw_scope_key(scope))
    rows = connection.execute(text(statement), {"source": source_id, "limit": limit}).all()
    return (rows[0][3] if rows else 0), [ScopeRows(*row[:3]) for row in rows]


@dataclass(frozen=True)
class ListedWrite:
    """A write into a store. ``group_id``: changes of its merge; None = not known. ``rows``: of its group.

    ``reason``: why it was refused or is not in effect any more.
    """

    id: UUID
    memory_id: UUID
    group_id: UUID | None
    status: str
    text: str
    rows: int
    is_new_row: bool
    reason: str | None
    at: datetime


_COUNT_WRITES = """
    SELECT status, count(*) FROM consolidation.source_writes WHERE source_id = :source GROUP BY 1 ORDER BY 1
"""
_LIST_WRITES = """
    SELECT id, memory_id, CAST(plan ->> 'group' AS uuid), status, plan ->> 'text',
        (SELECT count(*) FROM jsonb_object_keys(plan -> 'stamps')), plan ->> 'keep' IS NULL, reason,
        coalesce(ended_at, intended_at)
    FROM consolidation.source_writes WHERE source_id = :source AND status = ANY(:statuses)
    ORDER BY coalesce(ended_at, intended_at) DESC, id LIMIT :limit
"""


def count_writes(connection: Connection, source_id: UUID) -> dict[str, int]:
    """Return the number of writes into a store by status."""
    return {row[0]: row[1] for row in connection.execute(text(_COUNT_WRITES), {"source": source_id})}


def list_last_writes(
    connection: Connection, source_id: UUID, statuses: Sequence[str], *, limit: int
) -> list[ListedWrite]:
    """Return the last writes into a store with these statuses, newest first."""
    bound = {"source": source_id, "statuses": list(statuses), "limit": limit}
    return [ListedWrite(*row) for row in connection.execute(text(_LIST_WRITES), bound)]


_LIST_CROSSING = """
    SELECT w.memory_id FROM consolidation.source_writes w
    CROSS JOIN LATERAL jsonb_object_keys(w.plan -> 'stamps') k(key)
    JOIN consolidation.source_rows r ON r.source_id = w.source_id AND r.key = k.key
    JOIN consolidation.task_memories t ON t.id = r.memory_id
    WHERE w.source_id = :source AND w.status = 'written'
    GROUP BY w.id, w.memory_id HAVING count(DISTINCT /* scope_key */) > 1 ORDER BY 1
"""


def list_crossing_writes(connection: Connection, source_id: UUID, *, scope: str) -> list[UUID]:
    """Return merged memories that were written for rows of several scopes. ``scope``: the project's option."""
    statement = compose(_LIST_CROSSING, scope_key=raw_scope_key(scope))
    return list(connection.scalars(text(statement), {"source": source_id}))
