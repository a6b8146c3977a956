"""Gate of memory tests: a run commits nothing that turns a passing test into a failing one.

What a transaction of a run wrote is tested before its commit, by the search that agents use. If a test fails then that
passed before, all of it is rolled back, and the halves are tried one after the other, down to the single change. So
what is committed broke no test, and what is refused broke one on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from consolidation_pipeline.service.memory_tests.evaluation import (
    MemoryTestResult,
    create_query_embedder,
    evaluate,
    record_results,
)
from consolidation_pipeline.service.runs.project_run import ProjectRun, RefusedByTest
from consolidation_pipeline.store.database.engine import Connection

Item = TypeVar("Item")
Written = TypeVar("Written")


class MemoryTestGate:
    """The tests of a run that passed before, and still do.

    Args:
        run: The run.
        read: Opens a connection on what is committed.
    """

    def __init__(self, run: ProjectRun, read: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._run, self._read = run, read
        self._embed = create_query_embedder(run.engine, run.project, run.options, run.query_embedder)
        with read() as connection:
            self.before = self.evaluate(connection)
        self.passing = [one.test for one in self.before if one.passed]

    def evaluate(self, connection: Connection) -> list[MemoryTestResult]:
        """Return the results of all tests of the run on what a connection sees."""
        return self._evaluate(connection, self._run.memory_tests)

    def find_broken(self, connection: Connection) -> list[MemoryTestResult]:
        """Return the tests that passed before and fail on what ``connection`` sees."""
        return [one for one in self._evaluate(connection, self.passing) if not one.passed]

    def forget_failing(self) -> None:
        """Leave out the tests that fail on what is committed: others made them fail, or they failed before."""
        if self.passing:
            with self._read() as connection:
                self.passing = [one.test for one in self._evaluate(connection, self.passing) if one.passed]

    def _evaluate(self, connection: Connection, tests: Sequence[Any]) -> list[MemoryTestResult]:
        return evaluate(connection, self._run.project, tests, options=self._run.options, embed=self._embed)


def open_gate(run: ProjectRun) -> MemoryTestGate | None:
    """Return the gate of a run, opened at its first use; None for a project without tests.

    What the tests say then is stored as their last results.
    """
    if not run.memory_tests:
        return None
    if run.test_gate is None:
        run.test_gate = MemoryTestGate(run, run.engine.connect)
        with run.transaction() as connection:
            record_results(connection, run.project.id, run.test_gate.before, now=run.now)
    gate: MemoryTestGate = run.test_gate
    return gate


class _BrokenTests(Exception):
    """Ends a transaction that broke tests."""

    def __init__(self, results: Sequence[MemoryTestResult]) -> None:
        super().__init__("memory tests fail")
        self.results = results


@dataclass(frozen=True)
class CheckedWrite:
    """A write that the gate looks at.

    ``write``: writes items within a transaction. ``list_memories``: ids of the memories that an item is about.
    ``transaction``: opens one that is committed at its end.
    """

    phase: str
    write: Callable[[Connection, Sequence[Any]], Any]
    list_memories: Callable[[Any], Sequence[UUID]]
    transaction: Callable[[], AbstractContextManager[Connection]]


def write_checked(
    run: ProjectRun,
    phase: str,
    items: Sequence[Item],
    write: Callable[[Connection, Sequence[Item]], Written],
    list_memories: Callable[[Item], Sequence[UUID]],
) -> tuple[list[Written], list[Item]]:
    """Write items in one transaction, or in several without those that break a memory test.

    Returns:
        What ``write`` returned for each transaction, and the refused items, which are recorded on the run.

    Raises:
        ConflictError: As ``write`` does; what was committed before stays.
    """
    gate = open_gate(run)
    if gate is None:
        with run.transaction() as connection:
            return [write(connection, items)], []
    written, refused = write_with_gate(gate, CheckedWrite(phase, write, list_memories, run.transaction), items)
    run.refused_by_tests += [one for _, one in refused]
    return written, [item for item, _ in refused]


def write_with_gate(
    gate: MemoryTestGate, checked: CheckedWrite, items: Sequence[Any]
) -> tuple[list[Any], list[tuple[Any, RefusedByTest]]]:
    """As ``write_checked``, for any kind of transaction; the refused items come with why."""
    if not len(items):
        return [], []
    try:
        with checked.transaction() as connection:
            done = checked.write(connection, items)
            if broken := gate.find_broken(connection):
                raise _BrokenTests(broken)
        return [done], []
    except _BrokenTests as error:
        gate.forget_failing()
        passing = {test.name for test in gate.passing}
        blamed = [one for one in error.results if one.test.name in passing]
        if not blamed:
            # Somebody else broke them meanwhile.
            return write_with_gate(gate, checked, items)
    if len(items) == 1:
        memories = list(checked.list_memories(items[0]))
        tests = {one.test.name: one.reason for one in blamed}
        return [], [(items[0], RefusedByTest(checked.phase, tests, memories))]
    half = len(items) // 2
    first, second = (write_with_gate(gate, checked, part) for part in (items[:half], items[half:]))
    return [*first[0], *second[0]], [*first[1], *second[1]]


def report_tests(run: ProjectRun) -> dict[str, int]:
    """Run all tests at the end of a run, store their results, and return their numbers; empty without tests."""
    gate = open_gate(run)
    if gate is None:
        return {}
    with run.engine.connect() as connection:
        results = gate.evaluate(connection)
    with run.transaction() as connection:
        record_results(connection, run.project.id, results, now=run.now)
    return {
        "memory_tests": len(results),
        "memory_tests_failing": sum(not one.passed for one in results),
        "refused_by_tests": len(run.refused_by_tests),
    }
