"""Suggestions made by a run: about which groups, in which words, and never twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, pin_memories
from consolidation_pipeline.service.plan.planner import make_plan
from consolidation_pipeline.service.review.suggestion_decisions import reject_suggestion
from consolidation_pipeline.service.review.suggestion_proposals import ProposalResult
from consolidation_pipeline.service.review.suggestions import Suggestion, list_suggestions
from consolidation_pipeline_tests.openai_server import OpenAIServer, Request, change_numbers, reply_with_json
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, note
from consolidation_pipeline_tests.service.knowledge.test_llm_writer import provider as provider
from consolidation_pipeline_tests.service.knowledge.test_llm_writer import shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases

OPTIONS: dict[str, Any] = {"llm_model": "openai/gpt-4o-mini", "summarize": False, "archive": False}
PHASE = "consolidation_suggestions"
PHASES = (
    "embedding_matrix",
    "threshold_calibration",
    "similarity_graph",
    "clusters",
    "merged_memories",
    PHASE,
)


def both(request: Request) -> dict[str, Any]:
    """Reply of a careful model: the texts of all memories, which is longer than any of them."""
    return {"content": " ".join(shown_memories(request).values()), "lessons_learned": "", "keywords": ["gateway"]}


def propose(pipeline: Pipeline, phases: Sequence[str] = PHASES) -> ProposalResult:
    with pipeline.open(planned=phases) as run:
        done: ProposalResult = run_phases(run, phases)[PHASE]
    return done


def pending(pipeline: Pipeline) -> list[Suggestion]:
    return list_suggestions(pipeline.engine, SLUG).suggestions


def id_of(pipeline: Pipeline, name: str) -> UUID:
    found: UUID = pipeline.value("SELECT id FROM {s}.task_memories WHERE external_id = :name", name=name)
    return found


@pytest.fixture
def asked(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Three pairs that differ in a fact, and a model."""
    provider.behaviour = reply_with_json(both)
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note(f"{n}-{side}", text) for n, pair in enumerate(NEAR_MISSES) for side, text in enumerate(pair)])
    return pipeline


def test_each_suggest_group_costs_one_call(asked: Pipeline, provider: OpenAIServer) -> None:
    done = propose(asked)
    assert done == ProposalResult(groups=3, created=3, waiting=3)
    assert len(provider.requests) == 3
    for shown in pending(asked):
        longest = max(shown.originals, key=lambda original: len(original.content)).content
        assert len(shown.content) <= len(longest)
        assert shown.keywords == ("gateway",)
        assert len(shown.conflicts) == 1
        assert shown.rationale is not None
        assert shown.rationale.startswith("2 memories may say the same (lowest similarity 0.9")
        assert shown.similarity is not None
        assert all(original.is_current for original in shown.originals)
    numbers = next(shown for shown in pending(asked) if "gateway closes" in shown.content)
    assert {literal.text for found in numbers.conflicts for literal in (*found.a, *found.b)} == {
        "30 seconds",
        "60 seconds",
    }
    assert propose(asked) == ProposalResult(groups=3, proposed_before=3, waiting=3)
    assert len(provider.requests) == 3
    created = asked.value("SELECT count(*) FROM {s}.consolidation_events WHERE type = 'suggestion.created'")
    assert created == 3


def test_suggest_groups_without_model_get_no_proposal(asked: Pipeline, provider: OpenAIServer) -> None:
    asked.configure(**{**OPTIONS, "llm_model": None})
    assert propose(asked) == ProposalResult(groups=3, without_text=3)
    assert (pending(asked), provider.requests) == ([], [])


def test_rejected_group_is_proposed_again_after_change(asked: Pipeline, provider: OpenAIServer) -> None:
    propose(asked)
    for shown in pending(asked):
        reject_suggestion(asked.engine, shown.id, decided_by="anna")
    pin_memories(asked.engine, [id_of(asked, "0-0")], pinned=True, changed_by="anna")
    assert propose(asked) == ProposalResult(groups=3, proposed_before=3)
    asked.add([note("0-2", NEAR_MISSES[0][0].replace("30", "90"))])
    done = propose(asked)
    assert (done.created, done.proposed_before, len(provider.requests)) == (1, 2, 4)
    assert len(pending(asked)[0].originals) == 3


def test_superseded_suggestion_is_rebuilt_from_cache(asked: Pipeline, provider: OpenAIServer) -> None:
    propose(asked)
    pin_memories(asked.engine, [id_of(asked, "0-0")], pinned=True, changed_by="anna")
    archive_manually(asked.engine, [id_of(asked, "1-0")], changed_by="anna")
    done = propose(asked)
    assert (done.superseded, done.created, done.waiting, done.groups) == (2, 1, 2, 2)
    assert len(provider.requests) == 3


def test_proposal_with_invented_number_is_refused_and_retried(asked: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_json(both, edit=change_numbers)
    done = propose(asked)
    # The pair that differs in a "not" has no number to spoil.
    assert (done.created, len(done.failures), done.stopped) == (1, 2, None)
    assert "987654" in done.failures[0][1]
    provider.behaviour = reply_with_json(both)
    assert (propose(asked).created, len(pending(asked))) == (2, 3)


def test_exhausted_budget_keeps_earlier_proposals(
    asked: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_gateway, "BATCH", 1)
    most = make_plan(asked.engine, SLUG, settings=asked.settings).costs.completion_tokens
    # What one question may take at most, and half of what one reply takes.
    asked.configure(**OPTIONS, budget_tokens_per_run=most // 3 + 60)
    done = propose(asked)
    assert done.stopped is not None
    assert 0 < done.created < 3
    assert len(pending(asked)) == done.created == len(provider.requests)
    asked.configure(**OPTIONS)
    assert propose(asked).created == 3 - done.created


def test_unembedded_memories_are_grouped_by_words(asked: Pipeline, provider: OpenAIServer) -> None:
    asked.add([note("words-0", f"{LESSONS[0]} Always."), note("words-1", f"Always. {LESSONS[0]}")])
    done = propose(asked, [PHASE])
    assert (done.groups, done.by_terms, done.created) == (done.by_terms, done.by_terms, done.by_terms)
    shown = next(one for one in pending(asked) if "migrations" in one.content)
    assert {original.id for original in shown.originals} == {id_of(asked, "words-0"), id_of(asked, "words-1")}
    assert "they have no vectors yet" in (shown.rationale or "")
    assert len(provider.requests) == done.created


def test_plan_prices_suggestion_calls(asked: Pipeline, provider: OpenAIServer) -> None:
    plan = make_plan(asked.engine, SLUG, settings=asked.settings)
    assert (len(plan.questions), plan.costs.completion_calls, provider.requests) == (3, 3, [])
    assert plan.costs.cost_usd
    propose(asked)
    after = make_plan(asked.engine, SLUG, settings=asked.settings)
    assert (len(after.questions), after.costs.completion_calls) == (3, 0)


def test_plan_counts_unembedded_groups_by_words(asked: Pipeline) -> None:
    asked.configure(**OPTIONS, embedding_model="openai/text-embedding-3-small")
    plan = make_plan(asked.engine, SLUG, settings=asked.settings)
    assert plan.costs.memories_to_embed == 6
    assert plan.questions
    assert all("no vectors" in question.vetoes[0]["conflicts"][0] for question in plan.questions)


def test_rollback_of_run_removes_its_suggestions(asked: Pipeline) -> None:
    with asked.open(planned=PHASES) as run:
        run_phases(run, PHASES)
    asked.roll_back(run.job_id)
    assert list_suggestions(asked.engine, SLUG, status=None).total == 0
    assert asked.value("SELECT count(*) FROM {s}.suggestion_originals") == 0
    assert propose(asked).created == 3
