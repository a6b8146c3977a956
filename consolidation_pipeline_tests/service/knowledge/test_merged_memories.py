"""Merged memories: fields, lineage, extension, lossless texts and concurrent changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.literals.literals import literals, stands_in
from consolidation_pipeline.core.memories.memories import normalize_text
from consolidation_pipeline.core.text.sentence_splitter import split_sentences
from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.intake.agent_memories import give_feedback
from consolidation_pipeline.service.knowledge import merged_memories
from consolidation_pipeline.service.review.suggestion_decisions import approve_suggestion
from consolidation_pipeline.service.review.suggestions import list_suggestions
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, corpus, note
from consolidation_pipeline_tests.service.fake_embedder import WordEmbedder
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, STEPS, Pipeline, note_id, run_phases
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_tables

OPTIONS: dict[str, Any] = {"t_merge": 0.8, "t_suggest": 0.7, "t_pattern": 0.5}
LESSON = LESSONS[0]


def list_merged(pipeline: Pipeline) -> list[Any]:
    """Return the active merged memories."""
    active = "SELECT * FROM {s}.consolidated_memories WHERE retired_at IS NULL AND kind = 'merged' ORDER BY id"
    return pipeline.rows(active)


def memory_ids(*names: str) -> list[UUID]:
    return sorted(note_id(name) for name in names)


def test_merge_unites_all_fields_of_sources(pipeline: Pipeline) -> None:
    first = {
        "tags": ["db", "deploy"],
        "files": ["b.py", "a.py"],
        "success": False,
        "importance": 0.4,
        "reused_count": 5,
    }
    second = {"tags": ["db", "ops"], "files": ["c.py"], "success": True, "importance": 0.9, "reused_count": 2}
    third: dict[str, Any] = {"tags": [], "files": [], "success": None, "importance": 0.1, "reused_count": 0}
    times = ("2024-03-02T08:00:00Z", "2024-03-09T08:00:00Z", "2024-03-05T08:00:00Z")
    rows = [
        note("a", LESSON, **first, last_accessed_at=times[0], created_at=times[2]),
        note("b", f"Note to self: {LESSON}", **second, last_accessed_at=times[1], created_at=times[0], pinned=True),
        note("c", LESSON, **third, last_accessed_at=None, created_at=times[1]),
    ]
    pipeline.add(rows)
    done = pipeline.run()
    (row,) = list_merged(pipeline)
    assert (done.merging.absorbed, done.merging.created) == (3, 1)
    assert row.content == LESSON
    assert sorted(row.tags) == ["db", "deploy", "ops"]
    assert (row.reuse_count, row.importance, row.success, row.pinned) == (7, 0.9, True, True)
    assert row.last_accessed_at.isoformat() == "2024-03-09T08:00:00+00:00"
    assert row.learned_at.isoformat() == "2024-03-09T08:00:00+00:00"
    assert (row.kind, row.abstraction_level, row.memory_type, row.confidence_score) == ("merged", 1, "learning", 0.95)
    assert (row.version, row.source_count, sorted(row.source_memory_ids)) == (1, 3, memory_ids("a", "b", "c"))
    files = pipeline.rows("SELECT path FROM {s}.memory_files WHERE owner_id = :id ORDER BY path", id=row.id)
    assert [path for (path,) in files] == ["a.py", "b.py", "c.py"]


def test_merge_success_is_null_only_if_all_are(pipeline: Pipeline) -> None:
    plain = {"success": None}
    pipeline.add([note("a", LESSONS[0], **plain), note("b", LESSONS[0], **plain)])
    pipeline.add([note("c", LESSONS[1], success=False), note("d", LESSONS[1], **plain)])
    pipeline.run()
    assert {row.content: row.success for row in list_merged(pipeline)} == {LESSONS[0]: None, LESSONS[1]: False}


def test_lineage_of_merge_has_cosine_of_each_source(pipeline: Pipeline) -> None:
    done = pipeline.consolidate(corpus())
    query = """
        SELECT l.child_id, l.parent_id, l.parent_kind, l.similarity, l.job_id,
            1 - (c.embedding <=> m.embedding) AS cosine
        FROM {s}.memory_lineage l JOIN {s}.consolidated_memories c ON c.id = l.child_id AND c.kind = 'merged'
        JOIN {s}.task_memories m ON m.id = l.parent_id
    """
    edges = pipeline.rows(query)
    hidden = pipeline.rows("SELECT consolidated_into_id, id FROM {s}.task_memories WHERE is_consolidated")
    assert {(edge.child_id, edge.parent_id) for edge in edges} == {tuple(row) for row in hidden}
    assert {(edge.parent_kind, edge.job_id) for edge in edges} == {("raw", done.job_id)}
    assert max(abs(edge.similarity - edge.cosine) for edge in edges) < 1e-5


@pytest.mark.slow
def test_readers_always_see_every_merged_fact(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged_memories, "BATCH", 1)
    pipeline.add(corpus())
    query = """
        SELECT count(*) FILTER (WHERE m.is_consolidated), count(*) FILTER (WHERE m.is_consolidated AND NOT EXISTS (
            SELECT 1 FROM {s}.consolidated_memories c JOIN {s}.memory_lineage l ON l.child_id = c.id
            WHERE c.id = m.consolidated_into_id AND l.parent_id = m.id AND m.id = ANY(c.source_memory_ids)
            AND c.retired_at IS NULL AND c.embedding IS NOT NULL))
        FROM {s}.task_memories m
    """
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            seen.append(tuple(pipeline.rows(query)[0]))

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        pipeline.run()
        pipeline.add([note(f"again-{at}", f"Once again: {lesson}") for at, lesson in enumerate(LESSONS)])
        extended = pipeline.run().merging.extended
    finally:
        over.set()
        reader.join()
    assert extended == len(LESSONS)
    assert {abandoned for _, abandoned in seen} == {0}
    assert [hidden for hidden, _ in seen] == sorted(hidden for hidden, _ in seen)


def test_new_near_duplicate_extends_merged_memory(pipeline: Pipeline) -> None:
    pipeline.consolidate([note("a", LESSON), note("b", f"Note to self: {LESSON}")])
    (before,) = list_merged(pipeline)
    pipeline.add([note("c", f"{LESSON} Seen again today.", tags=["new"], importance=0.95)])
    done = pipeline.run()
    (after,) = list_merged(pipeline)
    assert (done.merging.created, done.merging.extended, done.merging.absorbed) == (0, 1, 1)
    assert (after.id, after.version) == (before.id, 2)
    assert sorted(after.source_memory_ids) == memory_ids("a", "b", "c")
    assert "Seen again today." in after.content
    assert (after.importance, "new" in after.tags) == (0.95, True)
    assert pipeline.value("SELECT count(*) FROM {s}.memory_lineage") == 3
    assert pipeline.value("SELECT count(DISTINCT consolidated_into_id) FROM {s}.task_memories") == 1
    assert find_broken_rules(pipeline) == []


def test_extended_merge_equals_merge_of_all_at_once(pipeline: Pipeline) -> None:
    rows = [note("a", LESSON), note("b", f"Note to self: {LESSON}"), note("c", f"{LESSON} Seen again today.")]
    pipeline.add(rows[:2])
    pipeline.run()
    pipeline.add(rows[2:])
    pipeline.run()
    (grown,) = list_merged(pipeline)
    pipeline.clear()
    pipeline.add(rows)
    pipeline.run()
    (at_once,) = list_merged(pipeline)
    own = {"id", "project_id", "version", "created_at", "updated_at", "learned_at"}
    rows_shown = [{k: v for k, v in row._mapping.items() if k not in own} for row in (grown, at_once)]
    assert rows_shown[0] == rows_shown[1]


def test_extended_merge_keeps_uses_and_pin(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSON, reused_count=1), note("b", f"Note to self: {LESSON}", reused_count=2)])
    pipeline.run()
    pipeline.write(
        "UPDATE {s}.consolidated_memories SET reuse_count = reuse_count + 10, last_accessed_at = '2030-01-01', "
        "pinned = true"
    )
    pipeline.add([note("c", f"{LESSON} Seen again today.", reused_count=4)])
    pipeline.run()
    (row,) = list_merged(pipeline)
    assert (row.reuse_count, row.pinned, row.last_accessed_at.year) == (17, True, 2030)


@pytest.mark.parametrize(
    ("languages", "most"), [(("german", "german", "english"), "german"), (("english", "german"), "english")]
)
def test_merge_takes_majority_language_of_sources(pipeline: Pipeline, languages: Sequence[str], most: str) -> None:
    pipeline.configure_new(**OPTIONS)
    texts = (LESSON, f"Once more: {LESSON}", f"{LESSON} Seen again today.")
    pipeline.add([note(f"n{at}", texts[at], language=name) for at, name in enumerate(languages)])
    pipeline.run()
    assert pipeline.value("SELECT language::text FROM {s}.consolidated_memories WHERE kind = 'merged'") == most


def test_near_duplicate_merged_memories_are_joined(pipeline: Pipeline) -> None:
    pipeline.configure_new(t_merge=0.999, t_suggest=0.7, t_pattern=0.5)
    one = [note(f"one-{at}", LESSON) for at in range(3)]
    two = [note(f"two-{at}", f"Note to self: {LESSON}") for at in range(2)]
    pipeline.add([*one, *two])
    pipeline.run()
    first = {row.content: row.id for row in list_merged(pipeline)}
    pipeline.configure(t_merge=0.82)
    done = pipeline.run()
    (row,) = list_merged(pipeline)
    assert (done.merging.created, done.merging.extended, done.merging.absorbed) == (0, 1, 2)
    assert (row.id, row.version, row.source_count) == (first[LESSON], 2, 5)
    retired = pipeline.rows("SELECT id, superseded_by_id FROM {s}.consolidated_memories WHERE retired_at IS NOT NULL")
    assert [tuple(found) for found in retired] == [(first[f"Note to self: {LESSON}"], row.id)]
    assert find_broken_rules(pipeline) == []
    assert pipeline.run().merging.extended == 0


@pytest.mark.breaks_rules
def test_merges_with_same_content_are_joined(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pairs = [(LESSONS[at], f"Note to self: {LESSONS[at]}") for at in (0, 1)]
    pipeline.add([note(f"{at}-{n}", pairs[at][n > 1]) for at in (0, 1) for n in range(3)])
    pipeline.run()
    assert [row.source_count for row in list_merged(pipeline)] == [3, 3]
    # Rollback and redo may leave this state: a duplicate is hidden behind the memory of another lesson.
    (repeat, other) = note_id("0-1"), note_id("1-1")
    pipeline.write(
        "UPDATE {s}.task_memories SET consolidated_into_id = "
        f"(SELECT consolidated_into_id FROM {{s}}.task_memories WHERE id = '{other}') WHERE id = '{repeat}'"
    )
    pipeline.add([note("new", f"{LESSON} Seen again today.")])
    pipeline.run()
    (row,) = list_merged(pipeline)
    assert row.source_count == 6
    assert all(text in row.content for text in LESSONS[:2])


DETAILS = (
    "The gateway listens on port 8443.",
    "Deploy v2.14.1 first.",
    "See src/app/settings.py for the flag `USE_POOL`.",
    'The log says "pool exhausted" then.',
    "It happened on 2025-03-14.",
    "More at https://example.org/wiki/pool.",
    "Set MAX_CONNECTIONS to 40 before that.",
)


@settings(deadline=None, max_examples=10)
@given(
    added=st.lists(st.sets(st.sampled_from(DETAILS), max_size=3), min_size=2, max_size=4),
    cap=st.sampled_from([400, 8000]),
)
def test_merge_keeps_every_literal_of_its_sources(shared: Pipeline, added: list[set[str]], cap: int) -> None:
    shared.clear()
    shared.configure_new(t_merge=0.5, t_suggest=0.5, t_pattern=0.5, merge_max_chars=cap)
    texts = [" ".join([LESSON, *sorted(details)]) for details in added]
    shared.add(
        [
            note(f"n{at}", text, lessons_learned=sorted(added[at])[0] if added[at] else None)
            for at, text in enumerate(texts)
        ]
    )
    shared.run()
    hidden = shared.rows("SELECT consolidated_into_id, execution_summary FROM {s}.task_memories WHERE is_consolidated")
    kept = {row.id: "\n".join([row.content, *row.details.get("dropped", [])]) for row in list_merged(shared)}
    for into, text in hidden:
        assert all(stands_in(literal, kept[into]) for literal in literals(text))
    assert find_broken_rules(shared) == []


def test_merge_over_limit_drops_whole_sentences(pipeline: Pipeline) -> None:
    pipeline.configure_new(merge_max_chars=300)
    first = "The `worker` was down for 20 minutes, and the pager rang."
    second = first.replace("`", "").replace("pager", "`pager`")
    pipeline.add([note("a", f"{LESSON} {first}"), note("b", f"{LESSON} {second}")])
    pipeline.run()
    (row,) = list_merged(pipeline)
    sentences = {normalize_text(part) for part in [*split_sentences(row.content), *row.details["dropped"]]}
    assert len(row.content) <= 300
    assert {normalize_text(text) for text in (LESSON, first, second)} == sentences


@pytest.mark.breaks_rules
def test_merge_skips_group_that_lost_member(pipeline: Pipeline) -> None:
    pipeline.add([note("a", LESSON), note("b", f"Note to self: {LESSON}"), note("c", f"{LESSON} Seen again today.")])
    with pipeline.open() as run:
        run_phases(run, ["embedding_matrix", "similarity_graph", "clusters"])
        pipeline.write("UPDATE {s}.task_memories SET archived_at = now() WHERE external_id = 'c'")
        pipeline.write("DELETE FROM {s}.compared_memories WHERE memory_id = :id", id=note_id("c"))
        done = merged_memories.merge_clusters(run)
    assert (done.created, done.skipped) == (0, 1)
    assert pipeline.run().merging.created == 1
    assert list_merged(pipeline)[0].source_count == 2


def test_merge_skips_group_whose_memory_got_another_source(pipeline: Pipeline) -> None:
    pipeline.configure_new(t_merge=0.82, t_suggest=0.75, t_pattern=0.5)
    first, near_miss = NEAR_MISSES[0]
    pipeline.add([note("first", first), note("near miss", near_miss)])
    pipeline.run()
    pipeline.add([note("again", f"Note to self: {first}")])
    with pipeline.open() as run:
        run_phases(run, list(STEPS)[:4])
        (waiting,) = list_suggestions(pipeline.engine, SLUG).suggestions
        approve_suggestion(pipeline.engine, waiting.id, decided_by="ann", settings=pipeline.settings)
        done = merged_memories.merge_clusters(run)
    assert (done.created, done.extended, done.skipped) == (0, 0, 1)
    assert [row.source_count for row in list_merged(pipeline)] == [2]
    assert find_broken_rules(pipeline) == []


class InterruptingEmbedder(WordEmbedder):
    """Embedding model that calls a function before it embeds."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        super().__init__()
        self.interrupt = interrupt

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.interrupt()
        return super().embed(texts)


def test_feedback_during_merge_is_kept(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note("a", "Use the `amber` and the birch."), note("b", "Use the amber and the `birch`.")])
    feedback: list[dict[str, Any]] = []

    def add_feedback() -> None:
        if not feedback:
            id_ = note_id("b")
            feedback.append(give_feedback(pipeline.engine, id_, helpful=True, changed_by="bot"))

    with pipeline.open(embedder=WordEmbedder()) as run:
        run_phases(run, list(STEPS)[:4])
        run.embedder = InterruptingEmbedder(add_feedback)
        assert merged_memories.merge_clusters(run).created == 1
    assert feedback
    assert pipeline.value("SELECT importance FROM {s}.consolidated_memories") == feedback[0]["importance"]


def test_conflict_during_merge_writes_nothing(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note("a", "Use the `amber` and the birch."), note("b", "Use the amber and the `birch`.")])

    def edit() -> None:
        pipeline.write("UPDATE {s}.task_memories SET version = version + 1, tags = '{edited}' WHERE external_id = 'b'")

    tables = ["consolidated_memories", "consolidation_changes", "memory_lineage"]
    with pipeline.open(embedder=WordEmbedder()) as run:
        run_phases(run, list(STEPS)[:4])
        before = dump_tables(pipeline, tables=tables)
        run.embedder = InterruptingEmbedder(edit)
        with pytest.raises(ConflictError, match=str(note_id("b"))):
            merged_memories.merge_clusters(run)
    assert dump_tables(pipeline, tables=tables) == before
    assert pipeline.run(embedder=WordEmbedder()).merging.created == 1
