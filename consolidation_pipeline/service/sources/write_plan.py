"""Plan of a write into a store: merged memories, and what becomes of each of their rows there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from consolidation_pipeline.connect.store import GroupWrite, StoreConfig
from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.service.sources.stores import open_store, read_config
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.sources.source_writes import SourceWrite, WritableMerge, list_writable
from consolidation_pipeline.store.sources.sources import get_source

# Rows that changed within this time are left alone: their program may still be at work on them.
QUIET_SECONDS = 600
# Differences that an error message lists.
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


class WritePlan(BaseModel):
    """Everything that would be written into a store now, as a document. Groups may be removed from it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    source: str
    groups: list[PlannedWrite]


def plan_writes(engine: Engine, name: str, *, quiet_seconds: float = QUIET_SECONDS) -> list[PlannedWrite]:
    """Return what would be done in a store now, group by group. Nothing is read from the store.

    Args:
        quiet_seconds: A row that was read first or changed within these seconds keeps its group waiting.
    """
    return [plan for plan, seconds in plan_with_age(engine, name) if seconds >= quiet_seconds]


def plan_with_age(engine: Engine, name: str) -> list[tuple[PlannedWrite, float]]:
    """Return what would be done in a store, and the seconds since a row of each group was read first or changed."""
    with engine.connect() as connection:
        source = get_source(connection, name)
        merges = list_writable(connection, source.project_id, source.id)
    config = read_config(source.config)
    planned = [(_plan(merge, config), merge.unchanged_seconds) for merge in merges]
    return [
        (plan, seconds)
        for plan, seconds in planned
        if (plan.keep is not None or config.can_insert) and all(map(config.may_hide, plan.hidden))
    ]


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


def select_named(planned: Sequence[PlannedWrite], ids: Sequence[UUID], name: str) -> list[PlannedWrite]:
    """Return the writes whose group or memory is named. Raise NotFoundError if there is none for an id."""
    known = {id_ for plan in planned for id_ in (plan.id, plan.memory_id)}
    unknown = sorted(str(each) for each in set(ids) - known)
    if unknown:
        raise NotFoundError(
            f"nothing is to be written to {name} for {', '.join(unknown[:5])}: `source diff {name}` shows what is"
        )
    return [plan for plan in planned if plan.id in ids or plan.memory_id in ids]


def select_unwritten(
    plan: WritePlan, planned: Sequence[PlannedWrite], written: Sequence[SourceWrite], stamps: Mapping[str, str]
) -> list[PlannedWrite]:
    """Return the groups of a plan that are to be written still: those that an earlier write of it made are left out.

    Args:
        planned: What would be written now.
        written: Open writes of the source.
        stamps: Stamps of the rows of the plan in the store now, by key.

    Raises:
        ConflictError: Some groups would turn out differently, or rows changed since. ``conflicts`` are the groups.
    """
    done = {(write.memory_id, write.version, *_outline(write.plan)) for write in written}
    left = [
        group
        for group in plan.groups
        if (group.memory_id, group.version, *_outline(group.model_dump(mode="json"))) not in done
    ]
    now = {group.memory_id: group for group in planned}
    differences: dict[str, str] = {}
    for group in left:
        changed = [key for key, stamp in group.stamps.items() if stamps.get(key) != stamp]
        if changed:
            differences[str(group.id)] = f"rows {', '.join(changed[:3])} changed or are gone in the store"
        elif now.get(group.memory_id) != group:
            turned = "turn out differently" if group.memory_id in now else "not be written"
            differences[str(group.id)] = f"it would {turned} now"
    if differences:
        listed = [f"group {id_}: {reason}" for id_, reason in list(differences.items())[:_MAX_LISTED]]
        more = [f"and {len(differences) - _MAX_LISTED} more"] if len(differences) > _MAX_LISTED else []
        raise ConflictError(
            f"source {plan.source} has changed since the plan was made, and nothing was written: "
            f"{'; '.join([*listed, *more])}. Sync, and make a new plan",
            tuple(differences),
        )
    return left


def _outline(plan: Mapping[str, object]) -> tuple[object, object, str]:
    """Return what a write does, for comparison."""
    stamps = plan["stamps"]
    assert isinstance(stamps, Mapping)
    return plan["keep"], plan["text"], repr(sorted(stamps.items()))
