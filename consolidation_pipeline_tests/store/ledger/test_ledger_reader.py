"""Reading the ledger: rollback targets, dependents, and undone changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection, Table

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.store.database.schema import (
    consolidated_memories,
    consolidation_suggestions,
    memory_relations,
    playbook_entries,
    task_memories,
)
from consolidation_pipeline.store.ledger.ledger_reader import (
    LedgerFilter,
    RollbackTarget,
    count_changes,
    find_origin,
    find_rollback_target,
    list_changes,
    list_dependents,
    list_groups,
    list_job_changes,
)
from consolidation_pipeline.store.ledger.ledger_writer import Change, insert_rows, update_rows
from consolidation_pipeline.store.ledger.revert import revert_changes
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    NOW,
    add_memories,
    add_project,
    author,
    contents,
    insert_row,
    merged_values,
    new_memory,
    record_statements,
    update_row,
)


class History:
    """Project whose memories are edited, derived, undone and redone."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.project: Project = add_project(connection)
        self.raw = add_memories(connection, self.project, [new_memory(key) for key in "abcd"])
        self.versions = dict.fromkeys(self.raw, 1)

    def edit(self, *ids: UUID, job: UUID | None = None) -> UUID:
        """Edit memories in one group; return the group id."""
        group = uuid4()
        changes = [Change(id_, group, {"tags": [str(group)]}, self.versions[id_]) for id_ in ids]
        update_rows(self.connection, author(self.project, job), task_memories, changes, operation="edit")
        rows = list_changes(self.connection, self.project.id, limit=len(ids))
        self.versions |= {row.entity_id: row.version_after for row in rows}
        return group

    def derive(self, kind: str, parents: list[UUID], job: UUID | None = None) -> tuple[UUID, UUID]:
        """Derive a merged memory or a pattern; return its id and its group id."""
        lineage = [{"parent_id": str(p), "parent_kind": "raw", "similarity": None, "job_id": None} for p in parents]
        level: dict[str, Any] = {"kind": kind, "abstraction_level": 1 if kind == "merged" else 2, "lineage": lineage}
        change = Change(uuid4(), uuid4(), merged_values(kind, **level))
        insert_rows(self.connection, author(self.project, job), consolidated_memories, [change], operation="merge")
        return change.entity_id, change.group_id

    def roll_back(self, target: UUID, *, cascade: bool = False) -> UUID:
        """Roll back the target of an id, as the rollback service does; return the rollback's group id."""
        scope = self.find_target(target)
        if scope.undone_by:
            raise ConflictError("rolled back before")
        dependents = list_dependents(self.connection, scope.changes)
        if dependents and not cascade:
            raise ConflictError("stands in the way", tuple(str(row.id) for row in dependents))
        group = uuid4()
        changes = [*scope.changes, *(row.seq for row in dependents)]
        revert_changes(self.connection, author(self.project), changes, group_id=group, reason=None, scope=scope.kind)
        chosen = task_memories.select().with_only_columns(task_memories.c.id, task_memories.c.version)
        self.versions = dict(self.connection.execute(chosen).tuples().all())
        return group

    def find_target(self, target: UUID) -> RollbackTarget:
        scope = find_rollback_target(self.connection, target)
        assert scope is not None
        return scope

    def number_dependents(self, target: UUID) -> list[int]:
        """Return the changes that depend on a rollback target, as numbers from 1."""
        return self.numbers(row.seq for row in list_dependents(self.connection, self.find_target(target).changes))

    def numbers(self, seqs: Iterable[int]) -> list[int]:
        """Return the changes as numbers from 1."""
        every = sorted(row.seq for row in list_changes(self.connection, self.project.id, limit=1000))
        return [every.index(seq) + 1 for seq in seqs]

    def state(self) -> dict[str, list[tuple[str | None, ...]]]:
        return contents(self.connection)

    def insert(self, table: Table, values: dict[str, Any]) -> Change:
        return insert_row(self.connection, self.project, table, **values)

    def update_merged(self, id_: UUID, **values: Any) -> UUID:
        """Update a merged memory; return the group id."""
        return update_row(self.connection, self.project, consolidated_memories, id_, **values).group_id

    def value(self, table: Table, id_: UUID, column: str) -> Any:
        return self.connection.execute(
            table.select().with_only_columns(table.c[column]).where(table.c.id == id_)
        ).scalar()

    def undone(self) -> dict[UUID, bool]:
        groups = list_groups(self.connection, self.project.id, limit=100)
        return {row.group_id: row.rolled_back for row in groups}


@pytest.fixture
def history(connection: Connection) -> History:
    return History(connection)


def test_rollback_target_resolves_group_job_and_change(history: History) -> None:
    job = uuid4()
    first, second = history.edit(*history.raw[:2], job=job), history.edit(history.raw[2], job=job)
    history.edit(history.raw[3])
    change = list_changes(history.connection, history.project.id, limit=9, where=LedgerFilter(job_id=job))[-1].id
    scopes = [history.find_target(target) for target in (change, first, second, job)]
    expected = [("group", [1, 2]), ("group", [1, 2]), ("group", [3]), ("job", [1, 2, 3])]
    assert [(scope.kind, history.numbers(scope.changes)) for scope in scopes] == expected
    assert all(scope.project == history.project for scope in scopes)
    assert find_rollback_target(history.connection, uuid4()) is None


def test_partly_undone_job_targets_other_changes(history: History) -> None:
    job = uuid4()
    first = history.edit(history.raw[0], job=job)
    history.edit(history.raw[1], job=job)
    history.roll_back(first)
    assert history.numbers(history.find_target(job).changes) == [2]


def test_undone_group_names_its_rollback(history: History) -> None:
    group = history.edit(*history.raw[:2])
    undoing = history.roll_back(group)
    scope = history.find_target(group)
    assert (scope.changes, scope.undone_by) == ([], [undoing])


def test_rollback_keeps_kind_of_its_target(history: History) -> None:
    job = uuid4()
    group = history.edit(history.raw[0], job=job)
    for named, kind in ((group, "group"), (job, "job")):
        target = named
        for is_redo in (False, True, False, True):
            scope = history.find_target(target)
            assert scope.kind == kind
            assert find_origin(history.connection, scope.changes[0]) == (is_redo, job)
            target = history.roll_back(target)


def test_job_can_be_undone_redone_and_undone(history: History) -> None:
    states = [history.state()]
    job = uuid4()
    part = history.edit(*history.raw[:2], job=job)
    history.edit(*history.raw[2:], job=job)
    states.append(history.state())
    for _ in range(3):
        undoing = history.roll_back(job)
        assert history.state() == states[0]
        assert history.undone()[part]
        history.roll_back(undoing)
        assert history.state() == states[1]
        assert not history.undone()[part]
    history.roll_back(history.roll_back(part))
    history.roll_back(job)
    assert history.state() == states[0]


def test_jobs_undo_and_redo_in_order(history: History) -> None:
    states, jobs = [history.state()], [uuid4() for _ in range(3)]
    for job in jobs:
        history.edit(*history.raw, job=job)
        states.append(history.state())
    undoings = []
    for number in (2, 1, 0):
        undoings.append(history.roll_back(jobs[number]))
        assert history.state() == states[number]
    for number in (1, 2, 3):
        history.roll_back(undoings.pop())
        assert history.state() == states[number]
    history.roll_back(jobs[0], cascade=True)
    assert history.state() == states[0]


def test_dependents_include_later_groups_of_same_rows(history: History) -> None:
    first = history.edit(history.raw[0])
    second = history.edit(*history.raw[:2])
    third = history.edit(*history.raw[1:3])
    history.edit(history.raw[3])
    before = history.state()
    assert history.number_dependents(first) == [2, 3, 4, 5]
    with pytest.raises(ConflictError):
        history.roll_back(first)
    history.roll_back(history.roll_back(first, cascade=True))
    assert history.state() == before
    assert not any(history.undone()[group] for group in (first, second, third))


def test_undone_changes_do_not_block_rollback(history: History) -> None:
    before = history.state()
    first = history.edit(history.raw[0])
    second = history.edit(history.raw[0])
    for _ in range(2):  # undone, redone, undone
        undoing = history.roll_back(second)
        history.roll_back(undoing)
    history.roll_back(second)
    history.roll_back(first)
    assert history.state() == before


def test_edit_between_changes_of_job_depends_on_job(history: History) -> None:
    job = uuid4()
    history.edit(history.raw[0], job=job)
    between = history.edit(history.raw[0])
    history.edit(history.raw[0], job=job)
    with pytest.raises(ConflictError):
        history.roll_back(job)
    before = history.state()
    history.roll_back(history.roll_back(job, cascade=True))
    assert history.state() == before
    assert not history.undone()[between]


def test_derived_rows_depend_on_their_sources(history: History) -> None:
    before = history.state()
    merged, merging = history.derive("merged", history.raw[:2])
    pattern, _ = history.derive("pattern", [merged])
    history.derive("pattern", [pattern])
    history.edit(history.raw[3])
    assert history.number_dependents(merging) == [2, 3]
    history.roll_back(merging, cascade=True)
    history.roll_back(list_changes(history.connection, history.project.id, limit=100)[3].group_id)
    assert history.state() == before


def _relation(a: UUID, b: UUID) -> dict[str, Any]:
    return {"a_id": a, "b_id": b, "relation_type": "explains", "confidence": 0.7, "status": "confirmed"}


def _entry(source: UUID | None, supporting: list[UUID]) -> dict[str, Any]:
    return {"content": "Do.", "content_hash": "h", "source_id": source, "supporting_memory_ids": supporting}


def _suggestion(originals: list[UUID], result: UUID | None) -> dict[str, Any]:
    versions = {"original_memory_ids": originals, "original_versions": [1] * len(originals)}
    return {"group_id": "g", "suggested_content": "s", "fingerprint": "f", "result_memory_id": result} | versions


# Tables whose rows reference a merged memory; the second id is that of a raw memory.
REFERENCES: list[tuple[Table, Callable[[UUID, UUID], dict[str, Any]]]] = [
    (memory_relations, lambda merged, raw: _relation(merged, raw)),
    (memory_relations, lambda merged, raw: _relation(raw, merged)),
    (playbook_entries, lambda merged, raw: _entry(merged, [raw])),
    (playbook_entries, lambda merged, raw: _entry(None, [raw, merged])),
    (consolidation_suggestions, lambda merged, raw: _suggestion([raw, merged], None)),
    (consolidation_suggestions, lambda merged, raw: _suggestion([raw], merged)),
]


@pytest.mark.parametrize(("table", "values"), REFERENCES)
def test_references_depend_on_derived_row(
    history: History, table: Table, values: Callable[[UUID, UUID], dict[str, Any]]
) -> None:
    before = history.state()
    merged, merging = history.derive("merged", history.raw[:2])
    row = history.insert(table, values(merged, history.raw[3])).entity_id
    update_row(history.connection, history.project, table, row, status=history.value(table, row, "status"))
    after = history.state()
    assert history.number_dependents(merging) == [2, 3]
    undoing = history.roll_back(merging, cascade=True)
    assert history.state() == before
    history.roll_back(undoing)
    assert history.state() == after


def test_superseded_row_depends_on_successor(history: History) -> None:
    older, _ = history.derive("merged", history.raw[:2])
    newer, merging = history.derive("merged", history.raw[2:])
    history.update_merged(older, superseded_by_id=newer, retired_at=NOW)
    assert history.number_dependents(merging) == [3]


def test_earlier_reference_does_not_depend_on_rewording(history: History) -> None:
    merged, _ = history.derive("merged", history.raw[:2])
    history.insert(memory_relations, _relation(merged, history.raw[3]))
    rewording = history.update_merged(merged, content="other words")
    assert history.number_dependents(rewording) == []
    history.insert(memory_relations, _relation(history.raw[3], merged))
    assert history.number_dependents(rewording) == [4]


def test_old_reference_stays_independent_after_redo(history: History) -> None:
    merged, _ = history.derive("merged", history.raw[:2])
    related = history.insert(memory_relations, _relation(merged, history.raw[3])).group_id
    rewording = history.update_merged(merged, content="other words")
    after = history.state()
    undone = [history.roll_back(rewording), history.roll_back(related)]
    for rollback in reversed(undone):
        history.roll_back(rollback)
    assert history.state() == after
    history.roll_back(rewording)


def test_reference_ignores_change_without_new_content(history: History) -> None:
    merged, _ = history.derive("merged", history.raw[:2])
    tagging = history.update_merged(merged, tags=["x"])
    history.insert(memory_relations, _relation(merged, history.raw[3]))
    assert history.number_dependents(tagging) == []


def test_redo_needs_referenced_row(history: History) -> None:
    merged, merging = history.derive("merged", history.raw[:2])
    related = history.insert(memory_relations, _relation(merged, history.raw[3])).group_id
    _, pattern = history.derive("pattern", [merged])
    redo_relation, redo_pattern = history.roll_back(related), history.roll_back(pattern)
    redo_merging = history.roll_back(merging)
    before = history.state()
    for target in (redo_relation, redo_pattern):
        with pytest.raises(ConflictError, match="references a memory that is gone"):
            history.roll_back(target)
        assert history.state() == before
    for target in (redo_merging, redo_pattern, redo_relation):
        history.roll_back(target)


def test_dependents_need_few_statements(history: History) -> None:
    job = uuid4()
    merged = [history.derive("merged", [history.raw[at % 4]], job=job)[0] for at in range(40)]
    for id_ in merged:
        history.insert(playbook_entries, _entry(id_, [id_]))
    scope = history.find_target(job)
    with record_statements(history.connection) as sent:
        assert len(list_dependents(history.connection, scope.changes)) == 40
    assert len(sent) <= 6


def test_archived_source_has_no_later_dependents(history: History) -> None:
    history.derive("merged", history.raw[:2])
    edit = history.edit(history.raw[0])
    history.derive("merged", history.raw[:2])
    assert history.number_dependents(edit) == []


def test_changes_are_counted_and_filtered(history: History) -> None:
    job = uuid4()
    history.edit(*history.raw, job=job)
    group = history.edit(history.raw[0])
    history.roll_back(group)
    connection, project = history.connection, history.project.id
    assert count_changes(connection, project) == (6, 3)
    assert count_changes(connection, project, where=LedgerFilter(operation="rollback")) == (1, 1)
    assert count_changes(connection, project, where=LedgerFilter(job_id=job)) == (4, 1)
    (since,) = {row.changed_at for row in list_changes(connection, project, limit=1)}
    assert count_changes(connection, project, where=LedgerFilter(since=since))[0] >= 1
    assert count_changes(connection, project, where=LedgerFilter(since=since + timedelta(days=1))) == (0, 0)
    assert count_changes(connection, project, where=LedgerFilter(until=since + timedelta(days=1))) == (6, 3)
    assert history.numbers(row.seq for row in list_changes(connection, project, limit=2)) == [6, 5]
    assert history.numbers(row.seq for row in list_changes(connection, project, limit=2, offset=1)) == [5, 4]
    newest = list_changes(connection, project, limit=1)[0].seq
    older = list_changes(connection, project, limit=1, where=LedgerFilter(before=newest))
    assert history.numbers(row.seq for row in older) == [5]
    ids, total = list_job_changes(connection, job, limit=3)
    assert total == 4
    oldest_first = list_changes(connection, project, limit=9, where=LedgerFilter(job_id=job))[::-1]
    assert ids == [row.id for row in oldest_first[:3]]
    assert [row.changes for row in list_groups(connection, project, limit=9)] == [1, 1, 4]
    assert [row.operation for row in list_groups(connection, project, limit=1)] == ["rollback"]
    assert [row.changes for row in list_groups(connection, project, limit=9, offset=2)] == [4]
    assert count_changes(connection, add_project(connection, "other").id) == (0, 0)
