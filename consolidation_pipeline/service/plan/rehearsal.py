"""Rehearsal of a plan: its merges and archives are written, tested by the memory tests, and rolled back.

It goes by the gate of a run. Whoever changes the same memories meanwhile waits until it is over, a second for a
thousand merges. A project without memory tests has no rehearsal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from consolidation_pipeline.core.chunks import split_chunks
from consolidation_pipeline.core.memory_tests.memory_test import MemoryTest
from consolidation_pipeline.core.memory_tests.statements import says
from consolidation_pipeline.core.vectors import find_positions
from consolidation_pipeline.service.knowledge.merged_memories import (
    BATCH,
    PlannedMerge,
    build_merged_rows,
    list_merged_sources,
)
from consolidation_pipeline.service.lifecycle.archive import BATCH_ROWS, archive_units
from consolidation_pipeline.service.memory_tests.gate import CheckedWrite, MemoryTestGate, write_with_gate
from consolidation_pipeline.service.plan.plan_document import PlannedKnowledge
from consolidation_pipeline.service.runs.archive_units import get_policies
from consolidation_pipeline.service.runs.project_run import ProjectRun, RefusedByTest
from consolidation_pipeline.service.similarity.merge_groups import Contents
from consolidation_pipeline.service.similarity.successors import estimate_vectors
from consolidation_pipeline.store.database.engine import Connection, Engine
from consolidation_pipeline.store.database.vector_copy import Ids, Vectors, to_ids, to_uuids
from consolidation_pipeline.store.knowledge.merged_memories import write_merged
from consolidation_pipeline.store.knowledge.playbook import load_entries
from consolidation_pipeline.store.memories.embeddings import load_unembedded, save_embeddings


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A transaction that is rolled back, and the tests that pass in it. ``None`` in both for a project without tests.

    ``contents``, ``plain``: the nodes that the plan groups, and their plain vectors (n, d).
    """

    run: ProjectRun
    contents: Contents
    plain: Vectors
    connection: Connection | None = None
    gate: MemoryTestGate | None = None

    def refuse_merges(self, merges: Sequence[PlannedMerge]) -> list[RefusedByTest]:
        """Write the merges but those that break a test, and return these."""
        if self.gate is None:
            return []
        run, refused = self.run, []
        nodes = self.contents.nodes.ids

        def load(ids: Sequence[UUID]) -> dict[UUID, Vectors]:
            return dict(zip(ids, self.plain[find_positions(nodes, to_ids(list(ids)))], strict=True))

        def write(connection: Connection, rows: Sequence[Any]) -> None:
            write_merged(connection, run.author, rows, now=run.now)

        for batch in split_chunks(list(merges), size=BATCH):
            rows = build_merged_rows(run, batch, lambda texts, found: estimate_vectors(run, texts, found), load)
            refused += self._write("merged_memories", rows, write, list_merged_sources)
        return refused

    def refuse_archives(self, ids: Ids, raw: Any) -> list[RefusedByTest]:
        """Archive units, raw memories where ``raw`` is True, but those that break a test, and return these."""
        refused: list[RefusedByTest] = []
        if self.gate is None:
            return refused
        policies = get_policies(self.run.options, self.run.job)
        for table, chosen in (("task_memories", ids[raw]), ("consolidated_memories", ids[~raw])):

            def archive(connection: Connection, part: Sequence[UUID], table: str = table) -> None:
                archive_units(connection, self.run, table, to_ids(list(part)), policies)

            for start in range(0, len(chosen), BATCH_ROWS):
                part = to_uuids(chosen[start : start + BATCH_ROWS])
                refused += self._write("archived_memories", part, archive, lambda id_: [id_])
        return refused

    def refuse_knowledge(self, items: Sequence[PlannedKnowledge]) -> list[RefusedByTest]:
        """Return the patterns, principles and entries whose text a test forbids, or whose change takes one away.

        Only their texts are looked at; what a search finds with them is tested by the run.
        """
        if self.gate is None:
            return []
        with self.run.engine.connect() as connection:
            stored = load_entries(connection, self.run.project.id, scope=self.run.options.scope)
        entries = {entry.id: entry.content for entry in stored if entry.status == "active"}
        refused = []
        for item in items:
            broken = {}
            for test in self.gate.passing:
                if (reason := _find_reason(test, item, entries)) is not None:
                    broken[test.name] = reason
            if broken:
                refused.append(RefusedByTest(_PHASES[item.kind], broken, [item.id]))
            elif item.kind == "playbook":
                entries = _apply(item, entries)
        return refused

    def _write(
        self,
        phase: str,
        items: Sequence[Any],
        write: Callable[..., Any],
        list_memories: Callable[[Any], Sequence[UUID]],
    ) -> list[RefusedByTest]:
        assert self.gate is not None
        checked = CheckedWrite(phase, write, list_memories, lambda: _savepoint(self.connection))
        return [one for _, one in write_with_gate(self.gate, checked, items)[1]]


_PHASES = {"pattern": "patterns", "principle": "principles", "playbook": "playbook_entries"}


@contextmanager
def rehearse(engine: Engine, run: ProjectRun, contents: Contents, plain: Vectors) -> Iterator[Rehearsal]:
    """Open a rehearsal of the plan of ``run``, and roll back all that was written in it.

    ``engine``: may write, unlike that of ``run``.
    """
    if not run.memory_tests:
        yield Rehearsal(run, contents, plain)
        return
    with engine.connect() as connection:
        try:
            new = load_unembedded(connection, "task_memories", contents.nodes.ids, run.embedder.name).ids
            if len(new):
                vectors = plain[find_positions(contents.nodes.ids, new)]
                save_embeddings(connection, "task_memories", new, vectors, run.embedder.name)
            gate = MemoryTestGate(run, lambda: nullcontext(connection))
            yield Rehearsal(run, contents, plain, connection, gate)
        finally:
            connection.rollback()


@contextmanager
def _savepoint(connection: Connection | None) -> Iterator[Connection]:
    assert connection is not None
    with connection.begin_nested():
        yield connection


def _find_reason(test: MemoryTest, item: PlannedKnowledge, entries: dict[UUID, str]) -> str | None:
    """Return why a test would fail with this item; None if it would not."""
    is_active = item.text is not None and item.action != "retire" and not item.needs_review
    if test.kind == "must_not_say" and is_active and says(item.text or "", test.body["text"], in_full=False):
        return f"the {item.kind} would say it"
    if test.kind == "playbook_has" and item.kind == "playbook":
        before, after = (_has(one, test.body["text"]) for one in (entries, _apply(item, entries)))
        return "no active playbook entry would say it" if before and not after else None
    return None


def _has(entries: dict[UUID, str], claim: str) -> bool:
    return any(says(entry, claim) for entry in entries.values())


def _apply(item: PlannedKnowledge, entries: dict[UUID, str]) -> dict[UUID, str]:
    """Return the active entries after the change of one."""
    others = {id_: text for id_, text in entries.items() if id_ != item.id}
    if item.action == "retire" or item.needs_review or item.text is None:
        return others
    return {**others, item.id: item.text}


def leave_out_knowledge(items: Sequence[PlannedKnowledge], refused: Collection[UUID]) -> list[PlannedKnowledge]:
    """Return the items without the ``refused`` ones, and without what rests on them."""
    gone = set(refused)
    kept = []
    for item in items:
        if item.id in gone or not gone.isdisjoint(item.rests_on):
            gone.add(item.id)
        else:
            kept.append(item)
    return kept
