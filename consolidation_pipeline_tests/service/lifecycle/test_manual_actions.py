"""Manual archive, restore and pin: all or nothing, each undone alone, exact."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.knowledge import merged_memories
from consolidation_pipeline.service.lifecycle.manual_actions import (
    ManualChange,
    archive_manually,
    pin_memories,
    restore_memories,
)
from consolidation_pipeline.store.knowledge.merged_memories import write_merged
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.lifecycle.test_archive import consolidate, count_raw, unused_note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, call_concurrently, note_id
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge

LESSON = LESSONS[0]


@pytest.fixture
def merged(pipeline: Pipeline) -> UUID:
    """Merged memory of ``a`` and ``b``; ``c`` and ``d`` are not merged."""
    return pipeline.start_from(merge_two)


def merge_two(pipeline: Pipeline) -> UUID:
    pipeline.add([note("a", LESSON), note("b", f"Note to self: {LESSON}"), note("c", LESSONS[1]), note("d", "Alone.")])
    consolidate(pipeline)
    return UUID(str(pipeline.value("SELECT id FROM {s}.consolidated_memories")))


def archive(pipeline: Pipeline, *ids: UUID, **how: Any) -> list[ManualChange]:
    return archive_manually(pipeline.engine, ids, changed_by="tester", **how)


def restore(pipeline: Pipeline, *ids: UUID, **how: Any) -> list[ManualChange]:
    return restore_memories(pipeline.engine, ids, changed_by="tester", **how)


def pin(pipeline: Pipeline, *ids: UUID, pinned: bool = True, **how: Any) -> list[ManualChange]:
    return pin_memories(pipeline.engine, ids, pinned=pinned, changed_by="tester", **how)


def changes(pipeline: Pipeline, operation: str) -> list[Any]:
    return pipeline.rows("SELECT * FROM {s}.consolidation_changes WHERE operation = :o ORDER BY seq", o=operation)


def unversioned(pipeline: Pipeline) -> dict[str, list[str]]:
    """Return a dump of the knowledge without row versions."""
    rows = {table: map(json.loads, lines) for table, lines in dump_knowledge(pipeline).items()}
    return {table: sorted(json.dumps(row | {"version": 0}) for row in found) for table, found in rows.items()}


def test_manual_archive_groups_each_memory_separately(pipeline: Pipeline, merged: UUID) -> None:
    pipeline.add([note("x", "Elsewhere.")], slug="other")
    elsewhere = note_id("x", "other")
    done = archive(pipeline, merged, note_id("c"), elsewhere, merged, reason="out of date")
    assert [(memory.id, memory.project, memory.kind) for memory in done] == [
        (merged, SLUG, "merged"),
        (note_id("c"), SLUG, "raw"),
        (elsewhere, "other", "raw"),
    ]
    written = changes(pipeline, "archive")
    assert {row.entity_id: row.group_id for row in written} == {memory.id: memory.group_id for memory in done}
    assert len({row.group_id for row in written}) == 3
    assert {(row.job_id, row.changed_by, row.reason) for row in written} == {(None, "tester", "out of date")}
    assert {(row.entity_id, row.project_id) for row in written} == {
        (merged, pipeline.project().id),
        (note_id("c"), pipeline.project().id),
        (elsewhere, pipeline.project("other").id),
    }
    assert count_raw(pipeline) == {"memories": 4, "active": 1, "consolidated": 0, "archived": 3}
    reasons = "SELECT DISTINCT archive_reason FROM {s}.task_memories WHERE is_archived"
    assert pipeline.rows(reasons) == [("out of date",)]
    assert find_broken_rules(pipeline) == []


def test_restored_memory_equals_original(pipeline: Pipeline, merged: UUID) -> None:
    before = unversioned(pipeline)
    for _ in range(2):
        archive(pipeline, merged, note_id("c"))
        restore(pipeline, merged, note_id("c"), reason="missed")
        assert unversioned(pipeline) == before
    assert {row.reason for row in changes(pipeline, "restore")} == {"missed"}
    versions = "SELECT version FROM {s}.task_memories WHERE id = :id"
    assert pipeline.value(versions, id=note_id("c")) == 5
    assert find_broken_rules(pipeline) == []


def test_manual_actions_are_rolled_back_independently(pipeline: Pipeline, merged: UUID) -> None:
    before = dump_knowledge(pipeline)
    done = archive(pipeline, merged, note_id("c"))
    for memory in done:
        pipeline.roll_back(memory.group_id)
    assert dump_knowledge(pipeline) == before
    (pinned,) = pin(pipeline, merged)
    pipeline.roll_back(pinned.group_id)
    assert dump_knowledge(pipeline) == before


def test_manual_archive_reason_defaults_to_by_hand(pipeline: Pipeline, merged: UUID) -> None:
    archive(pipeline, merged)
    assert pipeline.value("SELECT archive_reason FROM {s}.consolidated_memories") == "by hand"


@pytest.mark.parametrize("reason", ["staleness", "forgotten"])
def test_manual_archive_refuses_policy_reasons(pipeline: Pipeline, merged: UUID, reason: str) -> None:
    with pytest.raises(UsageError, match=f"'{reason}' is reserved for a policy or a review"):
        archive(pipeline, merged, reason=reason)


def test_manual_archive_is_all_or_nothing(pipeline: Pipeline, merged: UUID) -> None:
    pipeline.add([note("e", "Archived."), note("f", "Pinned.", pinned=True)])
    archive(pipeline, note_id("e"))
    before = dump_knowledge(pipeline)
    for bad, why in (
        (note_id("a"), f"{note_id('a')} is hidden in merged memory {merged}: archive that"),
        (note_id("e"), f"{note_id('e')} is archived already"),
        (note_id("f"), f"{note_id('f')} is pinned: unpin it first"),
    ):
        with pytest.raises(ConflictError, match=why) as refused:
            archive(pipeline, note_id("d"), merged, bad)
        assert refused.value.conflicts == (str(bad),)
    unknown = uuid4()
    with pytest.raises(NotFoundError, match=str(unknown)):
        archive(pipeline, note_id("d"), unknown)
    with pytest.raises(ConflictError) as refused:
        archive(pipeline, note_id("a"), note_id("e"), note_id("d"))
    assert refused.value.conflicts == (str(note_id("a")), str(note_id("e")))
    assert dump_knowledge(pipeline) == before


def test_superseded_memory_refuses_manual_actions(pipeline: Pipeline, merged: UUID) -> None:
    pipeline.add([note("g", LESSONS[2]), note("h", LESSONS[2])])
    consolidate(pipeline)
    other = pipeline.value("SELECT id FROM {s}.consolidated_memories WHERE id <> :id", id=merged)
    pipeline.write(
        "UPDATE {s}.consolidated_memories SET retired_at = now(), superseded_by_id = :by WHERE id = :id",
        by=merged,
        id=other,
    )
    for act in (archive, restore, pin):
        with pytest.raises(ConflictError, match=f"{other} is superseded by merged memory {merged}"):
            act(pipeline, other)


def test_only_archived_memories_are_restored(pipeline: Pipeline, merged: UUID) -> None:
    with pytest.raises(ConflictError, match=f"{merged} is not archived"):
        restore(pipeline, merged)
    archive(pipeline, merged)
    with pytest.raises(ConflictError, match=f"{note_id('a')} is hidden in merged memory {merged}: restore that"):
        restore(pipeline, merged, note_id("a"))
    with pytest.raises(ConflictError, match=f"{note_id('d')} is not archived"):
        restore(pipeline, merged, note_id("d"))
    assert pipeline.value("SELECT retired_at IS NOT NULL FROM {s}.consolidated_memories")


def test_restore_refuses_duplicate_merged_memory(pipeline: Pipeline) -> None:
    first = [note("a", LESSON), note("b", f"{LESSON}!")]
    pipeline.add(first)
    consolidate(pipeline)
    (one,) = pipeline.rows("SELECT id FROM {s}.consolidated_memories")[0]
    archive(pipeline, one)
    pipeline.add([note("c", LESSON), note("d", f"{LESSON}!")])
    consolidate(pipeline)
    (two,) = pipeline.rows("SELECT id FROM {s}.consolidated_memories WHERE retired_at IS NULL")[0]
    with pytest.raises(ConflictError, match=f"{one} has the same text as merged memory {two}"):
        restore(pipeline, one)
    archive(pipeline, two)
    with pytest.raises(ConflictError, match="only one of them can be active"):
        restore(pipeline, one, two)
    restore(pipeline, one)
    assert find_broken_rules(pipeline) == []


@pytest.fixture
def archived(pipeline: Pipeline) -> UUID:
    """Archived merged memory; ``c`` and ``d`` have the same texts and are not merged yet."""
    pipeline.add([note("a", LESSON), note("b", f"{LESSON}!")])
    consolidate(pipeline)
    one = UUID(str(pipeline.value("SELECT id FROM {s}.consolidated_memories")))
    archive(pipeline, one)
    pipeline.add([note("c", LESSON), note("d", f"{LESSON}!")])
    return one


def test_run_reuses_merged_memory_restored_meanwhile(
    pipeline: Pipeline, archived: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands: list[list[ManualChange]] = []

    def late(*arguments: Any, **how: Any) -> None:
        if not hands:
            hands.append(restore(pipeline, archived))
        write_merged(*arguments, **how)

    monkeypatch.setattr(merged_memories, "write_merged", late)
    consolidate(pipeline)
    [active] = pipeline.rows("SELECT id FROM {s}.consolidated_memories WHERE retired_at IS NULL")
    assert active.id == archived
    consolidate(pipeline)
    hidden = pipeline.rows("SELECT DISTINCT consolidated_into_id AS id FROM {s}.task_memories")
    assert [row.id for row in hidden] == [archived]
    assert find_broken_rules(pipeline) == []


def test_restore_waits_for_writer_and_rechecks(
    pipeline: Pipeline, archived: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor() as pool:
        hands: list[Future[list[ManualChange]]] = []

        def early(*arguments: Any, **how: Any) -> None:
            write_merged(*arguments, **how)
            hands.append(pool.submit(restore, pipeline, archived))
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while not pipeline.value(waiting):
                assert not hands[0].done()

        monkeypatch.setattr(merged_memories, "write_merged", early)
        consolidate(pipeline)
        with pytest.raises(ConflictError, match=f"{archived} has the same text"):
            hands[0].result()
    assert find_broken_rules(pipeline) == []


def test_pinned_memory_refuses_archive_and_second_pin(pipeline: Pipeline, merged: UUID) -> None:
    pin(pipeline, merged, note_id("d"), reason="dear to us")
    assert [(row.operation, row.reason, row.new_state) for row in changes(pipeline, "edit")] == [
        ("edit", "dear to us", {"pinned": True})
    ] * 2
    with pytest.raises(ConflictError, match=f"{merged} is pinned already"):
        pin(pipeline, note_id("c"), merged)
    with pytest.raises(ConflictError, match=f"{note_id('c')} is not pinned"):
        pin(pipeline, note_id("c"), pinned=False)
    with pytest.raises(ConflictError, match="unpin it first"):
        archive(pipeline, merged)
    pin(pipeline, merged, pinned=False)
    archive(pipeline, merged)


def test_only_active_memories_are_pinned(pipeline: Pipeline, merged: UUID) -> None:
    archive(pipeline, merged)
    with pytest.raises(ConflictError, match=f"{merged} is archived: restore it first"):
        pin(pipeline, merged)
    with pytest.raises(ConflictError, match=f"{note_id('a')} is hidden in merged memory {merged}: pin that"):
        pin(pipeline, note_id("a"))


def test_concurrent_manual_archives_succeed_once(pipeline: Pipeline) -> None:
    pipeline.add([unused_note(name, f"Memory {name}.") for name in "abcdefgh"])
    ids = [note_id(name) for name in "abcdefgh"]
    outcomes = call_concurrently(*(partial(archive, pipeline, *ids[::order]) for order in (1, -1, 1, -1)))
    assert [isinstance(outcome, ConflictError) for outcome in outcomes].count(True) == 3
    assert len(changes(pipeline, "archive")) == 8
