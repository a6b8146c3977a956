"""Items come in order, one ahead, and what goes wrong comes to light where it belongs."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from consolidation_pipeline.service.runs.prefetch import prefetch


def test_items_come_in_order_and_falsy_ones_too() -> None:
    assert list(prefetch(iter([3, 0, None, [], 1]))) == [3, 0, None, [], 1]
    assert list(prefetch(iter([]))) == []


def test_the_next_item_is_made_while_the_last_one_is_worked_on() -> None:
    made = [threading.Event() for _ in range(3)]

    def make() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    for number in prefetch(make()):
        assert made[min(number + 1, 2)].wait(timeout=10)
        assert not any(event.is_set() for event in made[number + 2 :])


def test_what_was_made_before_an_error_is_handed_out_first() -> None:
    def make() -> Iterator[int]:
        yield 1
        raise ValueError("no second item")

    items = prefetch(make())
    assert next(items) == 1
    with pytest.raises(ValueError, match="no second item"):
        next(items)


def test_a_caller_that_stops_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    for number in prefetch(iter(range(5))):
        if number == 1:
            break
    assert threading.active_count() == before
