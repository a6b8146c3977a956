"""Cannot-link pairs of undone merges: removed by a redo, not stored for merges undone with their job."""

from __future__ import annotations

from itertools import combinations
from uuid import UUID, uuid4

import numpy as np
import pytest
from sqlalchemy import Connection

from consolidation_pipeline.store.database.schema import consolidated_memories
from consolidation_pipeline.store.database.vector_copy import to_ids
from consolidation_pipeline.store.ledger.cannot_link import count_cannot_links, load_cannot_links
from consolidation_pipeline.store.ledger.ledger_reader import find_rollback_target, list_dependents
from consolidation_pipeline.store.ledger.ledger_writer import Change, insert_rows
from consolidation_pipeline.store.ledger.revert import revert_changes
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    add_memories,
    add_project,
    author,
    merged_values,
    new_memory,
    update_row,
)


class Merges:
    """Merges of six memories that can be made, extended and undone."""

    def __init__(self, connection: Connection, project: Project) -> None:
        self.connection, self.project = connection, project
        self.raw = sorted(add_memories(connection, project, [new_memory(key) for key in "abcdef"]))

    def merge(self, *sources: int, kind: str = "merged", job: UUID | None = None) -> Change:
        level = {"kind": kind, "abstraction_level": 1 if kind == "merged" else 2}
        values = merged_values("text", [self.raw[at] for at in sources], **level)
        change = Change(uuid4(), uuid4(), values)
        insert_rows(self.connection, author(self.project, job), consolidated_memories, [change], operation="merge")
        return change

    def extend(self, merged: Change, *sources: int) -> Change:
        values = merged_values("more text", [self.raw[at] for at in sources])
        return update_row(self.connection, self.project, consolidated_memories, merged.entity_id, **values)

    def roll_back(self, target: UUID) -> UUID:
        scope = find_rollback_target(self.connection, target)
        assert scope is not None
        changes = [*scope.changes, *(row.seq for row in list_dependents(self.connection, scope.changes))]
        group = uuid4()
        revert_changes(self.connection, author(self.project), changes, group_id=group, reason=None, scope=scope.kind)
        return group

    def cannot_links(self) -> list[tuple[int, int]]:
        """Return the cannot-link pairs as positions of memories."""
        pairs = list(combinations(range(len(self.raw)), 2))
        a, b = (to_ids([self.raw[pair[side]] for pair in pairs]) for side in (0, 1))
        forbidden = load_cannot_links(self.connection, self.project.id).forbids(a, b)
        return [pairs[at] for at in np.flatnonzero(forbidden)]


@pytest.fixture
def merges(connection: Connection, project: Project) -> Merges:
    return Merges(connection, project)


def test_undone_merge_separates_all_sources(merges: Merges) -> None:
    merges.merge(3, 4)
    undone = merges.merge(0, 1, 2)
    assert merges.cannot_links() == []
    rollback = merges.roll_back(undone.group_id)
    assert merges.cannot_links() == [(0, 1), (0, 2), (1, 2)]
    assert count_cannot_links(merges.connection, merges.project.id, rollback) == 1
    assert len(load_cannot_links(merges.connection, add_project(merges.connection, "other").id)) == 0


def test_undone_extension_separates_added_sources(merges: Merges) -> None:
    extension = merges.extend(merges.merge(0, 1), 0, 1, 2, 3)
    merges.roll_back(extension.group_id)
    assert merges.cannot_links() == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_redo_removes_cannot_links(merges: Merges) -> None:
    target = merges.merge(0, 1).group_id
    for expected in ([(0, 1)], [], [(0, 1)], []):
        target = merges.roll_back(target)
        assert merges.cannot_links() == expected


def test_merge_undone_with_its_job_adds_no_links(merges: Merges) -> None:
    job = uuid4()
    group = merges.merge(0, 1, job=job).group_id
    rollback = merges.roll_back(job)
    assert merges.cannot_links() == []
    assert count_cannot_links(merges.connection, merges.project.id, rollback) == 0
    redo = merges.roll_back(rollback)
    undone_again = merges.roll_back(redo)
    assert merges.cannot_links() == []
    merges.roll_back(undone_again)
    merges.roll_back(group)
    assert merges.cannot_links() == [(0, 1)]


def test_cascade_adds_links_for_every_undone_merge(merges: Merges) -> None:
    merged = merges.merge(0, 1)
    merges.extend(merged, 0, 1, 2)
    rollback = merges.roll_back(merged.group_id)
    assert merges.cannot_links() == [(0, 1), (0, 2), (1, 2)]
    assert count_cannot_links(merges.connection, merges.project.id, rollback) == 2


def test_undone_pattern_adds_no_cannot_links(merges: Merges) -> None:
    merges.roll_back(merges.merge(0, 1, 2, kind="pattern").group_id)
    assert merges.cannot_links() == []


def test_cannot_links_store_one_row_per_source(merges: Merges) -> None:
    merges.raw = add_memories(merges.connection, merges.project, [new_memory(f"m{at}") for at in range(500)])
    merges.roll_back(merges.merge(*range(500)).group_id)
    stored = load_cannot_links(merges.connection, merges.project.id)
    assert len(stored) == 500
    assert len(set(stored.parts.tolist())) == 500
