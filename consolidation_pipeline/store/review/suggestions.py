"""Proposed merges that wait for a person: what is shown of them, and how they are written through the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, text

from consolidation_pipeline.store.database.schema import consolidation_suggestions
from consolidation_pipeline.store.ledger.ledger_writer import (
    Author,
    Change,
    check_constraints_at_end,
    insert_rows,
    update_rows,
)
from consolidation_pipeline.store.memories.memories import TEXT_COLUMNS, lock_rows

# All originals are of one type, but where a project lets groups cross types: then the first one's counts.
_TYPE = (
    "coalesce((SELECT memory_type FROM consolidation.task_memories WHERE id = s.original_memory_ids[1]), "
    "(SELECT memory_type FROM consolidation.consolidated_memories WHERE id = s.original_memory_ids[1]))"
)
# The group of the decision that is in force, by which it is undone.
_DECISION = (
    "CASE WHEN s.status IN ('validated', 'rejected') THEN (SELECT c.group_id FROM consolidation.consolidation_changes c "
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
    FROM consolidation.consolidation_suggestions s JOIN consolidation.projects p ON p.id = s.project_id
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
    total = connection.execute(
        text(f"SELECT count(*) FROM consolidation.consolidation_suggestions s WHERE {_CHOSEN}"), chosen
    ).scalar_one()
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
    SELECT id, 'raw' AS kind, memory_type, version, learned_at, source, content_hash, language::text,
        NOT is_archived AND NOT is_consolidated AS is_active,
        CASE WHEN is_consolidated THEN 'was merged' ELSE 'was archived' END AS gone,
        ARRAY[{", ".join(TEXT_COLUMNS)}] AS texts
    FROM consolidation.task_memories WHERE id = ANY(:ids)
    UNION ALL
    SELECT id, kind, memory_type, version, learned_at, NULL, content_hash, language::text, retired_at IS NULL,
        CASE WHEN superseded_by_id IS NOT NULL THEN 'was merged' ELSE 'was archived' END, ARRAY[content]
    FROM consolidation.consolidated_memories WHERE id = ANY(:ids)
"""


def load_originals(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Row[Any]]:
    """Raw and consolidated memories by id, whatever became of them: where they are not active, ``gone`` says what.

    ``texts`` of a raw one in the order of ``TEXT_COLUMNS``, else the content.
    """
    return {row.id: row for row in connection.execute(text(_ORIGINALS), {"ids": list(ids)})}


@dataclass(frozen=True)
class NewSuggestion:
    """A proposed merge ready to be written; ``originals``: (id, version) as they were when it was worded."""

    cluster_key: str
    originals: Sequence[tuple[UUID, int]]
    fingerprint: str
    content: str
    lessons_learned: str | None
    keywords: Sequence[str]
    similarity: float | None
    rationale: str


def append_suggestions(
    connection: Connection, author: Author, suggestions: Sequence[NewSuggestion], *, now: datetime
) -> list[UUID]:
    """Write pending suggestions, each a group of its own in the ledger; returns their ids.

    Raises:
        ConflictError: one asks what was asked before, or shares a memory with a pending one; none is written then.
    """
    changes = [Change(uuid4(), uuid4(), _columns(one, now), None, one.rationale) for one in suggestions]
    with check_constraints_at_end(connection, "suggestion"):
        insert_rows(connection, author, consolidation_suggestions, changes, operation="review")
    return [change.entity_id for change in changes]


def _columns(suggestion: NewSuggestion, now: datetime) -> dict[str, Any]:
    ids, versions = zip(*suggestion.originals, strict=True)
    return {
        "group_id": suggestion.cluster_key,
        "status": "pending",
        "suggested_content": suggestion.content,
        "suggested_lessons_learned": suggestion.lessons_learned,
        "suggested_keywords": list(suggestion.keywords),
        "original_memory_ids": list(ids),
        "original_versions": list(versions),
        "similarity": suggestion.similarity,
        "rationale": suggestion.rationale,
        "fingerprint": suggestion.fingerprint,
        "created_at": now,
    }


def load_proposed(connection: Connection, project_id: UUID) -> tuple[set[str], set[UUID]]:
    """Fingerprints of what a person was asked, superseded questions left out, and the memories that still wait."""
    named = {"project": project_id}
    asked = "SELECT fingerprint FROM consolidation.consolidation_suggestions WHERE project_id = :project AND status <> 'superseded'"
    waiting = "SELECT memory_id FROM consolidation.suggestion_originals WHERE project_id = :project"
    return set(connection.scalars(text(asked), named)), set(connection.scalars(text(waiting), named))


def count_suggestions(connection: Connection, project_id: UUID) -> dict[str, int]:
    """How many suggestions of each status a project has; a status that none has is left out."""
    query = (
        "SELECT status, count(*) FROM consolidation.consolidation_suggestions WHERE project_id = :project GROUP BY 1"
    )
    return {row[0]: row[1] for row in connection.execute(text(query), {"project": project_id})}


_STALE = """
    SELECT s.id, s.version FROM consolidation.consolidation_suggestions s WHERE s.project_id = :project AND s.status = 'pending' AND EXISTS (
        SELECT 1 FROM unnest(s.original_memory_ids, s.original_versions) AS o(id, version)
        WHERE NOT EXISTS (SELECT 1 FROM consolidation.task_memories m WHERE m.id = o.id AND m.version = o.version
                AND NOT m.is_archived AND NOT m.is_consolidated)
            AND NOT EXISTS (SELECT 1 FROM consolidation.consolidated_memories c WHERE c.id = o.id AND c.version = o.version
                AND c.retired_at IS NULL))
    ORDER BY s.id FOR UPDATE OF s
"""


def supersede_stale(connection: Connection, author: Author) -> int:
    """Mark pending suggestions superseded of which an original is gone, archived, merged or changed; their number."""
    stale = connection.execute(text(_STALE), {"project": author.project_id}).all()
    values = {"status": "superseded"}
    changes = [Change(row.id, uuid4(), values, row.version, "an original has changed since") for row in stale]
    return update_rows(connection, author, consolidation_suggestions, changes, operation="review")


def list_pending_ids(
    connection: Connection, project_id: UUID, *, memory_type: str | None, least: float | None, limit: int | None
) -> list[UUID]:
    """The pending suggestions of a project that a rule names, the most similar first."""
    chosen = {"project": project_id, "status": "pending", "type": memory_type, "least": least, "limit": limit}
    query = (
        f"SELECT s.id FROM consolidation.consolidation_suggestions s WHERE {_CHOSEN} "
        "ORDER BY s.similarity DESC NULLS LAST, s.created_at, s.id LIMIT :limit"
    )
    return list(connection.scalars(text(query), chosen))


def lock_suggestion(connection: Connection, suggestion_id: UUID) -> Row[Any] | None:
    """The suggestion as it is now, locked until the transaction ends."""
    query = "SELECT s.* FROM consolidation.consolidation_suggestions s WHERE s.id = :id FOR UPDATE"
    return connection.execute(text(query), {"id": suggestion_id}).one_or_none()


def lock_originals(connection: Connection, ids: Sequence[UUID]) -> list[UUID]:
    """Lock these memories, and the raw ones behind those of them that are merged; the ids of all that are raw."""
    raw = "id = ANY(:ids) OR consolidated_into_id = ANY(:ids)"
    chosen = {"ids": list(ids)}
    lock_rows(connection, "consolidated_memories", "id = ANY(:ids)", chosen)
    lock_rows(connection, "task_memories", raw, chosen)
    query = f"SELECT id FROM consolidation.task_memories WHERE {raw} ORDER BY id"
    return list(connection.scalars(text(query), chosen))


def decide_suggestion(
    connection: Connection,
    author: Author,
    suggestion: Row[Any],
    decision: Mapping[str, Any],
    *,
    group_id: UUID,
    reason: str,
) -> None:
    """Write a decision, columns by name, on a suggestion that ``lock_suggestion`` gave."""
    change = Change(suggestion.id, group_id, decision, suggestion.version, reason)
    update_rows(connection, author, consolidation_suggestions, [change], operation="review")
