"""Patterns written by a model: one call per new group, checks of the reply, gates and budget."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consolidation_pipeline_tests.openai_server import (
    OpenAIServer,
    Request,
    client_environment,
    invent_quotes,
    invent_unit_ids,
    openai_server,
    reply_with_error,
    reply_with_json,
)
from consolidation_pipeline_tests.service.corpus import note
from consolidation_pipeline_tests.service.knowledge.test_patterns import (
    FIFTH,
    MIGRATIONS,
    OPTIONS,
    WEBHOOKS,
    list_patterns,
    topic_notes,
)
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline

MEMORY_BLOCK = re.compile(r"\[(\w+) memory (\d+) begins\]\n(.*?)\n\[\1 memory \2 ends\]", re.DOTALL)


def shown_memories(request: Request) -> dict[int, str]:
    """Return the memories in a prompt, by their number."""
    return {int(number): text for _, number, text in MEMORY_BLOCK.findall(request.body["messages"][1]["content"])}


def pattern_reply(confidence: float) -> Callable[[Request], dict[str, Any]]:
    """Return an answer with valid replies: the first memory is the pattern, and each memory is quoted as evidence."""

    def answer(request: Request) -> dict[str, Any]:
        memories = shown_memories(request)
        kind = "principle" if "principle behind them" in request.body["messages"][0]["content"] else "pattern"
        return {
            kind: memories[1],
            "pattern_type": "workflow",
            "confidence": confidence,
            "summary": memories[1],
            "best_practices": [memories[1]],
            "gotchas": [],
            "evidence": [{"unit": number, "quote": text[:30]} for number, text in memories.items()],
        }

    return answer


def patterns_cost_usd(pipeline: Pipeline) -> float:
    """Return the cost in US dollars of the patterns phase of the newest job."""
    query = (
        "SELECT metrics -> 'patterns' ->> 'llm/cost_usd' FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1"
    )
    return float(pipeline.value(query))


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    with openai_server(reply_with_json(pattern_reply(0.9))) as running:
        for name, value in client_environment(running.api_base).items():
            monkeypatch.setenv(name, value)
        yield running


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


@pytest.mark.parametrize(
    ("confidence", "stored", "needs_review"),
    [(0.69, 0, 0), (0.70, 2, 2), (0.80, 2, 2), (0.81, 2, 0)],
)
def test_llm_confidence_gates_patterns(
    topics: Pipeline, provider: OpenAIServer, confidence: float, stored: int, needs_review: int
) -> None:
    provider.behaviour = reply_with_json(pattern_reply(confidence))
    done = topics.run()
    assert (done.patterns.created, done.patterns.needs_review, done.patterns.discarded) == (
        stored,
        needs_review,
        2 - stored,
    )
    assert [row.needs_review for row in list_patterns(topics)] == [needs_review > 0] * stored


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
    assert (done.patterns.created, len(done.patterns.failures), list_patterns(topics)) == (0, 2, [])
    assert all("quote" in error or "not one of" in error for _, error in done.patterns.failures)
    assert patterns_cost_usd(topics) > 0
    assert len(provider.requests) == 4  # one request and one repair for each group


def test_pattern_refuses_invented_number(topics: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_json(
        lambda r: pattern_reply(0.9)(r) | {"summary": "Wait 45 seconds before the next try."}
    )
    done = topics.run()
    assert (done.patterns.created, len(done.patterns.failures)) == (0, 2)


def test_failed_pattern_group_is_retried_next_run(topics: Pipeline, provider: OpenAIServer) -> None:
    sound = pattern_reply(0.9)
    provider.behaviour = reply_with_json(
        lambda request: sound(request) | ({"evidence": []} if "webhook" in str(shown_memories(request)).lower() else {})
    )
    done = topics.run()
    assert (done.patterns.created, len(done.patterns.failures)) == (1, 1)
    assert [row.source_count for row in list_patterns(topics)] == [3]
    assert "state" not in topics.value("SELECT metrics FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1")
    provider.behaviour = reply_with_json(sound)
    again = topics.run()
    assert (again.patterns.created, again.patterns.covered, again.patterns.failures) == (1, 1, ())


def test_used_up_budget_stops_patterns_phase(topics: Pipeline, provider: OpenAIServer) -> None:
    topics.configure(**OPTIONS, llm_model="openai/gpt-4o-mini", budget_tokens_per_run=0)
    done = topics.run()
    assert (done.patterns.created, provider.requests) == (0, [])
    assert "budget_tokens_per_run" in str(done.patterns.stopped)
    assert topics.value("SELECT status FROM {s}.consolidation_jobs") == "completed"
    assert topics.value("SELECT count(*) FROM {s}.consolidation_events WHERE type = 'budget.exhausted'") == 1
    topics.configure(**OPTIONS, llm_model="openai/gpt-4o-mini")
    assert topics.run().patterns.created == 2


def test_failing_llm_fails_groups_but_not_run(topics: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_error(401)
    done = topics.run()
    assert (done.patterns.created, len(done.patterns.failures) + bool(done.patterns.stopped) > 0) == (0, True)
    assert done.decay.scored == 7
