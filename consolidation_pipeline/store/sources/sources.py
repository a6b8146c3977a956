"""Connected stores and their rows: which memory mirrors which row, and in what state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Row, text
from sqlalchemy.exc import IntegrityError

from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.store.database.scope_keys import raw_scope_key
from consolidation_pipeline.store.database.sql import compose
from consolidation_pipeline.store.ledger.ledger_writer import copy_rows


@dataclass(frozen=True)
class Source:
    """A connected store.

    ``config``: as ``read_config`` takes it. ``last_sync``: numbers of the last sync; ``changed``: those of the last one
    that changed something, and when it ended; ``failing``: updates that failed since.
    """

    id: UUID
    project_id: UUID
    project: str
    name: str
    config: Mapping[str, Any]
    mode: str
    synced_at: datetime | None
    last_sync: Mapping[str, Any]


@dataclass(frozen=True)
class SourceRowState:
    """A row of a store as it was read last. ``changed_at``: None = now."""

    key: str
    memory_id: UUID
    stamp: str
    state: str
    reason: str | None = None
    changed_at: datetime | None = None


_SOURCES = """
    SELECT s.id, s.project_id, p.slug, s.name, s.config, s.mode, s.synced_at, s.last_sync
    FROM consolidation.sources s JOIN consolidation.projects p ON p.id = s.project_id
"""
_CREATE_SOURCE = """
    INSERT INTO consolidation.sources (project_id, name, config, mode)
    VALUES (:project, :name, CAST(:config AS jsonb), :mode)
"""


def create_source(
    connection: Connection, project_id: UUID, name: str, *, config: Mapping[str, Any], mode: str
) -> Source:
    """Store a connected store.

    Raises:
        ConflictError: Another one has this name.
    """
    bound = {"project": project_id, "name": name, "config": json.dumps(dict(config)), "mode": mode}
    try:
        with connection.begin_nested():
            connection.execute(text(_CREATE_SOURCE), bound)
    except IntegrityError as error:
        raise ConflictError(f"a source is named {name} already: choose another --name", (name,)) from error
    return get_source(connection, name)


def get_source(connection: Connection, name: str) -> Source:
    """Return the connected store with this name.

    Raises:
        NotFoundError: There is none; the message lists those that are there.
    """
    row = connection.execute(text(f"{_SOURCES} WHERE s.name = :name"), {"name": name}).one_or_none()
    if row is None:
        known = ", ".join(source.name for source in list_sources(connection)) or "none"
        raise NotFoundError(f"there is no source {name!r}; sources: {known}")
    return Source(*row)


def list_sources(connection: Connection, project_id: UUID | None = None) -> list[Source]:
    """Return the connected stores of a project, or of all, by name."""
    statement = f"{_SOURCES} WHERE CAST(:project AS uuid) IS NULL OR s.project_id = :project ORDER BY s.name"
    return [Source(*row) for row in connection.execute(text(statement), {"project": project_id})]


def delete_source(connection: Connection, source_id: UUID) -> None:
    """Forget a connected store with its rows and writes; its memories stay."""
    connection.execute(text("DELETE FROM consolidation.sources WHERE id = :source"), {"source": source_id})


def save_mode(connection: Connection, source_id: UUID, mode: str) -> None:
    """Set the mode of a connected store."""
    statement = "UPDATE consolidation.sources SET mode = :mode WHERE id = :source"
    connection.execute(text(statement), {"source": source_id, "mode": mode})


_LOAD_STATES = """
    SELECT key, memory_id, stamp, state, reason FROM consolidation.source_rows
    WHERE source_id = :source AND (CAST(:keys AS text[]) IS NULL OR key = ANY(:keys))
"""


def load_row_states(
    connection: Connection, source_id: UUID, keys: Sequence[str] | None = None
) -> dict[str, SourceRowState]:
    """Return the rows of a store by key, as they were read last: those with ``keys``, or all."""
    bound = {"source": source_id, "keys": None if keys is None else list(keys)}
    return {row.key: SourceRowState(*row) for row in connection.execute(text(_LOAD_STATES), bound)}


_FIND_MIRRORED = """
    SELECT r.memory_id, r.key, s.name
    FROM consolidation.source_rows r JOIN consolidation.sources s ON s.id = r.source_id
    WHERE r.memory_id = ANY(:ids) AND r.state IN ('mirrored', 'hidden') ORDER BY r.memory_id LIMIT 1
"""


def find_mirrored(connection: Connection, ids: Sequence[UUID]) -> Row[Any] | None:
    """Return the first of these memories that mirrors a row of a connected store: ``memory_id``, ``key``, ``name``."""
    return connection.execute(text(_FIND_MIRRORED), {"ids": list(ids)}).one_or_none()


_FORGET_STAMPS = """
    UPDATE consolidation.source_rows r SET stamp = '' FROM consolidation.consolidation_changes c
    WHERE c.group_id = :group AND c.entity_type = 'task_memories' AND c.new_state ? 'content_hash'
        AND r.memory_id = c.entity_id AND r.state = 'mirrored'
"""


def forget_stamps(connection: Connection, group_id: UUID) -> None:
    """Let the rows be read again whose memories got another text by a group of changes, as by an undo of a sync."""
    connection.execute(text(_FORGET_STAMPS), {"group": group_id})


_STAGED = ("key", "memory_id", "stamp", "state", "reason", "changed_at")
_CREATE_STAGING = """
    CREATE TEMP TABLE read_rows (
        key text, memory_id uuid, stamp text, state text, reason text, changed_at timestamptz) ON COMMIT DROP
"""
_SAVE_STATES = """
    INSERT INTO consolidation.source_rows (project_id, source_id, key, memory_id, stamp, state, reason, changed_at)
    SELECT s.project_id, s.id, key, memory_id, stamp, state, reason, least(coalesce(changed_at, now()), now())
    FROM read_rows, consolidation.sources s WHERE s.id = :source ORDER BY key
    ON CONFLICT (source_id, key) DO UPDATE SET
        memory_id = excluded.memory_id, stamp = excluded.stamp, state = excluded.state, reason = excluded.reason,
        changed_at = excluded.changed_at
"""


def save_row_states(connection: Connection, source_id: UUID, rows: Iterable[SourceRowState]) -> None:
    """Write rows as they were read now: one COPY and one statement."""
    connection.execute(text("DROP TABLE IF EXISTS read_rows"))
    connection.execute(text(_CREATE_STAGING))
    copy_rows(connection, "read_rows", ([getattr(row, name) for name in _STAGED] for row in rows))
    connection.execute(text(_SAVE_STATES), {"source": source_id})


_LIST_KEYS_IN = "SELECT key FROM consolidation.source_rows WHERE source_id = :source AND state = ANY(:states)"


def list_keys(connection: Connection, source_id: UUID, states: Sequence[str]) -> list[str]:
    """Return the keys of the rows of a store that are in one of these states."""
    return list(connection.scalars(text(_LIST_KEYS_IN), {"source": source_id, "states": list(states)}))


_COUNT_KEYS = f"""
    SELECT (SELECT count(*) FROM ({_LIST_KEYS_IN}) known)
        - (SELECT count(*) FROM ({_LIST_KEYS_IN} AND key = ANY(:without)) left_out)
"""


def count_keys(connection: Connection, source_id: UUID, states: Sequence[str], *, without: Sequence[str]) -> int:
    """Return the number of rows of a store that are in one of these states, but for those with some keys."""
    bound = {"source": source_id, "states": list(states), "without": list(without)}
    return int(connection.execute(text(_COUNT_KEYS), bound).scalar_one())


_LIST_KEYS = (
    "SELECT key FROM consolidation.source_rows WHERE source_id = :source AND memory_id = ANY(:ids) ORDER BY key"
)


def list_keys_of_memories(connection: Connection, source_id: UUID, ids: Sequence[UUID]) -> list[str]:
    """Return the keys of the rows that these memories mirror."""
    return list(connection.scalars(text(_LIST_KEYS), {"source": source_id, "ids": list(ids)}))


_BURY = """
    UPDATE consolidation.source_rows SET state = 'erased', stamp = '', reason = NULL, memory_id = gen_random_uuid()
    WHERE source_id = :source AND key = ANY(:keys)
"""


def bury_rows(connection: Connection, source_id: UUID, keys: Sequence[str]) -> None:
    """Mark rows of a store so that no sync copies them again; nothing but the key stays known of them."""
    connection.execute(text(_BURY), {"source": source_id, "keys": list(keys)})


_LIST_ACTIVE = """
    SELECT id FROM consolidation.task_memories WHERE id = ANY(:ids) AND archived_at IS NULL
    UNION ALL
    SELECT id FROM consolidation.consolidated_memories WHERE id = ANY(:ids) AND retired_at IS NULL
"""


def list_active(connection: Connection, ids: Sequence[UUID]) -> set[UUID]:
    """Return those raw and merged memories that exist and are neither archived nor deleted."""
    return set(connection.scalars(text(_LIST_ACTIVE), {"ids": list(ids)}))


_LOAD_STORED = """
    SELECT id, execution_summary, /* scope_key */, archived_at IS NULL, archive_reason
    FROM consolidation.task_memories t
    WHERE id = ANY(:ids)
"""


@dataclass(frozen=True)
class StoredMemory:
    """A raw memory that is stored already. ``scope_key``: None in a project without walls."""

    id: UUID
    body: str
    scope_key: str | None
    is_active: bool
    archive_reason: str | None


def load_stored(connection: Connection, ids: Sequence[UUID], *, scope: str) -> dict[UUID, StoredMemory]:
    """Return those raw memories that exist, by id. ``scope``: the project's option."""
    statement = compose(_LOAD_STORED, scope_key=raw_scope_key(scope))
    return {row[0]: StoredMemory(*row) for row in connection.execute(text(statement), {"ids": list(ids)})}


_SAVE_SYNC = """
    UPDATE consolidation.sources SET synced_at = now(), last_sync = CAST(:numbers AS jsonb) || jsonb_strip_nulls(
        jsonb_build_object('changed', CASE
            WHEN :is_change THEN CAST(:counts AS jsonb) || jsonb_build_object('at', now())
            ELSE last_sync -> 'changed' END))
    WHERE id = :source
"""


def save_sync(
    connection: Connection, source_id: UUID, numbers: Mapping[str, Any], *, changed: Mapping[str, int] | None
) -> None:
    """Record that a sync ended. ``changed``: its counts, None if it changed no memory."""
    bound = {"source": source_id, "numbers": json.dumps(dict(numbers)), "is_change": changed is not None}
    connection.execute(text(_SAVE_SYNC), {**bound, "counts": json.dumps(changed and dict(changed))})


_SAVE_FAILURE = """
    UPDATE consolidation.sources SET last_sync = last_sync || jsonb_build_object('failing', CAST(:numbers AS jsonb))
    WHERE id = :source
"""


def save_failure(connection: Connection, source_id: UUID, numbers: Mapping[str, Any]) -> None:
    """Record that an update failed. The next sync that ends removes the record."""
    connection.execute(text(_SAVE_FAILURE), {"source": source_id, "numbers": json.dumps(dict(numbers))})


_LIST_FAILING = """
    SELECT name, last_sync #>> '{failing,error}' FROM consolidation.sources
    WHERE project_id = :project AND last_sync ? 'failing' ORDER BY name
"""


def list_failing(connection: Connection, project_id: UUID) -> list[str]:
    """Return the connected stores of a project whose last update failed, each with the reason."""
    rows = connection.execute(text(_LIST_FAILING), {"project": project_id})
    return [f"{name}: {error}" for name, error in rows]


_REMEMBER_ERASED = """
    INSERT INTO consolidation.erased_source_rows (project_id, row_hash)
    SELECT :project, hash FROM unnest(CAST(:hashes AS text[])) hash ON CONFLICT DO NOTHING
"""


def remember_erased_rows(connection: Connection, project_id: UUID, hashes: Sequence[str]) -> None:
    """Record hashes of rows whose memories are erased, for syncs of the store under any name."""
    connection.execute(text(_REMEMBER_ERASED), {"project": project_id, "hashes": list(hashes)})


def load_erased_hashes(connection: Connection, project_id: UUID) -> set[str]:
    """Return the hashes of rows of connected stores whose memories were erased."""
    statement = "SELECT row_hash FROM consolidation.erased_source_rows WHERE project_id = :project"
    return set(connection.scalars(text(statement), {"project": project_id}))
