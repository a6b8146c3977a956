"""What is known already: which groups say something new, which are a row grown, and which rows no group needs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.store.knowledge.abstractions import ExistingRow

# Groups that are read to tell how rare a word is: one that none of these has is rare enough.
MAX_CONTEXT_GROUPS = 500


@dataclass(frozen=True)
class GroupIds:
    """A group by ids alone: its units, the representative first, and the raw memories behind them.

    ``cohesion``: the mean cosine of the units.
    """

    cluster_key: str
    units: tuple[UUID, ...]
    leaves: frozenset[UUID]
    cohesion: float | None


@dataclass(frozen=True)
class TargetRow:
    """The row that a group is written to: a new one (``version`` None) or the next version of one there is.

    ``superseded``: (id, version) of other rows most of whose members are in the group.
    """

    id: UUID
    version: int | None
    superseded: tuple[tuple[UUID, int], ...]


def find_target_rows(
    slug: str, kind: str, groups: Sequence[GroupIds], held: Sequence[ExistingRow]
) -> dict[str, TargetRow]:
    """By cluster key the groups that say something new, those left out that a row there is covers.

    A row covers a group of its cluster key, and one all of whose members it has; so does a row that a person put away,
    or it would come again. A group that holds most of an active row's members is that row grown; where it holds most of
    several, the largest grows and takes in the others, but for those that a person wants to keep.
    """
    by_id = {row.id: row for row in held if row.is_active or row.is_put_away}
    keys, known = {row.cluster_key for row in by_id.values()}, {row.id: row for row in held}
    fresh = [
        (group, group.leaves if kind == "pattern" else frozenset(group.units))
        for group in groups
        if group.cluster_key not in keys
    ]
    wanted = {member for _, members in fresh for member in members}
    having = defaultdict(list)
    for row in by_id.values():
        for member in row.members & wanted:
            having[member].append(row.id)
    places = {}
    for group, members in fresh:
        shared = Counter(id_ for member in members for id_ in having.get(member, ()))
        if len(members) in shared.values():
            continue
        grown = [by_id[id_] for id_, count in shared.items() if _is_grown(by_id[id_], count)]
        places[group.cluster_key] = _grow(grown) if grown else _place_new(slug, kind, group, known)
    return places


def _is_grown(row: ExistingRow, shared: int) -> bool:
    return row.is_active and 2 * shared > len(row.members)


def _grow(rows: Sequence[ExistingRow]) -> TargetRow:
    first, *others = sorted(rows, key=lambda row: (-len(row.members), row.id))
    return TargetRow(first.id, first.version, tuple((row.id, row.version) for row in others if not row.is_kept))


def _place_new(slug: str, kind: str, group: GroupIds, known: Mapping[UUID, ExistingRow]) -> TargetRow:
    id_ = consolidated_id(slug, kind, group.units, ALGORITHM_VERSION)
    while id_ in known and (known[id_].is_active or known[id_].is_put_away):
        # That row began as this group and has grown into another one.
        id_ = consolidated_id(slug, kind, [*group.units, id_], ALGORITHM_VERSION)
    return TargetRow(id_, known[id_].version if id_ in known else None, ())


def choose_context_groups(groups: Sequence[GroupIds]) -> set[str]:
    """The groups, by cluster key, by which it is told what sets any group apart: at most ``MAX_CONTEXT_GROUPS``.

    Cluster keys are hashes, so that the first of them are a sample. What a group is said to be does not depend on which
    others are new: a run that goes on after it was cut off says the same.
    """
    return set(sorted(group.cluster_key for group in groups)[:MAX_CONTEXT_GROUPS])


def find_superseded_rows(present: Collection[str], held: Sequence[ExistingRow]) -> list[tuple[ExistingRow, UUID]]:
    """Active rows whose group is no more and all of whose raw memories are in rows of ``present`` groups.

    ``present``: the cluster keys of today's groups. Beside each the row that has most of its memories, of equals the
    smallest id. What a person wants to keep stays, and so does what holds a memory that no such row has: knowledge
    outlives its group.
    """
    active = [row for row in held if row.is_active]
    rest = [row for row in active if row.cluster_key not in present and not row.is_kept]
    wanted = {leaf for row in rest for leaf in row.leaves}
    having = defaultdict(list)
    for row in active:
        if row.cluster_key in present:
            for leaf in row.leaves & wanted:
                having[leaf].append(row.id)
    outgrown = []
    for row in rest:
        shared = [having.get(leaf, []) for leaf in row.leaves]
        if shared and all(shared):
            counts = Counter(id_ for ids in shared for id_ in ids)
            outgrown.append((row, min(counts, key=lambda id_: (-counts[id_], id_))))
    return outgrown
