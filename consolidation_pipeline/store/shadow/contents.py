"""Content of the database of a shadow, as far as reports compare it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

_LIST_MERGED = """
    SELECT id, source_memory_ids, content FROM consolidation.consolidated_memories
    WHERE project_id = :project AND kind = 'merged' AND retired_at IS NULL ORDER BY id
"""


def list_merged(connection: Connection, project_id: UUID) -> Sequence[Row[Any]]:
    """Return ``id``, ``source_memory_ids`` and ``content`` of each active merged memory."""
    return connection.execute(text(_LIST_MERGED), {"project": project_id}).all()


_LIST_KNOWLEDGE = """
    SELECT kind, id, content FROM consolidation.consolidated_memories
    WHERE project_id = :project AND kind IN ('pattern', 'principle') AND retired_at IS NULL
    UNION ALL
    SELECT 'playbook', id, content FROM consolidation.playbook_entries
    WHERE project_id = :project AND status <> 'retired' ORDER BY 1, 2
"""


def list_knowledge(connection: Connection, project_id: UUID) -> Sequence[Row[Any]]:
    """Return ``kind``, ``id`` and ``content`` of patterns, principles and playbook entries that are not retired."""
    return connection.execute(text(_LIST_KNOWLEDGE), {"project": project_id}).all()


# Raw memories, and those behind an archived merged memory.
_LIST_ARCHIVED = """
    SELECT id FROM consolidation.task_memories WHERE project_id = :project AND is_archived
    UNION
    SELECT t.id FROM consolidation.task_memories t
        JOIN consolidation.consolidated_memories c ON c.id = t.consolidated_into_id
    WHERE t.project_id = :project AND c.archive_reason IS NOT NULL
"""


def list_archived(connection: Connection, project_id: UUID) -> set[UUID]:
    """Return the ids of archived raw memories, also of those in an archived merged memory."""
    return set(connection.scalars(text(_LIST_ARCHIVED), {"project": project_id}))


_LIST_LABELLED = "SELECT a, b, same FROM consolidation.labelled_pairs WHERE project_id = :project AND same IS NOT NULL"


def list_labelled(connection: Connection, project_id: UUID) -> Sequence[Row[Any]]:
    """Return ``a``, ``b`` and ``same`` of the pairs that people labelled."""
    return connection.execute(text(_LIST_LABELLED), {"project": project_id}).all()


# By a hash of the id: the same memories each time, of all ages.
_LIST_SAMPLE = """
    SELECT t.id, left(t.execution_summary, :length) AS query FROM consolidation.task_memories t
        LEFT JOIN consolidation.consolidated_memories c ON c.id = t.consolidated_into_id
    WHERE t.project_id = :project AND NOT t.is_archived AND c.retired_at IS NULL ORDER BY md5(t.id::text) LIMIT :limit
"""
_LOAD_QUERIES = """
    SELECT id, left(execution_summary, :length) FROM consolidation.task_memories WHERE id = ANY(:ids) ORDER BY id
"""
_LIST_PLACES = """
    SELECT id, coalesce(consolidated_into_id, id) AS place FROM consolidation.task_memories WHERE id = ANY(:ids)
"""


def list_sample(connection: Connection, project_id: UUID, *, limit: int, length: int) -> dict[UUID, str]:
    """Return some of the active raw memories with the first ``length`` characters of their text."""
    parameters = {"project": project_id, "limit": limit, "length": length}
    return dict(connection.execute(text(_LIST_SAMPLE), parameters).tuples().all())


def load_queries(connection: Connection, ids: Sequence[UUID], *, length: int) -> dict[UUID, str]:
    """Return the first ``length`` characters of the text of raw memories."""
    return dict(connection.execute(text(_LOAD_QUERIES), {"ids": list(ids), "length": length}).tuples().all())


def list_places(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, UUID]:
    """Return raw memory id -> id under which search finds it: its merged memory's, else its own."""
    return dict(connection.execute(text(_LIST_PLACES), {"ids": list(ids)}).tuples().all())
