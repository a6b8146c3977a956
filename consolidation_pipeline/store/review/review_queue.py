"""Knowledge that waits for a person: patterns, principles and playbook entries, and what the person says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.knowledge.abstractions import APPROVED
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED, Author, Change, update_rows
from consolidation_pipeline.store.memories.memories import lock_rows

PLAYBOOK_ENTRY = "playbook"
REVIEWED_KINDS = ("pattern", "principle", PLAYBOOK_ENTRY)
DISMISSED = "dismissed"

# In this order everyone who writes to both takes their locks.
_TABLES = ("consolidated_memories", "playbook_entries")
_STANDS = {
    "consolidated_memories": "(retired_at IS NULL AND kind IN ('pattern', 'principle'))",
    "playbook_entries": "(status <> 'retired')",
}
_WAITS = {
    "consolidated_memories": f"(needs_review AND {_STANDS['consolidated_memories']})",
    "playbook_entries": "(status = 'review')",
}
_ROWS = f"""
    SELECT id, project_id, 'task_memories' AS held_in, 'raw' AS kind, version, false AS waits, false AS stands,
        NULL::jsonb AS details
    FROM consolidation.task_memories WHERE id = ANY(:ids)
    UNION ALL
    SELECT id, project_id, 'memory_relations', 'relation', version, false, false, NULL
    FROM consolidation.memory_relations WHERE id = ANY(:ids)
    UNION ALL
    SELECT id, project_id, 'consolidated_memories', kind, version, {_WAITS["consolidated_memories"]},
        {_STANDS["consolidated_memories"]}, details
    FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
    UNION ALL
    SELECT id, project_id, 'playbook_entries', '{PLAYBOOK_ENTRY}', version, {_WAITS["playbook_entries"]},
        {_STANDS["playbook_entries"]}, NULL
    FROM consolidation.playbook_entries WHERE id = ANY(:ids)
"""


@dataclass(frozen=True)
class ReviewItem:
    """What a person decides on; ``waits``: nobody has yet; ``stands``: it is active or waits.

    ``kind`` may be one that is not reviewed here.
    """

    id: UUID
    project_id: UUID
    project: str
    table: str
    kind: str
    version: int
    waits: bool
    stands: bool
    details: Mapping[str, Any] | None


def lock_review_items(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, ReviewItem]:
    """The memories and playbook entries with these ids, by id, locked until the transaction ends."""
    chosen = {"ids": list(ids)}
    for table in _TABLES:
        lock_rows(connection, table, "id = ANY(:ids)", chosen)
    rows = connection.execute(
        text(
            "SELECT r.id, r.project_id, p.slug, r.held_in, r.kind, r.version, r.waits, r.stands, r.details "
            f"FROM ({_ROWS}) r JOIN consolidation.projects p ON p.id = r.project_id"
        ),
        chosen,
    )
    return {row.id: ReviewItem(*row) for row in rows}


def write_review_decisions(
    connection: Connection, author: Author, rows: Sequence[ReviewItem], *, approved: bool, reason: str, now: datetime
) -> dict[UUID, UUID]:
    """Approve or dismiss rows of one project; by row its group in the ledger.

    Raises:
        ConflictError: a row changed since it was read.
    """
    groups = {row.id: uuid4() for row in rows}
    for table in _TABLES:
        changes = [
            Change(row.id, groups[row.id], _decided(row, approved=approved, now=now), row.version, reason)
            for row in rows
            if row.table == table
        ]
        update_rows(connection, author, LEDGERED[table], changes, operation="review")
    return groups


def _decided(row: ReviewItem, *, approved: bool, now: datetime) -> dict[str, Any]:
    if row.table == "playbook_entries":
        return {"status": "active" if approved else "retired", "updated_at": now}
    if approved:
        return {"needs_review": False, "details": {**(row.details or {}), APPROVED: True}}
    return {"retired_at": now, "archive_reason": DISMISSED}


# What waits, with the knowledge it rests on; why an entry waits stands in the ledger, with what made it so.
_WAITING = f"""
    SELECT id, kind, pattern_type, confidence_score AS confidence, llm_confidence, source_count AS evidence, content,
        details, consolidation_method AS method, created_at, NULL AS reason
    FROM consolidation.consolidated_memories WHERE project_id = :project AND {_WAITS["consolidated_memories"]}
    UNION ALL
    SELECT e.id, '{PLAYBOOK_ENTRY}', s.pattern_type, e.confidence, s.llm_confidence, cardinality(e.supporting_memory_ids),
        e.content, s.details, s.consolidation_method, e.created_at,
        (SELECT c.reason FROM consolidation.consolidation_changes c WHERE c.entity_id = e.id
            AND c.new_state ->> 'status' = 'review' AND c.operation <> 'rollback' ORDER BY c.seq DESC LIMIT 1)
    FROM consolidation.playbook_entries e LEFT JOIN consolidation.consolidated_memories s ON s.id = e.source_id
    WHERE e.project_id = :project AND e.status = 'review'
"""


def list_review_items(
    connection: Connection, project_id: UUID, *, limit: int, kind: str | None = None
) -> Sequence[Row[Any]]:
    """What waits for a person, of one ``kind`` if given: the surest first, of equals the newest."""
    query = f"""
        SELECT * FROM ({_WAITING}) w WHERE CAST(:kind AS text) IS NULL OR kind = :kind
        ORDER BY confidence DESC NULLS LAST, created_at DESC, id LIMIT :limit
    """
    return connection.execute(text(query), {"project": project_id, "kind": kind, "limit": limit}).all()


def count_review_items(connection: Connection, project_id: UUID) -> dict[str, int]:
    """How many of each kind wait for a person; a kind of which none does is left out."""
    query = f"SELECT kind, count(*) FROM ({_WAITING}) w GROUP BY 1"
    return {row[0]: row[1] for row in connection.execute(text(query), {"project": project_id})}
