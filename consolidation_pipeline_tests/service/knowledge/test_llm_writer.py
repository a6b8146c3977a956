"""Patterns written by a model: one call per new group, checks of the reply, gates, cached replies and budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consolidation_pipeline_tests.openai_server import (
    OpenAIServer,
    invent_quotes,
    invent_unit_ids,
    reply_with_error,
    reply_with_json,
)
from consolidation_pipeline_tests.service.corpus import FIFTH, MIGRATIONS, WEBHOOKS, note, topic_notes
from consolidation_pipeline_tests.service.knowledge.test_patterns import OPTIONS, list_patterns
from consolidation_pipeline_tests.service.model_replies import pattern_reply, shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline


def patterns_cost_usd(pipeline: Pipeline) -> float:
    """Return the cost in US dollars of the patterns phase of the newest job."""
    query = (
        "SELECT metrics -> 'patterns' ->> 'llm/cost_usd' FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1"
    )
    return float(pipeline.value(query))


@pytest.fixture
def topics(pipeline: Pipeline) -> Pipeline:
    """Project with a model and two topics, of four and three memories."""
    pipeline.configure_new(**OPTIONS, llm_model="openai/gpt-4o-mini")
    pipeline.add([*topic_notes("hook", WEBHOOKS), *topic_notes("move", MIGRATIONS)])
    return pipeline


def test_new_pattern_group_takes_one_llm_call(topics: Pipeline, provider: OpenAIServer) -> None:
    done = topics.run()
    assert (done.patterns.created, done.patterns.failures, len(provider.requests)) == (2, (), 2)
    assert patterns_cost_usd(topics) > 0
    hooks, _ = list_patterns(topics)
    assert hooks.content in WEBHOOKS
    assert (hooks.consolidation_method, hooks.llm_confidence, hooks.needs_review) == ("llm", 0.9, False)
    assert hooks.pattern_type == "workflow"
    assert hooks.confidence_score == 0.9
    assert {one["unit"] for one in hooks.details["evidence"]} == set(map(str, hooks.source_memory_ids))
    assert hooks.details["best_practices"] == [hooks.content]
    again = topics.run()
    assert (again.patterns.covered, len(provider.requests), patterns_cost_usd(topics)) == (2, 2, 0)


def test_grown_pattern_group_takes_one_more_call(topics: Pipeline, provider: OpenAIServer) -> None:
    topics.run()
    topics.add([note("fifth", FIFTH)])
    done = topics.run()
    assert (done.patterns.updated, done.patterns.covered, len(provider.requests)) == (1, 1, 3)
    assert len(shown_memories(provider.requests[-1])) == 5


@pytest.mark.slow
def test_discarded_group_is_not_asked_again(topics: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_json(pattern_reply(0.5))
    topics.run()
    provider.behaviour = reply_with_json(pattern_reply(0.9))
    again = topics.run()
    assert (again.patterns.discarded, len(provider.requests)) == (2, 2)
    topics.add([note("fifth", FIFTH)])
    done = topics.run()
    assert (done.patterns.created, done.patterns.discarded, len(provider.requests)) == (1, 1, 3)


@pytest.mark.parametrize("spoil", [invent_unit_ids, invent_quotes])
def test_pattern_refuses_unfounded_evidence(
    topics: Pipeline, provider: OpenAIServer, spoil: Callable[[Any], Any]
) -> None:
    provider.behaviour = reply_with_json(pattern_reply(0.9), edit=spoil)
    done = topics.run()
    assert (done.patterns.created, len(done.patterns.failures)) == (2, 2)
    assert [row.consolidation_method for row in list_patterns(topics)] == ["heuristic"] * 2
    assert all("quote" in error or "not one of" in error for _, error in done.patterns.failures)
    assert patterns_cost_usd(topics) > 0
    assert len(provider.requests) == 4  # one request and one repair for each group


def test_pattern_refuses_invented_number(topics: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_json(
        lambda r: pattern_reply(0.9)(r) | {"summary": "Wait 45 seconds before the next try."}
    )
    done = topics.run()
    assert (done.patterns.created, len(done.patterns.failures)) == (2, 2)
    assert all("45 seconds" not in str(row) for row in list_patterns(topics))


def make_rivals() -> list[dict[str, Any]]:
    """Return three notes on one topic of which the newest contradicts another one."""
    days = ("2026-01-07", "2026-05-12", "2026-02-01")
    texts = [f"The webhook endpoint must answer within {limit} seconds or the provider retries." for limit in (10, 5)]
    texts.append("The webhook endpoint must answer quickly or the provider retries and counts a failure.")
    rows = zip(days, texts, strict=True)
    return [note(f"rival-{at}", text, created_at=f"{day}T08:00:00Z") for at, (day, text) in enumerate(rows)]


def test_pattern_refuses_two_sides_as_rules(pipeline: Pipeline, provider: OpenAIServer) -> None:
    pipeline.configure_new(**OPTIONS | {"t_merge": 0.999, "t_suggest": 0.999}, llm_model="openai/gpt-4o-mini")
    pipeline.add(make_rivals())
    old, new = (row["content"] for row in make_rivals()[:2])
    sides = {"summary": new, "best_practices": [new], "gotchas": [old]}
    provider.behaviour = reply_with_json(lambda request: pattern_reply(0.9)(request) | sides | {"pattern": new})
    failed = pipeline.run()
    [(_, error)] = failed.patterns.failures
    assert "contradict each other" in error
    assert len(provider.requests) == 2
    assert "of 2026-05-12 contradicts the older memory" in str(provider.requests[0].body)
    told = f"{new[:-1]} (noted 2026-05-12; was 10 seconds)."
    one_side = {"pattern": told, "summary": new, "best_practices": [], "gotchas": []}
    provider.behaviour = reply_with_json(lambda request: pattern_reply(0.9)(request) | one_side)
    done = pipeline.run()
    assert (done.patterns.updated, done.patterns.failures) == (1, ())
    (row,) = list_patterns(pipeline)
    assert (row.llm_confidence, row.confidence_score) == (0.9, pytest.approx(0.6))


def test_failed_pattern_group_is_retried_next_run(topics: Pipeline, provider: OpenAIServer) -> None:
    sound = pattern_reply(0.9)
    provider.behaviour = reply_with_json(
        lambda request: sound(request) | ({"evidence": []} if "webhook" in str(shown_memories(request)).lower() else {})
    )
    done = topics.run()
    assert (done.patterns.created, len(done.patterns.failures)) == (2, 1)
    methods = {row.source_count: row.consolidation_method for row in list_patterns(topics)}
    assert methods == {3: "llm", 4: "heuristic"}
    metrics = topics.value("SELECT metrics FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1")
    assert "state" not in metrics
    assert [(one["purpose"], one["groups"]) for one in metrics["failing"]] == [("pattern", 1)]
    assert (metrics["patterns"]["llm/failed"], "evidence" in metrics["patterns"]["llm/error"]) == (1, True)
    provider.behaviour = reply_with_json(sound)
    again = topics.run()
    assert (again.patterns.created, again.patterns.updated, again.patterns.covered) == (0, 1, 1)
    assert again.patterns.failures == ()
    assert {row.consolidation_method for row in list_patterns(topics)} == {"llm"}
    assert "state" in topics.value("SELECT metrics FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1")


def test_used_up_budget_stops_patterns_phase(topics: Pipeline, provider: OpenAIServer) -> None:
    topics.configure(**OPTIONS, llm_model="openai/gpt-4o-mini", budget_tokens_per_run=0)
    done = topics.run()
    assert (done.patterns.created, done.patterns.failures, provider.requests) == (2, (), [])
    assert [row.consolidation_method for row in list_patterns(topics)] == ["heuristic"] * 2
    assert "budget_tokens_per_run" in str(done.patterns.stopped)
    assert "failing" not in topics.value("SELECT metrics FROM {s}.consolidation_jobs")
    assert topics.value("SELECT status FROM {s}.consolidation_jobs") == "completed"
    assert topics.value("SELECT count(*) FROM {s}.consolidation_events WHERE type = 'budget.exhausted'") == 1
    topics.configure(**OPTIONS, llm_model="openai/gpt-4o-mini")
    assert topics.run().patterns.updated == 2
    assert {row.consolidation_method for row in list_patterns(topics)} == {"llm"}


def test_text_of_model_stays_while_it_fails(topics: Pipeline, provider: OpenAIServer) -> None:
    topics.run()
    before = list_patterns(topics)
    provider.behaviour = reply_with_error(401)
    topics.add([note("fifth", FIFTH)])
    done = topics.run()
    assert (done.patterns.created, done.patterns.updated, list_patterns(topics)) == (0, 0, before)
    provider.behaviour = reply_with_json(pattern_reply(0.9))
    assert topics.run().patterns.updated == 1


def test_failing_llm_fails_groups_but_not_run(topics: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_error(401)
    done = topics.run()
    assert (done.patterns.created, "status 401" in str(done.patterns.stopped)) == (2, True)
    assert done.decay.scored > 7


def llm_usage(pipeline: Pipeline) -> dict[str, Any]:
    """Return the calls and cached replies of the patterns phase of the newest job."""
    query = "SELECT metrics -> 'patterns' FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1"
    metrics = pipeline.value(query)
    return {name: metrics[f"llm/{name}"] for name in ("calls", "cached")}


def count_patterns(done: Outcome) -> tuple[int, int, int]:
    """Return the numbers of patterns created, patterns that need review and discarded groups."""
    return done.patterns.created, done.patterns.needs_review, done.patterns.discarded


@pytest.mark.parametrize(
    ("confidence", "first"), [(0.69, (0, 0, 1)), (0.70, (1, 1, 0)), (0.80, (1, 1, 0)), (0.81, (1, 0, 0))]
)
def test_reply_confidence_gates_and_reply_is_cached(
    pipeline: Pipeline, provider: OpenAIServer, confidence: float, first: tuple[int, int, int]
) -> None:
    provider.behaviour = reply_with_json(pattern_reply(confidence))
    pipeline.configure_new(**OPTIONS, llm_model="openai/gpt-4o-mini")
    pipeline.add(topic_notes("move", MIGRATIONS))
    assert count_patterns(pipeline.run()) == first
    assert llm_usage(pipeline) == {"calls": 1, "cached": 0}
    again = pipeline.run()
    discarded = first[2]
    assert count_patterns(again) == (0, 0, discarded)
    assert [row.needs_review for row in list_patterns(pipeline)] == [first[1] > 0] * (1 - discarded)
    assert again.patterns.covered == 1 - discarded
    assert llm_usage(pipeline) == {"calls": 0, "cached": 0}
    assert len(provider.requests) == 1


@pytest.mark.parametrize(("size", "made"), [(2, 0), (3, 1)])
def test_pattern_needs_three_memories(pipeline: Pipeline, provider: OpenAIServer, size: int, made: int) -> None:
    pipeline.configure_new(**OPTIONS, llm_model="openai/gpt-4o-mini")
    pipeline.add(topic_notes("hook", WEBHOOKS[:size]))
    assert pipeline.run().patterns.created == made == len(provider.requests)
