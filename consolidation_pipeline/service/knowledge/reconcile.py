"""Match the groups of a run to the stored patterns or principles: create, update, skip or retire."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.service.knowledge.replaced_sentences import list_relations
from consolidation_pipeline.store.knowledge.abstractions import ExistingRow
from consolidation_pipeline.store.knowledge.supersessions import Replacements


@dataclass(frozen=True)
class GroupIds:
    """A group by ids alone.

    ``unit_ids``: the representative first, then by similarity to it. ``raw_ids``: the raw memories behind the units.
    ``cohesion``: mean cosine of the units.
    """

    cluster_key: str
    unit_ids: tuple[UUID, ...]
    raw_ids: frozenset[UUID]
    cohesion: float | None


@dataclass(frozen=True)
class TargetRow:
    """The row that a group is written to, and the rows that it replaces.

    ``version``: the stored version that is updated, None for a new row. ``superseded``: (id, version) of other rows.
    ``keeps_text``: without a reply of the model, the row stays as it is.
    """

    id: UUID
    version: int | None
    superseded: tuple[tuple[UUID, int], ...]
    keeps_text: bool = False


def find_target_rows(
    slug: str, kind: str, groups: Sequence[GroupIds], existing: Sequence[ExistingRow]
) -> dict[str, TargetRow]:
    """Return the row to write for each group that no stored row covers, by cluster key.

    A row covers a group if it has the group's cluster key or all members of the group. Rows that a person dismissed or
    archived cover groups too; otherwise they would come back.

    A group that has most of the members of an active row updates that row. If it has most of several rows, it updates
    the largest and supersedes the others, except those that a person keeps. Any other group gets a new row.
    """
    covering = {row.id: row for row in existing if row.is_active or row.is_dismissed}
    covered_keys = {row.cluster_key for row in covering.values()}
    new = [
        (group, group.raw_ids if kind == "pattern" else frozenset(group.unit_ids))
        for group in groups
        if group.cluster_key not in covered_keys
    ]
    wanted = {member for _, members in new for member in members}
    rows_of = defaultdict(list)
    for row in covering.values():
        for member in row.members & wanted:
            rows_of[member].append(row)
    known = {row.id: row for row in existing}
    targets = {}
    for group, members in new:
        shared = Counter(row.id for member in members for row in rows_of.get(member, ()))
        if len(members) in shared.values():
            continue
        rows = [covering[id_] for id_, count in shared.items() if 2 * count > len(covering[id_].members)]
        active = sorted((row for row in rows if row.is_active), key=lambda row: (-len(row.members), row.id))
        others = tuple((row.id, row.version) for row in active[1:] if not row.is_kept)
        targets[group.cluster_key] = (
            TargetRow(active[0].id, active[0].version, others, keeps_text=active[0].by_model)
            if active
            else _create_row(slug, kind, group, known)
        )
    return targets


def find_rows_to_renew(
    groups: Sequence[GroupIds],
    existing: Sequence[ExistingRow],
    *,
    replacements: Replacements,
    texts: Mapping[UUID, str],
    has_model: bool,
) -> dict[str, TargetRow]:
    """Return the rows whose groups are as they were, but whose texts are to be written again, by cluster key.

    - More or less is replaced in their memories than when they were written.
    - An extracted text quotes what its units say no more, or tells how often it was seen, by which it is searched.
    - They wait for the text of a model, and there is one.

    Rows that a person keeps are left out.

    Args:
        groups: Of the run.
        existing: Stored rows.
        replacements: Of the project's memories; empty for principles.
        texts: What may be quoted of each unit, by id; empty for patterns.
        has_model: The project has a model.
    """

    def is_due(row: ExistingRow, group: GroupIds) -> bool:
        has_lost_quote = any(quote not in texts.get(unit, quote) for unit, quote in row.quotes)
        return (
            row.has_old_layout
            or (has_model and row.is_pending)
            or (has_lost_quote and not row.by_model)
            or row.relations != list_relations(group.raw_ids, replacements)
        )

    by_key = {group.cluster_key: group for group in groups}
    found = (row for row in existing if row.is_active and not row.is_kept and row.cluster_key in by_key)
    return {
        row.cluster_key: TargetRow(row.id, row.version, (), keeps_text=row.by_model or row.is_pending)
        for row in found
        if is_due(row, by_key[row.cluster_key])
    }


def find_outdated_rows(
    present_keys: Collection[str], existing: Sequence[ExistingRow], *, replacements: Replacements
) -> list[ExistingRow]:
    """Return the active rows whose groups are gone, and in whose memories more is replaced than when they were written.

    Nobody would write their texts again. Rows that a person keeps are left out.
    """
    return [
        row
        for row in existing
        if row.is_active
        and not row.is_kept
        and row.cluster_key not in present_keys
        and not list_relations(row.raw_ids, replacements) <= row.relations
    ]


def _create_row(slug: str, kind: str, group: GroupIds, known: Mapping[UUID, ExistingRow]) -> TargetRow:
    id_ = consolidated_id(slug, kind, group.unit_ids, ALGORITHM_VERSION)
    while id_ in known and (known[id_].is_active or known[id_].is_dismissed):
        # That row was made of the same units and belongs to another group by now. Take an id derived from its id.
        id_ = consolidated_id(slug, kind, [*group.unit_ids, id_], ALGORITHM_VERSION)
    return TargetRow(id_, known[id_].version if id_ in known else None, ())


def find_superseded_rows(
    present_keys: Collection[str], existing: Sequence[ExistingRow]
) -> list[tuple[ExistingRow, UUID]]:
    """Return the active rows to retire, each with the id of its successor. ``present_keys``: of the run's groups.

    A row is retired if its group is gone, and each of its raw memories is in an active row whose group is present. The
    successor is the row with most of these raw memories; ties: the smallest id. Rows that a person keeps stay.
    """
    active = [row for row in existing if row.is_active]
    without_group = [row for row in active if row.cluster_key not in present_keys and not row.is_kept]
    wanted = {raw_id for row in without_group for raw_id in row.raw_ids}
    rows_of = defaultdict(list)
    for row in active:
        if row.cluster_key in present_keys:
            for raw_id in row.raw_ids & wanted:
                rows_of[raw_id].append(row.id)
    superseded = []
    for row in without_group:
        rows_by_memory = [rows_of.get(raw_id, []) for raw_id in row.raw_ids]
        if rows_by_memory and all(rows_by_memory):
            counts = Counter(id_ for ids in rows_by_memory for id_ in ids)
            superseded.append((row, min(counts, key=lambda id_: (-counts[id_], id_))))
    return superseded
