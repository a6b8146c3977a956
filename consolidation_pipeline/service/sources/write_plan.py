"""Plan of a write into a store: merged memories, and what becomes of each of their rows there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from consolidation_pipeline.connect.store import GroupWrite, StoreConfig
from consolidation_pipeline.core.text.counted_nouns import counted, plural
from consolidation_pipeline.service.sources.stores import open_store, read_config
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.sources.source_writes import (
    WritableMerge,
    list_dissolved,
    list_taken,
    list_writable,
    load_row_texts,
)
from consolidation_pipeline.store.sources.sources import get_source

# Rows that a message lists.
_MAX_LISTED = 5


class PlannedWrite(BaseModel):
    """A merged memory and what is to be done in the store.

    Attributes:
        id: Group of changes that made the memory, as ``source write`` and ``rollback`` take it; the memory's own id if
            the ledger does not know it any more.
        version: Version of the memory.
        stamps, texts: Stamp and text of each of its rows, by key.
        keep: Key of the row that says everything and stays; None = ``text`` is a new row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: UUID
    memory_id: UUID
    version: int
    keep: str | None
    text: str
    stamps: Mapping[str, str]
    texts: Mapping[str, str]

    @property
    def hidden(self) -> list[str]:
        """Keys of the rows that will be hidden."""
        return sorted(key for key in self.stamps if key != self.keep)

    def make_order(self, write_id: UUID, *, vector: str | None = None) -> GroupWrite:
        """Return the order to write it. ``vector``: that of the new row, as Postgres text."""
        return GroupWrite(
            write_id=write_id,
            group_id=str(self.memory_id),
            stamps=self.stamps,
            keep=self.keep,
            text=self.text,
            vector=vector,
        )


class PlannedRestore(BaseModel):
    """An earlier write that would be undone, as its merged memory is not there any more.

    Attributes:
        id: Group of changes that made the memory, as ``source write`` takes it.
        write_id: The write.
        texts: Text of each row that would be shown again, by key.
        removed: Text of the row that the write added, which would go; None = it kept one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: UUID
    memory_id: UUID
    write_id: UUID
    texts: Mapping[str, str]
    removed: str | None


class WritePlan(BaseModel):
    """Everything that would be written into a store now, as a document. Groups may be removed from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    source: str
    groups: list[PlannedWrite]
    restores: list[PlannedRestore] = []


def plan_writes(engine: Engine, name: str) -> list[PlannedWrite]:
    """Return what would be done in a store now, group by group. Nothing is read from the store."""
    return [plan for plan, _ in plan_with_age(engine, name)]


def plan_with_age(engine: Engine, name: str) -> list[tuple[PlannedWrite, float]]:
    """Return what would be done in a store, and the seconds since a row of each group was read first or changed."""
    return [(plan, seconds) for plan, seconds, obstacle in _plan_all(engine, name) if obstacle is None]


def describe_left_out(engine: Engine, name: str) -> list[str]:
    """Return in words how many merged memories are not to be written to this kind of store, and why."""
    found = Counter(obstacle for _, _, obstacle in _plan_all(engine, name) if obstacle is not None)
    return [
        f"{counted(number, 'merged memory')} {plural(number, 'is')} left out: {obstacle}"
        for obstacle, number in found.items()
    ]


def _plan_all(engine: Engine, name: str) -> Iterator[tuple[PlannedWrite, float, str | None]]:
    """Yield what would be done in any store, as ``plan_with_age``, and what keeps it from being done in this one."""
    with engine.connect() as connection:
        source = get_source(connection, name)
        merges = list_writable(connection, source.project_id, source.id)
    config = read_config(source.config)
    for merge in merges:
        plan = _plan(merge, config)
        obstacle = None
        if plan.keep is None and not config.can_insert:
            obstacle = "no row says everything, and none is added to this store"
        elif not all(map(config.may_hide, plan.hidden)):
            obstacle = "a note is part of a file, which stays as it is"
        yield plan, merge.unchanged_seconds, obstacle


def _plan(merge: WritableMerge, config: StoreConfig) -> PlannedWrite:
    texts = dict(zip(merge.keys, merge.texts, strict=True))
    same = [key for key, body in texts.items() if body.strip() == merge.content.strip()]
    same.sort(key=lambda key: (config.may_hide(key), key))  # A row that cannot be hidden is the one to keep.
    return PlannedWrite(
        id=merge.group_id or merge.id,
        memory_id=merge.id,
        version=merge.version,
        keep=same[0] if same else None,
        text=merge.content,
        stamps=dict(zip(merge.keys, merge.stamps, strict=True)),
        texts=texts,
    )


def make_patch(engine: Engine, name: str, planned: Sequence[PlannedWrite]) -> bytes:
    """Return what these writes would change in the files of a folder, as a patch that ``git apply`` accepts.

    Raises:
        UsageError: The store has no files.
    """
    with engine.connect() as connection:
        source = get_source(connection, name)
    with open_store(source.config) as store:
        return store.make_patch([one.make_order(one.memory_id) for one in planned])


def plan_restores(engine: Engine, name: str) -> list[PlannedRestore]:
    """Return which earlier writes of a store would be undone now. Nothing is read from the store."""
    with engine.connect() as connection:
        source = get_source(connection, name)
        return [
            PlannedRestore(
                id=write.group_id,
                memory_id=write.memory_id,
                write_id=write.id,
                texts=load_row_texts(connection, source.id, write.hidden, state="hidden"),
                removed=write.plan["text"] if write.plan["keep"] is None else None,
            )
            for owner, write in list_dissolved(connection, source.project_id)
            if owner == name
        ]


def describe_taken(engine: Engine, name: str) -> list[str]:
    """Return in words which hidden rows of a store cannot be shown again, as new rows have their keys."""
    with engine.connect() as connection:
        taken = list_taken(connection, get_source(connection, name).id)
    listed = [
        f"row {key} of group {write.group_id} stays hidden, as a new row has its key: delete the new row or give it "
        f"another key, sync, then `consolidation source undo {name} {write.group_id}` shows the hidden one again"
        for write, key in taken[:_MAX_LISTED]
    ]
    more = [f"and {counted(len(taken) - _MAX_LISTED, 'row')} more"] if len(taken) > _MAX_LISTED else []
    return [*listed, *more]
