"""Choice of what is written into a store: what a person named, or a plan, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from consolidation_pipeline.core.id_prefixes import choose_id, find_bounds
from consolidation_pipeline.errors import ConflictError, NotFoundError
from consolidation_pipeline.service.sources.write_plan import (
    PlannedRestore,
    PlannedWrite,
    WritePlan,
    plan_restores,
    plan_writes,
)
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.sources.source_writes import SourceWrite, list_writes
from consolidation_pipeline.store.sources.sources import get_source

# Differences that an error message lists.
_MAX_LISTED = 5
_NO_ID = "is not the id of a group: give the id that `source diff` shows, or"


def find_groups(engine: Engine, name: str, references: Sequence[str]) -> list[UUID]:
    """Return the ids of groups, or of their merged memories, that were given whole or by their first digits.

    Whether a whole id exists is not checked.

    Raises:
        UsageError: A reference is no id, or several ids begin with it.
        NotFoundError: Nothing that is to be written, or was, has an id that begins with it.
    """
    bounds = {reference: find_bounds(reference, _NO_ID) for reference in references}
    if all(first == last for first, last in bounds.values()):
        return [id_ for id_, _ in bounds.values()]
    with engine.connect() as connection:
        writes = list_writes(connection, get_source(connection, name).id, ["written", "undone", "gone"])
    planned: list[PlannedWrite | PlannedRestore] = [
        *plan_writes(engine, name),
        *plan_restores(engine, name),
    ]
    named = [(plan.id, plan.memory_id) for plan in planned] + [(write.group_id, write.memory_id) for write in writes]
    found = []
    for reference, (first, last) in bounds.items():
        matches = dict.fromkeys(each for pair in named for each in pair if first <= each <= last)
        missing = f"no group of {name} has an id that begins with {reference}"
        found.append(first if first == last else choose_id(reference, [*matches], missing))
    return found


def select_named(
    planned: Sequence[PlannedWrite],
    restores: Sequence[PlannedRestore],
    ids: Sequence[UUID],
    written: Sequence[SourceWrite],
    name: str,
) -> tuple[list[PlannedWrite], list[PlannedRestore]]:
    """Return the writes, and the undos of writes, whose group or memory is named.

    Args:
        written: Open writes of the source.

    Raises:
        ConflictError: One is written already.
        NotFoundError: There is none for an id.
    """
    listed: list[PlannedWrite | PlannedRestore] = [*planned, *restores]
    known = {id_ for plan in listed for id_ in (plan.id, plan.memory_id)}
    unknown = sorted(set(ids) - known)
    done = [str(each) for each in unknown if any(each in write.ids for write in written)]
    if done:
        raise ConflictError(f"{', '.join(done[:_MAX_LISTED])} is written to {name} already")
    if unknown:
        raise NotFoundError(
            f"nothing is to be written to {name} for {', '.join(map(str, unknown[:_MAX_LISTED]))}: "
            f"`source diff {name}` shows what is"
        )
    return (
        [plan for plan in planned if plan.id in ids or plan.memory_id in ids],
        [plan for plan in restores if plan.id in ids or plan.memory_id in ids],
    )


def select_unwritten(
    plan: WritePlan,
    planned: Sequence[PlannedWrite],
    restores: Sequence[PlannedRestore],
    writes: Sequence[SourceWrite],
    stamps: Mapping[str, str],
) -> tuple[list[PlannedWrite], list[PlannedRestore]]:
    """Return the groups of a plan that are to be written still, and the writes of it that are to be undone still.

    What an earlier write of the plan did is left out.

    Args:
        planned, restores: What would be written and undone now.
        writes: Open and undone writes of the source.
        stamps: Stamps of the rows of the plan in the store now, by key.

    Raises:
        ConflictError: Some groups would turn out differently, or rows changed since. ``conflicts`` are the groups.
    """
    written = [write for write in writes if write.status == "written"]
    undone = {write.id for write in writes if write.status == "undone"}
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
    for restore in plan.restores:
        if restore.write_id not in undone and restore not in restores:
            differences[str(restore.id)] = "its rows would not be shown again, or others with them"
    if differences:
        listed = [f"group {id_}: {reason}" for id_, reason in list(differences.items())[:_MAX_LISTED]]
        more = [f"and {len(differences) - _MAX_LISTED} more"] if len(differences) > _MAX_LISTED else []
        raise ConflictError(
            f"source {plan.source} has changed since the plan was made, and nothing was written: "
            f"{'; '.join([*listed, *more])}. Sync, and make a new plan",
            tuple(differences),
        )
    return left, [one for one in plan.restores if one.write_id not in undone]


def _outline(plan: Mapping[str, object]) -> tuple[object, object, str]:
    """Return what a write does, for comparison."""
    stamps = plan["stamps"]
    assert isinstance(stamps, Mapping)
    return plan["keep"], plan["text"], repr(sorted(stamps.items()))
