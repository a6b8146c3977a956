"""Archiving: candidates of the policies; archiving, restoring and pinning memories, and setting their importance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from consolidation_pipeline.core.lifecycle.archive_policies import ArchiveUnits
from consolidation_pipeline.core.memories.memories import MEMORY_TYPES
from consolidation_pipeline.store.database.scope_keys import is_dissolved
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.database.vector_copy import Ids, load_columns, to_uuids
from consolidation_pipeline.store.ledger.active_keys import duplicate_of
from consolidation_pipeline.store.ledger.ledger_writer import LEDGERED, Author, Change, update_rows
from consolidation_pipeline.store.memories.history_of_use import age_start, idle_start
from consolidation_pipeline.store.memories.memories import lock_rows
from consolidation_pipeline.store.memories.pending_uses import count_with_pending, last_use_with_pending

# Table -> column of the time of archiving. Consolidated memories come first, the order in which both tables are locked.
ARCHIVED_AT = {"consolidated_memories": "retired_at", "task_memories": "archived_at"}


@dataclass(frozen=True)
class ArchiveCandidates:
    """Active memories of one table that a policy may archive, sorted by id; arrays of shape (n,).

    ``ids``: S16. ``units``: inputs of the policies.
    """

    ids: Ids
    versions: npt.NDArray[np.int32]
    units: ArchiveUnits


# SQL of the memories that a person restored, and of merged memories of which a source was restored. A restored merged
# memory counts for all sources that it ever had, as later runs may have split them. Undoing a whole job does not count:
# nobody looked at each of its memories.
_RESTORED = """
    WITH restored AS (
        SELECT entity_id AS id, max(seq) AS seq FROM consolidation.consolidation_changes
        WHERE project_id = %(project)s AND changed_at > %(restored_since)s
            AND (operation = 'restore' OR reverts_scope = 'group')
            AND previous_state ->> 'archive_reason' IS NOT NULL AND new_state ->> 'archive_reason' IS NULL
            AND new_state ? 'archive_reason' GROUP BY entity_id),
    origins AS (
        SELECT id FROM restored
        UNION
        SELECT source::uuid FROM restored r
            JOIN consolidation.consolidation_changes c
                ON c.entity_id = r.id AND c.seq < r.seq AND c.new_state ->> 'kind' = 'merged',
            jsonb_array_elements_text(c.new_state -> 'source_memory_ids') AS source)
    SELECT coalesce(m.consolidated_into_id, o.id) AS id
    FROM origins o LEFT JOIN consolidation.task_memories m ON m.id = o.id
"""
_LOAD_CANDIDATES = {
    "task_memories": compose(
        """
        WITH restored_by_hand AS MATERIALIZED (/* restored */)
        SELECT id, version, greatest(extract(epoch FROM %(as_of)s - /* idle_start */)::float8 / 86400, 0),
            /* uses */, (pinned OR id IN (SELECT id FROM restored_by_hand))::integer, importance,
            array_position(%(types)s::text[], memory_type) - 1, coalesce(relevance_score, 'Infinity'), 1::bigint
        FROM consolidation.task_memories t LEFT JOIN consolidation.relevance_scores r
            ON r.project_id = t.project_id AND r.memory_id = t.id
        WHERE t.project_id = %(project)s AND NOT is_archived
            AND (NOT is_consolidated OR consolidated_into_id = ANY(%(dissolved)s::uuid[]))
            AND (%(ids)s::uuid[] IS NULL OR id = ANY(%(ids)s::uuid[]))
        ORDER BY id
        """,
        restored=_RESTORED,
        idle_start=idle_start("t"),
        uses=count_with_pending("t", "reused_count"),
    ),
    # A new source is an access to its merged memory: the fact was learned again.
    "consolidated_memories": compose(
        """
        WITH restored_by_hand AS MATERIALIZED (/* restored */)
        SELECT id, version,
            greatest(extract(epoch FROM %(as_of)s - greatest(/* last_use */, newest))::float8 / 86400, 0),
            /* uses */, (pinned OR id IN (SELECT id FROM restored_by_hand))::integer, importance,
            array_position(%(types)s::text[], memory_type) - 1, coalesce(relevance_score, 'Infinity'), memories
        FROM consolidation.consolidated_memories m LEFT JOIN consolidation.relevance_scores r
            ON r.project_id = m.project_id AND r.memory_id = m.id, LATERAL (
            SELECT coalesce(max(/* age_start */), m.created_at) AS newest,
                count(*) FILTER (WHERE NOT is_archived) AS memories
            FROM consolidation.task_memories t WHERE consolidated_into_id = m.id) hidden
        WHERE m.project_id = %(project)s AND kind = 'merged' AND retired_at IS NULL AND id <> ALL(%(dissolved)s::uuid[])
            AND (%(ids)s::uuid[] IS NULL OR id = ANY(%(ids)s::uuid[]))
        ORDER BY id
        """,
        restored=_RESTORED,
        last_use=last_use_with_pending("m"),
        uses=count_with_pending("m", "reuse_count"),
        age_start=age_start("t"),
    ),
}
_CANDIDATE_COLUMNS = {
    "id": "S16",
    "version": ">i4",
    "idle": ">f8",
    "reused": ">i4",
    "pinned": ">i4",
    "importance": ">f8",
    "type": ">i4",
    "relevance": ">f8",
    "memories": ">i8",
}


def load_archive_candidates(
    connection: Connection,
    project_id: UUID,
    table: str,
    *,
    as_of: datetime,
    restored_since: datetime,
    ids: Ids | None = None,
    dissolved: Sequence[UUID] = (),
) -> ArchiveCandidates:
    """Return the active raw or merged memories as of an instant.

    Args:
        table: Name of the table.
        as_of: Ages are taken at this instant.
        restored_since: Memories that a person restored after this instant count as pinned.
        ids: Ids S16 of the memories to return; None = all.
        dissolved: Merged memories that count as dissolved: the memories behind them as active, they themselves not.
    """
    parameters = {
        "project": project_id,
        "as_of": as_of,
        "restored_since": restored_since,
        "ids": None if ids is None else to_uuids(ids),
        "types": list(MEMORY_TYPES),
        "dissolved": list(dissolved),
    }
    found, versions, idle, reused, pinned, importance, types, relevance, memories = load_columns(
        connection, _LOAD_CANDIDATES[table], parameters, _CANDIDATE_COLUMNS
    )
    names = np.array(MEMORY_TYPES)[types]
    return ArchiveCandidates(
        found,
        versions,
        ArchiveUnits(
            idle, reused.astype(np.int64), pinned.astype(bool), importance, names, relevance, memories.astype(np.int64)
        ),
    )


_FIND_ARCHIVED = """
    SELECT id FROM consolidation.consolidated_memories WHERE id = ANY(:ids) AND archive_reason IS NOT NULL
    UNION ALL
    SELECT id FROM consolidation.task_memories WHERE id = ANY(:ids) AND archive_reason IS NOT NULL
"""


def find_archived(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Return the ids of the raw and consolidated memories among ``ids`` that are archived."""
    return set(connection.scalars(text(_FIND_ARCHIVED), {"ids": list(ids)}))


@dataclass(frozen=True)
class LockedMemory:
    """A memory that is locked for a change.

    ``successor``: the memory that replaced or hides it; None if active. ``dissolved``: its sources are no longer used
    together.
    """

    id: UUID
    project_id: UUID
    project: str
    table: str
    kind: str
    version: int
    pinned: bool
    archived: bool
    importance: float
    successor: UUID | None
    dissolved: bool


_LIST_LOCKED = compose(
    """
    SELECT m.id, m.project_id, p.slug, m.in_table, m.kind, m.version, m.pinned, m.archived, m.importance, m.successor,
        m.dissolved
    FROM (
        SELECT id, project_id, 'task_memories' AS in_table, 'raw' AS kind, version, pinned, is_archived AS archived,
            importance, consolidated_into_id AS successor, false AS dissolved
        FROM consolidation.task_memories
        UNION ALL
        SELECT id, project_id, 'consolidated_memories', kind, version, pinned,
            retired_at IS NOT NULL AND superseded_by_id IS NULL, importance, superseded_by_id,
            /* dissolved */
        FROM consolidation.consolidated_memories) m
        JOIN consolidation.projects p ON p.id = m.project_id
    WHERE m.id = ANY(:ids)
    """,
    dissolved=is_dissolved("archive_reason"),
)


def lock_memories(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, LockedMemory]:
    """Lock raw and consolidated memories until the transaction ends; return those that exist, by id.

    The sources of merged memories are locked too: to archive one changes them, and a run locks them in order of id.
    """
    chosen = {"ids": list(ids)}
    lock_rows(connection, "consolidated_memories", "id = ANY(:ids)", chosen)
    lock_rows(connection, "task_memories", "id = ANY(:ids) OR consolidated_into_id = ANY(:ids)", chosen)
    rows = connection.execute(text(_LIST_LOCKED), chosen)
    return {row.id: LockedMemory(*row) for row in rows}


class Duplicate(NamedTuple):
    """A consolidated memory with the same active key as another one; both are of the same kind."""

    id: UUID
    kind: str


_FIND_DUPLICATES = compose(
    """
    SELECT DISTINCT ON (m.id) m.id, duplicate.id, duplicate.kind
    FROM consolidation.consolidated_memories m JOIN consolidation.consolidated_memories duplicate ON /* duplicate_of */
    WHERE m.id = ANY(:ids) AND (duplicate.retired_at IS NULL OR duplicate.id = ANY(:ids))
    ORDER BY m.id, duplicate.id
    """,
    duplicate_of=duplicate_of("m"),
)


def find_duplicates(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, Duplicate]:
    """Return for each of these consolidated memories a duplicate that is active or among ``ids``, if there is one."""
    rows = connection.execute(text(_FIND_DUPLICATES), {"ids": list(ids)})
    return {row[0]: Duplicate(*row[1:]) for row in rows}


@dataclass(frozen=True)
class MemoryUpdate:
    """A row to be updated, as a change group of its own.

    ``reason``: text for the ledger. ``archive_reason``: value of the row's column, a policy's name or a person's text.
    """

    id: UUID
    version: int
    group_id: UUID
    reason: str | None
    archive_reason: str | None = None


def archive_rows(
    connection: Connection, author: Author, table: str, updates: Sequence[MemoryUpdate], *, at: datetime
) -> None:
    """Archive rows of ``table`` as of an instant. Raises ConflictError if a row changed since it was read."""
    changes = [
        _to_change(update, {ARCHIVED_AT[table]: at, "archive_reason": update.archive_reason}) for update in updates
    ]
    update_rows(connection, author, LEDGERED[table], changes, operation="archive")


def restore_rows(connection: Connection, author: Author, table: str, updates: Sequence[MemoryUpdate]) -> None:
    """Restore archived rows of ``table``. Raises ConflictError if a row changed since it was read."""
    changes = [_to_change(update, {ARCHIVED_AT[table]: None, "archive_reason": None}) for update in updates]
    update_rows(connection, author, LEDGERED[table], changes, operation="restore")


def edit_rows(
    connection: Connection, author: Author, table: str, updates: Sequence[MemoryUpdate], *, values: Mapping[str, Any]
) -> None:
    """Set the columns ``values`` of rows of ``table``. Raises ConflictError if a row changed since it was read."""
    changes = [_to_change(update, values) for update in updates]
    update_rows(connection, author, LEDGERED[table], changes, operation="edit")


def _to_change(update: MemoryUpdate, values: Mapping[str, Any]) -> Change:
    return Change(update.id, update.group_id, values, update.version, update.reason)
