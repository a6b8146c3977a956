"""Reconciliation of groups with stored rows: create, update, skip or supersede."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.clustering import cluster_key
from consolidation_pipeline.service.knowledge.reconcile import (
    GroupIds,
    TargetRow,
    find_superseded_rows,
    find_target_rows,
)
from consolidation_pipeline.store.knowledge.abstractions import ExistingRow
from consolidation_pipeline_tests.hypothesis_examples import examples


def uuids(*numbers: int) -> list[UUID]:
    return [UUID(int=number) for number in numbers]


def group_of(*numbers: int) -> GroupIds:
    return GroupIds(cluster_key(uuids(*numbers)), tuple(uuids(*numbers)), frozenset(uuids(*numbers)), 0.7)


def existing_row(number: int, *members: int, **fields: Any) -> ExistingRow:
    return ExistingRow(
        **{
            "id": UUID(int=number),
            "version": 1,
            "cluster_key": cluster_key(uuids(*members)),
            "members": frozenset(uuids(*members)),
            "raw_ids": frozenset(uuids(*members)),
            "is_active": not fields.get("is_dismissed", False),
            "is_dismissed": False,
            "is_kept": False,
            **fields,
        }
    )


def plan_targets(groups: list[GroupIds], rows: list[ExistingRow]) -> list[TargetRow]:
    return list(find_target_rows("p", "pattern", groups, rows).values())


def list_superseded(groups: list[GroupIds], rows: list[ExistingRow]) -> list[tuple[int, int]]:
    found = find_superseded_rows({one.cluster_key for one in groups}, rows)
    return [(row.id.int, successor.int) for row, successor in found]


@pytest.mark.parametrize("dismissed", [False, True])
@pytest.mark.parametrize(
    "row",
    [
        existing_row(9, 1, 2, 3),
        existing_row(9, 1, 2, 3, 4),
        existing_row(9, 7, 8, cluster_key=cluster_key(uuids(1, 2, 3))),
    ],
)
def test_group_with_known_key_or_members_is_skipped(row: ExistingRow, dismissed: bool) -> None:
    known = existing_row(9, cluster_key=row.cluster_key, members=row.members, is_dismissed=dismissed)
    assert plan_targets([group_of(1, 2, 3)], [known]) == []


def test_grown_group_updates_row_and_supersedes_others() -> None:
    rows = [existing_row(20, 1, 2, version=3), existing_row(21, 3, 4, 5, version=4), existing_row(22, 6, 7, 8, 9)]
    (planned,) = plan_targets([group_of(1, 2, 3, 4, 5, 6, 7)], rows)
    assert (planned.id, planned.version) == (UUID(int=21), 4)
    assert planned.superseded == ((UUID(int=20), 3),)


def test_kept_row_is_not_superseded_by_grown_group() -> None:
    (planned,) = plan_targets(
        [group_of(1, 2, 3, 4, 5)], [existing_row(20, 1, 2, is_kept=True), existing_row(21, 3, 4, 5)]
    )
    assert (planned.id, planned.superseded) == (UUID(int=21), ())


def test_group_with_half_of_row_creates_new_row() -> None:
    (planned,) = plan_targets([group_of(1, 2, 3)], [existing_row(20, 1, 2, 8, 9)])
    assert (planned.version, planned.superseded) == (None, ())


def test_id_of_grown_row_is_not_reused() -> None:
    (first,) = plan_targets([group_of(1, 2, 3)], [])
    grown = existing_row(0, *range(10, 20), id=first.id, version=2)
    (second,) = plan_targets([group_of(1, 2, 3)], [grown])
    assert (second.id != first.id, second.version) == (True, None)
    assert plan_targets([group_of(3, 2, 1)], [grown])[0].id == second.id


def test_retired_row_is_reused() -> None:
    (first,) = plan_targets([group_of(1, 2, 3)], [])
    (again,) = plan_targets([group_of(1, 2, 3)], [existing_row(0, 1, 2, 3, id=first.id, version=5, is_active=False)])
    assert (again.id, again.version) == (first.id, 5)


def test_group_beyond_dismissed_row_creates_new_row() -> None:
    (first,) = plan_targets([group_of(1, 2, 3, 4)], [])
    (planned,) = plan_targets([group_of(1, 2, 3, 4)], [existing_row(0, 1, 2, 3, id=first.id, is_dismissed=True)])
    assert (planned.id != first.id, planned.version, planned.superseded) == (True, None, ())


def test_row_split_among_newer_rows_is_superseded() -> None:
    groups = [group_of(1, 2, 5), group_of(3, 4, 6), group_of(7, 8, 9)]
    rows = [existing_row(20, 1, 2, 3), existing_row(31, 1, 2, 5), existing_row(32, 3, 4, 6), existing_row(33, 7, 8, 9)]
    assert list_superseded(groups, rows) == [(20, 31)]
    assert list_superseded(groups, [existing_row(20, 1, 2, 3, 4), *rows[1:]]) == [(20, 31)]
    assert list_superseded(groups, [existing_row(20, 2, 3, 4), *rows[1:]]) == [(20, 32)]


@pytest.mark.parametrize(
    "rows",
    [
        [existing_row(20, 1, 2, 3, is_kept=True), existing_row(31, 1, 2, 5), existing_row(32, 3, 4, 6)],
        [existing_row(20, 1, 2, 3), existing_row(31, 1, 2, 5)],
        [existing_row(20, 1, 2, 3), existing_row(31, 1, 2, 5), existing_row(32, 3, 4, 6, is_dismissed=True)],
        [existing_row(20, 1, 2, 3, 9), existing_row(31, 1, 2, 5), existing_row(32, 3, 4, 6)],
        [existing_row(20, 1, 2, 3), existing_row(31, 1, 2, 3, 4)],
        [existing_row(20, 1, 2, 5), existing_row(32, 3, 4, 6)],
        [existing_row(20, 1, 2, 3, is_active=False), existing_row(31, 1, 2, 5), existing_row(32, 3, 4, 6)],
    ],
)
def test_row_with_own_memory_or_group_stays_active(rows: list[ExistingRow]) -> None:
    assert list_superseded([group_of(1, 2, 5), group_of(3, 4, 6)], rows) == []


ID_SETS = st.frozensets(st.integers(1, 9), min_size=1, max_size=5)


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(ID_SETS, max_size=4), st.lists(ID_SETS, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_superseding_keeps_row_for_every_memory(
    present: list[frozenset[int]], members: list[frozenset[int]], kept: list[bool]
) -> None:
    rows = [existing_row(20 + at, *sorted(one), is_kept=kept[at]) for at, one in enumerate(members)]
    groups = [group_of(*sorted(one)) for one in present]
    superseded = dict(list_superseded(groups, rows))
    left = [row for row in rows if row.id.int not in superseded]
    assert {raw_id for row in rows for raw_id in row.raw_ids} == {raw_id for row in left for raw_id in row.raw_ids}
    assert superseded.keys().isdisjoint(superseded.values())
    assert list_superseded(groups, left) == []
