"""Compared sentences are kept between runs: patterns and summaries are the same with them and without."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.core.knowledge import compared_sentences
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.knowledge import derive, summaries, summary_rows, text_writers
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.lifecycle.memory_edits import edit_memory
from consolidation_pipeline_tests.service.corpus import MIGRATIONS, WEBHOOKS, note, topic_notes
from consolidation_pipeline_tests.service.knowledge.test_summaries import run_summaries
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, note_id

OPTIONS: dict[str, Any] = {"t_merge": 0.8, "t_suggest": 0.75, "t_pattern": 0.5, "archive": False, "promote": False}
COUNT = "SELECT count(*) FROM {s}.compared_sentences"
NEW = f"{WEBHOOKS[0]} It was the same last week."


def add_topics(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([*topic_notes("hook", WEBHOOKS), *topic_notes("move", MIGRATIONS)])


@pytest.fixture
def topics(pipeline: Pipeline) -> Pipeline:
    """Project with two topics whose patterns were written."""
    add_topics(pipeline)
    pipeline.run()
    return pipeline


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each pair that is asked about, if it was known."""
    found: list[bool] = []
    find = compared_sentences.ComparedPairs.find

    def watch(pairs: Any, key: int) -> bool | None:
        answer = find(pairs, key)
        found.append(answer is not None)
        return answer

    monkeypatch.setattr(compared_sentences.ComparedPairs, "find", watch)
    return found


def list_texts(pipeline: Pipeline) -> list[Any]:
    query = "SELECT kind, content, details::text FROM {s}.consolidated_memories WHERE retired_at IS NULL ORDER BY 1, 2"
    return [tuple(row) for row in pipeline.rows(query)]


@pytest.mark.parametrize("change", ["added", "edited", "undone"])
def test_texts_are_the_same_without_what_was_kept(pipeline: Pipeline, change: str) -> None:
    texts = []
    for forget in (False, True):
        pipeline.clear()
        add_topics(pipeline)
        done = pipeline.run()
        assert pipeline.value(COUNT) > 0
        if change == "edited":
            edit_memory(pipeline.engine, note_id("hook-0"), {"content": NEW}, changed_by="tester")
        else:
            pipeline.add([note("hook-new", NEW)])
        if change == "undone":
            pipeline.roll_back(done.job_id)
        if forget:
            pipeline.write("DELETE FROM {s}.compared_sentences")
        pipeline.run()
        texts.append(list_texts(pipeline))
    assert texts[0] == texts[1]


def test_next_text_asks_for_new_pairs_alone(topics: Pipeline, met: list[bool]) -> None:
    topics.add([note("hook-new", NEW)])
    assert topics.run().patterns.updated == 1
    assert met.count(True) > 0


def test_renewed_summary_reads_changed_memories_alone(pipeline: Pipeline, met: list[bool]) -> None:
    pipeline.add(topic_notes("hook", WEBHOOKS))
    run_summaries(pipeline)
    assert met
    assert not any(met)
    met.clear()
    edit_memory(pipeline.engine, note_id("hook-0"), {"content": NEW}, changed_by="tester")
    run_summaries(pipeline)
    assert met.count(True) > met.count(False) > 0


def test_another_program_knows_nothing(topics: Pipeline, met: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (derive, text_writers, summaries, summary_rows):
        monkeypatch.setattr(module, "describe_code", lambda: {"digest": "another"})
    topics.add([note("hook-new", NEW)])
    topics.run()
    assert met
    assert not any(met)


def test_pairs_of_retired_patterns_are_deleted(topics: Pipeline) -> None:
    before = topics.value(COUNT)
    patterns = [row.id for row in topics.rows("SELECT id FROM {s}.consolidated_memories WHERE kind = 'pattern'")]
    archive_manually(topics.engine, patterns, reason="outdated", changed_by="tester")
    topics.add([note("move-new", f"{MIGRATIONS[0]} It was the same last week.")])
    topics.run()
    retired = "SELECT count(*) FROM {s}.compared_sentences s JOIN {s}.consolidated_memories c ON c.id = s.memory_id"
    assert before > 0
    assert topics.value(f"{retired} WHERE c.retired_at IS NOT NULL") == 0


def test_erase_deletes_them(topics: Pipeline) -> None:
    assert topics.value(COUNT) > 0
    erase_memories(topics.engine, [note_id("hook-0")], changed_by="tester", reason="asked for")
    assert topics.value(COUNT) == 0
