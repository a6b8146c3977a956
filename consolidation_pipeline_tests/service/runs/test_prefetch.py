"""Prefetching: order of items, one item ahead, errors in their place."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from consolidation_pipeline.service.runs.prefetch import prefetch


def test_prefetch_keeps_order_and_falsy_items() -> None:
    assert list(prefetch(iter([3, 0, None, [], 1]))) == [3, 0, None, [], 1]
    assert list(prefetch(iter([]))) == []


def test_prefetch_makes_next_item_during_processing() -> None:
    made = [threading.Event() for _ in range(3)]

    def make() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    for number in prefetch(make()):
        assert made[min(number + 1, 2)].wait(timeout=10)
        assert not any(event.is_set() for event in made[number + 2 :])


def test_prefetch_yields_items_before_error() -> None:
    def make() -> Iterator[int]:
        yield 1
        raise ValueError("no second item")

    items = prefetch(make())
    assert next(items) == 1
    with pytest.raises(ValueError, match="no second item"):
        next(items)


def test_prefetch_stopped_early_leaves_no_thread() -> None:
    before = threading.active_count()
    for number in prefetch(iter(range(5))):
        if number == 1:
            break
    assert threading.active_count() == before
