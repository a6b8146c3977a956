"""Consolidated memories and playbook entries that are not of one scope any more, after the option has changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import Connection, text

from consolidation_pipeline.store.database.schema import consolidated_memories, playbook_entries, task_memories
from consolidation_pipeline.store.database.scope_keys import DISSOLVED, has_walls, raw_scope_key
from consolidation_pipeline.store.database.sql import compose, conditions
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys, reject_duplicates
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, check_constraints_at_end, update_rows


class MisplacedMemory(NamedTuple):
    """An active row whose stored scope key is not that of its raw memories.

    ``kind``: of the consolidated memory, or playbook. ``scopes``: number of their scopes. ``scope_key``: the first,
    None without walls. ``rivals``: number of active rows that would have its active key in this scope.
    """

    id: UUID
    version: int
    kind: str
    content: str
    scopes: int
    scope_key: str | None
    rivals: int = 1

    @property
    def is_dissolved(self) -> bool:
        """True if it cannot stay: it is of several scopes, or another row has its active key in this scope."""
        return self.scopes > 1 or self.rivals > 1

    @property
    def reason(self) -> str:
        """Reason for which it is dissolved."""
        rival = "a profile of a wider scope replaces it" if self.kind == "procedural" else "another has its text"
        return f"{DISSOLVED}{f'its memories are of {self.scopes} scopes' if self.scopes > 1 else rival}"


_LIST_MISPLACED = """
    SELECT id, version, kind, content, scopes, key, rivals FROM (
        SELECT c.id, c.version, c.kind, c.content, c.scope_key, found.key, CASE
            WHEN found.key IS NOT DISTINCT FROM found.last_key THEN 1
            ELSE (SELECT count(DISTINCT /* key */) FROM consolidation.task_memories t
                WHERE t.id = ANY(c.source_memory_ids)) END AS scopes,
            CASE c.kind
            WHEN 'procedural' THEN count(*) OVER (PARTITION BY c.kind, coalesce(c.user_id, ''), found.key)
            WHEN 'merged' THEN count(*) OVER (PARTITION BY c.kind, c.memory_type, c.normalized_hash, found.key)
            ELSE 1 END AS rivals
        FROM consolidation.consolidated_memories c JOIN (
            SELECT d.id, min(/* key */) AS key, max(/* key */) AS last_key
            FROM consolidation.consolidated_memories d CROSS JOIN LATERAL unnest(d.source_memory_ids) AS source(id)
                JOIN consolidation.task_memories t ON t.id = source.id
            WHERE d.project_id = :project AND d.retired_at IS NULL/* kinds */ GROUP BY d.id) found USING (id)) derived
    WHERE scopes > 1 OR scope_key IS DISTINCT FROM key
    UNION ALL
    SELECT e.id, e.version, 'playbook', e.content, found.scopes, found.key, 1
    FROM consolidation.playbook_entries e CROSS JOIN LATERAL (
        SELECT count(DISTINCT /* key */) AS scopes, min(/* key */) AS key
        FROM consolidation.task_memories t WHERE t.id = ANY(e.supporting_memory_ids)) found
    WHERE e.project_id = :project AND e.status <> 'retired' AND found.scopes > 1
    ORDER BY id
"""


def list_misplaced(connection: Connection, project_id: UUID, *, scope: str) -> list[MisplacedMemory]:
    """Return the active consolidated memories and entries whose scope key is not that of their raw memories, by id.

    Args:
        connection: Connection to the store.
        project_id: The project.
        scope: Its option. Without walls, only profiles of former scopes are listed.
    """
    kinds = conditions(None if has_walls(scope) else "d.kind = 'procedural'")
    statement = compose(_LIST_MISPLACED, key=raw_scope_key(scope), kinds=kinds)
    return [MisplacedMemory(*row) for row in connection.execute(text(statement), {"project": project_id})]


_LIST_HIDDEN = """
    SELECT id, version, consolidated_into_id AS merged_id FROM consolidation.task_memories
    WHERE consolidated_into_id = ANY(:ids) ORDER BY id
"""


def dissolve_memories(connection: Connection, author: Author, rows: Sequence[MisplacedMemory], *, now: datetime) -> int:
    """Archive rows that are dissolved, and show the raw memories behind merged ones; return their number.

    Each is a group of its own in the ledger. The memories of a summary wait for another one.

    Raises:
        ConflictError: A row changed since it was read.
    """
    lock_active_keys(connection, [author.project_id])
    groups = {row.id: uuid4() for row in rows}
    hidden = connection.execute(text(_LIST_HIDDEN), {"ids": list(groups)}).all()
    reasons = {row.id: row.reason for row in rows}

    def change(row: MisplacedMemory, **values: Any) -> Change:
        return Change(row.id, groups[row.id], values, row.version, reasons[row.id])

    archived = {row.id: {"retired_at": now, "archive_reason": reasons[row.id], "scope_key": None} for row in rows}
    summaries = [row for row in rows if row.kind == "summary"]
    entries = [row for row in rows if row.kind == "playbook"]
    others = [row for row in rows if row.kind not in ("summary", "playbook")]
    emptied = {"source_memory_ids": [], "source_count": 0, "lineage": []}
    shown = [
        Change(row.id, groups[row.merged_id], {"consolidated_into_id": None}, row.version, reasons[row.merged_id])
        for row in hidden
    ]
    for table, changes in (
        (consolidated_memories, [change(row, **archived[row.id]) for row in others]),
        (consolidated_memories, [change(row, **archived[row.id], **emptied) for row in summaries]),
        (playbook_entries, [change(row, status="retired", updated_at=now) for row in entries]),
        (task_memories, shown),
    ):
        update_rows(connection, author, table, changes, operation="archive")
    return len(shown)


def set_scope_keys(connection: Connection, author: Author, rows: Sequence[MisplacedMemory]) -> None:
    """Store the scope key of consolidated memories, all as one group in the ledger: they may swap their active keys.

    Raises:
        ConflictError: A row changed since it was read, or another active row has its key.
    """
    lock_active_keys(connection, [author.project_id])
    reason = "the option scope has changed"
    group_id = uuid4()
    changes = [Change(row.id, group_id, {"scope_key": row.scope_key}, row.version, reason) for row in rows]
    with check_constraints_at_end(connection, "memory"):
        update_rows(connection, author, consolidated_memories, changes, operation="edit")
    reject_duplicates(connection, author.project_id, [group_id])
