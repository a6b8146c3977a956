"""Gate of memory tests: what would make a passing test fail is not committed, in a plan as in a run."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.core.memory_tests.memory_test import MemoryTest, build_test
from consolidation_pipeline.service.memory_tests.evaluation import MemoryTestResult, run_memory_tests
from consolidation_pipeline.service.memory_tests.registry import add_memory_tests
from consolidation_pipeline.service.similarity.successors import Bodies
from consolidation_pipeline_tests.service.corpus import LESSONS, STALE, UNRELATED, note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, note_id

OPTIONS: dict[str, Any] = {"t_merge": 0.5, "t_suggest": 0.5, "t_pattern": 0.5, "recall_gate": False}
REWORDED = f"Note to self: {LESSONS[0]}"
SECOND = f"{LESSONS[0]} Seen again today."


def add_tests(pipeline: Pipeline, *tests: MemoryTest) -> None:
    """Add tests to the project."""
    add_memory_tests(pipeline.engine, SLUG, tests, source="cli")


def run_tests(pipeline: Pipeline) -> dict[str, MemoryTestResult]:
    """Return the results of the project's tests by name."""
    found = run_memory_tests(pipeline.engine, SLUG, settings=pipeline.settings)
    return {one.test.name: one for one in found}


def import_notes(pipeline: Pipeline, *texts: str, **fields: Any) -> None:
    """Import notes with these texts, named by their place, and unrelated ones."""
    rows = [note(f"note-{at}", text) | fields for at, text in enumerate(texts)]
    pipeline.add([*rows, *(note(f"other-{at}", text) for at, text in enumerate(UNRELATED))])


def test_forbidden_pair_is_kept_apart(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    import_notes(pipeline, LESSONS[0], REWORDED, SECOND)
    add_tests(pipeline, build_test("must_not_merge", [LESSONS[0], REWORDED], "apart"))
    planned = pipeline.plan()
    done = pipeline.run()
    [refused] = done.clusters.vetoed
    assert list(refused.tests) == ["apart"]
    assert {note_id("note-0"), note_id("note-1")} <= set(refused.memories)
    into = dict(pipeline.rows("SELECT id, consolidated_into_id FROM {s}.task_memories"))
    assert into[note_id("note-0")] is None or into[note_id("note-0")] != into[note_id("note-1")]
    # The third wording still merges with one of them.
    assert done.merging.absorbed == 2
    [unwanted] = planned.refused_by_tests
    assert (list(unwanted.tests), len(planned.merges)) == (["apart"], 1)
    assert run_tests(pipeline)["apart"].passed


def test_group_that_breaks_a_test_is_refused(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(**OPTIONS)
    import_notes(pipeline, LESSONS[0], REWORDED, LESSONS[1], f"Note to self: {LESSONS[1]}")
    add_tests(pipeline, build_test("must_remember", LESSONS[0], "deploy"))
    lose_texts(monkeypatch, LESSONS[0])
    planned = pipeline.plan()
    done = pipeline.run()
    assert (done.merging.refused_by_tests, done.merging.created) == (1, 1)
    [refused] = planned.refused_by_tests
    assert set(refused.texts) == {note_id("note-0"), note_id("note-1")}
    assert [len(merge.sources) for merge in planned.merges] == [2]
    metrics = pipeline.value("SELECT metrics FROM {s}.consolidation_jobs WHERE id = :id", id=done.job_id)
    [told] = metrics["refused_by_tests"]
    assert (told["phase"], list(told["tests"])) == ("merged_memories", ["deploy"])
    assert set(told["memories"]) == {str(note_id("note-0")), str(note_id("note-1"))}
    assert run_tests(pipeline)["deploy"].passed
    assert pipeline.value("SELECT count(*) FROM {s}.memory_clusters WHERE tier = 'merge'") == 2


def lose_texts(monkeypatch: pytest.MonkeyPatch, lesson: str) -> None:
    """Make merges of a lesson lose its text, as a faulty policy would."""
    from consolidation_pipeline.core.text.text_merge import MergedText
    from consolidation_pipeline.service.knowledge import merged_memories

    merge = merged_memories.find_merged_text

    def merge_badly(known: Any, bodies: Bodies, **options: Any) -> MergedText:
        if any(lesson in body for body in bodies.others.values()):
            return MergedText("Something was said about a release.", ())
        return merge(known, bodies, **options)

    monkeypatch.setattr(merged_memories, "find_merged_text", merge_badly)


def test_second_run_refuses_the_same(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.configure_new(**OPTIONS)
    import_notes(pipeline, LESSONS[0], REWORDED)
    add_tests(pipeline, build_test("must_remember", LESSONS[0], "deploy"))
    lose_texts(monkeypatch, LESSONS[0])
    first, second = pipeline.run(), pipeline.run()
    assert [done.merging.refused_by_tests for done in (first, second)] == [1, 1]
    assert pipeline.value("SELECT count(*) FROM {s}.consolidated_memories WHERE kind = 'merged'") == 0


def test_failing_test_does_not_block(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    import_notes(pipeline, LESSONS[0], REWORDED)
    add_tests(pipeline, build_test("must_remember", "The moon is made of green cheese.", "moon"))
    done = pipeline.run()
    assert (done.merging.refused_by_tests, done.merging.created) == (0, 1)
    assert done.report.metrics["memory_tests_failing"] == 1
    assert not run_tests(pipeline)["moon"].passed


def test_only_memory_that_says_it_is_not_archived(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive_max_share=1.0)
    import_notes(pipeline, LESSONS[0], LESSONS[1], **STALE)
    add_tests(pipeline, build_test("must_remember", LESSONS[0], "deploy"))
    planned = pipeline.plan()
    done = pipeline.run()
    assert (done.archived.stale, done.archived.refused_by_tests) == (1, 1)
    archived = pipeline.rows("SELECT id FROM {s}.task_memories WHERE is_archived")
    assert [row.id for row in archived] == [note_id("note-1")] == [one.id for one in planned.archives]
    [refused] = planned.refused_by_tests
    assert (refused.phase, set(refused.texts)) == ("archived_memories", {note_id("note-0")})


def test_run_without_tests_asks_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    from consolidation_pipeline.service.runs import project_run

    asked = []
    load = project_run.load_memory_tests
    monkeypatch.setattr(project_run, "load_memory_tests", lambda *given: asked.append(given) or load(*given))
    pipeline.configure_new(**OPTIONS)
    import_notes(pipeline, LESSONS[0], REWORDED)
    assert pipeline.run().merging.created == 1
    assert len(asked) == 1
