"""Work shared among processes: the same results in the same order, errors, and small work at home."""

from __future__ import annotations

import gc
import os
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import active_children
from uuid import UUID

import pytest

from consolidation_pipeline.core.knowledge.supersession import Writer
from consolidation_pipeline.service.runs import garbage_collection, worker_processes
from consolidation_pipeline.service.runs.worker_processes import FEWEST_MEMORIES, compute_in_order, start_processes
from consolidation_pipeline_tests.core.knowledge.dated_notes import DatedNote, find

pytestmark = pytest.mark.usefixtures("two_cores")


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_processes, "_count_processes", lambda: 2)
    monkeypatch.setattr(worker_processes, "_processes", worker_processes._Processes())


def tell_process(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_small_work_stays_in_this_process() -> None:
    found = list(compute_in_order(tell_process, range(20), memories=FEWEST_MEMORIES - 1))
    assert found == [(number, os.getpid()) for number in range(20)]


def test_much_work_goes_to_other_processes_in_order() -> None:
    found = list(compute_in_order(tell_process, range(20), memories=FEWEST_MEMORIES))
    assert [number for number, _ in found] == [*range(20)]
    assert os.getpid() not in {process for _, process in found}


def list_garbage_thresholds(_: int) -> tuple[int, ...]:
    return gc.get_threshold()


def test_processes_collect_garbage_rarely() -> None:
    found = set(compute_in_order(list_garbage_thresholds, range(4), memories=FEWEST_MEMORIES))
    assert found == {garbage_collection._THRESHOLDS}


def test_less_work_is_shared_once_processes_run() -> None:
    start_processes(memories=FEWEST_MEMORIES, new=1_000)
    found = list(compute_in_order(tell_process, range(20), memories=FEWEST_MEMORIES - 1))
    assert [number for number, _ in found] == [*range(20)]
    assert os.getpid() not in {process for _, process in found}


@pytest.mark.parametrize(("memories", "new"), [(FEWEST_MEMORIES, 10), (FEWEST_MEMORIES - 1, 1_000)])
def test_few_memories_start_no_processes(memories: int, new: int) -> None:
    start_processes(memories=memories, new=new)
    assert not worker_processes._processes.are_running()


def test_results_that_nobody_takes_keep_processes_known() -> None:
    found = compute_in_order(tell_process, range(20), memories=FEWEST_MEMORIES)
    assert next(found)[0] == 0
    del found
    assert worker_processes._processes.are_running()


def test_processes_outlive_work_that_stops() -> None:
    list(compute_in_order(tell_process, range(20), memories=FEWEST_MEMORIES))
    # One process may have taken all of it, so those that answered do not tell all that run.
    before = {process.pid for process in active_children()}
    assert len(before) >= 2
    stopped = compute_in_order(tell_process, range(2_000), memories=FEWEST_MEMORIES)
    next(stopped)
    stopped.close()
    with pytest.raises(ZeroDivisionError):
        list(compute_in_order(divide, [0] * 2_000, memories=FEWEST_MEMORIES))
    after = {process for _, process in compute_in_order(tell_process, range(20), memories=FEWEST_MEMORIES)}
    assert after <= before


def divide(number: int) -> float:
    return 1 / number


def test_error_of_other_process_is_raised() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(compute_in_order(divide, [2, 1, 0], memories=FEWEST_MEMORIES))
    assert "return 1 / number" in caught.value.__notes__[0]


def test_supersessions_of_scopes_are_same_in_processes() -> None:
    began = datetime(2026, 1, 5, tzinfo=UTC)
    memories = [
        DatedNote.of(
            UUID(int=2 * scope + at),
            f"The export of shop {scope} runs at {2 + 3 * at} o'clock.",
            began + timedelta(days=at),
            Writer(user=f"user-{scope}"),
            f"user-{scope}",
        )
        for scope in range(6)
        for at in range(2)
    ]
    alone = find(memories)
    shared = find(memories, apply=partial(compute_in_order, memories=FEWEST_MEMORIES))
    assert alone
    assert shared == alone
