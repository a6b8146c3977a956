"""Active keys: who locks them, and which columns of a key an undo looks at."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, restore_memories
from consolidation_pipeline.store.database.schema import consolidated_memories
from consolidation_pipeline.store.ledger.active_keys import lock_active_keys_of
from consolidation_pipeline.store.ledger.ledger_writer import Author, Change, update_rows
from consolidation_pipeline.store.memories.archive import lock_memories
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.full_undo import roll_back_everything
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id

ADA = {"user_id": "ada"}


def merge_pair(pipeline: Pipeline, *names: str, lesson: str = LESSONS[0]) -> UUID:
    """Merge exact repeats of a lesson; return the merged memory."""
    pipeline.add([note(name, lesson, **ADA) for name in names])
    pipeline.run()
    merged: UUID = pipeline.value(
        "SELECT consolidated_into_id FROM {s}.task_memories WHERE id = :id", id=note_id(names[0])
    )
    return merged


def test_lock_covers_raw_and_undone_memories(pipeline: Pipeline) -> None:
    undone = merge_pair(pipeline, "a", "b")
    pipeline.roll_back(pipeline.last_group(entity=undone))
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories WHERE id = :id", id=undone) == 0
    for id_ in (undone, note_id("a")):
        with pipeline.engine.begin() as connection:
            lock_active_keys_of(connection, [id_])
            assert pipeline.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") == 1


def test_archive_locks_sources_in_order_of_runs(pipeline: Pipeline) -> None:
    merged = merge_pair(pipeline, "a", "b")
    with pipeline.engine.begin() as holder, pipeline.engine.begin() as run:
        lock_memories(holder, [merged])
        free = text("SELECT id FROM consolidation.task_memories FOR NO KEY UPDATE SKIP LOCKED")
        assert run.scalars(free).all() == []


@pytest.mark.breaks_rules
def test_undo_checks_every_column_of_a_key(pipeline: Pipeline) -> None:
    first, second = merge_pair(pipeline, "a", "b"), merge_pair(pipeline, "c", "d", lesson=LESSONS[1])
    version = pipeline.value("SELECT version FROM {s}.consolidated_memories WHERE id = :id", id=second)
    moved = Change(second, uuid4(), {"scope_key": "bob"}, version)
    with pipeline.engine.begin() as connection:
        author = Author(pipeline.project().id, None, "tester")
        update_rows(connection, author, consolidated_memories, [moved], operation="edit")
    pipeline.write(
        "UPDATE {s}.consolidated_memories m SET normalized_hash = o.normalized_hash FROM {s}.consolidated_memories o "
        "WHERE m.id = :first AND o.id = :second",
        first=first,
        second=second,
    )
    with pytest.raises(ConflictError, match=f"row {first} has the same text"):
        pipeline.roll_back(moved.group_id)


def test_relabelled_memory_gives_way_to_equal_one(pipeline: Pipeline) -> None:
    pipeline.configure_new(scope="user_id")
    kept = merge_pair(pipeline, "a", "b")
    archive_manually(pipeline.engine, [kept], changed_by="tester")
    pipeline.configure(scope="project")
    other = merge_pair(pipeline, "c", "d")
    restore_memories(pipeline.engine, [kept], changed_by="tester")
    pipeline.configure(scope="user_id")
    pipeline.run()
    states = dict(pipeline.rows("SELECT id, archive_reason FROM {s}.consolidated_memories WHERE kind = 'merged'"))
    assert states == {kept: None, other: "scope: another has its text"}
    roll_back_everything(pipeline)


def test_profile_follows_its_user_into_other_scope(pipeline: Pipeline) -> None:
    texts = [f"Step {n} of the import of orders takes {n + 3} minutes." for n in range(25)]
    pipeline.configure_new(scope="user_id")
    pipeline.add([note(f"n{n}", one, **ADA, agent_id="bob") for n, one in enumerate(texts)])
    summarize = ["embedding_matrix", "semantic_summaries", "procedural_profile"]
    pipeline.run_phases(summarize, job="summarize")
    query = "SELECT id, scope_key FROM {s}.consolidated_memories WHERE kind = 'procedural' AND retired_at IS NULL"
    [(profile, scope)] = pipeline.rows(query)
    assert scope == "ada"
    pipeline.configure(scope="agent_id")
    pipeline.add([note("late", "The import of orders needs a vacuum afterwards.", **ADA, agent_id="bob")])
    pipeline.run()
    pipeline.run_phases(summarize, job="summarize")
    assert pipeline.rows(query) == [(profile, "bob")]
    roll_back_everything(pipeline)
