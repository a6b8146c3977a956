"""Lock of a source, and completion of writes that were cut off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from consolidation_pipeline.connect.restored_rows import describe_differences
from consolidation_pipeline.connect.store import MemoryStore, Receipt
from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.jobs.project_lock import session_lock
from consolidation_pipeline.store.sources.source_writes import (
    SourceWrite,
    end_write,
    forget_rows,
    hide_rows,
    list_write_ids,
    list_writes,
    show_rows,
)
from consolidation_pipeline.store.sources.sources import Source, SourceRowState, load_row_states, save_row_states


@contextmanager
def hold_source(engine: Engine, source: Source) -> Iterator[None]:
    """Hold the lock of a source: one sync or write at a time."""
    with session_lock(engine, f"source:{source.id}", wait_seconds=0) as held:
        if not held:
            raise ConflictError(
                f"another sync, write or undo of source {source.name} is running: try again when it is done"
            )
        yield


def recover_writes(engine: Engine, source: Source, store: MemoryStore) -> None:
    """Complete what was cut off: writes that the store has are recorded, undone ones too, the others are dropped."""
    with engine.connect() as connection:
        intended, written = (list_write_ids(connection, source.id, status) for status in ("intended", "written"))
    if written and store.probe_sidecar() is None:
        _record_restored(engine, source, store)
    unsettled = [*intended, *(store.find_undone(written) if written else ())]
    if not unsettled:
        return
    with engine.connect() as connection:
        writes = list_writes(connection, source.id, ["intended", "written"], unsettled)
    done = store.read_receipts(unsettled)
    for write in writes:
        found = done.get(write.id)
        if write.status == "intended" and found is None:
            with engine.begin() as connection:
                end_write(connection, write.id, "refused", "cut off before it was written")
        elif write.status == "intended" and found is not None and found["successor"] is None:
            with engine.begin() as connection:  # Rows of another write that were set apart.
                end_write(connection, write.id, "written")
        elif write.status == "intended" and found is not None:
            receipt = Receipt(write.id, found["successor"], found["inserted"], found["hidden"], found["links"])
            record_write(engine, source, store, write.memory_id, receipt)
        if found is not None and found["undone"]:
            with engine.begin() as connection:
                record_undo(connection, source, write, found)


def _record_restored(engine: Engine, source: Source, store: MemoryStore) -> None:
    """Record as undone the writes whose hidden rows are all there, of a store without sidecar: it was restored."""
    with engine.connect() as connection:
        writes = list_writes(connection, source.id, ["written"])
        states = load_row_states(connection, source.id)
    hidden = {write.id: [key for key in write.plan["stamps"] if key != write.plan["keep"]] for write in writes}
    with store.snapshot():
        present = {row.key for row in store.iter_rows([key for keys in hidden.values() for key in keys])}
    for write in writes:
        if present.issuperset(hidden[write.id]):
            added = [row.key for row in states.values() if (row.state, row.memory_id) == ("successor", write.memory_id)]
            receipt = {"hidden": hidden[write.id], "inserted": bool(added), "successor": next(iter(added), None)}
            with engine.begin() as connection:
                record_undo(connection, source, write, receipt)


def record_write(engine: Engine, source: Source, store: MemoryStore, memory_id: UUID, receipt: Receipt) -> None:
    """Record a committed write here: hidden rows, the new row, and the write."""
    stamp = None
    if receipt.inserted:
        with store.transaction():
            stamp = store.lock([receipt.successor]).get(receipt.successor)
    with engine.begin() as connection:
        hide_rows(connection, source.id, receipt.hidden)
        if receipt.inserted:
            state = SourceRowState(receipt.successor, memory_id, stamp or "", "successor")
            save_row_states(connection, source.id, [state])
        end_write(connection, receipt.write_id, "written")


def record_undo(connection: Connection, source: Source, write: SourceWrite, receipt: Mapping[str, Any]) -> None:
    """Record here that a write is undone in the store: its hidden rows are there again, its new row is not.

    The reason of the write becomes what came back with other values.
    """
    show_rows(connection, source.id, receipt["hidden"])
    if receipt["inserted"]:
        forget_rows(connection, source.id, [receipt["successor"]])
    end_write(connection, write.id, "undone", "; ".join(describe_differences([receipt])) or None)
