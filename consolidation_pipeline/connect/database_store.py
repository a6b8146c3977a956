"""A mapped table in a database of another program, as a store that is open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from uuid import UUID

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.config import (
    SourceConfig,
    StoreConnection,
    open_database,
    read_config,
    refuse_locked,
)
from consolidation_pipeline.connect.erase import erase_rows
from consolidation_pipeline.connect.probe import probe
from consolidation_pipeline.connect.source_table import SourceTable, same_table
from consolidation_pipeline.connect.store import (
    Conflict,
    GroupWrite,
    Receipt,
    Recognition,
    SourceRow,
    StoreConfig,
    scope_key,
)
from consolidation_pipeline.connect.undo import find_undone, read_receipts, set_apart, undo_write
from consolidation_pipeline.connect.write_back import write_group
from consolidation_pipeline.errors import UsageError

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

    Raises:
        UsageError: The mapping does not fit the tables.
    """

    def __init__(self, connection: StoreConnection, config: SourceConfig) -> None:
        self.connection = connection
        self.table = SourceTable(connection, config.mapping)
        self._near: dict[str, list[str]] = {}

    @property
    def has_vectors(self) -> bool:
        """True if its rows may have vectors."""
        return self.table.mapping.vector is not None

    def probe(self) -> Recognition:
        """Examine the tables in a read-only transaction."""
        return probe(self.connection, self.table)

    def find_writer(self, name: str) -> str | None:
        """Return the name of another source than ``name`` that writes to the table, as the sidecar says."""
        if sidecar.find_version(self.connection) != sidecar.VERSION:
            return None
        for other, values in sidecar.list_sources(self.connection).items():
            table = read_config(values).mapping.table
            if other != name and same_table(self.connection, table, self.table.mapping.table):
                return other
        return None

    def prepare(self, name: str, config: StoreConfig) -> None:
        """Make the sidecar, and the trigger if this user may."""
        with self.transaction():
            sidecar.install(self.connection)
            sidecar.save_source(self.connection, name, config.dump())
            if self.probe().rights.watch:
                sidecar.watch(self.connection, self.table.mapping.table, self.table.key_sql)

    def release(self, name: str, *, forget: bool) -> None:
        """Remove the trigger; with ``forget`` the sidecar too, if nothing is left to be undone."""
        with self.transaction():
            if sidecar.find_version(self.connection) is None:
                return
            sidecar.unwatch(self.connection, self.table.mapping.table)
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

    def read_changes(self) -> tuple[list[int], list[str]] | None:
        """Return entries and keys of the outbox; None if there is none."""
        table = self.table.mapping.table
        if sidecar.find_version(self.connection) != sidecar.VERSION:
            return None
        return sidecar.read_outbox(self.connection, table) if sidecar.is_watched(self.connection, table) else None

    def drop_changes(self, numbers: Sequence[int]) -> None:
        """Remove entries of the outbox."""
        sidecar.drop_from_outbox(self.connection, numbers)

    def iter_stamps(self) -> Iterator[tuple[str, str]]:
        """Yield key and stamp of every memory, in one scan."""
        return self.table.iter_stamps(self.connection)

    def iter_rows(self, keys: Sequence[str] | None = None, *, vectors: bool = False) -> Iterator[SourceRow]:
        """Yield the memories with ``keys``, or all."""
        return self.table.iter_rows(self.connection, keys, vectors=vectors)

    def find_shared_keys(self, keys: Sequence[str] | None = None) -> dict[str, int]:
        """Return those of ``keys``, or of all, that several memories have, with their number."""
        return self.table.find_shared_keys(self.connection, keys)

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

    def undo_write(self, write_id: UUID) -> list[Conflict]:
        """Put back what one write changed, in the transaction that is open."""
        return undo_write(self.connection, self.table, write_id)

    @property
    def sets_apart(self) -> bool:
        """True: each hidden row has an image of its own."""
        return True

    def set_apart(self, write_id: UUID, apart: UUID, keys: Sequence[str]) -> None:
        """Make a new write of hidden rows of a write, in the transaction that is open."""
        set_apart(self.connection, write_id, apart, keys)

    def erase_rows(self, keys: Sequence[str]) -> int:
        """Delete rows with their parts, links and images, in the transaction that is open."""
        sidecar.install(self.connection)
        return erase_rows(self.connection, self.table, keys)


@contextmanager
def open_table(config: SourceConfig) -> Iterator[DatabaseStore]:
    """Open the database of a store.

    Raises:
        UsageError: The variable is not set, or the mapping does not fit.
        StoreError: The database cannot be reached.
    """
    with open_database(config.url_env) as connection:
        yield DatabaseStore(connection, config)
