"""Writes whose merges are dissolved: the rows that they hid are shown in their store again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.connect.restored_rows import describe_differences
from consolidation_pipeline.connect.store import Conflict, MemoryStore
from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.sources.recovery import record_undo
from consolidation_pipeline.service.sources.stores import open_store, read_config
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.sources.source_writes import SourceWrite, end_write, intend_write, list_dissolved
from consolidation_pipeline.store.sources.sources import Source, get_source

# Conflict of a write whose images somebody removed, as with the whole sidecar.
_LOST = Conflict("the sidecar", "its rows", "the images of a write are gone from the store")
# Conflicts that a message names.
_SHOWN_CONFLICTS = 10


@dataclass(frozen=True)
class Undo:
    """Undo of a write: what stands in its way or, if nothing does, its receipt."""

    write: SourceWrite
    conflicts: list[Conflict]
    receipt: Mapping[str, Any] = field(default_factory=dict)


def undo_each(engine: Engine, source: Source, store: MemoryStore, writes: Sequence[SourceWrite]) -> Iterator[Undo]:
    """Undo writes in this order, each in a transaction of its own."""
    receipts = store.read_receipts([write.id for write in writes])
    for write in writes:
        yield _undo(engine, source, store, write) if write.id in receipts else Undo(write, [_LOST])


def _undo(engine: Engine, source: Source, store: MemoryStore, write: SourceWrite) -> Undo:
    try:
        with store.transaction():
            conflicts = store.undo_write(write.id)
            receipt = store.read_receipts([write.id])[write.id]
    except ConflictError as error:  # A constraint forbids it, or another session holds a row: of this write alone.
        conflicts = [Conflict(read_config(source.config).place, "", str(error))]
    if conflicts:
        return Undo(write, conflicts)
    with engine.begin() as connection:
        record_undo(connection, source, write, receipt)
    return Undo(write, [], receipt)


def restore_dissolved(
    engine: Engine, source: Source, store: MemoryStore, writes: Sequence[SourceWrite]
) -> tuple[int, list[str]]:
    """Undo writes whose merges are dissolved, as by an edit.

    A hidden row whose key a new row has is set apart, in a write of its own, and the others are shown again.

    Returns:
        The number of writes that were undone, and sentences on what stays as it is or came back with other values.
    """
    ended = []
    for one in undo_each(engine, source, store, writes):
        taken = {each.key for each in one.conflicts if each.is_taken}
        apart = one.conflicts and all(each.is_taken for each in one.conflicts)
        ended.append(_undo_apart(engine, source, store, one.write, sorted(taken)) if apart else one)
    notes = [
        f"group {one.write.group_id} stays as it is written: {each.reason}, {each.place}"
        for one in ended
        for each in one.conflicts
    ]
    undone = [one for one in ended if not one.conflicts]
    return len(undone), [*notes, *describe_differences([one.receipt for one in undone])]


def _undo_apart(engine: Engine, source: Source, store: MemoryStore, write: SourceWrite, keys: Sequence[str]) -> Undo:
    """Undo a write without the hidden rows ``keys``, which become a write of their own."""
    apart = uuid4()
    stamps = {key: write.plan["stamps"].get(key, "") for key in keys}
    plan = {**write.plan, "keep": None, "text": None, "stamps": stamps, "group": str(write.group_id)}
    with engine.begin() as connection:
        intend_write(connection, source.id, apart, memory_id=write.memory_id, version=write.version, plan=plan)
    with store.transaction():
        store.set_apart(write.id, apart, keys)
    with engine.begin() as connection:
        end_write(connection, apart, "written")
    return _undo(engine, source, store, write)


def undo_dissolved(connection: Connection, project_id: UUID) -> list[str]:
    """Show rows in their stores again whose merges are undone in the transaction of ``connection``.

    The stores commit first. If the transaction here fails then, the next write of the source hides the rows again.

    Returns:
        Sentences on what came back with other values.

    Raises:
        ConflictError: A store's program changed what was written; ``conflicts`` are the rows.
        UsageError, StoreError: The database of a store is not known or cannot be reached.
    """
    writes = list_dissolved(connection, project_id)
    receipts: list[Mapping[str, Any]] = []
    for name in dict.fromkeys(name for name, _ in writes):
        source = get_source(connection, name)
        with open_store(source.config) as store, store.transaction():
            own = [write for owner, write in writes if owner == name]
            receipts += undo_or_refuse(connection, source, store, own)
    return describe_differences(receipts)


def undo_or_refuse(
    connection: Connection, source: Source, store: MemoryStore, writes: Sequence[SourceWrite]
) -> list[Mapping[str, Any]]:
    """Undo writes in both transactions; return their receipts. Raise ConflictError if rows of any stand in the way."""
    receipts: list[Mapping[str, Any]] = []
    found: list[tuple[SourceWrite, Conflict]] = []
    for write in writes:
        is_known = bool(store.read_receipts([write.id]))
        conflicts = store.undo_write(write.id) if is_known else [_LOST]
        found += [(write, each) for each in conflicts]
        if not conflicts:
            receipt = store.read_receipts([write.id])[write.id]
            record_undo(connection, source, write, receipt)
            receipts.append(receipt)
    if found:
        # What concerns a whole table is the same for every group.
        told = [
            f"{each.reason}, {each.place}{f' (group {write.group_id})' if each.key else ''}" for write, each in found
        ]
        distinct = list(dict.fromkeys(told))
        more = [f"and {len(distinct) - _SHOWN_CONFLICTS} more"] if len(distinct) > _SHOWN_CONFLICTS else []
        listed = "; ".join([*distinct[:_SHOWN_CONFLICTS], *more])
        raise ConflictError(
            f"source {source.name}: {listed}; its program changed what was written there"
            + ("; groups can be rolled back one by one by their ids" if receipts else ""),
            tuple(each.key for _, each in found if each.key),
        )
    return receipts
