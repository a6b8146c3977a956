"""A mapped table in a database of another program, as a store that is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any
from uuid import UUID

from psycopg import errors

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.config import (
    SourceConfig,
    StoreConnection,
    open_database,
    read_config,
    refuse_locked,
)
from consolidation_pipeline.connect.erase import erase_rows
from consolidation_pipeline.connect.key_checks import find_key_warnings, has_unique_key
from consolidation_pipeline.connect.probe import probe
from consolidation_pipeline.connect.restore import OpenWrite, list_open_writes, undo_open
from consolidation_pipeline.connect.row_security import explain_row_security
from consolidation_pipeline.connect.source_table import SourceTable, key_sql, same_table
from consolidation_pipeline.connect.store import (
    Changes,
    Conflict,
    GroupWrite,
    Receipt,
    Recognition,
    SourceRow,
    StoreConfig,
    scope_key,
)
from consolidation_pipeline.connect.undo import find_images, find_undone, read_receipts, set_apart, undo_write
from consolidation_pipeline.connect.watch import (
    drop_from_outbox,
    find_partitions,
    find_staleness,
    is_watched,
    read_outbox,
    record_comparison,
    unwatch,
    watch,
)
from consolidation_pipeline.connect.write_back import write_group
from consolidation_pipeline.errors import ConflictError, UsageError

# A larger scope is searched by its fields, as a search of the store's program is, in an index if there is one.
_MAX_LISTED_ROWS = 5_000
# pgvector 0.8 and newer read on in an index until enough rows of the scope are found. Postgres takes the conditions of
# a scope for rarer than they are, and would read the whole scope. Older ones would find few of its rows in the index.
_PREFER_INDEX = """
    SELECT set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
        set_config('hnsw.iterative_scan', 'strict_order', true),
        set_config('ivfflat.iterative_scan', 'relaxed_order', true)
    WHERE current_setting('hnsw.iterative_scan', true) IS NOT NULL
"""


class DatabaseStore:
    """A ``MemoryStore`` in a database.

    What needs the columns of the tables raises UsageError if the mapping does not fit them.
    """

    def __init__(self, connection: StoreConnection, config: SourceConfig) -> None:
        self.connection = connection
        self._config = config
        self._mapping = config.mapping
        self._near: dict[str, list[str]] = {}

    @cached_property
    def table(self) -> SourceTable:
        """The mapped table. Raise UsageError if the mapping does not fit."""
        return SourceTable(self.connection, self._mapping)

    def check_mapping(self) -> None:
        """Raise UsageError if the mapping does not fit the tables."""
        assert self.table

    @property
    def has_vectors(self) -> bool:
        """True if its rows may have vectors."""
        return self.table.mapping.vector is not None

    def probe(self) -> Recognition:
        """Examine the tables in a read-only transaction."""
        found = probe(self.connection, self.table)
        if not found.is_table:
            return found
        return replace(found, warnings=[*found.warnings, *find_key_warnings(self.connection, self._mapping)])

    def probe_sidecar(self) -> int | None:
        """Return the version of the sidecar; None if there is none."""
        return sidecar.find_version(self.connection)

    def find_writer(self, name: str) -> str | None:
        """Return the name of another source than ``name`` that writes to the table, as the sidecar says."""
        if sidecar.find_version(self.connection) is None:
            return None
        for other, values in sidecar.list_sources(self.connection).items():
            table = read_config(values).mapping.table
            if other != name and same_table(self.connection, table, self._mapping.table):
                return other
        return None

    def prepare(self, name: str, config: StoreConfig) -> None:
        """Make the sidecar, and the trigger if this user may."""
        with self.transaction():
            sidecar.install(self.connection)
            sidecar.save_source(self.connection, name, config.dump())
            if self.probe().rights.watch:
                watch(self.connection, self._mapping.table, key_sql(self._mapping.key))

    def release(self, name: str, *, forget: bool) -> None:
        """Remove the trigger; with ``forget`` the sidecar too, if nothing is left to be undone.

        A mirror leaves the trigger to the source that writes to the table.
        """
        with self.transaction():
            if sidecar.check_version(self.connection) is None:
                return
            if self.find_writer(name) is None:
                unwatch(self.connection, self._mapping.table)
            if forget:
                sidecar.forget_source(self.connection, name)
                sidecar.remove_if_unused(self.connection)

    @contextmanager
    def transaction(self, *, discard: bool = False) -> Iterator[None]:
        """Open a transaction. Raise ConflictError if another session holds a row for too long, or it is forbidden."""
        with refuse_locked(), self.connection.transaction(force_rollback=discard):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Open a read-only transaction that sees one moment."""
        with self.connection.transaction():
            self.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield

    def explain_hidden(self) -> str | None:
        """Return which row-level security may hide rows from this user; None if it sees all."""
        return explain_row_security(self.connection, self.table.names)

    def read_changes(self, ignored: Sequence[str] = ()) -> Changes:
        """Return what the outbox has, of one moment; a trigger that is missing or of an earlier version is replaced."""
        table = self._mapping.table
        if sidecar.check_version(self.connection) is None:
            return Changes()
        told = self._renew_watch()
        if not is_watched(self.connection, table):
            return Changes()
        with self.snapshot():
            partitions = find_partitions(self.connection, table)
            outbox = read_outbox(self.connection, table)
            reason = told or outbox.reason or find_staleness(self.connection, table, partitions)
            if reason is not None:
                return Changes(reason=reason, numbers=outbox.numbers, partitions=partitions)
            without = [*outbox.keys, *outbox.pending, *ignored]
            is_unique = has_unique_key(self.connection, self._mapping)
            others = self.table.count_others(self.connection, without, distinct=not is_unique)
        return Changes(
            keys=outbox.keys, numbers=outbox.numbers, pending=outbox.pending, others=others, partitions=partitions
        )

    def _renew_watch(self) -> str | None:
        """Bring sidecar and trigger up to this version; return why that could not be done."""
        try:
            with self.transaction():
                sidecar.install(self.connection)
                watch(self.connection, self._mapping.table, key_sql(self._mapping.key))
        except ConflictError as error:
            return f"the trigger that tells of changes is not the one of this version ({error})"
        except errors.InsufficientPrivilege:
            return "the trigger that tells of changes is not the one of this version, and this user may not replace it"
        return None

    def drop_changes(self, changes: Changes) -> None:
        """Remove entries of the outbox; if all rows were compared, record that."""
        if sidecar.find_version(self.connection) != sidecar.VERSION:
            return
        with self.transaction():
            drop_from_outbox(self.connection, changes.numbers)
            if changes.keys is None:
                record_comparison(self.connection, self._mapping.table, changes.partitions)

    def iter_stamps(self) -> Iterator[tuple[str, str]]:
        """Yield key and stamp of every memory, in one scan."""
        return self.table.iter_stamps(self.connection)

    def iter_rows(self, keys: Sequence[str] | None = None, *, vectors: bool = False) -> Iterator[SourceRow]:
        """Yield the memories with ``keys``, or all."""
        return self.table.iter_rows(self.connection, keys, vectors=vectors)

    def find_shared_keys(self, keys: Sequence[str] | None = None) -> dict[str, int]:
        """Return those of ``keys``, or of all, that several memories have, with their number."""
        return self.table.find_shared_keys(self.connection, keys)

    def explain_keyless(self) -> str | None:
        """Return how many rows are no memories as they have no key; None if none."""
        return self.table.explain_keyless(self.connection)

    def sample_rows(self, count: int) -> list[SourceRow]:
        """Return up to ``count`` memories that have a vector, by key."""
        with self.connection.transaction():
            return self.table.sample_rows(self.connection, count)

    def lock(self, keys: Sequence[str]) -> dict[str, str]:
        """Lock the memories with ``keys`` until the transaction ends; return the stamps of those that exist."""
        return self.table.lock(self.connection, keys)

    def count_scopes(self) -> list[tuple[dict[str, str], int]]:
        """Return scope and number of memories of every scope, largest first."""
        return self.table.count_scopes(self.connection)

    def find_places(self, rows: Sequence[SourceRow], keys: set[str], limit: int) -> dict[str, int | None]:
        """Return for each row with a vector the place of the best of ``keys`` in the store's own search.

        What the first search for a row found is kept, with as many rows more as a write may hide. The second one, after
        the write, which holds locks, ranks just these and ``keys``: the result is the same.
        """
        places: dict[str, int | None] = {}
        for row in rows:
            if row.vector is None:
                continue
            near = self._near.get(row.key)
            if near is None:
                among = self._listed.get(scope_key(row.scope))
                near = self._near[row.key] = self._search(row, limit + len(keys), among and among | keys)
                found = near[:limit]
            else:
                found = self._search(row, limit, {*near, *keys})
            places[row.key] = next((at for at, key in enumerate(found) if key in keys), None)
        return places

    def _search(self, row: SourceRow, limit: int, among: set[str] | None) -> list[str]:
        assert row.vector is not None
        if among is not None:
            return self.table.find_nearest(self.connection, row.vector, row.scope, limit, keys=sorted(among))
        with self.connection.transaction(force_rollback=True):
            self.connection.execute(_PREFER_INDEX)
            return self.table.find_nearest(self.connection, row.vector, row.scope, limit)

    @cached_property
    def _listed(self) -> dict[str, set[str]]:
        """Keys of the rows of each scope, as they are when they are needed first; large scopes are left out.

        Without an index of the scope, Postgres reads all rows for each search. Rows that are added later stand neither
        before nor after a write.
        """
        scopes = self.table.list_keys_by_scope(self.connection, _MAX_LISTED_ROWS)
        return {scope_key(scope): set(keys) for scope, keys in scopes}

    def write_group(self, source: str, group: GroupWrite) -> Receipt:
        """Write a group in the transaction that is open."""
        sidecar.install(self.connection)
        if source not in sidecar.list_sources(self.connection):  # Somebody removed the sidecar.
            sidecar.save_source(self.connection, source, self._config.dump())
        return write_group(self.connection, self.table, source, group)

    def make_patch(self, groups: Sequence[GroupWrite]) -> bytes:
        """Raise UsageError: a table has no patch."""
        del groups
        raise UsageError(f"{self.table.mapping.table} is a table, and patches are of folders: use --out")

    def read_receipts(self, write_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Return what committed writes did; nothing if somebody removed the sidecar."""
        if sidecar.find_version(self.connection) is None:
            return {}
        return read_receipts(self.connection, write_ids)

    def find_undone(self, write_ids: Sequence[UUID]) -> list[UUID]:
        """Return those of committed writes that are undone; none if somebody removed the sidecar."""
        return [] if sidecar.find_version(self.connection) is None else find_undone(self.connection, write_ids)

    def find_images(self, write_ids: Sequence[UUID]) -> set[str]:
        """Return the keys of the hidden rows of committed writes whose images are there."""
        if sidecar.find_version(self.connection) is None:
            return set()
        return find_images(self.connection, self.table, write_ids)

    def undo_write(self, write_id: UUID) -> list[Conflict]:
        """Put back what one write changed, in the transaction that is open."""
        return undo_write(self.connection, self.table, write_id)

    def list_open(self, name: str) -> list[UUID]:
        """Return the writes of a source by this name, or of one without configuration on this table, newest first."""
        return [write.id for write in self._list_open(name)]

    def undo_open(self, name: str) -> dict[UUID, list[Conflict]]:
        """Undo these writes, each in a transaction of its own; return the conflicts by write."""
        writes = self._list_open(name)
        others = sidecar.list_sources(self.connection) if writes else {}
        configs = {other: read_config(values) for other, values in others.items()}
        return undo_open(self.connection, writes, {**configs, name: self._config})

    def _list_open(self, name: str) -> list[OpenWrite]:
        if sidecar.check_version(self.connection) is None:
            return []
        sources = sidecar.list_sources(self.connection)
        return [
            write
            for write in list_open_writes(self.connection)
            if write.source == name or (write.source not in sources and self._is_of_table(write))
        ]

    def _is_of_table(self, write: OpenWrite) -> bool:
        return any(same_table(self.connection, one, self._mapping.table) for one in write.tables)

    def set_apart(self, write_id: UUID, apart: UUID, keys: Sequence[str]) -> None:
        """Make a new write of hidden rows of a write, in the transaction that is open."""
        set_apart(self.connection, write_id, apart, keys)

    def erase_rows(self, keys: Sequence[str]) -> int:
        """Delete rows with their parts, links and images, in the transaction that is open."""
        sidecar.install(self.connection)
        return erase_rows(self.connection, self.table, keys)


@contextmanager
def open_table(config: SourceConfig, *, fitting: bool = True) -> Iterator[DatabaseStore]:
    """Open the database of a store.

    Args:
        fitting: The mapping has to fit the tables; else only what needs no columns works if it does not.

    Raises:
        UsageError: The variable is not set, or the mapping does not fit.
        StoreError: The database cannot be reached.
    """
    with open_database(config.url_env) as connection:
        store = DatabaseStore(connection, config)
        if fitting:
            store.check_mapping()
        yield store
