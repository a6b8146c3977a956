"""Principles: derived from patterns, with and without a model; updates and rollback."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.errors import ConflictError
from consolidation_pipeline.service.lifecycle.manual_actions import pin_memories
from consolidation_pipeline_tests.openai_server import OpenAIServer, reply_with_json
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.fake_embedder import WordEmbedder
from consolidation_pipeline_tests.service.model_replies import pattern_reply
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline

OPTIONS: dict[str, Any] = {"merge": False, "archive": False, "t_pattern": 0.75, "t_principle": 0.5}
# Words of all memories, an instruction; words of each topic.
SHARED = "Keep amber birch cedar"
TOPICS = ("ember flint", "grove heron", "iris juniper")
FOURTH = "lotus maple"


class ManyWordsEmbedder(WordEmbedder):
    """Word embedder with enough dimensions that each word has its own."""

    def __init__(self) -> None:
        super().__init__("test/many-words", dimension=128)


def memory_notes(topic: str) -> list[dict[str, Any]]:
    letters = "xyz"
    return [note(f"{topic}-{at}", f"{SHARED} {topic} {letters[at] * 5}", session_id=f"{topic}-{at}") for at in range(3)]


def run_with_words(pipeline: Pipeline) -> Outcome:
    return pipeline.run(embedder=ManyWordsEmbedder())


def list_principles(pipeline: Pipeline) -> list[Any]:
    return pipeline.rows("SELECT * FROM {s}.consolidated_memories WHERE kind = 'principle' AND retired_at IS NULL")


def list_pattern_ids(pipeline: Pipeline) -> list[UUID]:
    query = "SELECT id FROM {s}.consolidated_memories WHERE kind = 'pattern' AND retired_at IS NULL ORDER BY id"
    return [row.id for row in pipeline.rows(query)]


@pytest.fixture
def topics(pipeline: Pipeline) -> Pipeline:
    """Project with three related topics of three memories each."""
    pipeline.configure_new(**OPTIONS)
    pipeline.add([row for topic in TOPICS for row in memory_notes(topic)])
    return pipeline


def test_heuristic_principle_waits_for_review(topics: Pipeline) -> None:
    done = run_with_words(topics)
    assert (done.patterns.created, done.principles.created, done.principles.needs_review) == (3, 1, 1)
    (row,) = list_principles(topics)
    assert (row.kind, row.abstraction_level, row.consolidation_method) == ("principle", 3, "heuristic")
    assert (row.needs_review, row.source_count) == (True, 9)
    assert row.details["seen"].startswith("Seen in 3 patterns")
    query = "SELECT parent_id, parent_kind FROM {s}.memory_lineage WHERE child_id = :id ORDER BY 1"
    assert [tuple(edge) for edge in topics.rows(query, id=row.id)] == [
        (id_, "pattern") for id_ in list_pattern_ids(topics)
    ]
    assert {one["unit"] for one in row.details["evidence"]} == set(map(str, list_pattern_ids(topics)))
    # The principle, and the entry of the playbook that it proposes.
    assert done.report.metrics["needs_review"] == 2


def test_principle_needs_three_patterns(pipeline: Pipeline) -> None:
    pipeline.configure_new(**OPTIONS)
    pipeline.add([row for topic in TOPICS[:2] for row in memory_notes(topic)])
    done = run_with_words(pipeline)
    assert (done.patterns.created, done.principles.groups) == (2, 0)


def test_new_pattern_updates_principle_in_place(topics: Pipeline) -> None:
    run_with_words(topics)
    (before,) = list_principles(topics)
    again = run_with_words(topics)
    assert (again.principles.covered, again.principles.created, again.principles.updated) == (1, 0, 0)
    topics.add(memory_notes(FOURTH))
    done = run_with_words(topics)
    (after,) = list_principles(topics)
    assert (done.patterns.created, done.principles.updated) == (1, 1)
    assert (after.id, after.version, after.source_count) == (before.id, before.version + 1, 12)


def test_changed_pattern_updates_principle_once(topics: Pipeline) -> None:
    run_with_words(topics)
    (before,) = list_principles(topics)
    changed = list_pattern_ids(topics)[0]
    text = f"{SHARED} lotus maple nettle."
    topics.write("UPDATE {s}.consolidated_memories SET content = :text WHERE id = :id", text=text, id=changed)
    done = run_with_words(topics)
    (after,) = list_principles(topics)
    assert (done.principles.updated, done.principles.created) == (1, 0)
    assert (after.id, after.version) == (before.id, before.version + 1)
    quotes = {one["unit"]: one["quote"] for one in after.details["evidence"]}
    assert quotes[str(changed)] in text
    assert run_with_words(topics).principles.updated == 0


def test_kept_principle_quotes_what_a_pattern_said(topics: Pipeline) -> None:
    run_with_words(topics)
    (before,) = list_principles(topics)
    pin_memories(topics.engine, [before.id], pinned=True, changed_by="tester")
    topics.write("UPDATE {s}.consolidated_memories SET content = 'Keep it.' WHERE kind = 'pattern'")
    assert run_with_words(topics).principles.updated == 0


def test_rollback_of_pattern_needs_principle_cascade(topics: Pipeline) -> None:
    run_with_words(topics)
    first = list_pattern_ids(topics)[0]
    group = topics.last_group(entity=first)
    with pytest.raises(ConflictError, match="principle"):
        topics.roll_back(group)
    topics.roll_back(group, cascade=True)
    assert (list_principles(topics), len(list_pattern_ids(topics))) == ([], 2)


@pytest.mark.parametrize(("confidence", "stored"), [(0.80, 0), (0.81, 1)])
def test_llm_principle_is_stored_above_0_8(
    topics: Pipeline, provider: OpenAIServer, confidence: float, stored: int
) -> None:
    provider.behaviour = reply_with_json(pattern_reply(confidence))
    topics.configure(**OPTIONS, llm_model="openai/gpt-4o-mini")
    done = run_with_words(topics)
    assert (done.patterns.created, len(provider.requests)) == (3, 4)
    assert (done.principles.created, done.principles.discarded, len(list_principles(topics))) == (
        stored,
        1 - stored,
        stored,
    )
    assert [(row.needs_review, row.consolidation_method) for row in list_principles(topics)] == [
        (False, "llm")
    ] * stored
    run_with_words(topics)
    assert len(provider.requests) == 4
