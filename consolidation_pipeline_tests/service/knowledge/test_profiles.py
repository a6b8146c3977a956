"""Procedural profiles: one row per user, derived from all summaries of the user and updated in place."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually
from consolidation_pipeline.service.plan.apply import request_plan_job
from consolidation_pipeline_tests.openai_server import OpenAIServer, Request, reply_with_json
from consolidation_pipeline_tests.service.knowledge.test_summaries import (
    MODEL,
    active_rows,
    hourly_notes,
    memory_ids,
    run_summaries_without_profile,
    run_summarize_job,
)
from consolidation_pipeline_tests.service.model_replies import shown_memories, summary_reply
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline, run_phases


def is_profile_request(request: Request) -> bool:
    return "how people work there" in request.body["messages"][0]["content"]


def get_profile(pipeline: Pipeline) -> Any:
    (row,) = active_rows(pipeline, "procedural")
    return row


@pytest.fixture
def llm_project(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project with a model and ten memories."""
    del provider
    pipeline.configure_new(**MODEL)
    pipeline.add(hourly_notes(10))
    return pipeline


def test_profile_covers_all_summaries_and_updates(llm_project: Pipeline, provider: OpenAIServer) -> None:
    run_summarize_job(llm_project)
    first = get_profile(llm_project)
    text = hourly_notes(1)[0]["content"]
    assert (first.content, first.abstraction_level, first.user_id, first.version) == (text, 3, None, 1)
    assert (first.consolidation_method, first.confidence_score, first.memory_type) == ("llm", 0.8, "learning")
    assert first.details == {
        "communication_preferences": [text],
        "technical_preferences": [text],
        "work_patterns": [text],
        "context": [text],
        "summaries": 1,
    }
    assert first.source_memory_ids == memory_ids(10)
    llm_project.add(hourly_notes(9, "later"))
    done = run_summarize_job(llm_project)["procedural_profile"]
    second = get_profile(llm_project)
    assert (done.summaries, done.created, done.updated) == (2, 0, 1)
    assert (second.id, second.version, second.created_at) == (first.id, 2, first.created_at)
    assert second.source_memory_ids == sorted([*memory_ids(10), *memory_ids(9, "later")])
    *summaries, counts = shown_memories(provider.requests[-1]).values()
    assert len(summaries) == 2
    assert "- 19 notes on " in counts
    parents = llm_project.rows(
        "SELECT parent_id, parent_kind, similarity FROM {s}.memory_lineage WHERE child_id = :i", i=second.id
    )
    assert {edge.parent_id for edge in parents} == {row.id for row in active_rows(llm_project, "summary")}
    assert {edge.parent_kind for edge in parents} == {"summary"}
    assert all(-1 <= edge.similarity <= 1 for edge in parents)
    query = "SELECT previous_state FROM {s}.consolidation_changes WHERE entity_id = :i AND version_before = 1"
    assert llm_project.value(query, i=first.id)["content"] == first.content


@pytest.mark.parametrize("profile", ["", "The team waits 45 seconds before the next try."])
def test_unusable_reply_keeps_old_profile(llm_project: Pipeline, provider: OpenAIServer, profile: str) -> None:
    run_summarize_job(llm_project)
    before = get_profile(llm_project)
    provider.behaviour = reply_with_json(
        lambda r: summary_reply(r) | ({"profile": profile} if is_profile_request(r) else {})
    )
    llm_project.add(hourly_notes(9, "later"))
    done = run_summarize_job(llm_project)["procedural_profile"]
    assert (done.created, done.updated, len(done.failures)) == (0, 0, 1)
    assert get_profile(llm_project) == before
    provider.behaviour = reply_with_json(summary_reply)
    assert run_summarize_job(llm_project)["procedural_profile"].updated == 1


def test_used_up_budget_counts_profile(llm_project: Pipeline, provider: OpenAIServer) -> None:
    run_summaries_without_profile(llm_project)
    llm_project.configure(**MODEL, budget_tokens_per_run=0)
    done = run_summarize_job(llm_project)["procedural_profile"]
    assert (done.created, done.failures, len(provider.requests)) == (1, (), 1)
    row = get_profile(llm_project)
    assert (row.consolidation_method, row.details["rewrite_pending"]) == ("heuristic", True)
    assert "budget_tokens_per_run" in str(done.stopped)
    llm_project.configure(**MODEL)
    assert run_summarize_job(llm_project)["procedural_profile"].updated == 1
    row = get_profile(llm_project)
    assert (row.consolidation_method, "rewrite_pending" in row.details) == ("llm", False)
    assert run_summarize_job(llm_project)["procedural_profile"].unchanged == 1


def test_profile_without_summaries_makes_no_call(pipeline: Pipeline, provider: OpenAIServer) -> None:
    pipeline.configure_new(**MODEL)
    done = run_summarize_job(pipeline)["procedural_profile"]
    assert (done.summaries, done.created, done.updated, provider.requests) == (0, 0, 0, [])
    assert pipeline.value("SELECT count(*) FROM {s}.consolidation_changes") == 0


@pytest.mark.slow
def test_many_summaries_are_reduced_before_profile(llm_project: Pipeline, provider: OpenAIServer) -> None:
    llm_project.write("DELETE FROM {s}.task_memories")
    for at in range(21):
        llm_project.add(hourly_notes(1, f"s{at:02}"))
        run_summaries_without_profile(llm_project)
    requests = len(provider.requests)
    assert run_summarize_job(llm_project)["procedural_profile"].created == 1
    assert [len(shown_memories(request)) for request in provider.requests[requests:]] == [20, 3]
    assert len(get_profile(llm_project).source_memory_ids) == 21


def test_heuristic_profile_counts_and_quotes_no_summary(pipeline: Pipeline) -> None:
    pipeline.add(hourly_notes(20, tags=["checkout"], files=["shop/cart.py"], success=True))
    run_summarize_job(pipeline)
    row = get_profile(pipeline)
    lines = {line.removeprefix("- ") for line in row.content.split("\n") if line.startswith("- ")}
    parts = ("communication_preferences", "technical_preferences", "work_patterns", "context")
    assert lines == {line for part in parts for line in row.details[part]}
    assert {"Subjects (tags): checkout (20).", "Files touched most: shop/cart.py (20)."} <= lines
    assert "100% of 20 rated tasks succeeded." in lines
    (summary,) = active_rows(pipeline, "summary")
    assert not any(line in summary.content for line in lines)
    assert row.consolidation_method == "heuristic"
    assert 0 < row.confidence_score <= 0.75


def test_profile_leaves_archived_memories_out(pipeline: Pipeline) -> None:
    pipeline.add(hourly_notes(20))
    run_summaries_without_profile(pipeline)
    pipeline.write("UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'x' WHERE external_id < 'n-005'")
    run_summarize_job(pipeline)
    assert get_profile(pipeline).content.count("- 15 notes ") == 1
    pipeline.add(hourly_notes(10, "later"))
    run_summaries_without_profile(pipeline)
    pipeline.write("UPDATE {s}.task_memories SET archived_at = now(), archive_reason = 'x'")
    run_summarize_job(pipeline)
    assert get_profile(pipeline).version == 1


def test_rollback_restores_previous_profile_version(pipeline: Pipeline) -> None:
    pipeline.add(hourly_notes(10))
    run_summarize_job(pipeline)
    before = get_profile(pipeline)
    pipeline.add(hourly_notes(10, "later"))
    run_summarize_job(pipeline)
    pipeline.roll_back(pipeline.last_group(entity=before.id))
    old = get_profile(pipeline)
    assert (old.content, old.version, old.source_memory_ids) == (before.content, 1, before.source_memory_ids)
    assert run_summarize_job(pipeline)["procedural_profile"].unchanged == 1
    pipeline.add(hourly_notes(10, "last"))
    assert run_summarize_job(pipeline)["procedural_profile"].updated == 1
    assert len(get_profile(pipeline).source_memory_ids) == 30


def test_archived_profile_is_not_recreated(pipeline: Pipeline) -> None:
    pipeline.add(hourly_notes(10))
    run_summarize_job(pipeline)
    archive_manually(pipeline.engine, [get_profile(pipeline).id], changed_by="tester")
    pipeline.add(hourly_notes(10, "later"))
    assert run_summarize_job(pipeline)["procedural_profile"].unchanged == 1
    assert active_rows(pipeline, "procedural") == []


def test_plan_run_writes_no_summary_or_profile(pipeline: Pipeline) -> None:
    pipeline.add(hourly_notes(60))
    with pipeline.open() as run:
        run_phases(run, run.planned[:4])
    made = pipeline.plan()
    request_plan_job(pipeline.engine, pipeline.project(), made, settings=pipeline.settings, triggered_by="tester")
    done = pipeline.run()
    assert (done.summaries.created, done.profiles.created) == (0, 0)
    assert [*active_rows(pipeline, "summary"), *active_rows(pipeline, "procedural")] == []
