"""Gates of patterns end to end: group size and confidence of the reply, and cached replies."""

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
    list_patterns,
    topic_notes,
)
from consolidation_pipeline_tests.service.pipeline_runner import Outcome, Pipeline

MODEL = "openai/gpt-4o-mini"


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
    pipeline.configure_new(**OPTIONS, llm_model=MODEL, promote=False)
    pipeline.add(topic_notes("move", MIGRATIONS))
    assert count_patterns(pipeline.run()) == first
    assert llm_usage(pipeline) == {"calls": 1, "cached": 0}
    again = pipeline.run()
    discarded = first[2]
    assert count_patterns(again) == (0, 0, discarded)
    assert (len(list_patterns(pipeline)), again.patterns.covered) == (1 - discarded, 1 - discarded)
    # A discarded group is derived again from the cached reply.
    assert llm_usage(pipeline) == {"calls": 0, "cached": discarded}
    assert len(provider.requests) == 1


@pytest.mark.parametrize(("size", "made"), [(2, 0), (3, 1)])
def test_pattern_needs_three_memories(pipeline: Pipeline, provider: OpenAIServer, size: int, made: int) -> None:
    pipeline.configure_new(**OPTIONS, llm_model=MODEL, promote=False)
    pipeline.add(topic_notes("hook", WEBHOOKS[:size]))
    assert pipeline.run().patterns.created == made == len(provider.requests)
