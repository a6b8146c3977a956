"""Group commit: threads that add memories at once share a transaction, and each gets its own result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, OperationalError

from consolidation_pipeline.core.memories.memories import NewMemory, memory_id
from consolidation_pipeline.embed.local import LocalEmbedder
from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.service.intake import group_commit
from consolidation_pipeline.service.intake.agent_memories import add_memories
from consolidation_pipeline.service.intake.group_commit import MAX_SHARED_ROWS, GroupCommit, get_group_commit
from consolidation_pipeline.service.intake.importer import ensure_project
from consolidation_pipeline.store.memories.memories import AppendResult, append_encoded
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline


class Writers:
    """Threads that add memories while a first one holds the turn, so that all others are one group."""

    def __init__(self, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine, self.commit = pipeline.engine, GroupCommit()
        self.groups: list[int] = []
        self._goes_on = Event()
        self._entered = Event()
        self.fail: Callable[[], None] = lambda: None
        monkeypatch.setattr(group_commit, "append_encoded", self._append)

    def _append(self, connection: Connection, project_id: UUID, rows: list[str]) -> AppendResult:
        self.groups.append(len(rows))
        if len(self.groups) == 1:
            self._entered.set()
            assert self._goes_on.wait(20)
        else:
            self.fail()
        return append_encoded(connection, project_id, rows)

    def add(self, first: tuple[Project, NewMemory], *others: tuple[Project, NewMemory]) -> list[Future[AppendResult]]:
        """Add one memory in each thread, in this order; return what the others got."""

        def append(project: Project, memory: NewMemory) -> AppendResult:
            return self.commit.append(self.engine, project, {0: memory}, {}, "")

        with ThreadPoolExecutor(len(others) + 1) as pool:
            pool.submit(append, *first)
            assert self._entered.wait(20)
            found = []
            for at, (project, memory) in enumerate(others, 1):
                found.append(pool.submit(append, project, memory))
                while len(self.commit._waiting) < at and not found[-1].done():
                    time.sleep(0.001)
            self._goes_on.set()
        return found


def memory(key: str, content: str = "The queue holds 5 jobs.") -> NewMemory:
    return NewMemory(source="test", external_id=key, memory_type="learning", execution_summary=content)


@pytest.fixture
def project(shared: Pipeline) -> Project:
    shared.clear()
    return ensure_project(shared.engine, SLUG)


@pytest.fixture
def writers(shared: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Writers:
    return Writers(shared, monkeypatch)


def test_waiting_additions_share_a_transaction(writers: Writers, shared: Pipeline, project: Project) -> None:
    other = ensure_project(shared.engine, "other")
    found = writers.add((project, memory("a")), *[(project, memory(key)) for key in "bcd"], (other, memory("e")))
    assert [one.result().added for one in found] == [1, 1, 1, 1]
    assert sorted(writers.groups) == [1, 1, 3]
    assert shared.value("SELECT count(DISTINCT xmin::text) FROM {s}.task_memories") == 2


def test_same_memory_is_added_by_the_first_only(writers: Writers, project: Project) -> None:
    rows = [memory("b"), memory("b"), memory("b", "The queue holds 9 jobs."), memory("a")]
    found = [one.result() for one in writers.add((project, memory("a")), *[(project, row) for row in rows])]
    assert found == [AppendResult(1, 0, ()), AppendResult(0, 1, ()), AppendResult(0, 0, (0,)), AppendResult(0, 1, ())]
    assert found[0].ids == {memory_id(SLUG, "test", "b")}
    assert not any(one.ids for one in found[1:])


def test_refused_addition_fails_alone(writers: Writers, shared: Pipeline, project: Project) -> None:
    deleted = replace(project, id=uuid4())
    found = writers.add((project, memory("a")), (project, memory("b")), (deleted, memory("c")), (project, memory("d")))
    assert [one.exception() is None for one in found] == [True, False, True]
    assert isinstance(found[1].exception(), IntegrityError)
    assert shared.value("SELECT count(*) FROM {s}.task_memories") == 3


def test_unreachable_database_fails_the_group_once(writers: Writers, project: Project) -> None:
    def refuse() -> None:
        raise OperationalError("INSERT", None, Exception("the server is gone"))

    writers.fail = refuse
    found = writers.add((project, memory("a")), (project, memory("b")), (project, memory("c")))
    assert all(isinstance(one.exception(), OperationalError) for one in found)
    assert writers.groups == [1, 2]


def test_interrupted_writer_leaves_nobody_waiting(writers: Writers, project: Project) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    writers.fail = interrupt
    found = writers.add((project, memory("a")), (project, memory("b")), (project, memory("c")))
    errors = [one.exception() for one in found]
    assert any(isinstance(error, KeyboardInterrupt) for error in errors)
    assert any(isinstance(error, StoreError) for error in errors)


def test_large_addition_does_not_wait_for_a_turn(shared: Pipeline, project: Project) -> None:
    commit = GroupCommit()
    rows = {at: memory(str(at)) for at in range(MAX_SHARED_ROWS + 1)}
    with commit._turn:
        assert commit.append(shared.engine, project, rows, {}, "").added == MAX_SHARED_ROWS + 1


def test_process_has_one_queue_for_a_store(shared: Pipeline) -> None:
    assert get_group_commit(shared.engine) is get_group_commit(shared.engine)


@pytest.mark.usefixtures("project")
def test_added_vector_is_exactly_that_of_the_model(shared: Pipeline) -> None:
    contents = ["Restart the worker after a deploy.", "The queue of the mailer holds 5 jobs."]
    rows = [{"content": text} for text in contents]
    add_memories(shared.engine, SLUG, rows, source="test", changed_by="bot", settings=shared.settings)
    stored = shared.rows(
        "SELECT embedding::text, embedding_model, embedding_dim FROM {s}.task_memories ORDER BY execution_summary"
    )
    embedder = LocalEmbedder()
    assert [tuple(row[1:]) for row in stored] == [(embedder.name, 256)] * 2
    vectors = np.array([json.loads(row[0]) for row in stored], dtype=np.float32)
    np.testing.assert_array_equal(vectors, embedder.embed(contents))
