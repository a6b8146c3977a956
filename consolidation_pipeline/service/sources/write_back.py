"""Writing of merged memories into the store that their sources came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from consolidation_pipeline.connect.restored_rows import describe_differences
from consolidation_pipeline.connect.store import Conflict, MemoryStore, SourceRow, scope_key
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.sources.recall_gate import (
    RecallError,
    make_group,
    read_rows,
    write_checked,
)
from consolidation_pipeline.service.sources.recovery import hold_source, record_undo, record_write, recover_writes
from consolidation_pipeline.service.sources.store_vectors import StoreEmbedder
from consolidation_pipeline.service.sources.stores import open_store, read_config
from consolidation_pipeline.service.sources.write_plan import (
    QUIET_SECONDS,
    PlannedWrite,
    WritePlan,
    plan_with_age,
    select_named,
    select_unwritten,
)
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.sources.source_writes import (
    SourceWrite,
    end_write,
    intend_write,
    list_dissolved,
    list_writes,
)
from consolidation_pipeline.store.sources.sources import Source, get_source

# Share of the rows of a scope that one automatic write may hide.
MAX_SHARE = 0.05

# Conflict of a write whose images somebody removed, as with the whole sidecar.
_LOST = Conflict("the sidecar", "its rows", "the images of a write are gone from the store")


@dataclass
class WriteResult:
    """Result of writing.

    ``refused``: reason by merged memory. ``waiting``: groups that were not tried: over the limit of a scope, with rows
    that changed a moment ago, or not named in mode review. ``restored``: earlier writes that were undone, as their
    merged memory is gone or the store shows nothing of it any more. ``notes``: sentences for people.
    """

    written: int = 0
    hidden: int = 0
    inserted: int = 0
    waiting: int = 0
    restored: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def write_source(
    engine: Engine,
    name: str,
    *,
    memory_ids: Sequence[UUID] | None = None,
    plan: WritePlan | None = None,
    quiet_seconds: float = QUIET_SECONDS,
    max_share: float = MAX_SHARE,
) -> WriteResult:
    """Write merged memories into their store, each in a transaction of its own there.

    Args:
        memory_ids: Merged memories that a person approved, or the groups of changes that made them; None = all, up to
            ``max_share`` of the rows of each scope, and none in mode review.
        plan: Write these groups exactly as they are, in place of ``memory_ids``. Those that are written already, as
            by a call that was cut off, are left out.

    Raises:
        NotFoundError: There is no such source, or one of ``memory_ids`` is not to be written.
        UsageError: The source is in mode mirror, or the plan is another source's.
        ConflictError: A sync or another write of it is running, or a group of the plan would turn out differently now:
            nothing of the plan is written.
        StoreError: The store's database cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        project = get_project(connection, source.project)
    if source.mode == "mirror":
        raise UsageError(
            f"source {name} is in mode mirror, in which nothing is written: consolidation source mode {name} review"
        )
    if plan is not None and plan.source != name:
        raise UsageError(f"the plan is for source {plan.source}, not for {name}")
    result = WriteResult()
    with hold_source(engine, source), open_store(source.config) as store:
        embedder = StoreEmbedder(engine, project, read_config(source.config), store)
        recover_writes(engine, source, store)
        _undo_dissolved_here(engine, source, store, result)
        aged = plan_with_age(engine, name)
        planned = [one for one, _ in aged]
        if plan is not None:
            with engine.connect() as connection:
                written = list_writes(connection, source.id, ["written"])
            planned = select_unwritten(plan, planned, written, _read_stamps(store, plan))
        elif memory_ids is not None:
            planned = select_named(planned, memory_ids, name)
        else:
            planned = [] if source.mode == "review" else [one for one, seconds in aged if seconds >= quiet_seconds]
            result.waiting = len(aged) - len(planned)
        room = _count_room(store, max_share) if plan is None and memory_ids is None else None
        for one in planned:
            rows = read_rows(store, one)
            scope = scope_key(rows[0].scope if rows else {})
            if room is not None and room[scope] <= 0:
                result.waiting += 1
            elif _write(engine, source, store, one, rows, embedder, result) and room is not None:
                room[scope] -= len(one.hidden)
    return result


def _read_stamps(store: MemoryStore, plan: WritePlan) -> dict[str, str]:
    """Return the stamps of the rows of a plan in the store now, by key."""
    keys = [key for group in plan.groups for key in group.stamps]
    with store.transaction():
        return {row.key: row.stamp for row in store.iter_rows(keys)}


def _count_room(store: MemoryStore, share: float) -> Counter[str]:
    """Return how many rows may be hidden by scope. The last group may be larger, so a small scope gets one group."""
    return Counter({scope_key(scope): max(1, int(count * share)) for scope, count in store.count_scopes()})


def _write(
    engine: Engine,
    source: Source,
    store: MemoryStore,
    plan: PlannedWrite,
    rows: Sequence[SourceRow],
    embedder: StoreEmbedder,
    result: WriteResult,
) -> bool:
    """Write one group: intended here, written there, recorded here. Return True if it is written."""
    write_id = uuid4()
    with engine.begin() as connection:
        intend_write(
            connection,
            source.id,
            write_id,
            memory_id=plan.memory_id,
            version=plan.version,
            plan={"keep": plan.keep, "text": plan.text, "stamps": dict(plan.stamps), "group": str(plan.id)},
        )
    try:
        group = make_group(store, plan, rows, embedder, write_id)
        with store.transaction():
            receipt, _ = write_checked(store, source.name, group, rows)
    except (ConflictError, RecallError, UsageError) as error:
        with engine.begin() as connection:
            end_write(connection, write_id, "refused", str(error))
        result.refused[str(plan.memory_id)] = str(error)
        return False
    record_write(engine, source, store, plan.memory_id, receipt)
    result.written += 1
    result.hidden += len(receipt.hidden)
    result.inserted += receipt.inserted
    return True


def undo_writes(
    engine: Engine,
    name: str,
    memory_ids: Sequence[UUID] | None = None,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[UUID, list[Conflict]]:
    """Undo writes of a store, newest first.

    Args:
        memory_ids: Merged memories, or the groups of changes that made them; None = all.
        tell: Called with each sentence on what came back with other values than before.

    Returns:
        The conflicts by the id that was named, else by merged memory.

    Raises:
        NotFoundError: There is no such source, or nothing was ever written for an id.
        StoreError: The store's database cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
    named = set(memory_ids or ())
    with hold_source(engine, source), open_store(source.config) as store:
        recover_writes(engine, source, store)
        with engine.connect() as connection:
            writes = list_writes(connection, source.id, ["written", "undone", "gone"])
        unknown = sorted(map(str, named.difference(*(write.ids for write in writes))))
        if unknown:
            raise NotFoundError(f"nothing was written to {name} for {', '.join(unknown[:5])}")
        wanted = [
            write
            for write in writes
            if write.status == "written" and (memory_ids is None or not write.ids.isdisjoint(named))
        ]
        ended = list(_undo_each(engine, source, store, wanted))
    for sentence in describe_differences([one.receipt for one in ended]):
        tell(sentence)
    return {next(iter(one.write.ids & named), one.write.memory_id): one.conflicts for one in ended if one.conflicts}


@dataclass(frozen=True)
class _Undo:
    """Undo of a write: what stands in its way or, if nothing does, its receipt."""

    write: SourceWrite
    conflicts: list[Conflict]
    receipt: Mapping[str, Any] = field(default_factory=dict)


def _undo_each(engine: Engine, source: Source, store: MemoryStore, writes: Sequence[SourceWrite]) -> Iterator[_Undo]:
    """Undo writes in this order, each in a transaction of its own."""
    receipts = store.read_receipts([write.id for write in writes])
    for write in writes:
        if write.id not in receipts:
            yield _Undo(write, [_LOST])
            continue
        with store.transaction():
            conflicts = store.undo_write(write.id)
            receipt = store.read_receipts([write.id])[write.id]
        if conflicts:
            yield _Undo(write, conflicts)
            continue
        with engine.begin() as connection:
            record_undo(connection, source, write, receipt)
        yield _Undo(write, [], receipt)


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
    receipts = []
    for name in dict.fromkeys(name for name, _ in writes):
        source = get_source(connection, name)
        with open_store(source.config) as store, store.transaction():
            for write in [write for owner, write in writes if owner == name]:
                receipts.append(undo_or_refuse(connection, source, store, write))
    return describe_differences(receipts)


def undo_or_refuse(connection: Connection, source: Source, store: MemoryStore, write: SourceWrite) -> Mapping[str, Any]:
    """Undo a write in both transactions; return its receipt. Raise ConflictError if rows stand in the way."""
    is_known = bool(store.read_receipts([write.id]))
    conflicts = store.undo_write(write.id) if is_known else [_LOST]
    if conflicts:
        first = conflicts[0]
        raise ConflictError(
            f"source {source.name}: {first.reason} in {first.table}: {first.key}; its program changed what was "
            "written there",
            tuple(each.key for each in conflicts),
        )
    receipt = store.read_receipts([write.id])[write.id]
    record_undo(connection, source, write, receipt)
    return receipt


def _undo_dissolved_here(engine: Engine, source: Source, store: MemoryStore, result: WriteResult) -> None:
    """Undo the writes of one source whose merges were dissolved, as by an edit; those with conflicts stay."""
    with engine.connect() as connection:
        writes = [write for name, write in list_dissolved(connection, source.project_id) if name == source.name]
    ended = list(_undo_each(engine, source, store, writes))
    result.restored = sum(not one.conflicts for one in ended)
    result.notes += describe_differences([one.receipt for one in ended])
