"""Suggestions from proposal to decision: who decides, what comes of it, and that it can be undone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.by_hand import archive_by_hand, pin_memories
from consolidation_pipeline.service.suggestions import (
    Decided,
    Proposed,
    Suggestion,
    approve_suggestion,
    decide_all,
    get_suggestion,
    list_suggestions,
    reject_suggestion,
    withdraw_suggestion,
)
from consolidation_pipeline_tests.openai_server import OpenAIServer, Request, chatting, other_numbers
from consolidation_pipeline_tests.service.lessons import NEAR_MISSES, note
from consolidation_pipeline_tests.service.running import SLUG, Pipeline, run_phases
from consolidation_pipeline_tests.service.test_asking import blocks
from consolidation_pipeline_tests.service.test_asking import provider as provider

MODEL = "openai/gpt-4o-mini"
OPTIONS: dict[str, Any] = {"llm_model": MODEL, "summarize": False, "archive": False}
PHASES = (
    "embedding_matrix",
    "threshold_calibration",
    "similarity_graph",
    "clusters",
    "merged_memories",
    "consolidation_suggestions",
)
ANNA = "anna"


def both(request: Request) -> dict[str, Any]:
    """What a careful model says: what all of them say, too long, with a keyword."""
    texts = blocks(request)
    return {"content": " ".join(texts[n] for n in sorted(texts)), "lessons_learned": "", "keywords": ["gateway", " "]}


def propose(pipeline: Pipeline) -> Proposed:
    with pipeline.open(planned=PHASES) as run:
        done: Proposed = run_phases(run, PHASES)["consolidation_suggestions"]
    return done


def pending(pipeline: Pipeline) -> list[Suggestion]:
    return list_suggestions(pipeline.engine, SLUG).suggestions


def approve(pipeline: Pipeline, id_: UUID, **how: Any) -> Decided:
    return approve_suggestion(pipeline.engine, id_, decided_by=ANNA, settings=pipeline.settings, **how)


@pytest.fixture
def asked(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Three pairs that differ in a fact, and a model that proposes a text for each."""
    provider.behaviour = chatting(both)
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note(f"{n}-{side}", text) for n, pair in enumerate(NEAR_MISSES) for side, text in enumerate(pair)])
    return pipeline


def test_x(asked: Pipeline) -> None:
    done = propose(asked)
    print(done)
    for one in pending(asked):
        print(one)
    first = pending(asked)[0]
    d = approve(asked, first.id, note="ok")
    print(d, get_suggestion(asked.engine, first.id))
    print(asked.roll_back(d.group_id))
    print(get_suggestion(asked.engine, first.id))
    assert 0
