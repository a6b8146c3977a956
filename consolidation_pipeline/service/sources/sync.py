"""Sync of a connected store: its rows as raw memories, its changes as revisions, what it deleted as deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.connect.source_table import parse_time
from consolidation_pipeline.connect.store import MemoryStore, SourceRow
from consolidation_pipeline.core.memories.memories import NewMemory, memory_id
from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.core.text.counted_nouns import counted, plural
from consolidation_pipeline.errors import InvalidMemoryError, UnrecordedWritesError
from consolidation_pipeline.options import parse_options
from consolidation_pipeline.scopes import make_scope_key
from consolidation_pipeline.service.intake.importer import choose_language
from consolidation_pipeline.service.lifecycle.memory_deletion import delete_memories
from consolidation_pipeline.service.lifecycle.memory_edits import revise_memories
from consolidation_pipeline.service.sources.erase import hash_row
from consolidation_pipeline.service.sources.recovery import hold_source, recover_writes
from consolidation_pipeline.service.sources.store_changes import PRESENT, read_changes
from consolidation_pipeline.service.sources.stores import open_store, read_config
from consolidation_pipeline.service.sources.synced_vectors import GivenVector, SyncedVectors
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.database.schema import SOURCE_WRITE_STATUSES
from consolidation_pipeline.store.database.scope_keys import DELETED
from consolidation_pipeline.store.memories.memories import append_memories
from consolidation_pipeline.store.projects import Project, get_project
from consolidation_pipeline.store.sources.source_writes import abandon_writes, list_stood_for, list_taken, list_writes
from consolidation_pipeline.store.sources.sources import (
    Source,
    SourceRowState,
    StoredMemory,
    get_source,
    list_active,
    load_erased_hashes,
    load_row_states,
    load_stored,
    save_row_states,
    save_sync,
)

# Rows of one transaction.
BATCH_ROWS = 5_000
# Author of the changes in the ledger.
AUTHOR = "sync"
GONE_REASON = "gone at source"
CHANGED_REASON = "changed at source"


@dataclass
class SyncResult:
    """Result of a sync: numbers of rows.

    ``refused``: those that are no legal memories, with the first ``reasons``. ``erased``: those that are not copied, as
    their memories were erased. ``notes``: sentences for people.
    """

    read: int = 0
    added: int = 0
    revised: int = 0
    gone: int = 0
    unchanged: int = 0
    refused: int = 0
    erased: int = 0
    with_vectors: int = 0
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_change(self) -> bool:
        """True if memories changed."""
        return bool(self.added or self.revised or self.gone)

    def count(self) -> dict[str, int]:
        """Return its numbers."""
        return {name: value for name, value in asdict(self).items() if isinstance(value, int)}


def sync_source(engine: Engine, name: str) -> SyncResult:
    """Bring the memories of a connected store up to date with it. A sync that was cut off is completed by the next.

    The first sync reads all rows. Later ones read what the store told of, or compare the stamps of all rows: if it told
    of nothing, in mode mirror, or if rows came or went of which it did not tell.

    Raises:
        NotFoundError: There is no such source.
        ConflictError: Another sync of it is running.
        UnrecordedWritesError: Rows that are gone are hidden by writes that this database does not know.
        StoreError: The store's database cannot be reached.
        ProjectBusyError: A run holds the project, and rows that changed or are gone have to be written.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        project = get_project(connection, source.project)
    # A trigger of an earlier version is replaced before the columns are looked at: it fails without those of the key.
    with hold_source(engine, source), open_store(source.config, fitting=False) as store:
        recover_writes(engine, source, store)  # Rows that a write hid are not taken for deleted ones.
        sync = _Sync(engine, project, source, store)
        changes = read_changes(engine, source, store)
        if changes.keys is None:
            sync.compare_all()
        else:
            sync.compare(changes.keys)
        if changes.reason is not None:
            sync.note(f"all rows were compared: {changes.reason}")
        sync.result.notes = (*sync.result.notes, *sync.describe())
        with engine.begin() as connection:
            changed = sync.result.count() if sync.result.is_change else None
            save_sync(connection, source.id, asdict(sync.result), changed=changed)
        if source.mode != "mirror":
            store.drop_changes(changes)
        return sync.result


class _Sync:
    """One sync: what it compares is read from the store, what differs is written to the memories."""

    def __init__(self, engine: Engine, project: Project, source: Source, store: MemoryStore) -> None:
        self.engine, self.project, self.source, self.store = engine, project, source, store
        self.config = read_config(source.config)
        self.find_language = choose_language(project.config)
        self.result = SyncResult()
        self.taken: list[str] = []  # Hidden rows whose keys new rows have.
        self.shared: dict[str, int] = {}  # Keys that several rows have, with their number.
        self.timeless: list[str] = []  # Values that are no times, one for each row.
        self.vectors = SyncedVectors(engine, project, source, store, self.note)

    def describe(self) -> Iterator[str]:
        """Yield sentences on rows that were not copied as they are."""
        if self.result.gone and (told := self.store.explain_hidden()) is not None:
            gone = f"{counted(self.result.gone, 'row')} {plural(self.result.gone, 'is')}"
            yield f"{gone} gone, or hidden from this user: {told}"
        if self.result.erased:
            yield f"{self.result.erased:,} rows are not copied: their memories were erased from this project"
        if taken := self._find_taken():
            yield (
                f"{counted(len(taken), 'hidden row')} cannot be shown again, as new rows have their keys, for "
                f"example {taken[0]}: `source diff {self.source.name}` tells what to do"
            )
        if self.shared:
            key, number = next(iter(self.shared.items()))
            yield (
                f"{counted(len(self.shared), 'key')} {plural(len(self.shared), 'is')} of several rows, for example "
                f"{key} of {number}: none of these rows is copied until each has a key of its own"
            )
        yield from self.vectors.describe()
        if self.timeless:
            yield (
                f"{counted(len(self.timeless), 'row')} {plural(len(self.timeless), 'has')} a time that cannot be read, "
                f"for example {self.timeless[0]!r}: that of the sync is taken"
            )

    @cached_property
    def erased(self) -> set[str]:
        """Hashes of rows whose memories were erased."""
        with self.engine.connect() as connection:
            return load_erased_hashes(connection, self.project.id)

    def note(self, sentence: str) -> None:
        """Add a sentence for people to the result."""
        self.result.notes = (*self.result.notes, sentence)

    def compare_all(self) -> None:
        """Compare the stamps of all rows, in one snapshot of the store."""
        with self.engine.connect() as connection:
            known = load_row_states(connection, self.source.id)
        with self.store.snapshot():
            if (keyless := self.store.explain_keyless()) is not None:
                self.note(keyless)
            shared = self._find_shared()
            if not known:
                rows = self.store.iter_rows(vectors=self.vectors.are_taken)
                self._store(self._count(row for row in rows if row.key not in shared), known)
                return
            changed = []
            missing = {key for key, state in known.items() if state.state in PRESENT}
            for key, stamp in self.store.iter_stamps():
                self.result.read += 1
                missing.discard(key)
                if key in shared:
                    continue
                state = known.get(key)
                if not _is_current(state, stamp):
                    changed.append(key)
            self.result.unchanged = self.result.read - len(changed) - sum(shared.values())
            for batch in _batches(changed):
                self._store(self.store.iter_rows(batch, vectors=self.vectors.are_taken), known)
        self._drop(sorted(missing), known)

    def _find_shared(self, keys: Sequence[str] | None = None) -> dict[str, int]:
        """Return keys that several rows have, with their number: none of these rows is copied."""
        shared = self.store.find_shared_keys(keys)
        self.shared |= shared
        self.result.refused += sum(shared.values())
        return shared

    def _count(self, rows: Iterable[SourceRow]) -> Iterator[SourceRow]:
        for row in rows:
            self.result.read += 1
            yield row

    def compare(self, keys: Sequence[str]) -> None:
        """Compare the rows with ``keys``; those that are not there are gone."""
        for batch in _batches(keys):
            with self.engine.connect() as connection:
                known = load_row_states(connection, self.source.id, batch)
            with self.store.snapshot():
                shared = self._find_shared(batch)
                rows = [row for row in self.store.iter_rows(batch) if row.key not in shared]
                fresh = [row for row in rows if not _is_current(known.get(row.key), row.stamp)]
                if fresh and self.vectors.are_taken:
                    fresh = list(self.store.iter_rows([row.key for row in fresh], vectors=True))
            self.result.read += len(rows)
            found = {*shared, *(row.key for row in rows)}
            self.result.unchanged += len(rows) - len(fresh)
            self._store(fresh, known)
            missing = [key for key in batch if key in known and key not in found]
            self._drop([key for key in missing if known[key].state in PRESENT], known)

    def _find_taken(self) -> list[str]:
        """Return the hidden rows whose keys new rows have, without those that an undo in the store alone showed."""
        if not self.taken:
            return []
        with self.engine.connect() as connection:
            waiting = {key for _, key in list_taken(connection, self.source.id)}
        return [key for key in self.taken if key in waiting]

    def _store(self, rows: Iterable[SourceRow], known: dict[str, SourceRowState]) -> None:
        """Store new and changed rows in batches.

        A changed row is a revision of its memory. If that is archived or deleted, or the row is one that was written
        by us, a new memory is made, as for a new row.
        """
        for batch in _batches(rows):
            # Before the active memories are listed: a row that stood behind a changed one gets a new memory.
            self._end_successors([known[row.key] for row in batch if row.key in known])
            with self.engine.connect() as connection:
                states = [known[row.key] for row in batch if row.key in known and known[row.key].state != "successor"]
                active = list_active(connection, [state.memory_id for state in states])
            revised = [row for row in batch if row.key in known and known[row.key].memory_id in active]
            self.taken += [row.key for row in batch if row.key in known and known[row.key].state == "hidden"]
            new = [row for row in batch if row.key not in known or known[row.key].memory_id not in active]
            given = [*self._append(new, known), *self._revise(revised, known)]
            self.result.with_vectors += self.vectors.save(given)

    def _append(self, rows: Sequence[SourceRow], known: dict[str, SourceRowState]) -> list[GivenVector]:
        """Store new rows as memories; return the vectors of those that have no vector."""
        states: list[SourceRowState] = []
        waiting: list[tuple[SourceRow, NewMemory, int]] = []
        for row in rows:
            if self.erased and hash_row(self.project.id, self.config.place, row.key) in self.erased:
                self.result.erased += 1
                states.append(SourceRowState(row.key, uuid4(), "", "erased"))
                continue
            # A row that had a memory before gets a new one beside it.
            attempt = int(row.key in known)
            try:
                waiting.append((row, self._read_memory(row, _name(row, attempt)), attempt))
            except InvalidMemoryError as error:
                states.append(self._refuse(row, self._id(_name(row, attempt)), str(error)))
        memories, stale, vectors = self._place(waiting), list[SourceRow](), list[GivenVector]()
        for row, memory, is_stale in memories:
            id_ = self._id(memory.external_id)
            if is_stale:
                stale.append(row)
                known[row.key] = SourceRowState(row.key, id_, "", "mirrored")
                continue
            states.append(_mirror(row, id_, is_new=True))
            if row.vector is not None:
                vectors.append(GivenVector(id_, row))
        if states:
            new = [(number, memory) for number, (_, memory, is_stale) in enumerate(memories) if not is_stale]
            with self.engine.begin() as connection:
                stored = append_memories(connection, self.project.id, self.project.slug, new)
                save_row_states(connection, self.source.id, states)
            self.result.added += stored.added
            self.result.unchanged += len(new) - stored.added
            added = {*stored.ids}
            vectors = [vector for vector in vectors if vector.memory_id in added]
        return [*vectors, *(self._revise(stale, known) if stale else ())]

    def _place(self, waiting: list[tuple[SourceRow, NewMemory, int]]) -> list[tuple[SourceRow, NewMemory, bool]]:
        """Return rows with memories under ids that are free or stand for the row already; True = with an older text.

        Somebody who adds memories may give one the id of a row, and an earlier connection leaves memories behind. One
        of another scope, or out of use with another text, is not the row's.
        """
        option = parse_options(self.project.config).scope
        placed: list[tuple[SourceRow, NewMemory, bool]] = []
        while waiting:
            with self.engine.connect() as connection:
                stored = load_stored(
                    connection, [self._id(memory.external_id) for _, memory, _ in waiting], scope=option
                )
            later = []
            for row, memory, attempt in waiting:
                there = stored.get(self._id(memory.external_id))
                is_same = there is None or there.body == memory.execution_summary
                # One with the row's text may be archived, but not as its row was gone: the row is there again.
                may_rest = is_same and not attempt and there is not None and not _was_gone(there)
                if there is None or (_is_in_scope(memory, there, option) and (there.is_active or may_rest)):
                    placed.append((row, memory, not is_same))
                else:
                    later.append((row, replace(memory, external_id=_name(row, attempt + 1)), attempt + 1))
            waiting = later
        return placed

    def _id(self, external_id: str) -> UUID:
        return memory_id(self.project.slug, self.source.name, external_id)

    def _revise(self, rows: Sequence[SourceRow], known: dict[str, SourceRowState]) -> list[GivenVector]:
        """Give memories the text that their rows have now; return the vectors of those that have no vector now."""
        revisions, states, vectors = {}, [], dict[UUID, SourceRow]()
        for row in rows:
            id_ = known[row.key].memory_id
            try:
                revisions[id_] = self._read_memory(row, row.key)
            except InvalidMemoryError as error:
                states.append(self._refuse(row, id_, str(error)))
                continue
            states.append(_mirror(row, id_, is_new=False))
            if row.vector is not None:
                vectors[id_] = row
        given = list[GivenVector]()
        if revisions:
            former = self.vectors.load_former(vectors)
            done = revise_memories(
                self.engine, self.project, revisions, changed_by=AUTHOR, reason=f"{CHANGED_REASON}: {self.source.name}"
            )
            self.result.revised += len(done.ids)
            given = self.vectors.list_given(vectors, done.ids, former)
        if states:
            with self.engine.begin() as connection:
                save_row_states(connection, self.source.id, states)
        return given

    def _drop(self, keys: Sequence[str], known: dict[str, SourceRowState]) -> None:
        """Delete the memories of rows that their program deleted.

        A row that stands for hidden ones takes them with it, also if their merge is dissolved: its program deleted all
        that it said.
        """
        gone = [known[key] for key in keys if known[key].state in ("mirrored", "successor")]
        if gone:
            self._refuse_unknown_writes({state.key for state in gone})
            with self.engine.connect() as connection:
                merged, raw = list_stood_for(connection, self.source.id, [state.key for state in gone])
            self._delete(raw, GONE_REASON)
            with self.engine.begin() as connection:
                abandon_writes(connection, self.source.id, merged, GONE_REASON)
        refused = [known[key] for key in keys if known[key].state == "refused"]
        with self.engine.begin() as connection:
            states = [SourceRowState(each.key, each.memory_id, each.stamp, "gone") for each in [*gone, *refused]]
            save_row_states(connection, self.source.id, states)
        self.result.gone += len(gone)

    def _refuse_unknown_writes(self, gone: set[str]) -> None:
        """Raise UnrecordedWritesError if writes that are not recorded here hide some of these rows.

        Nobody deleted them.
        """
        if self.source.mode == "mirror":
            return
        opened = self.store.list_open(self.source.name)
        with self.engine.connect() as connection:
            recorded = {write.id for write in list_writes(connection, self.source.id, SOURCE_WRITE_STATUSES, opened)}
        receipts = self.store.read_receipts([id_ for id_ in opened if id_ not in recorded])
        hidden = gone.intersection(key for receipt in receipts.values() for key in receipt["hidden"])
        if hidden:
            raise UnrecordedWritesError(
                f"{counted(len(hidden), 'row')} of {self.config.place} {plural(len(hidden), 'is')} hidden by writes "
                "that are not recorded in this database, as after the restore of an older backup: `consolidation "
                f"source restore {self.config.address}` shows what is hidden there; sync then",
                tuple(sorted(hidden)),
            )

    def _end_successors(self, states: Sequence[SourceRowState]) -> None:
        """Delete the memories behind new rows that their program changed: such a row is a memory of its own."""
        keys = [state.key for state in states if state.state == "successor"]
        if keys:
            with self.engine.connect() as connection:
                merged, hidden = list_stood_for(connection, self.source.id, keys)
            self._delete(hidden, CHANGED_REASON)
            with self.engine.begin() as connection:
                abandon_writes(connection, self.source.id, merged, CHANGED_REASON)

    def _delete(self, ids: Sequence[UUID], reason: str) -> None:
        with self.engine.connect() as connection:
            ids = sorted(list_active(connection, ids))
        if ids:
            delete_memories(self.engine, ids, changed_by=AUTHOR, reason=f"{reason}: {self.source.name}")

    def _read_memory(self, row: SourceRow, external_id: str) -> NewMemory:
        """Return the memory of a row. Raise InvalidMemoryError if it is not legal."""
        if row.problem is not None:
            raise InvalidMemoryError(row.problem)
        scope = {name: value for name, value in row.scope.items() if not name.startswith("metadata.")}
        walls = {name[9:]: value for name, value in row.scope.items() if name.startswith("metadata.")}
        fields = {
            "external_id": external_id,
            "content": row.text,
            "memory_type": self.config.memory_type,
            "learned_at": self._read_time(row),
            "metadata": {**row.metadata, **walls},
            **row.fields,
            **scope,
        }
        return parse_memory(fields, source=self.source.name, find_language=self.find_language)

    def _read_time(self, row: SourceRow) -> datetime | None:
        """Return when a row was written, as it tells."""
        self.timeless += [value for value in (row.created, row.updated) if value and parse_time(value) is None][:1]
        return parse_time(row.created)

    def _refuse(self, row: SourceRow, id_: UUID, reason: str) -> SourceRowState:
        self.result.refused += 1
        if len(self.result.reasons) < 5:
            self.result.reasons = (*self.result.reasons, f"{row.key}: {reason}")
        return SourceRowState(row.key, id_, row.stamp, "refused", reason)


def _name(row: SourceRow, attempt: int) -> str:
    """Return the external id of the memory of a row; the first is the row's key."""
    return row.key if not attempt else f"{row.key}@{row.stamp[:16]}" + (f".{attempt}" if attempt > 1 else "")


def _is_in_scope(memory: NewMemory, stored: StoredMemory, option: str) -> bool:
    values = {f"metadata.{name}": str(value) for name, value in memory.metadata.items()}
    own = {"user_id": memory.user_id, "agent_id": memory.agent_id, "session_id": memory.session_id}
    return stored.scope_key is None or stored.scope_key == make_scope_key(values | own, option)


def _was_gone(stored: StoredMemory) -> bool:
    """Return True if a sync deleted the memory with its row."""
    return (stored.archive_reason or "").startswith(f"{DELETED}{GONE_REASON}")


def _mirror(row: SourceRow, id_: UUID, *, is_new: bool) -> SourceRowState:
    """Return the state of a row that a memory mirrors. A row that is new here may be old in the store."""
    changed_at = parse_time(row.updated) or (parse_time(row.created) if is_new else None)
    return SourceRowState(row.key, id_, row.stamp, "mirrored", changed_at=changed_at)


def _is_current(state: SourceRowState | None, stamp: str) -> bool:
    """Return True if nothing is to be done about a row with this stamp."""
    return state is not None and ((state.stamp == stamp and state.state in PRESENT) or state.state == "erased")


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(rows)
    return iter(lambda: list(islice(rest, BATCH_ROWS)), [])
