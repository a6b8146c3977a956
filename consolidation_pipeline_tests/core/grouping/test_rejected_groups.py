"""Parts of rejected groups: what is left to ask about, and in which order."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.grouping.rejected_groups import Group, divide_group
from consolidation_pipeline.core.similarity.similarity_join import SimilarPairs
from consolidation_pipeline_tests.hypothesis_examples import examples


def pair_all(size: int, similarities: list[float]) -> SimilarPairs:
    i, j = zip(*combinations(range(size), 2), strict=True)
    return SimilarPairs(np.array(i, np.int32), np.array(j, np.int32), np.array(similarities, np.float32))


def group(*members: int) -> Group:
    return frozenset(members)


def test_part_without_contradiction_is_asked_first() -> None:
    pairs, contradicting = pair_all(3, [0.96, 0.99, 0.95]), {group(0, 2), group(1, 2)}
    rejected = {group(0, 1, 2)}
    assert divide_group(group(0, 1, 2), pairs, contradicting, rejected) == [group(0, 1)]
    rejected.add(group(0, 1))
    assert divide_group(group(0, 1, 2), pairs, contradicting, rejected) == [group(0, 2)]


def test_group_without_contradiction_loses_weakest_pair() -> None:
    pairs = pair_all(4, [0.9, 0.8, 0.7, 0.8, 0.7, 0.7])
    assert divide_group(group(0, 1, 2, 3), pairs, (), {group(0, 1, 2, 3)}) == [group(0, 1, 2)]
    assert divide_group(group(0, 1, 2, 3), pairs, (), {group(0, 1, 2, 3), group(0, 1, 2)}) == [group(0, 1)]


def test_group_with_rejected_members_is_divided() -> None:
    pairs = pair_all(3, [0.9, 0.8, 0.7])
    assert divide_group(group(0, 1, 2), pairs, (), {group(0, 1)}) == [group(0, 2)]
    assert divide_group(group(0, 1, 2), pairs, (), {group(0, 1), group(0, 2), group(1, 2)}) == []
    pairs = pair_all(4, [0.9, 0.8, 0.7, 0.8, 0.7, 0.7])
    parts = divide_group(group(0, 1, 2, 3), pairs, (), {group(0, 1, 2)})
    assert parts
    assert not any(group(0, 1, 2) <= part for part in parts)


@st.composite
def rejected_groups(draw: st.DrawFn) -> tuple[int, SimilarPairs, set[Group]]:
    size = draw(st.integers(2, 5))
    listed = [*combinations(range(size), 2)]
    similarities = draw(st.lists(st.sampled_from([0.7, 0.8, 0.9]), min_size=len(listed), max_size=len(listed)))
    contradicting = draw(st.sets(st.sampled_from([frozenset(pair) for pair in listed])))
    return size, pair_all(size, similarities), contradicting


@settings(deadline=None, max_examples=examples(100))
@given(given=rejected_groups())
def test_every_pair_is_asked_before_group_is_settled(given: tuple[int, SimilarPairs, set[Group]]) -> None:
    size, pairs, contradicting = given
    whole = frozenset(range(size))
    rejected = {whole}
    while parts := divide_group(whole, pairs, contradicting, rejected):
        assert all(len(part) > 1 and part < whole and part not in rejected for part in parts)
        assert len(frozenset.union(*parts)) == sum(map(len, parts))
        rejected.update(parts)
    assert {frozenset(pair) for pair in combinations(range(size), 2)} <= rejected
