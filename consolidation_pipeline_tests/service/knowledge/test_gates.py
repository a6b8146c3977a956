"""How large a group and how sure a model must be, from the reply to what is stored; nothing is asked twice."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline_tests.openai_server import OpenAIServer, reply_with_json
from consolidation_pipeline_tests.service.knowledge.test_llm_writer import pattern_reply
from consolidation_pipeline_tests.service.knowledge.test_llm_writer import provider as provider
from consolidation_pipeline_tests.service.knowledge.test_patterns import (
    MIGRATIONS,
    OPTIONS,
    WEBHOOKS,
    patterns,
    topic_notes,
)
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline

MODEL = "openai/gpt-4o-mini"


def spent(pipeline: Pipeline) -> dict[str, Any]:
    """Calls and replies from the cache of the newest job's patterns."""
    query = "SELECT metrics -> 'patterns' FROM {s}.consolidation_jobs ORDER BY created_at DESC LIMIT 1"
    metrics = pipeline.value(query)
    return {name: metrics[f"llm/{name}"] for name in ("calls", "cached")}


def told(done: Outcome) -> tuple[int, int, int]:
    """Patterns that were made, that wait for a person, and groups discarded."""
    return done.patterns.created, done.patterns.needs_review, done.patterns.discarded


@pytest.mark.parametrize(
    ("confidence", "first"), [(0.69, (0, 0, 1)), (0.70, (1, 1, 0)), (0.80, (1, 1, 0)), (0.81, (1, 0, 0))]
)
def test_reply_confidence_gates_and_reply_is_cached(
    pipeline: Pipeline, provider: OpenAIServer, confidence: float, first: tuple[int, int, int]
) -> None:
    provider.behaviour = reply_with_json(pattern_reply(confidence))
    pipeline.configure_new(**OPTIONS, llm_model=MODEL, promote=False)
    pipeline.add(topic_notes("move", MIGRATIONS))
    assert told(pipeline.run()) == first
    assert spent(pipeline) == {"calls": 1, "cached": 0}
    again = pipeline.run()
    discarded = first[2]
    assert told(again) == (0, 0, discarded)
    assert (len(patterns(pipeline)), again.patterns.covered) == (1 - discarded, 1 - discarded)
    # Its memories are free for the next run, which knows the answer already.
    assert spent(pipeline) == {"calls": 0, "cached": discarded}
    assert len(provider.requests) == 1


@pytest.mark.parametrize(("size", "made"), [(2, 0), (3, 1)])
def test_pattern_needs_three_memories(pipeline: Pipeline, provider: OpenAIServer, size: int, made: int) -> None:
    pipeline.configure_new(**OPTIONS, llm_model=MODEL, promote=False)
    pipeline.add(topic_notes("hook", WEBHOOKS[:size]))
    assert pipeline.run().patterns.created == made == len(provider.requests)
