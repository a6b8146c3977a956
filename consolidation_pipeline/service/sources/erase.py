"""Erasure of memories in the stores that they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from uuid import UUID

from consolidation_pipeline.connect.store import MemoryStore
from consolidation_pipeline.service.sources.dissolved import undo_or_refuse
from consolidation_pipeline.service.sources.stores import open_store, read_config
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.sources.source_writes import forget_rows, forget_writes, list_writes
from consolidation_pipeline.store.sources.sources import (
    Source,
    bury_rows,
    list_keys_of_memories,
    list_sources,
    remember_erased_rows,
)


@dataclass
class ErasedRows:
    """Rows by source: ``removed`` from the store, and ``left`` there, which is only read, or parts of files."""

    removed: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)


def erase_in_sources(
    connection: Connection, project_id: UUID, memory_ids: Sequence[UUID], *, is_preview: bool
) -> ErasedRows:
    """Remove memories from their stores, in the transaction of ``connection``, which commits after the stores.

    Groups that hide one of them are undone first, so that the rows of others are there again. Rows of a store in mode
    mirror, and parts of files, stay there. No sync copies rows with these keys again, also if the store is connected
    anew; a new file under the name of an erased one is copied.

    Args:
        is_preview: The transaction will be rolled back: no store is opened, the rows are only counted.

    Raises:
        ConflictError: The program of a store changed what was written for one of these groups.
        UsageError, StoreError: The database of a store is not known or cannot be reached.
    """
    result = ErasedRows()
    for source in list_sources(connection, project_id):
        keys = list_keys_of_memories(connection, source.id, memory_ids)
        if not keys:
            continue
        config = read_config(source.config)
        left = [key for key in keys if source.mode == "mirror" or not config.may_hide(key)]
        removed = [key for key in keys if key not in left]
        lasting = left if config.reuses_keys else keys
        remember_erased_rows(connection, project_id, [hash_row(project_id, config.place, key) for key in lasting])
        if left:
            bury_rows(connection, source.id, left)
            result.left[source.name] = len(left)
        if removed and is_preview:
            result.removed[source.name] = len(removed)
        elif removed:
            with open_store(source.config) as store, store.transaction():
                result.removed[source.name] = _erase(connection, source, store, removed)
    return result


def hash_row(project_id: UUID, place: str, key: str) -> str:
    """Return by which an erased row is recognised, whatever the name of its source and of the table's schema."""
    return sha256(f"{project_id} {place.rpartition('.')[2]} {key}".encode()).hexdigest()


def _erase(connection: Connection, source: Source, store: MemoryStore, keys: Sequence[str]) -> int:
    written = list_writes(connection, source.id, ["written"])
    undo_or_refuse(connection, source, store, [one for one in written if set(keys) & set(one.plan["stamps"])])
    deleted = store.erase_rows(keys)
    forget_writes(connection, source.id, keys)
    forget_rows(connection, source.id, keys)
    return deleted
