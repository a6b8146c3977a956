"""Writing of merged memories into the store that their sources came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.connect import sidecar
from consolidation_pipeline.connect.config import StoreConnection, make_mapping, open_store, read_config, refuse_locked
from consolidation_pipeline.connect.source_table import SourceRow, SourceTable
from consolidation_pipeline.connect.undo import Conflict, read_receipts, undo_write
from consolidation_pipeline.connect.write_back import GroupWrite, Receipt, write_group
from consolidation_pipeline.errors import ConflictError, ConsolidationError, NotFoundError, UsageError
from consolidation_pipeline.service.sources.store_vectors import StoreEmbedder
from consolidation_pipeline.service.sources.sync import hold_source
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.sources.source_writes import (
    SourceWrite,
    WritableMerge,
    end_write,
    forget_rows,
    intend_write,
    list_dissolved,
    list_writable,
    list_writes,
    set_row_states,
)
from consolidation_pipeline.store.sources.sources import Source, SourceRowState, get_source, save_row_states

# Rows that changed within this time are left alone: their program may still be at work on them.
QUIET_SECONDS = 600
# Share of the rows of a scope that one automatic write may hide.
MAX_SHARE = 0.05
# Places of the store's own search in which a successor has to be.
SEARCH_LIMIT = 20

# Conflict of a write whose images somebody removed, as with the whole sidecar.
_LOST = Conflict(f"{sidecar.SCHEMA}.images", "its rows", "the images of a write are gone from the store")


class RecallError(ConsolidationError):
    """The store's own search would find the successor worse than a source."""


@dataclass(frozen=True)
class PlannedWrite:
    """A merged memory and what is to be done in the store.

    ``keep``: key of the row that says everything; None = ``text`` is a new row. ``scope``: of its rows.
    """

    id: UUID
    memory_id: UUID
    version: int
    stamps: Mapping[str, str]
    texts: Mapping[str, str]
    keep: str | None
    text: str
    scope: Mapping[str, str] = field(default_factory=dict)

    @property
    def hidden(self) -> list[str]:
        """Keys of the rows that will be hidden."""
        return sorted(key for key in self.stamps if key != self.keep)


@dataclass
class WriteResult:
    """Result of writing.

    ``refused``: reason by merged memory. ``waiting``: groups that were not tried: over the limit of a scope, with rows
    that changed a moment ago, or not named in mode review. ``restored``: earlier writes that were undone, as their
    merged memory is gone or the store shows nothing of it any more.
    """

    written: int = 0
    hidden: int = 0
    inserted: int = 0
    waiting: int = 0
    restored: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def plan_writes(engine: Engine, name: str, *, quiet_seconds: float = QUIET_SECONDS) -> list[PlannedWrite]:
    """Return what would be done in a store now, group by group. Nothing is read from the store."""
    with engine.connect() as connection:
        source = get_source(connection, name)
        merges = list_writable(connection, source.project_id, source.id, quiet_seconds=quiet_seconds)
    can_insert = make_mapping(read_config(source.config)).can_insert
    planned = [_plan(merge) for merge in merges]
    return [plan for plan in planned if plan.keep is not None or can_insert]


def _plan(merge: WritableMerge) -> PlannedWrite:
    texts = dict(zip(merge.keys, merge.texts, strict=True))
    same = sorted(key for key, body in texts.items() if body.strip() == merge.content.strip())
    return PlannedWrite(
        id=uuid4(),
        memory_id=merge.id,
        version=merge.version,
        stamps=dict(zip(merge.keys, merge.stamps, strict=True)),
        texts=texts,
        keep=same[0] if same else None,
        text=merge.content,
    )


def write_source(
    engine: Engine,
    name: str,
    *,
    memory_ids: Sequence[UUID] | None = None,
    quiet_seconds: float = QUIET_SECONDS,
    max_share: float = MAX_SHARE,
) -> WriteResult:
    """Write merged memories into their store, each in a transaction of its own there.

    Args:
        memory_ids: Merged memories that a person approved; None = all, up to ``max_share`` of the rows of each scope,
            and none in mode review.

    Raises:
        NotFoundError: There is no such source, or one of ``memory_ids`` is not to be written.
        UsageError: The source is in mode mirror.
        ConflictError: A sync or another write of it is running.
        StoreError: The store's database cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        project = get_project(connection, source.project)
    if source.mode == "mirror":
        raise UsageError(
            f"source {name} is in mode mirror, in which nothing is written: set its mode to review or write"
        )
    config = read_config(source.config)
    result = WriteResult()
    with hold_source(engine, source), open_store(config.url_env) as store:
        table = SourceTable(store, make_mapping(config))
        embedder = StoreEmbedder(engine, project, config, store, table)
        sidecar.install(store)
        recover_writes(engine, source, store)
        result.restored = undo_dissolved_here(engine, source, store, table)
        planned = plan_writes(engine, name, quiet_seconds=0)
        if memory_ids is not None:
            _check_named(memory_ids, planned, name)
            planned = [plan for plan in planned if plan.memory_id in memory_ids]
        else:
            result.waiting = len(planned)
            planned = [] if source.mode == "review" else plan_writes(engine, name, quiet_seconds=quiet_seconds)
            result.waiting -= len(planned)
        room = None if memory_ids is not None else _count_room(store, table, max_share)
        for plan in planned:
            rows = _read_rows(store, table, plan)
            scope = _scope_of(rows)
            if room is not None and room[_scope_key(scope)] <= 0:
                result.waiting += 1
                continue
            if _write(engine, source, store, table, plan, rows, embedder, result) and room is not None:
                room[_scope_key(scope)] -= len(plan.hidden)
    return result


def _check_named(memory_ids: Sequence[UUID], planned: Sequence[PlannedWrite], name: str) -> None:
    unknown = sorted({str(each) for each in memory_ids} - {str(plan.memory_id) for plan in planned})
    if unknown:
        raise NotFoundError(
            f"nothing is to be written to {name} for {', '.join(unknown[:5])}: `source diff {name}` shows what is"
        )


def _count_room(store: StoreConnection, table: SourceTable, share: float) -> Counter[str]:
    """Return how many rows may be hidden by scope. The last group may be larger, so a small scope gets one group."""
    return Counter({_scope_key(scope): max(1, int(count * share)) for scope, count in table.count_scopes(store)})


def _scope_key(scope: Mapping[str, str]) -> str:
    return repr(sorted(scope.items()))


def _read_rows(store: StoreConnection, table: SourceTable, plan: PlannedWrite) -> list[SourceRow]:
    with store.transaction():
        return list(table.iter_rows(store, list(plan.stamps), vectors=table.mapping.vector is not None))


def _scope_of(rows: Sequence[SourceRow]) -> dict[str, str]:
    return dict(rows[0].scope) if rows else {}


def _write(
    engine: Engine,
    source: Source,
    store: StoreConnection,
    table: SourceTable,
    plan: PlannedWrite,
    rows: Sequence[SourceRow],
    embedder: StoreEmbedder,
    result: WriteResult,
) -> bool:
    """Write one group: intended here, written there, recorded here. Return True if it is written."""
    with engine.begin() as connection:
        intend_write(
            connection,
            source.id,
            plan.id,
            memory_id=plan.memory_id,
            version=plan.version,
            plan={"keep": plan.keep, "text": plan.text, "stamps": dict(plan.stamps)},
        )
    try:
        if len({_scope_key(row.scope) for row in rows}) > 1:
            raise ConflictError("its rows are of several scopes")
        vector = None
        if plan.keep is None and table.mapping.vector is not None:
            vector = embedder.embed(plan.text)
        group = GroupWrite(
            write_id=plan.id,
            group_id=str(plan.memory_id),
            stamps=plan.stamps,
            keep=plan.keep,
            text=plan.text,
            vector=vector,
        )
        with refuse_locked(), store.transaction():
            before = _find_places(store, table, rows, set(plan.stamps))
            receipt = write_group(store, table, source.name, group)
            _check_recall(before, _find_places(store, table, rows, {receipt.successor}))
    except (ConflictError, RecallError, UsageError) as error:
        with engine.begin() as connection:
            end_write(connection, plan.id, "refused", str(error))
        result.refused[str(plan.memory_id)] = str(error)
        return False
    _record(engine, source, store, table, plan.memory_id, plan.id, receipt)
    result.written += 1
    result.hidden += len(receipt.hidden)
    result.inserted += receipt.inserted
    return True


def _find_places(
    store: StoreConnection, table: SourceTable, rows: Sequence[SourceRow], keys: set[str]
) -> dict[str, int | None]:
    """Return for each row's text the place of the best of ``keys`` in the store's own search; None = not found."""
    places: dict[str, int | None] = {}
    for row in rows:
        if row.vector is not None:
            found = table.find_nearest(store, row.vector, row.scope, SEARCH_LIMIT)
            places[row.key] = next((at for at, key in enumerate(found) if key in keys), None)
    return places


def _check_recall(before: Mapping[str, int | None], after: Mapping[str, int | None]) -> None:
    """Raise RecallError if the successor is found worse for a source's text than the best source was."""
    worse = [key for key, place in before.items() if place is not None and not _reaches(after.get(key), place)]
    if worse:
        now = after.get(worse[0])
        place = "not found" if now is None else f"at place {now + 1}"
        raise RecallError(
            f"the store's own search finds the successor worse for {len(worse)} of {len(before)} texts: for "
            f"{worse[0]} it was at place {(before[worse[0]] or 0) + 1}, and is {place}"
        )


def _reaches(place: int | None, wanted: int) -> bool:
    return place is not None and place <= wanted


def _record(
    engine: Engine,
    source: Source,
    store: StoreConnection,
    table: SourceTable | None,
    memory_id: UUID,
    write_id: UUID,
    receipt: Receipt,
) -> None:
    """Record a committed write here: hidden rows, the new row, and the write."""
    stamp = None
    if receipt.inserted and table is not None:
        with store.transaction():
            stamp = table.lock(store, [receipt.successor]).get(receipt.successor)
    with engine.begin() as connection:
        set_row_states(connection, source.id, receipt.hidden, "hidden")
        if receipt.inserted:
            state = SourceRowState(receipt.successor, memory_id, stamp or "", "successor")
            save_row_states(connection, source.id, [state])
        end_write(connection, write_id, "written")


def recover_writes(engine: Engine, source: Source, store: StoreConnection) -> None:
    """Complete what was cut off: writes that the store has are recorded, undone ones too, the others are dropped."""
    with engine.connect() as connection:
        writes = list_writes(connection, source.id, ["intended", "written"])
    if not writes or sidecar.find_version(store) is None:
        return
    table = SourceTable(store, make_mapping(read_config(source.config)))
    done = read_receipts(store, [write.id for write in writes])
    for write in writes:
        found = done.get(write.id)
        if write.status == "intended" and found is None:
            with engine.begin() as connection:
                end_write(connection, write.id, "refused", "cut off before it was written")
        elif write.status == "intended" and found is not None:
            receipt = Receipt(write.id, found["successor"], found["inserted"], found["hidden"], found["links"])
            _record(engine, source, store, table, write.memory_id, write.id, receipt)
        if found is not None and found["undone"]:
            with engine.begin() as connection:
                record_undo(connection, source, write, found)


def undo_writes(engine: Engine, name: str, memory_ids: Sequence[UUID] | None = None) -> dict[UUID, list[Conflict]]:
    """Undo writes of a store, newest first: those of ``memory_ids``, or all. Return the conflicts by merged memory.

    Raises:
        NotFoundError: There is no such source.
        StoreError: The store's database cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
    config = read_config(source.config)
    with hold_source(engine, source), open_store(config.url_env) as store:
        table = SourceTable(store, make_mapping(config))
        recover_writes(engine, source, store)
        with engine.connect() as connection:
            writes = list_writes(connection, source.id, ["written"])
        wanted = [write for write in writes if memory_ids is None or write.memory_id in memory_ids]
        return {write.memory_id: found for write, found in _undo_each(engine, source, store, table, wanted) if found}


def _undo_each(
    engine: Engine, source: Source, store: StoreConnection, table: SourceTable, writes: Sequence[SourceWrite]
) -> Iterator[tuple[SourceWrite, list[Conflict]]]:
    """Undo writes in this order, each in a transaction of its own; yield each with what stands in its way."""
    receipts = read_receipts(store, [write.id for write in writes])
    for write in writes:
        if write.id not in receipts:
            yield write, [_LOST]
            continue
        with store.transaction():
            conflicts = undo_write(store, table, write.id)
        if not conflicts:
            with engine.begin() as connection:
                record_undo(connection, source, write, receipts[write.id])
        yield write, conflicts


def record_undo(connection: Connection, source: Source, write: SourceWrite, receipt: Mapping[str, Any]) -> None:
    """Record here that a write is undone in the store: its hidden rows are there again, its new row is not."""
    set_row_states(connection, source.id, receipt["hidden"], "mirrored")
    if receipt["inserted"]:
        forget_rows(connection, source.id, [receipt["successor"]])
    end_write(connection, write.id, "undone")


def undo_dissolved(connection: Connection, project_id: UUID) -> int:
    """Show rows in their stores again whose merges are undone in the transaction of ``connection``.

    The stores commit first. If the transaction here fails then, the next write of the source hides the rows again.

    Returns:
        The number of writes that were undone.

    Raises:
        ConflictError: A store's program changed what was written; ``conflicts`` are the rows.
        UsageError, StoreError: The database of a store is not known or cannot be reached.
    """
    writes = list_dissolved(connection, project_id)
    for name in dict.fromkeys(name for name, _ in writes):
        source = get_source(connection, name)
        config = read_config(source.config)
        with open_store(config.url_env) as store, store.transaction():
            table = SourceTable(store, make_mapping(config))
            for write in [write for owner, write in writes if owner == name]:
                undo_or_refuse(connection, source, store, table, write)
    return len(writes)


def undo_or_refuse(
    connection: Connection, source: Source, store: StoreConnection, table: SourceTable, write: SourceWrite
) -> None:
    """Undo a write in both transactions. Raise ConflictError if rows stand in the way."""
    receipt = read_receipts(store, [write.id]).get(write.id, {})
    conflicts = undo_write(store, table, write.id) if receipt else [_LOST]
    if conflicts:
        first = conflicts[0]
        raise ConflictError(
            f"source {source.name}: {first.reason} in {first.table}: {first.key}; its program changed what was "
            "written there",
            tuple(each.key for each in conflicts),
        )
    record_undo(connection, source, write, receipt)


def undo_dissolved_here(engine: Engine, source: Source, store: StoreConnection, table: SourceTable) -> int:
    """Undo the writes of one source whose merges were dissolved, as by an edit; those with conflicts stay.

    Returns:
        The number of writes that were undone.
    """
    with engine.connect() as connection:
        writes = [write for name, write in list_dissolved(connection, source.project_id) if name == source.name]
    return sum(not conflicts for _, conflicts in _undo_each(engine, source, store, table, writes))
