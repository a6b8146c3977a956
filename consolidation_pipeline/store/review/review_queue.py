"""Review queue: patterns, principles and playbook entries that wait for a person, and the person's decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.knowledge.abstractions import APPROVED
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED, Author, Change, update_rows
from consolidation_pipeline.store.memories.memories import lock_rows

PLAYBOOK_ENTRY = "playbook"
REVIEWED_KINDS = ("pattern", "principle", PLAYBOOK_ENTRY)
DISMISSED = "dismissed"

# Everyone who writes to both tables locks them in this order.
_TABLES = ("consolidated_memories", "playbook_entries")


@dataclass(frozen=True)
class ReviewItem:
    """A row that a person decides on; ``kind`` may be one that is not reviewed.

    ``is_waiting``: nobody has decided on it yet, so it can be approved. ``can_be_dismissed``: it is active or waits.
    ``content``: None if the kind is not reviewed.
    """

    id: UUID
    project_id: UUID
    project: str
    table: str
    kind: str
    version: int
    is_waiting: bool
    can_be_dismissed: bool
    details: Mapping[str, Any] | None
    content: str | None


_LOAD_ROWS = """
    SELECT r.id, r.project_id, p.slug, r.found_in, r.kind, r.version, r.is_waiting, r.can_be_dismissed, r.details,
        r.content
    FROM (
        SELECT id, project_id, 'task_memories' AS found_in, 'raw' AS kind, version, false AS is_waiting,
            false AS can_be_dismissed, NULL::jsonb AS details, NULL AS content
        FROM consolidation.task_memories WHERE id = ANY(:ids)
        UNION ALL
        SELECT id, project_id, 'memory_relations', 'relation', version, false, false, NULL, NULL
        FROM consolidation.memory_relations WHERE id = ANY(:ids)
        UNION ALL
        SELECT id, project_id, 'consolidated_memories', kind, version,
            needs_review AND retired_at IS NULL AND kind IN ('pattern', 'principle'),
            retired_at IS NULL AND kind IN ('pattern', 'principle'), details, content
        FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
        UNION ALL
        SELECT id, project_id, 'playbook_entries', 'playbook', version, status = 'review', status <> 'retired', NULL,
            content
        FROM consolidation.playbook_entries WHERE id = ANY(:ids)) r
    JOIN consolidation.projects p ON p.id = r.project_id
"""


def lock_review_items(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, ReviewItem]:
    """Lock the memories and playbook entries with these ids until the transaction ends, and return them by id."""
    chosen = {"ids": list(ids)}
    for table in _TABLES:
        lock_rows(connection, table, "id = ANY(:ids)", chosen)
    return {row.id: ReviewItem(*row) for row in connection.execute(text(_LOAD_ROWS), chosen)}


def write_review_decisions(
    connection: Connection, author: Author, rows: Sequence[ReviewItem], *, approved: bool, reason: str, now: datetime
) -> dict[UUID, UUID]:
    """Approve or dismiss rows of one project; return the ledger group of each row.

    Raises:
        ConflictError: a row changed since it was read.
    """
    groups = {row.id: uuid4() for row in rows}
    for table in _TABLES:
        changes = [
            Change(row.id, groups[row.id], _decided_columns(row, approved=approved, now=now), row.version, reason)
            for row in rows
            if row.table == table
        ]
        update_rows(connection, author, LEDGERED[table], changes, operation="review")
    return groups


def _decided_columns(row: ReviewItem, *, approved: bool, now: datetime) -> dict[str, Any]:
    if row.table == "playbook_entries":
        return {"status": "active" if approved else "retired", "updated_at": now}
    if approved:
        return {"needs_review": False, "details": {**(row.details or {}), APPROVED: True}}
    return {"retired_at": now, "archive_reason": DISMISSED}


# `reason`: why a playbook entry waits, from the newest change that made it wait.
_WAITING = """
    SELECT id, kind, pattern_type, confidence_score AS confidence, llm_confidence, source_count AS evidence, content,
        details, consolidation_method AS method, created_at, NULL AS reason
    FROM consolidation.consolidated_memories
    WHERE project_id = :project AND needs_review AND retired_at IS NULL AND kind IN ('pattern', 'principle')
    UNION ALL
    SELECT e.id, 'playbook', s.pattern_type, e.confidence, s.llm_confidence, cardinality(e.supporting_memory_ids),
        e.content, s.details, s.consolidation_method, e.created_at,
        (SELECT c.reason FROM consolidation.consolidation_changes c WHERE c.entity_id = e.id
            AND c.new_state ->> 'status' = 'review' AND c.operation <> 'rollback' ORDER BY c.seq DESC LIMIT 1)
    FROM consolidation.playbook_entries e LEFT JOIN consolidation.consolidated_memories s ON s.id = e.source_id
    WHERE e.project_id = :project AND e.status = 'review'
"""
_LIST_REVIEW_ITEMS = compose(
    """
    SELECT * FROM (/* waiting */) w WHERE CAST(:kind AS text) IS NULL OR kind = :kind
    ORDER BY confidence DESC NULLS LAST, created_at DESC, id LIMIT :limit
    """,
    waiting=_WAITING,
)


def list_review_items(connection: Connection, project_id: UUID, *, limit: int, kind: str | None) -> Sequence[Row[Any]]:
    """Return the rows of ``kind``, or of all ``REVIEWED_KINDS``, that wait for a person.

    The highest confidence comes first; of equals, the newest.
    """
    bound = {"project": project_id, "kind": kind, "limit": limit}
    return connection.execute(text(_LIST_REVIEW_ITEMS), bound).all()


_COUNT_REVIEW_ITEMS = compose("SELECT kind, count(*) FROM (/* waiting */) w GROUP BY 1", waiting=_WAITING)


def count_review_items(connection: Connection, project_id: UUID) -> dict[str, int]:
    """Return the number of rows that wait for a person by kind, without kinds that have none."""
    rows = connection.execute(text(_COUNT_REVIEW_ITEMS), {"project": project_id})
    return {row[0]: row[1] for row in rows}
