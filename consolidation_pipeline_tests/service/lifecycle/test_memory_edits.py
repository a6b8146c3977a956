"""Edits and deletion of memories: everything derived goes out of use, and one rollback brings all of it back."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.core.memories.row_parser import parse_memory
from consolidation_pipeline.errors import (
    ConflictError,
    ForbiddenError,
    InvalidMemoryError,
    NotFoundError,
    ProjectBusyError,
    UsageError,
)
from consolidation_pipeline.service.lifecycle.changed_memories import Editor
from consolidation_pipeline.service.lifecycle.memory_deletion import Deletion, delete_memories
from consolidation_pipeline.service.lifecycle.memory_edits import MemoryEdit, edit_memory, revise_memories
from consolidation_pipeline.service.search.hybrid_search import SearchQuery, search
from consolidation_pipeline.store.jobs.project_lock import project_lock
from consolidation_pipeline_tests.service.corpus import LESSONS, MIGRATIONS, WEBHOOKS, reworded_notes, topic_notes
from consolidation_pipeline_tests.service.lifecycle.test_quarantine import dump_without_caches
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id
from consolidation_pipeline_tests.service.playbook.test_entries import OPTIONS

NEW_TEXT = "Zebrafinch caches are warmed by the night watch, and by nobody else."


@pytest.fixture
def notes(pipeline: Pipeline) -> Pipeline:
    """Consolidated project: three notes in one merged memory, and two topics with patterns."""
    rows = [*reworded_notes(LESSONS[:1])[:3], *topic_notes("hook", WEBHOOKS), *topic_notes("move", MIGRATIONS)]
    pipeline.consolidate(rows, **OPTIONS, playbook_approval="automatic")
    return pipeline


def edit(pipeline: Pipeline, id_: UUID, version: int | None = None, **fields: Any) -> MemoryEdit:
    return edit_memory(pipeline.engine, id_, fields, changed_by="tester", version=version)


def delete(pipeline: Pipeline, *ids: UUID, **how: Any) -> Deletion:
    return delete_memories(pipeline.engine, ids, changed_by="tester", **how)


def find_merged(pipeline: Pipeline) -> tuple[UUID, list[UUID]]:
    query = "SELECT id, source_memory_ids FROM {s}.consolidated_memories WHERE kind = 'merged' AND retired_at IS NULL"
    ((id_, sources),) = pipeline.rows(query)
    return id_, sources


def find_texts(pipeline: Pipeline, query: str) -> list[str]:
    found = search(
        pipeline.engine,
        "notes",
        SearchQuery(query, limit=50, include_archived=True),
        settings=pipeline.settings,
        count_use=False,
    )
    return [hit.content for hit in found.results]


def test_edit_of_merged_note_undoes_the_merge(notes: Pipeline) -> None:
    merged, sources = find_merged(notes)
    done = edit(notes, sources[0], content=NEW_TEXT)
    assert (done.changed, done.derived["merged"]) == (["content"], 1)
    row = notes.rows("SELECT * FROM {s}.task_memories WHERE id = :id", id=sources[0])[0]
    assert (row.execution_summary, row.embedding, row.consolidated_into_id) == (NEW_TEXT, None, None)
    assert notes.value("SELECT retired_at IS NOT NULL FROM {s}.consolidated_memories WHERE id = :id", id=merged)
    assert not any(LESSONS[0] in text and NEW_TEXT in text for text in find_texts(notes, LESSONS[0]))


def test_run_after_edit_derives_from_new_text(notes: Pipeline) -> None:
    _, sources = find_merged(notes)
    edit(notes, sources[0], content=NEW_TEXT)
    notes.run()
    _, left = find_merged(notes)
    assert sorted(left) == sorted(sources[1:])
    assert NEW_TEXT in find_texts(notes, NEW_TEXT)
    again = notes.run()
    assert (again.merging.created, again.patterns.created) == (0, 0)


def test_small_edit_is_merged_again(notes: Pipeline) -> None:
    merged, sources = find_merged(notes)
    content = notes.value("SELECT execution_summary FROM {s}.task_memories WHERE id = :id", id=sources[1])
    edit(notes, sources[1], content=f"{content} Please remember this.")
    notes.run()
    again, same = find_merged(notes)
    assert (again, same) == (merged, sources)


def test_rollback_of_edit_restores_everything(notes: Pipeline) -> None:
    before = dump_without_caches(notes)
    done = edit(notes, note_id("hook-0"), content=NEW_TEXT, memory_type="decision")
    assert done.derived["pattern"] >= 1
    assert done.group_id is not None
    undone = notes.roll_back(done.group_id)
    assert dump_without_caches(notes) == before
    notes.roll_back(undone.rollback_id)
    assert notes.value("SELECT execution_summary FROM {s}.task_memories WHERE memory_type = 'decision'") == NEW_TEXT


def test_edit_of_tags_keeps_what_was_derived(notes: Pipeline) -> None:
    _, sources = find_merged(notes)
    done = edit(notes, sources[0], tags=["a", "b"], files=["x.py"], importance=0.9)
    assert (done.changed, done.derived) == (["tags", "files", "importance"], {})
    assert find_merged(notes)[1] == sources
    same = edit(notes, sources[0], tags=["a", "b"], files=["x.py"], importance=0.9)
    assert (same.changed, same.group_id, same.version) == ([], None, done.version)


def test_edit_refuses_what_cannot_be_stored(notes: Pipeline) -> None:
    merged, sources = find_merged(notes)
    for fields in ({"content": " "}, {"memory_type": "poem"}, {"importance": -1}, {"content": None}):
        with pytest.raises(InvalidMemoryError):
            edit(notes, sources[0], **fields)
    for fields in ({"user_id": "eve"}, {}):
        with pytest.raises(UsageError, match="the fields are content, goal"):
            edit(notes, sources[0], **fields)
    with pytest.raises(UsageError, match="is of kind merged, made from other memories: edit one of these"):
        edit(notes, merged, content="x")
    with pytest.raises(NotFoundError):
        edit(notes, uuid4(), content="x")
    with pytest.raises(ConflictError, match="is at version 2, not 1: read it again"):
        edit(notes, sources[0], version=1, content="x")


def test_edit_waits_for_no_run(notes: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consolidation_pipeline.service.runs.run_lifecycle.LOCK_WAIT_SECONDS", 0.1)
    project = notes.project()
    with project_lock(notes.engine, project.id, project.slug, wait_seconds=0), pytest.raises(ProjectBusyError):
        edit(notes, note_id("hook-0"), content=NEW_TEXT)


def test_deleted_memory_is_hidden_everywhere(notes: Pipeline) -> None:
    hook = note_id("hook-0")
    done = delete(notes, hook, reason="wrong")
    assert (list(done.memories), done.derived["pattern"] >= 1) == ([hook], True)
    assert WEBHOOKS[0] not in " ".join(find_texts(notes, WEBHOOKS[0]))
    assert notes.value("SELECT archive_reason FROM {s}.task_memories WHERE id = :id", id=hook) == "deleted: wrong"
    notes.run()
    assert WEBHOOKS[0] not in " ".join(find_texts(notes, WEBHOOKS[0]))
    with pytest.raises(ConflictError, match="is deleted or in quarantine: undo that first"):
        edit(notes, hook, content=NEW_TEXT)
    with pytest.raises(ConflictError, match="is deleted or in quarantine already"):
        delete(notes, hook)


def test_rollback_of_deletion_restores_everything(notes: Pipeline) -> None:
    before = dump_without_caches(notes)
    done = delete(notes, note_id("hook-0"), find_merged(notes)[0])
    assert len(done.memories) == 4
    notes.roll_back(done.group_id)
    assert dump_without_caches(notes) == before


def test_older_deletion_is_undone_last(notes: Pipeline) -> None:
    before = dump_without_caches(notes)
    first, second = delete(notes, note_id("hook-0")), delete(notes, note_id("hook-1"))
    with pytest.raises(ConflictError):
        notes.roll_back(first.group_id)
    for done in (second, first):
        notes.roll_back(done.group_id)
    assert dump_without_caches(notes) == before


def test_deleted_pattern_does_not_come_back(notes: Pipeline) -> None:
    query = "SELECT id FROM {s}.consolidated_memories WHERE kind = 'pattern' AND retired_at IS NULL ORDER BY id"
    first = notes.rows(query)[0].id
    done = delete(notes, first)
    assert done.derived.get("playbook", 0) == notes.value(
        "SELECT count(*) FROM {s}.playbook_entries WHERE source_id = :id AND status = 'retired'", id=first
    )
    notes.run()
    assert first not in {row.id for row in notes.rows(query)}
    assert notes.value("SELECT count(*) FROM {s}.task_memories WHERE archive_reason LIKE 'deleted%'") == 0


def test_agent_changes_only_its_own_memories(notes: Pipeline) -> None:
    own, other = note_id("hook-0"), note_id("hook-1")
    notes.write("UPDATE {s}.task_memories SET writer = 'key:1', user_id = 'ada' WHERE id = :id", id=own)
    notes.configure(scope="user_id", **OPTIONS)
    editor = Editor(writer="key:1")
    edit_memory(notes.engine, own, {"goal": "Safety"}, changed_by="tester", editor=editor)
    with pytest.raises(InvalidMemoryError, match="importance is 3"):
        edit_memory(notes.engine, own, {"importance": 3}, changed_by="tester", editor=editor)
    with pytest.raises(ForbiddenError, match="was written by another"):
        edit_memory(notes.engine, other, {"goal": "Safety"}, changed_by="tester", editor=editor)
    with pytest.raises(ForbiddenError):
        delete(notes, other, editor=editor)
    with pytest.raises(ForbiddenError, match="an admin deletes them"):
        delete(notes, find_merged(notes)[0], editor=editor)
    with pytest.raises(NotFoundError):
        delete(notes, own, editor=Editor(writer="key:1", scope="bob"))
    assert delete(notes, own, editor=Editor(writer="key:1", scope="ada")).memories == [own]


def test_import_revises_many_memories_at_once(notes: Pipeline) -> None:
    ids = [note_id("hook-0"), note_id("hook-1")]
    new = {
        id_: parse_memory({"content": f"{NEW_TEXT} Number {n}.", "tags": ["t"]}, source="test")
        for n, id_ in enumerate(ids)
    }
    done = revise_memories(notes.engine, notes.project(), new, changed_by="tester")
    assert list(done.ids) == sorted(ids)
    assert revise_memories(notes.engine, notes.project(), new, changed_by="tester").ids == ()
    texts = notes.rows("SELECT execution_summary FROM {s}.task_memories WHERE tags = ARRAY['t']")
    assert {row.execution_summary for row in texts} == {memory.execution_summary for memory in new.values()}
