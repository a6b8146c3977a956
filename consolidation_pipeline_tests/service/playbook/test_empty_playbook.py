"""Reason of an empty playbook: waiting entries, or the gate that the best candidate fails."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation_pipeline.service.playbook.entries import read_playbook
from consolidation_pipeline_tests.openai_server import OpenAIServer, reply_with_json
from consolidation_pipeline_tests.service.corpus import MIGRATIONS, WEBHOOKS, topic_notes
from consolidation_pipeline_tests.service.model_replies import pattern_reply
from consolidation_pipeline_tests.service.pipeline_runner import Pipeline
from consolidation_pipeline_tests.service.playbook.test_entries import OPTIONS

MODEL: dict[str, Any] = {**OPTIONS, "llm_model": "openai/gpt-4o-mini"}


def explain(pipeline: Pipeline) -> str:
    return str(read_playbook(pipeline.engine, "notes", limit=1)["empty_because"])


@pytest.fixture
def topics(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project with a model and two topics that have not been consolidated."""
    provider.behaviour = reply_with_json(pattern_reply(0.79))
    pipeline.configure_new(**MODEL)
    pipeline.add([*topic_notes("hook", WEBHOOKS), *topic_notes("move", MIGRATIONS)])
    return pipeline


def test_empty_playbook_names_best_candidate(topics: Pipeline) -> None:
    assert explain(topics).startswith("there are no patterns or principles yet")
    topics.run()
    why = explain(topics)
    assert why.startswith("none of 2 candidates reached the gate: 2 with too little confidence. The best has")
    assert "confidence 0.79 (0.80 is required), 4 memories (3 are required)" in why


def test_empty_playbook_counts_waiting_entries(topics: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_json(pattern_reply(0.9))
    done = topics.run().playbook
    assert (done.entries_promoted, done.entries_proposed) == (0, 2)
    assert explain(topics).startswith("2 entries wait for approval")
    topics.configure(**MODEL, promote=False)
    topics.write("DELETE FROM {s}.playbook_entries")
    assert explain(topics) == "the option promote is off, so no run proposes entries"


def test_dismissed_entries_leave_a_reason(topics: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_json(pattern_reply(0.9))
    topics.run()
    topics.write("UPDATE {s}.playbook_entries SET status = 'retired'")
    assert explain(topics).startswith("all of 2 candidates passed the gates")
