"""Chunks of a sequence: their sizes and order."""

from __future__ import annotations

import pytest

from consolidation_pipeline.core.chunks import split_by_scope, split_chunks


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, []), (1, [1]), (19, [19]), (20, [20]), (21, [20, 1]), (50, [20, 20, 10])]
)
def test_chunks_are_full_and_in_order(count: int, sizes: list[int]) -> None:
    found = split_chunks(range(count), size=20)
    assert [len(part) for part in found] == sizes
    assert [item for part in found for item in part] == list(range(count))


def test_chunk_size_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="size is 0"):
        split_chunks([1], size=0)


def test_parts_have_one_scope_and_stay_within_limits() -> None:
    scopes, sizes = ["a", "b", "a", "a", "b", "a"], [3, 9, 3, 3, 1, 1]
    parts = list(split_by_scope(scopes, sizes, most=2, max_size=6))
    assert parts == [[0, 2], [3, 5], [1], [4]]
    assert list(split_by_scope([], [], most=2, max_size=6)) == []
