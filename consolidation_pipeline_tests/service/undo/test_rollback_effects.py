"""Effects of a rollback: every query result is restored at once, in any order of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.store.database.vector_copy import to_ids
from consolidation_pipeline.store.ledger.cannot_link import load_cannot_links
from consolidation_pipeline_tests.service.corpus import LESSONS, note, reworded_notes
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge, dump_tables

LESSON = LESSONS[0]

# Queries of the sources as the reading interfaces send them.
ACTIVE = "SELECT id FROM {s}.task_memories WHERE NOT is_archived AND NOT is_consolidated ORDER BY id"
FULL_TEXT = """
    SELECT id FROM {s}.task_memories WHERE content_tsv @@ to_tsquery('english', 'migration & orchestrator')
        AND NOT is_archived AND NOT is_consolidated
    UNION ALL SELECT id FROM {s}.consolidated_memories
        WHERE content_tsv @@ to_tsquery('english', 'migration & orchestrator') AND retired_at IS NULL ORDER BY id
"""
VISIBLE: dict[str, str] = {
    "active memories": ACTIVE,
    "full text": FULL_TEXT,
    "embeddings": "SELECT id, embedding::text, embedding_model, content_hash FROM {s}.task_memories ORDER BY id",
    "files": "SELECT owner_id, path FROM {s}.memory_files ORDER BY 1, 2",
    "tags": "SELECT id, tags FROM {s}.task_memories ORDER BY id",
    "lineage": "SELECT child_id, parent_id, similarity FROM {s}.memory_lineage ORDER BY 1, 2",
    "counters": "SELECT id, reused_count, last_accessed_at, importance, version FROM {s}.task_memories ORDER BY id",
    "merged memories": "SELECT to_jsonb(m) FROM {s}.consolidated_memories m",
}
ROWS = [
    note("a", LESSON, tags=["db"], files=["a.py"], reused_count=2),
    note("b", f"Note to self: {LESSON}", tags=["deploy"], files=["b.py"], reused_count=5),
    note("other", LESSONS[1]),
]


def visible_rows(pipeline: Pipeline) -> dict[str, list[tuple[Any, ...]]]:
    return {what: [tuple(row) for row in pipeline.rows(query)] for what, query in VISIBLE.items()}


@pytest.fixture
def embedded(pipeline: Pipeline) -> Pipeline:
    """Pipeline with embedded memories of which none is merged."""
    pipeline.add(ROWS)
    pipeline.configure(merge=False)
    pipeline.run()
    pipeline.configure()
    return pipeline


def test_rollback_restores_every_visible_query(embedded: Pipeline) -> None:
    before = visible_rows(embedded)
    merging = embedded.run().merging
    assert merging.created == 1
    merged = visible_rows(embedded)
    changed = {"active memories", "full text", "files", "lineage", "counters", "merged memories"}
    assert {what for what in VISIBLE if merged[what] != before[what]} == changed
    undone = embedded.roll_back(embedded.last_group(entity=note_id("a")))
    assert visible_rows(embedded) == before
    embedded.roll_back(undone.rollback_id)
    assert visible_rows(embedded) == merged


def test_rollback_restores_extended_memory(embedded: Pipeline) -> None:
    embedded.run()
    embedded.add([note("c", f"{LESSON} Seen again today.", tags=["new"], files=["c.py"], reused_count=9)])
    embedded.configure(merge=False, review_limit=0, summarize=False)
    embedded.run()
    embedded.configure(review_limit=0, summarize=False)
    before = visible_rows(embedded)
    assert embedded.run().merging.extended == 1
    assert visible_rows(embedded)["merged memories"] != before["merged memories"]
    embedded.roll_back(embedded.last_group(entity=note_id("c")))
    assert visible_rows(embedded) == before


def test_rollback_shows_each_fact_once(embedded: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from consolidation_pipeline.service.undo import rollback

    embedded.run()
    looks: list[list[tuple[Any, ...]]] = []
    real: Callable[..., Any] = rollback.revert_changes

    def look_after(*arguments: Any, **named: Any) -> Any:
        done = real(*arguments, **named)
        looks.append([tuple(row) for row in embedded.rows(FULL_TEXT)])
        return done

    monkeypatch.setattr(rollback, "revert_changes", look_after)
    merged = [tuple(row) for row in embedded.rows(FULL_TEXT)]
    embedded.roll_back(embedded.last_group(entity=note_id("a")))
    assert looks == [merged]
    sources = sorted((note_id(name),) for name in "ab")
    assert [tuple(row) for row in embedded.rows(FULL_TEXT)] == sources


def is_cannot_link(pipeline: Pipeline, *names: str) -> bool:
    a, b = (to_ids([note_id(name)]) for name in names)
    with pipeline.engine.connect() as connection:
        return bool(np.any(load_cannot_links(connection, pipeline.project().id).forbids(a, b)))


def test_undone_group_becomes_cannot_link_unlike_job(pipeline: Pipeline) -> None:
    done = pipeline.consolidate(ROWS)
    undone = pipeline.roll_back(done.job_id)
    assert (undone.scope, undone.kept_apart, is_cannot_link(pipeline, "a", "b")) == ("job", 0, False)
    redone = pipeline.roll_back(undone.rollback_id)
    assert (redone.redone, redone.kept_apart) == (True, 0)
    undone = pipeline.roll_back(pipeline.last_group(entity=note_id("a")))
    assert undone.scope == "job"  # the group of the redo, which restored a whole job


def test_redo_of_group_removes_cannot_link(pipeline: Pipeline) -> None:
    pipeline.consolidate(ROWS)
    undone = pipeline.roll_back(pipeline.last_group(entity=note_id("a")))
    assert (undone.scope, undone.kept_apart, is_cannot_link(pipeline, "a", "b")) == ("group", 1, True)
    assert not is_cannot_link(pipeline, "a", "other")
    redone = pipeline.roll_back(undone.rollback_id)
    assert (redone.redone, redone.kept_apart, is_cannot_link(pipeline, "a", "b")) == (True, 0, False)


@pytest.fixture(scope="module")
def four_merges(shared: Pipeline) -> tuple[Pipeline, list[UUID], dict[str, list[str]], list[dict[str, list[str]]]]:
    """Four merges of one job: pipeline, groups, dump before the merges and dump after."""
    shared.clear()
    shared.add(reworded_notes(LESSONS[:4]))
    raw = dump_knowledge(shared)
    shared.run()
    rows = shared.rows("SELECT group_id FROM {s}.consolidation_changes GROUP BY 1 ORDER BY min(seq)")
    assert len(rows) == 4
    return shared, [row.group_id for row in rows], raw, [dump_knowledge(shared)]


@pytest.mark.slow
@settings(deadline=None, max_examples=5)
@given(data=st.data())
def test_independent_groups_are_undone_in_any_order(
    four_merges: tuple[Pipeline, list[UUID], dict[str, list[str]], list[dict[str, list[str]]]], data: st.DataObject
) -> None:
    pipeline, groups, raw, (merged,) = four_merges
    chosen = data.draw(st.permutations(groups))
    half = set(chosen[:2])
    states = []
    for order in (chosen[:2], chosen[1::-1]):
        for group in order:
            pipeline.roll_back(group)
        states.append(dump_knowledge(pipeline))
        assert find_broken_rules(pipeline) == []
        for group in data.draw(st.permutations(sorted(half))):
            pipeline.roll_back(redo_of(pipeline, group))
        assert dump_knowledge(pipeline) == merged
    assert states[0] == states[1]
    for group in chosen:
        pipeline.roll_back(group)
    assert dump_knowledge(pipeline) == raw
    for group in data.draw(st.permutations(groups)):
        pipeline.roll_back(redo_of(pipeline, group))
    assert dump_knowledge(pipeline) == merged


def redo_of(pipeline: Pipeline, group: UUID) -> UUID:
    """Return the newest rollback of a group."""
    query = """
        WITH RECURSIVE fate AS (
            SELECT id, seq, group_id FROM {s}.consolidation_changes WHERE group_id = :group
            UNION ALL
            SELECT r.id, r.seq, r.group_id FROM fate f JOIN {s}.consolidation_changes r ON r.reverts_change_id = f.id)
        SELECT group_id FROM fate ORDER BY seq DESC LIMIT 1
    """
    return UUID(str(pipeline.value(query, group=group)))


def test_ledger_grows_only_by_undone_changes(pipeline: Pipeline) -> None:
    pipeline.consolidate(ROWS)
    before = dump_tables(pipeline, tables=["consolidation_changes"])["consolidation_changes"]
    undone = pipeline.roll_back(pipeline.last_group(entity=note_id("a")))
    after = dump_tables(pipeline, tables=["consolidation_changes"])["consolidation_changes"]
    assert set(before) < set(after)
    assert len(after) == len(before) + undone.changes
