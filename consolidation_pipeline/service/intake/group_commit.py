"""Group commit: memories that several threads add at once are stored in one transaction.

A thread that finds nobody writing writes at once. While it does, others queue; the next one writes for all of them. So
a single client waits for nobody, and many share the cost of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from uuid import UUID
from weakref import WeakKeyDictionary

from consolidation_pipeline.core.memories.memories import NewMemory, memory_id
from consolidation_pipeline.errors import StoreError
from consolidation_pipeline.store.database.engine import Engine, is_unavailable
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.memories.memories import AppendResult, append_encoded, encode_memory
from consolidation_pipeline.store.projects import Project

# Additions with more rows are stored alone: nobody should wait for a large one.
MAX_SHARED_ROWS = 100
# Rows of all requests have numbers of their own. Each request has this many of them.
_ROWS_OF_REQUEST = 1_000_000


@dataclass(frozen=True)
class _Addition:
    """Rows that one caller adds. ``lines``: number of each row -> its place among the caller's rows."""

    project_id: UUID
    rows: Sequence[str]
    ids: Sequence[UUID]
    lines: Mapping[int, int]
    result: Future[AppendResult] = field(default_factory=Future)


class GroupCommit:
    """Queue of additions to one store."""

    def __init__(self) -> None:
        self._lock, self._turn = Lock(), Lock()
        self._waiting: list[_Addition] = []
        self._starts = count(step=_ROWS_OF_REQUEST)

    def append(
        self,
        engine: Engine,
        project: Project,
        memories: Mapping[int, NewMemory],
        vectors: Mapping[int, Vectors],
        model: str,
    ) -> AppendResult:
        """Store memories as ``append_memories`` does, possibly in one transaction with those of other threads.

        Args:
            project: Their project.
            memories: Row number and memory.
            vectors: Unit vectors of the texts of some of them, by row number, which are stored with them.
            model: Name of the model of ``vectors``.
        """
        start = next(self._starts)
        rows = [
            encode_memory(project.slug, start + at, memory, vector=vectors.get(at), model=model)
            for at, memory in memories.items()
        ]
        ids = [memory_id(project.slug, memory.source, memory.external_id) for memory in memories.values()]
        addition = _Addition(project.id, rows, ids, {start + at: at for at in memories})
        if len(rows) > MAX_SHARED_ROWS:
            _store(engine, [addition])
            return addition.result.result()
        with self._lock:
            self._waiting.append(addition)
        with self._turn:
            if not addition.result.done():
                with self._lock:
                    group, self._waiting = self._waiting, []
                try:
                    _store_each_if_refused(engine, group)
                finally:
                    for one in group:
                        if not one.result.done():
                            one.result.set_exception(StoreError("the process was interrupted while it stored this"))
        return addition.result.result()


def _store_each_if_refused(engine: Engine, group: Sequence[_Addition]) -> None:
    """Store a group; if it is refused, each addition alone, so that only the one at fault fails."""
    try:
        _store(engine, group)
    except Exception as error:
        if len(group) > 1 and not is_unavailable(error):
            for addition in group:
                _store_each_if_refused(engine, [addition])
        else:
            for addition in group:
                addition.result.set_exception(error)


def _store(engine: Engine, group: Sequence[_Addition]) -> None:
    by_project: dict[UUID, list[_Addition]] = {}
    for addition in group:
        by_project.setdefault(addition.project_id, []).append(addition)
    done = []
    with engine.begin() as connection:
        for project_id in sorted(by_project):  # in one order, so that no two processes wait for each other
            additions = by_project[project_id]
            stored = append_encoded(connection, project_id, [row for one in additions for row in one.rows])
            done += _split(stored, additions)
    for addition, result in done:
        addition.result.set_result(result)


def _split(stored: AppendResult, additions: Iterable[_Addition]) -> list[tuple[_Addition, AppendResult]]:
    """Return the result of each addition. Of equal ids the first addition has stored the memory."""
    left = set(stored.ids)
    found = []
    for one in additions:
        added = left.intersection(one.ids)
        left -= added
        changed = tuple(one.lines[line] for line in stored.changed if line in one.lines)
        result = AppendResult(len(added), len(one.rows) - len(added) - len(changed), changed, frozenset(added))
        found.append((one, result))
    return found


_commits: WeakKeyDictionary[Engine, GroupCommit] = WeakKeyDictionary()
_commits_lock = Lock()


def get_group_commit(engine: Engine) -> GroupCommit:
    """Return the queue of this process for a store."""
    with _commits_lock:
        return _commits.setdefault(engine, GroupCommit())
