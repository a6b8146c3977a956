"""Which groups are new, which are a pattern grown, and which are covered."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from consolidation_pipeline.core.clustering import cluster_key
from consolidation_pipeline.service.abstracting import Group, PlannedAbstraction, plan_abstractions
from consolidation_pipeline.store.abstractions import Held, UnitRow


def unit(number: int) -> UnitRow:
    return UnitRow(
        id=UUID(int=number), kind="raw", text="Words.", memory_type="learning", pattern_type=None, success=None,
        importance=0.5, tags=(), files=(), language="english", learned_at=datetime(2026, 1, 1, tzinfo=UTC),
        last_accessed_at=None, leaves=(UUID(int=number),),
    )  # fmt: skip


def group(*numbers: int) -> Group:
    return Group(cluster_key([UUID(int=n) for n in numbers]), tuple(unit(n) for n in numbers), 0.7)


def held(number: int, *members: int, key: str | None = None, is_active: bool = True, version: int = 1) -> Held:
    own = key or cluster_key([UUID(int=n) for n in members])
    return Held(UUID(int=number), version, own, frozenset(UUID(int=n) for n in members), is_active)


def plan(groups: list[Group], rows: list[Held]) -> list[PlannedAbstraction]:
    return plan_abstractions("p", "pattern", groups, rows)


@pytest.mark.parametrize(
    "row", [held(9, 1, 2, 3), held(9, 1, 2, 3, 4), held(9, 7, 8, key=cluster_key([UUID(int=n) for n in (1, 2, 3)]))]
)
def test_a_group_of_a_known_key_or_of_known_members_is_covered(row: Held) -> None:
    assert plan([group(1, 2, 3)], [row]) == []


def test_a_group_with_most_of_the_members_is_the_row_grown_and_takes_in_the_others() -> None:
    rows = [held(20, 1, 2, version=3), held(21, 3, 4, 5, version=4), held(22, 6, 7, 8, 9)]
    (planned,) = plan([group(1, 2, 3, 4, 5, 6, 7)], rows)
    assert (planned.id, planned.version) == (UUID(int=21), 4)
    assert planned.superseded == ((UUID(int=20), 3),)


def test_a_row_of_which_a_group_has_half_is_another_one() -> None:
    (planned,) = plan([group(1, 2, 3)], [held(20, 1, 2, 8, 9)])
    assert (planned.version, planned.superseded) == (None, ())


def test_an_identity_that_a_row_has_outgrown_is_not_given_out_twice() -> None:
    (first,) = plan([group(1, 2, 3)], [])
    grown = Held(first.id, 2, "other", frozenset(UUID(int=n) for n in range(10, 20)), True)
    (second,) = plan([group(1, 2, 3)], [grown])
    assert (second.id != first.id, second.version) == (True, None)
    assert plan([group(3, 2, 1)], [grown])[0].id == second.id


def test_a_row_that_was_retired_is_used_again() -> None:
    (first,) = plan([group(1, 2, 3)], [])
    retired = Held(first.id, 5, group(1, 2, 3).cluster_key, frozenset(group(1, 2, 3).leaves), False)
    (again,) = plan([group(1, 2, 3)], [retired])
    assert (again.id, again.version) == (first.id, 5)
