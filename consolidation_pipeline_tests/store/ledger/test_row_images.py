"""Images of rows with long lists of sources: what is left out is restored exactly."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from sqlalchemy import Connection

from consolidation_pipeline.store.database.schema import consolidated_memories
from consolidation_pipeline.store.ledger import row_images
from consolidation_pipeline.store.ledger.ledger_reader import list_changes
from consolidation_pipeline.store.ledger.revert import revert_changes
from consolidation_pipeline.store.projects import Project
from consolidation_pipeline_tests.store.sample_rows import (
    add_memories,
    add_merged,
    author,
    contents,
    merged_values,
    new_memory,
    newest_change,
    update_row,
)


@pytest.fixture
def raw(connection: Connection, project: Project) -> list[UUID]:
    """Ids of six memories, ascending."""
    return sorted(add_memories(connection, project, [new_memory(key) for key in "abcdef"]))


def _undo(connection: Connection, project: Project, seq: int) -> int:
    """Undo a change; return ``seq`` of the rollback."""
    revert_changes(connection, author(project), [seq], group_id=uuid4(), reason="test")
    return newest_change(connection)


@pytest.mark.parametrize("backwards", [False, True])
def test_long_lists_are_undone_and_redone(
    connection: Connection, project: Project, raw: list[UUID], monkeypatch: pytest.MonkeyPatch, *, backwards: bool
) -> None:
    monkeypatch.setattr(row_images, "_LONG", 2)
    level = {"kind": "pattern", "abstraction_level": 2, "cluster_key": "k"}
    without = contents(connection)
    id_ = add_merged(connection, project, "one", raw[:4], **level)
    inserted, before = newest_change(connection), contents(connection)
    image = list_changes(connection, project.id, limit=1)[0].new_state
    assert image["lineage"] == {"parent_kind": "raw", "job_id": None, "similarities": [0.9] * 4}
    assert image["source_memory_ids"] == [str(one) for one in raw[:4]]

    sources = raw[:0:-1] if backwards else raw[1:]
    update_row(connection, project, consolidated_memories, id_, 1, **merged_values("two", sources, **level))
    updated, after = newest_change(connection), contents(connection)
    change = list_changes(connection, project.id, limit=1)[0]
    images = [image["source_memory_ids"] for image in (change.previous_state, change.new_state)]
    if backwards:  # A list in another order is kept whole.
        assert images == [[str(one) for one in raw[:4]], [str(one) for one in sources]]
    else:
        assert images == [{"only": [str(raw[0])]}, {"only": [str(one) for one in raw[4:]]}]

    undone = _undo(connection, project, updated)
    assert contents(connection) == before
    redone = _undo(connection, project, undone)
    assert contents(connection) == after
    _undo(connection, project, redone)
    deleted = _undo(connection, project, inserted)
    assert contents(connection) == without
    _undo(connection, project, deleted)
    assert contents(connection) == before


def test_merged_memories_keep_whole_lists(
    connection: Connection, project: Project, raw: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_images, "_LONG", 2)
    id_ = add_merged(connection, project, "one", raw[:4])
    update_row(connection, project, consolidated_memories, id_, 1, **merged_values("two", raw))
    change = list_changes(connection, project.id, limit=1)[0]
    assert len(change.previous_state["source_memory_ids"]) == 4
    assert len(change.new_state["source_memory_ids"]) == 6
