"""Suggestions proposed by a run: groups, texts, budget and repetition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from consolidation_pipeline.core.text.text_merge import merge_texts
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, pin_memories
from consolidation_pipeline.service.review.suggestion_decisions import approve_suggestion, reject_suggestion
from consolidation_pipeline.service.review.suggestion_proposals import ProposalResult
from consolidation_pipeline.service.review.suggestions import Suggestion, list_suggestions
from consolidation_pipeline_tests.openai_server import OpenAIServer, change_numbers, reply_with_error, reply_with_json
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, note
from consolidation_pipeline_tests.service.knowledge.test_supersessions import dated
from consolidation_pipeline_tests.service.model_replies import suggestion_reply
from consolidation_pipeline_tests.service.pipeline_runner import MERGING, SLUG, Pipeline, note_id, run_phases

OPTIONS: dict[str, Any] = {"llm_model": "openai/gpt-4o-mini", "summarize": False, "archive": False}
PHASE = "consolidation_suggestions"
PHASES = (*MERGING, PHASE)


def propose(pipeline: Pipeline, phases: Sequence[str] = PHASES) -> ProposalResult:
    with pipeline.open(planned=phases) as run:
        done: ProposalResult = run_phases(run, phases)[PHASE]
    return done


def list_pending(pipeline: Pipeline) -> list[Suggestion]:
    return list_suggestions(pipeline.engine, SLUG).suggestions


@pytest.fixture
def near_miss_project(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project with a model and three near-miss pairs."""
    provider.behaviour = reply_with_json(suggestion_reply)
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note(f"{n}-{side}", text) for n, pair in enumerate(NEAR_MISSES) for side, text in enumerate(pair)])
    return pipeline


def test_each_suggest_group_costs_one_call(near_miss_project: Pipeline, provider: OpenAIServer) -> None:
    done = propose(near_miss_project)
    assert done == ProposalResult(groups=3, created=3, waiting=3, rewritten=3)
    assert len(provider.requests) == 3
    for shown in list_pending(near_miss_project):
        assert (shown.method, shown.keywords, shown.left_out) == ("llm", ("gateway",), ())
        assert len(shown.differences) == 1
        assert shown.rationale is not None
        assert shown.rationale.startswith("2 memories may say the same (lowest similarity 0.9")
        assert shown.similarity is not None
        assert all(original.is_current for original in shown.originals)
    numbers = next(shown for shown in list_pending(near_miss_project) if "gateway closes" in shown.content)
    assert {passage.text for found in numbers.differences for passage in (*found.a, *found.b)} == {
        "30 seconds",
        "60 seconds",
    }
    assert propose(near_miss_project) == ProposalResult(groups=3, proposed_before=3, waiting=3)
    assert len(provider.requests) == 3
    created = near_miss_project.value("SELECT count(*) FROM {s}.consolidation_events WHERE type = 'suggestion.created'")
    assert created == 3


def test_proposal_without_model_keeps_every_fact(near_miss_project: Pipeline, provider: OpenAIServer) -> None:
    near_miss_project.configure(**{**OPTIONS, "llm_model": None})
    assert propose(near_miss_project) == ProposalResult(groups=3, created=3, waiting=3)
    assert provider.requests == []
    shown = list_pending(near_miss_project)
    assert [one.left_out for one in shown] == [(), (), ()]
    assert {one.method for one in shown} == {"heuristic"}
    for one in shown:
        newest_first = sorted(one.originals, key=lambda original: (original.learned_at, original.id), reverse=True)
        if any(difference.contradicts for difference in one.differences):
            texts = [f"{original.learned_at:%Y-%m-%d}: {original.content}" for original in newest_first]
            assert one.content == "\n\n".join(texts)
        else:
            texts = [original.content for original in newest_first]
            assert one.content in (merge_texts(texts), merge_texts(texts[::-1]))
    assert {one.difference_kinds for one in shown} == {
        ("value: after #",),
        ("value: pillow #.#.#",),
        ("polarity",),
    }


def test_originals_that_contradict_are_told_newest_first(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive=False, summarize=False)
    rule = "Orders above {} EUR of a new customer wait for a call of the sales desk before they are sent."
    amounts = {2: 300, 4: 800, 3: 500}
    pipeline.add([dated(f"{amount}", rule.format(amount), day) for day, amount in amounts.items()])
    propose(pipeline)
    (shown,) = list_pending(pipeline)
    assert shown.content.split("\n\n") == [f"2026-03-0{day}: {rule.format(amounts[day])}" for day in (4, 3, 2)]
    decided = approve_suggestion(pipeline.engine, shown.id, decided_by="anna", settings=pipeline.settings)
    details = pipeline.value("SELECT details FROM {s}.consolidated_memories WHERE id = :id", id=decided.memory_id)
    assert not details.get("dropped")


def test_other_conditions_are_told_newest_first(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive=False, summarize=False)
    rule = "Fill the boiler of the espresso machine {} you switch it on, otherwise the heating coil burns through."
    pipeline.add([dated(word, rule.format(word), day) for day, word in ((2, "before"), (4, "after"))])
    propose(pipeline)
    (shown,) = list_pending(pipeline)
    told = [f"2026-03-04: {rule.format('after')}", f"2026-03-02: {rule.format('before')}"]
    assert shown.content.split("\n\n") == told


def test_reason_of_an_undone_merge_is_told(pipeline: Pipeline) -> None:
    pipeline.configure_new(archive=False, summarize=False)
    pipeline.add([note("a", LESSONS[0]), note("b", f"Note to self: {LESSONS[0]}")])
    pipeline.run()
    pipeline.roll_back(
        pipeline.value("SELECT DISTINCT group_id FROM {s}.consolidation_changes WHERE operation = 'merge'")
    )
    pipeline.run()
    (shown,) = list_pending(pipeline)
    assert (shown.rationale or "").endswith("; no difference: a merge that was undone")


def test_model_writes_texts_of_waiting_suggestions(near_miss_project: Pipeline) -> None:
    near_miss_project.configure(**{**OPTIONS, "llm_model": None})
    propose(near_miss_project)
    before = {one.id: one.content for one in list_pending(near_miss_project)}
    near_miss_project.configure(**OPTIONS)
    assert propose(near_miss_project) == ProposalResult(groups=3, proposed_before=3, waiting=3, rewritten=3)
    after = list_pending(near_miss_project)
    assert {one.id for one in after} == before.keys()
    assert all(one.content != before[one.id] and one.method == "llm" for one in after)


def test_rejected_pair_is_not_asked_again_with_a_third(near_miss_project: Pipeline, provider: OpenAIServer) -> None:
    propose(near_miss_project)
    for shown in list_pending(near_miss_project):
        reject_suggestion(near_miss_project.engine, shown.id, decided_by="anna")
    pin_memories(near_miss_project.engine, [note_id("0-0")], pinned=True, changed_by="anna")
    assert propose(near_miss_project) == ProposalResult(groups=3, proposed_before=3)
    near_miss_project.add([note("0-2", NEAR_MISSES[0][0].replace("30", "90"))])
    done = propose(near_miss_project)
    assert (done.created, done.proposed_before, len(provider.requests)) == (1, 2, 4)
    ids = {original.id for original in list_pending(near_miss_project)[0].originals}
    assert len(ids) == 2
    assert note_id("0-2") in ids


def test_superseded_suggestion_is_rebuilt_from_cache(near_miss_project: Pipeline, provider: OpenAIServer) -> None:
    propose(near_miss_project)
    pin_memories(near_miss_project.engine, [note_id("0-0")], pinned=True, changed_by="anna")
    archive_manually(near_miss_project.engine, [note_id("1-0")], changed_by="anna")
    done = propose(near_miss_project)
    assert (done.superseded, done.created, done.waiting, done.groups) == (2, 1, 2, 2)
    assert len(provider.requests) == 3


def test_text_with_invented_number_is_refused(near_miss_project: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_json(suggestion_reply, edit=change_numbers)
    done = propose(near_miss_project)
    # The pair that differs in a negation has no number to change.
    assert (done.created, done.rewritten, done.refused, done.failures, done.stopped) == (3, 1, 2, (), None)
    refused = [one for one in list_pending(near_miss_project) if one.method == "hybrid"]
    assert len(refused) == 2
    assert all("987654" not in one.content and one.left_out == () for one in refused)
    asked = len(provider.requests)
    assert propose(near_miss_project).waiting == 3
    assert len(provider.requests) == asked


def test_failing_model_leaves_lossless_suggestions(near_miss_project: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_error(500)
    done = propose(near_miss_project)
    assert (done.created, done.waiting, done.rewritten) == (3, 3, 0)
    assert done.failures or done.stopped
    assert [one.left_out for one in list_pending(near_miss_project)] == [(), (), ()]
    provider.behaviour = reply_with_json(suggestion_reply)
    assert propose(near_miss_project).rewritten == 3


def test_exhausted_budget_leaves_lossless_texts(
    near_miss_project: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_gateway, "BATCH", 1)
    most = near_miss_project.plan().costs.completion_tokens
    # The reservation of one call and half the tokens of one reply.
    near_miss_project.configure(**OPTIONS, budget_tokens_per_run=most // 3 + 60)
    done = propose(near_miss_project)
    assert done.stopped is not None
    assert (done.created, len(list_pending(near_miss_project))) == (3, 3)
    assert 0 < done.rewritten < 3
    assert len(provider.requests) == done.rewritten
    near_miss_project.configure(**OPTIONS)
    assert propose(near_miss_project).rewritten == 3 - done.rewritten


def test_unembedded_memories_are_grouped_by_words(near_miss_project: Pipeline) -> None:
    near_miss_project.add([note("words-0", f"{LESSONS[0]} Always."), note("words-1", f"Always. {LESSONS[0]}")])
    done = propose(near_miss_project, [PHASE])
    assert (done.groups, done.by_terms, done.created) == (done.by_terms, done.by_terms, done.by_terms)
    shown = next(one for one in list_pending(near_miss_project) if "migrations" in one.content)
    assert {original.id for original in shown.originals} == {
        note_id("words-0"),
        note_id("words-1"),
    }
    assert "they have no vectors yet" in (shown.rationale or "")
    assert done.rewritten + done.refused == done.created


def test_plan_prices_suggestion_calls(near_miss_project: Pipeline, provider: OpenAIServer) -> None:
    plan = near_miss_project.plan()
    assert (len(plan.questions), plan.costs.completion_calls, provider.requests) == (3, 3, [])
    assert plan.costs.cost_usd
    propose(near_miss_project)
    after = near_miss_project.plan()
    assert (len(after.questions), after.costs.completion_calls) == (3, 0)


def test_plan_counts_unembedded_groups_by_words(near_miss_project: Pipeline) -> None:
    near_miss_project.configure(**OPTIONS, embedding_model="openai/text-embedding-3-small")
    plan = near_miss_project.plan()
    assert plan.costs.memories_to_embed == 6
    assert plan.questions
    assert all("no vectors" in question.asked_pairs[0]["differences"][0] for question in plan.questions)


def test_rollback_of_run_removes_its_suggestions(near_miss_project: Pipeline) -> None:
    with near_miss_project.open(planned=PHASES) as run:
        run_phases(run, PHASES)
    near_miss_project.roll_back(run.job_id)
    assert list_suggestions(near_miss_project.engine, SLUG, status=None).total == 0
    assert near_miss_project.value("SELECT count(*) FROM {s}.suggestion_originals") == 0
    assert propose(near_miss_project).created == 3
