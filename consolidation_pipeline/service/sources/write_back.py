"""Writing of merged memories into the store that their sources came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from consolidation_pipeline.connect.restored_rows import describe_differences
from consolidation_pipeline.connect.store import Conflict, MemoryStore, SourceRow, scope_key
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.sources.dissolved import restore_dissolved, undo_each
from consolidation_pipeline.service.sources.recall_gate import (
    RecallError,
    check_texts,
    make_group,
    read_rows,
    write_checked,
)
from consolidation_pipeline.service.sources.recovery import hold_source, record_write, recover_writes
from consolidation_pipeline.service.sources.rights import explain_mirror
from consolidation_pipeline.service.sources.store_vectors import StoreEmbedder
from consolidation_pipeline.service.sources.stores import open_store, read_config
from consolidation_pipeline.service.sources.write_plan import (
    PlannedRestore,
    PlannedWrite,
    WritePlan,
    describe_taken,
    plan_restores,
    plan_with_age,
)
from consolidation_pipeline.service.sources.write_selection import select_named, select_unwritten
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.projects import get_project
from consolidation_pipeline.store.sources.source_writes import end_write, intend_write, list_writes
from consolidation_pipeline.store.sources.sources import Source, get_source

# Rows that changed within this time are left alone: their program may still be at work on them.
QUIET_SECONDS = 600
# Share of the rows of a scope that one automatic write may hide.
MAX_SHARE = 0.05


@dataclass
class WriteResult:
    """Result of writing.

    ``refused``: reason by group, as the diff names it. ``waiting``: groups that were not tried, and ``waiting_for``
    their number by reason: over the limit of a scope (``share``), with rows that changed a moment ago (``recent``), or
    not named in mode review (``review``). ``restored``: earlier writes that were undone, as their
    merged memory is gone or the store shows nothing of it any more. ``notes``: sentences for people.
    """

    written: int = 0
    hidden: int = 0
    inserted: int = 0
    waiting: int = 0
    waiting_for: dict[str, int] = field(default_factory=dict)
    restored: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def wait(self, reason: str, groups: int = 1) -> None:
        """Count groups that wait."""
        if groups:
            self.waiting += groups
            self.waiting_for[reason] = self.waiting_for.get(reason, 0) + groups


def write_source(
    engine: Engine,
    name: str,
    *,
    memory_ids: Sequence[UUID] | None = None,
    plan: WritePlan | None = None,
    everything: bool = False,
    quiet_seconds: float = QUIET_SECONDS,
    max_share: float = MAX_SHARE,
) -> WriteResult:
    """Write merged memories into their store, each in a transaction of its own there.

    Args:
        memory_ids: Merged memories that a person approved, or the groups of changes that made them; None = all, up to
            ``max_share`` of the rows of each scope, and none in mode review.
        plan: Write these groups exactly as they are, in place of ``memory_ids``. Those that are written already, as
            by a call that was cut off, are left out.
        everything: Write all that there is when earlier writes that were cut off are completed.

    Raises:
        NotFoundError: There is no such source, or one of ``memory_ids`` is not to be written.
        UsageError: The source is in mode mirror, or the plan is another source's.
        ConflictError: A sync or another write of it is running, one of ``memory_ids`` is written already, or a group of
            the plan would turn out differently now: nothing of the plan is written.
        StoreError: The store's database cannot be reached.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
        project = get_project(connection, source.project)
    if source.mode == "mirror":
        raise UsageError(f"source {name}: {explain_mirror(source)}")
    if plan is not None and plan.source != name:
        raise UsageError(f"the plan is for source {plan.source}, not for {name}")
    result = WriteResult()
    with hold_source(engine, source), open_store(source.config) as store:
        embedder = StoreEmbedder(engine, project, read_config(source.config), store)
        recover_writes(engine, source, store)
        if plan is not None or memory_ids is not None:
            planned = _select(engine, source, store, memory_ids or (), plan, result)
        else:
            if everything or source.mode == "write":
                _restore(engine, source, store, plan_restores(engine, name), result)
            planned = _select_by_mode(source, plan_with_age(engine, name), result, everything, quiet_seconds)
        room = None if plan is not None or memory_ids is not None or everything else _count_room(store, max_share)
        for one in planned:
            rows = read_rows(store, one)
            scope = scope_key(rows[0].scope if rows else {})
            if room is not None and room[scope] <= 0:
                result.wait("share")
            elif _write(engine, source, store, one, rows, embedder, result) and room is not None:
                room[scope] -= len(one.hidden)
        result.notes += describe_taken(engine, name)
    return result


def _select(
    engine: Engine,
    source: Source,
    store: MemoryStore,
    ids: Sequence[UUID],
    plan: WritePlan | None,
    result: WriteResult,
) -> list[PlannedWrite]:
    """Return what is named or of a plan and is to be written, when all of it is checked and its restores are done."""
    planned = [one for one, _ in plan_with_age(engine, source.name)]
    restores = plan_restores(engine, source.name)
    with engine.connect() as connection:
        writes = list_writes(connection, source.id, ["written", "undone"])
    if plan is not None:
        planned, restores = select_unwritten(plan, planned, restores, writes, _read_stamps(store, plan))
    else:
        written = [write for write in writes if write.status == "written"]
        planned, restores = select_named(planned, restores, ids, written, source.name)
    _restore(engine, source, store, restores, result)
    return planned


def _select_by_mode(
    source: Source,
    aged: Sequence[tuple[PlannedWrite, float]],
    result: WriteResult,
    everything: bool,
    quiet_seconds: float,
) -> list[PlannedWrite]:
    """Return what is to be written without a choice: all, what is quiet, or in mode review nothing."""
    if everything:
        return [one for one, _ in aged]
    if source.mode == "review":
        result.wait("review", len(aged))
        return []
    quiet = [one for one, seconds in aged if seconds >= quiet_seconds]
    result.wait("recent", len(aged) - len(quiet))
    return quiet


def _restore(
    engine: Engine, source: Source, store: MemoryStore, restores: Sequence[PlannedRestore], result: WriteResult
) -> None:
    """Show the rows of these earlier writes again."""
    if restores:
        with engine.connect() as connection:
            writes = list_writes(connection, source.id, ["written"], [one.write_id for one in restores])
        result.restored, notes = restore_dissolved(engine, source, store, writes)
        result.notes += notes


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
        check_texts(engine, source, plan, rows)
        group = make_group(store, plan, rows, embedder, write_id)
        with store.transaction():
            receipt, _ = write_checked(store, source.name, group, rows)
    except (ConflictError, RecallError, UsageError) as error:
        with engine.begin() as connection:
            end_write(connection, write_id, "refused", str(error))
        result.refused[str(plan.id)] = str(error)
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
        The conflicts by the id that was named, else by group.

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
        ended = list(undo_each(engine, source, store, wanted))
    for sentence in describe_differences([one.receipt for one in ended]):
        tell(sentence)
    return {next(iter(one.write.ids & named), one.write.group_id): one.conflicts for one in ended if one.conflicts}
