"""Profiles: how one works, from all summaries of a user; one row per user, replaced and never by nothing."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.service.lifecycle.manual_actions import archive_by_hand
from consolidation_pipeline.service.plan.apply import request_plan_job
from consolidation_pipeline.service.plan.planner import make_plan
from consolidation_pipeline_tests.openai_server import OpenAIServer, Request, reply_with_json
from consolidation_pipeline_tests.service.knowledge.test_llm_writer import shown_memories
from consolidation_pipeline_tests.service.knowledge.test_summaries import (
    MODEL,
    ids,
    last_group_of,
    notes,
    provider,
    rows,
    run_summaries_without_profile,
    run_summarize_job,
    summary_reply,
)
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases

__all__ = ["provider"]


def is_profile(request: Request) -> bool:
    return "how people work there" in request.body["messages"][0]["content"]


def profile_of(pipeline: Pipeline) -> Any:
    (row,) = rows(pipeline, "procedural")
    return row


@pytest.fixture
def asked(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Ten memories, and a model."""
    del provider
    pipeline.configure_new(**MODEL)
    pipeline.add(notes(10))
    return pipeline


def test_profile_covers_all_summaries_and_updates(asked: Pipeline, provider: OpenAIServer) -> None:
    run_summarize_job(asked)
    first = profile_of(asked)
    text = notes(1)[0]["content"]
    assert (first.content, first.abstraction_level, first.user_id, first.version) == (text, 3, None, 1)
    assert (first.consolidation_method, first.confidence_score, first.memory_type) == ("llm", 0.8, "learning")
    assert first.details == {
        "communication_preferences": [text],
        "technical_preferences": [text],
        "work_patterns": [text],
        "context": [text],
        "summaries": 1,
    }
    assert first.source_memory_ids == ids(10)
    asked.add(notes(9, "later"))
    done = run_summarize_job(asked)["procedural_profile"]
    second = profile_of(asked)
    assert (done.summaries, done.created, done.updated) == (2, 0, 1)
    assert (second.id, second.version, second.created_at) == (first.id, 2, first.created_at)
    assert second.source_memory_ids == sorted([*ids(10), *ids(9, "later")])
    assert len(shown_memories(provider.requests[-1])) == 2
    parents = asked.rows(
        "SELECT parent_id, parent_kind, similarity FROM {s}.memory_lineage WHERE child_id = :i", i=second.id
    )
    assert {edge.parent_id for edge in parents} == {row.id for row in rows(asked, "summary")}
    assert {edge.parent_kind for edge in parents} == {"summary"}
    assert all(-1 <= edge.similarity <= 1 for edge in parents)
    query = "SELECT previous_state FROM {s}.consolidation_changes WHERE entity_id = :i AND version_before = 1"
    assert asked.value(query, i=first.id)["content"] == first.content


@pytest.mark.parametrize("profile", ["", "The team waits 45 seconds before the next try."])
def test_unusable_reply_keeps_old_profile(asked: Pipeline, provider: OpenAIServer, profile: str) -> None:
    run_summarize_job(asked)
    before = profile_of(asked)
    provider.behaviour = reply_with_json(lambda r: summary_reply(r) | ({"profile": profile} if is_profile(r) else {}))
    asked.add(notes(9, "later"))
    done = run_summarize_job(asked)["procedural_profile"]
    assert (done.created, done.updated, len(done.failures)) == (0, 0, 1)
    assert profile_of(asked) == before
    provider.behaviour = reply_with_json(summary_reply)
    assert run_summarize_job(asked)["procedural_profile"].updated == 1


def test_used_up_budget_writes_no_profile(asked: Pipeline, provider: OpenAIServer) -> None:
    run_summaries_without_profile(asked)
    asked.configure(**MODEL, budget_tokens_per_run=0)
    done = run_summarize_job(asked)["procedural_profile"]
    assert (done.created, rows(asked, "procedural")) == (0, [])
    assert "budget_tokens_per_run" in str(done.stopped)
    assert len(provider.requests) == 1


def test_profile_without_summaries_makes_no_call(pipeline: Pipeline, provider: OpenAIServer) -> None:
    pipeline.configure_new(**MODEL)
    done = run_summarize_job(pipeline)["procedural_profile"]
    assert (done.summaries, done.created, done.updated, provider.requests) == (0, 0, 0, [])
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_changes") == 0


def test_many_summaries_are_reduced_before_profile(asked: Pipeline, provider: OpenAIServer) -> None:
    asked.write("DELETE FROM {s}.task_memories")
    for at in range(21):
        asked.add(notes(1, f"s{at:02}"))
        run_summaries_without_profile(asked)
    requests = len(provider.requests)
    assert run_summarize_job(asked)["procedural_profile"].created == 1
    assert [len(shown_memories(request)) for request in provider.requests[requests:]] == [20, 2]
    assert len(profile_of(asked).source_memory_ids) == 21


def test_heuristic_profile_quotes_summary_sentences(pipeline: Pipeline) -> None:
    pipeline.add(notes(20))
    run_summarize_job(pipeline)
    row = profile_of(pipeline)
    parts = [row.details[name] for name in ("preferences", "practices", "pitfalls", "facts")]
    assert [line for part in parts for line in part] == row.content.split("\n")
    (summary,) = rows(pipeline, "summary")
    assert set(row.content.split("\n")) <= set(summary.content.split("\n"))
    assert row.consolidation_method == "heuristic"
    assert 0 < row.confidence_score <= 0.75


def test_rollback_restores_previous_profile_version(
    pipeline: Pipeline,
) -> None:
    pipeline.add(notes(10))
    run_summarize_job(pipeline)
    before = profile_of(pipeline)
    pipeline.add(notes(10, "later"))
    run_summarize_job(pipeline)
    pipeline.roll_back(last_group_of(pipeline, before.id))
    old = profile_of(pipeline)
    assert (old.content, old.version, old.source_memory_ids) == (before.content, 1, before.source_memory_ids)
    assert run_summarize_job(pipeline)["procedural_profile"].unchanged == 1
    pipeline.add(notes(10, "last"))
    assert run_summarize_job(pipeline)["procedural_profile"].updated == 1
    assert len(profile_of(pipeline).source_memory_ids) == 30


def test_archived_profile_is_not_recreated(pipeline: Pipeline) -> None:
    pipeline.add(notes(10))
    run_summarize_job(pipeline)
    archive_by_hand(pipeline.engine, [profile_of(pipeline).id], changed_by="tester")
    pipeline.add(notes(10, "later"))
    assert run_summarize_job(pipeline)["procedural_profile"].unchanged == 1
    assert rows(pipeline, "procedural") == []


def test_plan_run_writes_no_summary_or_profile(pipeline: Pipeline) -> None:
    pipeline.add(notes(60))
    with pipeline.open() as run:
        run_phases(run, run.planned[:4])
    made = make_plan(pipeline.engine, SLUG, settings=pipeline.settings)
    request_plan_job(pipeline.engine, pipeline.project(), made, settings=pipeline.settings, triggered_by="tester")
    done = pipeline.run()
    assert (done.summaries.created, done.profiles.created) == (0, 0)
    assert [*rows(pipeline, "summary"), *rows(pipeline, "procedural")] == []
