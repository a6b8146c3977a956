"""Proposed merges that wait for a person: what is shown of them, and how they are written through the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.memories import TEXT_COLUMNS
from consolidation_pipeline.store.schema import SCHEMA

_SUGGESTIONS = f"{SCHEMA}.consolidation_suggestions"
_CHANGES = f"{SCHEMA}.consolidation_changes"

# All originals are of one type, but where a project lets groups cross types: then the first one's counts.
_TYPE = (
    f"coalesce((SELECT memory_type FROM {SCHEMA}.task_memories WHERE id = s.original_memory_ids[1]), "
    f"(SELECT memory_type FROM {SCHEMA}.consolidated_memories WHERE id = s.original_memory_ids[1]))"
)
# The group of the decision that is in force, by which it is undone.
_DECISION = (
    f"CASE WHEN s.status IN ('validated', 'rejected') THEN (SELECT c.group_id FROM {_CHANGES} c "
    "WHERE c.entity_id = s.id AND c.version_after = s.version ORDER BY c.seq DESC LIMIT 1) END"
)
_CHOSEN = (
    "(CAST(:project AS uuid) IS NULL OR s.project_id = :project) "
    "AND (CAST(:status AS text) IS NULL OR s.status = :status) "
    "AND (CAST(:least AS real) IS NULL OR s.similarity >= CAST(:least AS real) - 1e-6) "
    f"AND (CAST(:type AS text) IS NULL OR {_TYPE} = :type)"
)
_SHOWN = f"""
    SELECT s.*, p.slug, {_TYPE} AS memory_type, {_DECISION} AS decided_in
    FROM {_SUGGESTIONS} s JOIN {SCHEMA}.projects p ON p.id = s.project_id
"""


def list_suggestions(
    connection: Connection,
    project_id: UUID | None,
    *,
    status: str | None,
    memory_type: str | None,
    least: float | None,
    limit: int,
    offset: int = 0,
) -> tuple[int, Sequence[Row[Any]]]:
    """How many suggestions there are, and a page of them: the last decided first, of those that wait the most similar.

    None = of any project, status, memory type; ``least``: the lowest similarity.
    """
    chosen = {"project": project_id, "status": status, "type": memory_type, "least": least}
    total = connection.execute(text(f"SELECT count(*) FROM {_SUGGESTIONS} s WHERE {_CHOSEN}"), chosen).scalar_one()
    query = (
        f"{_SHOWN} WHERE {_CHOSEN} ORDER BY s.reviewed_at DESC NULLS LAST, s.similarity DESC NULLS LAST, s.created_at, "
        "s.id LIMIT :limit OFFSET :offset"
    )
    rows = connection.execute(text(query), {**chosen, "limit": limit, "offset": offset}).all()
    return int(total), rows


def find_suggestion(connection: Connection, suggestion_id: UUID) -> Row[Any] | None:
    """One suggestion, as ``list_suggestions`` has them."""
    return connection.execute(text(f"{_SHOWN} WHERE s.id = :id"), {"id": suggestion_id}).one_or_none()


_ORIGINALS = f"""
    SELECT id, 'raw' AS kind, memory_type, version, learned_at, source, content_hash,
        NOT is_archived AND NOT is_consolidated AS is_active, ARRAY[{", ".join(TEXT_COLUMNS)}] AS texts
    FROM {SCHEMA}.task_memories WHERE id = ANY(:ids)
    UNION ALL
    SELECT id, kind, memory_type, version, learned_at, NULL, content_hash, retired_at IS NULL, ARRAY[content]
    FROM {SCHEMA}.consolidated_memories WHERE id = ANY(:ids)
"""


def load_originals(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Row[Any]]:
    """Raw and merged memories by id, archived ones too; ``texts`` of a raw one in the order of ``TEXT_COLUMNS``."""
    return {row.id: row for row in connection.execute(text(_ORIGINALS), {"ids": list(ids)})}
