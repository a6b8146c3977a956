"""What a context is made of beside what a search finds: on which raw memories knowledge rests, and playbook entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.schema import consolidated_memories, playbook_entries


def load_leaves(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, frozenset[UUID]]:
    """The raw memories that consolidated memories were made from, by id; other ids are left out."""
    query = f"SELECT id, source_memory_ids FROM {consolidated_memories} WHERE id = ANY(:ids)"
    rows = connection.execute(text(query), {"ids": list(ids)})
    return {row.id: frozenset(row.source_memory_ids) for row in rows}


@dataclass(frozen=True)
class RestingEntry:
    """An active playbook entry. ``leaves``: the raw memories that it was made from or that bear it out."""

    id: UUID
    content: str
    category: str
    tags: list[str]
    priority: int
    confidence: float | None
    leaves: frozenset[UUID]


_RESTING = f"""
    SELECT e.id, e.content, e.category, e.tags, e.priority, e.confidence, rests.leaves
    FROM {playbook_entries} e, LATERAL (
        SELECT array_agg(leaf) AS leaves FROM (
            SELECT unnest(e.supporting_memory_ids) UNION
            SELECT unnest(d.source_memory_ids) FROM {consolidated_memories} d WHERE d.id = e.source_id) l(leaf)) rests
    WHERE e.project_id = :project AND e.status = 'active' AND rests.leaves && CAST(:ids AS uuid[])
    ORDER BY e.priority DESC, e.id
"""


def load_resting_entries(connection: Connection, project_id: UUID, ids: Sequence[UUID]) -> list[RestingEntry]:
    """The active entries that rest on one of the raw memories with ``ids`` or more, most urgent first."""
    rows = connection.execute(text(_RESTING), {"project": project_id, "ids": list(ids)})
    return [RestingEntry(**{**row._mapping, "leaves": frozenset(row.leaves)}) for row in rows]


def count_categories(connection: Connection, project_id: UUID) -> dict[str, int]:
    """How many active entries each chapter of the playbook has."""
    query = (
        f"SELECT category, count(*) FROM {playbook_entries} WHERE project_id = :project AND status = 'active' "
        "GROUP BY category ORDER BY category"
    )
    return {row[0]: row[1] for row in connection.execute(text(query), {"project": project_id})}


def has_knowledge(connection: Connection, project_id: UUID) -> bool:
    """Whether a run made anything of the project's memories that is active."""
    query = f"SELECT EXISTS (SELECT 1 FROM {consolidated_memories} WHERE project_id = :project AND retired_at IS NULL)"
    return bool(connection.execute(text(query), {"project": project_id}).scalar_one())
