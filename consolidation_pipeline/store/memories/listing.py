"""Memories of a project one by one, newest first, by pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.store.database.scope_keys import has_walls, raw_scope_key
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.ledger.lineage import CONSOLIDATED_STATUS, RAW_STATUS


class Position(NamedTuple):
    """Place of a memory in the list: the next page begins after it."""

    created_at: datetime
    id: UUID


@dataclass(frozen=True, kw_only=True)
class ListFilter:
    """Conditions on the memories of a list, all of which must be met; None = no such condition.

    ``kind``: raw, or the kind of a consolidated memory. ``text``: words that one of its texts contains, whatever their
    case. ``scope``: only memories of this scope and of the empty one, by the project's option ``scope_option``.
    ``after``: only memories that come after this place.
    """

    kind: str | None = None
    status: str | None = None
    memory_type: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    text: str | None = None
    scope: str | None = None
    scope_option: str = NO_WALLS
    after: Position | None = None


_LIST_MEMORIES = """
    SELECT id, kind, status, memory_type, content, tags, user_id, session_id, agent_id, importance, pinned,
        archive_reason, learned_at, created_at, version
    FROM (
        SELECT id, 'raw' AS kind, /* raw_status */ AS status, memory_type, execution_summary AS content, tags,
            user_id, session_id, agent_id, importance, pinned, archive_reason, learned_at, created_at, version,
            concat_ws(E'\\n', goal, execution_summary, result, lessons_learned, feedback) AS words,
            /* raw_scope */ AS scope_key
        FROM consolidation.task_memories t WHERE project_id = :project
        UNION ALL
        SELECT id, kind, /* consolidated_status */, memory_type, content, tags,
            user_id, NULL, NULL, importance, pinned, archive_reason, learned_at, created_at, version, content, scope_key
        FROM consolidation.consolidated_memories WHERE project_id = :project) m
    WHERE true /* filters */ ORDER BY created_at DESC, id DESC LIMIT :limit
"""
_FILTERS = {
    "kind": "kind = :kind",
    "status": "status = :status",
    "memory_type": "memory_type = :memory_type",
    "user_id": "user_id = :user_id",
    "session_id": "session_id = :session_id",
    "text": "strpos(lower(words), lower(:text)) > 0",
}


def list_memories(connection: Connection, project_id: UUID, where: ListFilter, *, limit: int) -> list[Row[Any]]:
    """Return the memories that meet the filter, those stored last first."""
    given = {name: getattr(where, name) for name in _FILTERS if getattr(where, name) is not None}
    scoped = where.scope is not None and has_walls(where.scope_option)
    filters = conditions(
        *(_FILTERS[name] for name in given),
        "scope_key IN (:scope, '')" if scoped else None,
        "(created_at, id) < (:created_at, :id)" if where.after else None,
    )
    statement = compose(
        _LIST_MEMORIES,
        raw_status=RAW_STATUS,
        consolidated_status=CONSOLIDATED_STATUS,
        raw_scope=raw_scope_key(where.scope_option),
        filters=filters,
    )
    bound = {"project": project_id, "limit": limit, **given}
    if scoped:
        bound["scope"] = where.scope
    if where.after is not None:
        bound |= {"created_at": where.after.created_at, "id": where.after.id}
    return list(connection.execute(text(statement), bound).all())
