"""List of the memories of a project, by pages that stay right while memories are added."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.memories.memories import LEVELS, MEMORY_TYPES
from consolidation_pipeline.core.memories.row_fields import check_characters
from consolidation_pipeline.errors import UsageError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.ledger.lineage import MEMORY_STATUSES
from consolidation_pipeline.store.memories import listing
from consolidation_pipeline.store.memories.listing import ListFilter, Position
from consolidation_pipeline.store.projects import get_project

MAX_LISTED = 1_000


@dataclass(frozen=True)
class MemoryPage:
    """Memories, those stored last first. ``next``: cursor of the next page; None if this is the last one."""

    project: str
    memories: Sequence[dict[str, Any]]
    next: str | None


def list_memories(
    engine: Engine,
    slug: str,
    *,
    kind: str | None = "raw",
    status: str | None = None,
    memory_type: str | None = None,
    user_id: str | None = None,
    session_id: str | None = None,
    text: str | None = None,
    scope: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> MemoryPage:
    """Return a page of the memories of a project.

    Args:
        engine: The store.
        slug: The project.
        kind: raw, or a kind of consolidated memories; None = all.
        status: One of ``MEMORY_STATUSES``; None = all.
        memory_type: Only this type.
        user_id: Only of this user.
        session_id: Only of this session.
        text: Only memories that contain these words, whatever their case.
        scope: Key of a scope: only memories of it and of no scope in particular.
        limit: Most memories of a page.
        cursor: ``next`` of the page before; None = the first page.

    Raises:
        NotFoundError: There is no such project.
        UsageError: A filter, the limit or the cursor is not allowed.
        InvalidMemoryError: A text of a filter cannot be stored: no memory has it.
    """
    for name, value, allowed in (
        ("kind", kind, tuple(LEVELS)),
        ("status", status, MEMORY_STATUSES),
        ("memory_type", memory_type, MEMORY_TYPES),
    ):
        if value is not None and value not in allowed:
            raise UsageError(f"{name} is {value!r}: expected one of {', '.join(allowed)}")
    for name, value in (("user_id", user_id), ("session_id", session_id), ("text", text)):
        check_characters(name, value or "")
    if not 1 <= limit <= MAX_LISTED:
        raise UsageError(f"limit is {limit}: expected 1 to {MAX_LISTED:,}")
    after = None if cursor is None else _read_cursor(cursor)
    with engine.connect() as connection:
        project = get_project(connection, slug)
        where = ListFilter(
            kind=kind,
            status=status,
            memory_type=memory_type,
            user_id=user_id,
            session_id=session_id,
            text=text,
            scope=scope,
            scope_option=parse_options(project.config).scope,
            after=after,
        )
        rows = listing.list_memories(connection, project.id, where, limit=limit + 1)
    page = [{"project": slug, **row._mapping} for row in rows[:limit]]
    last = _write_cursor(rows[limit - 1].created_at, rows[limit - 1].id) if len(rows) > limit else None
    return MemoryPage(slug, page, last)


def _write_cursor(created_at: datetime, id: UUID) -> str:
    return base64.urlsafe_b64encode(f"{created_at.isoformat()} {id}".encode()).decode()


def _read_cursor(cursor: str) -> Position:
    try:
        created_at, _, id_ = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        return Position(datetime.fromisoformat(created_at), UUID(id_))
    except (ValueError, binascii.Error):
        raise UsageError(f"cursor is {cursor[:80]!r}: give `next` of the page before, as it is") from None
