"""Merged texts rewritten by a model: checks, repair, budget and fallback to the lossless text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consolidation_pipeline.service.knowledge import llm_gateway, merged_memories
from consolidation_pipeline_tests.openai_server import (
    OpenAIServer,
    Request,
    change_numbers,
    drop_numbers,
    reply_with_error,
    reply_with_json,
    reply_with_refusal,
    reply_with_text,
    truncate_half,
)
from consolidation_pipeline_tests.service.corpus import LESSONS, note
from consolidation_pipeline_tests.service.knowledge.test_merged_memories import list_merged
from consolidation_pipeline_tests.service.model_replies import rewrite_reply, shown_memories
from consolidation_pipeline_tests.service.pipeline_runner import MERGING, Pipeline
from consolidation_pipeline_tests.service.rules import find_broken_rules

MODEL = "openai/gpt-4o-mini"
OPTIONS: dict[str, Any] = {"merge_style": "rewrite", "llm_model": MODEL, "summarize": False, "archive": False}
# Two memories each, which mark other words as code, so that neither has all literals. The second one says all.
PAIRS = tuple(
    (
        f"{text} The `worker` was down for 20 minutes, and the pager rang.",
        f"Note to self: {text} The worker was down for 20 minutes, and the `pager` rang.",
    )
    for text in LESSONS[:3]
)


def is_repair_request(request: Request) -> bool:
    """Return True if the request contains a refused reply."""
    return len(request.body["messages"]) > 2


def run_merging(pipeline: Pipeline) -> merged_memories.MergeResult:
    """Run the phases up to merging and return the result of merging."""
    done: merged_memories.MergeResult = pipeline.run_phases(MERGING, planned=MERGING)["merged_memories"]
    return done


@pytest.fixture
def pairs(pipeline: Pipeline, provider: OpenAIServer) -> Pipeline:
    """Project with a model, three groups of two near duplicates and one of exact duplicates."""
    provider.behaviour = reply_with_json(rewrite_reply)
    pipeline.configure_new(**OPTIONS)
    pipeline.add([note(f"{at}-{side}", text) for at, pair in enumerate(PAIRS) for side, text in enumerate(pair)])
    pipeline.add([note(f"same-{at}", LESSONS[3]) for at in range(2)])
    return pipeline


def test_each_merge_group_takes_one_rewrite_call(pairs: Pipeline, provider: OpenAIServer) -> None:
    done = run_merging(pairs)
    assert (done.created, done.rewritten, done.refused, done.failed) == (4, 3, 0, 0)
    assert len(provider.requests) == 3
    found = {row.content: row.consolidation_method for row in list_merged(pairs)}
    assert found == {**{pair[1]: "llm" for pair in PAIRS}, LESSONS[3]: "heuristic"}
    assert all(row.details == {} for row in list_merged(pairs))
    assert find_broken_rules(pairs) == []
    assert run_merging(pairs) == merged_memories.MergeResult()
    assert len(provider.requests) == 3


def test_rewritten_text_is_embedded(pairs: Pipeline) -> None:
    run_merging(pairs)
    query = """
        SELECT count(*) FROM {s}.consolidated_memories c JOIN {s}.task_memories m ON m.execution_summary = c.content
        WHERE c.embedding::text = m.embedding::text AND m.consolidated_into_id = c.id
    """
    assert pairs.value(query) >= len(PAIRS)


@pytest.mark.parametrize(
    "spoil",
    [
        {"edit": drop_numbers},
        {"edit": change_numbers},
        {"edit": lambda _: {"content": ""}},
        {"edit": lambda value: {"content": f"{value['content']} " * 3}},
        {"edit": lambda value: {"content": value["content"].replace("otherwise", "never")}},
    ],
    ids=["numbers dropped", "numbers changed", "empty", "too long", "a not added"],
)
def test_lossy_rewrite_is_repaired_or_kept_lossless(
    pairs: Pipeline, provider: OpenAIServer, spoil: dict[str, Any]
) -> None:
    provider.then(*[reply_with_json(rewrite_reply, **spoil)] * 6)
    done = run_merging(pairs)
    # Edits that change nothing in a text leave its rewrite valid.
    assert (done.created, done.rewritten + done.refused, done.failed) == (4, 3, 0)
    assert done.refused >= 1
    hybrid = [row for row in list_merged(pairs) if row.consolidation_method == "hybrid"]
    assert len(hybrid) == done.refused
    assert all("\n\n" in row.content and "20 minutes" in row.content for row in hybrid)
    assert find_broken_rules(pairs) == []
    request_count = len(provider.requests)
    assert run_merging(pairs) == merged_memories.MergeResult()
    assert len(provider.requests) == request_count


def test_refused_rewrite_is_retried_with_its_errors(pairs: Pipeline, provider: OpenAIServer) -> None:
    well, badly = reply_with_json(rewrite_reply), reply_with_json(rewrite_reply, edit=drop_numbers)
    provider.behaviour = lambda request: (well if is_repair_request(request) else badly)(request)
    assert run_merging(pairs).rewritten == 3
    repairs = [request.body["messages"][-1]["content"] for request in provider.requests if is_repair_request(request)]
    assert len(repairs) == 3
    assert all("the number '20 minutes' is missing" in repair for repair in repairs)


@pytest.mark.parametrize(
    "behaviour",
    [reply_with_refusal, reply_with_text("I would rather not."), reply_with_json(rewrite_reply, write=truncate_half)],
)
def test_merge_proceeds_without_readable_reply(
    pairs: Pipeline, provider: OpenAIServer, behaviour: Callable[..., Any]
) -> None:
    provider.behaviour = behaviour
    done = run_merging(pairs)
    assert (done.created, done.rewritten, done.refused, done.failed, done.absorbed) == (4, 0, 0, 3, 8)
    assert {row.consolidation_method for row in list_merged(pairs)} == {"heuristic"}
    provider.behaviour = reply_with_json(rewrite_reply)
    assert run_merging(pairs).rewritten == 3


def test_used_up_budget_defers_rewrites_to_next_run(
    pairs: Pipeline, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_gateway, "BATCH", 1)
    pairs.configure(**OPTIONS, budget_tokens_per_run=1050)
    done = run_merging(pairs)
    assert (done.created, done.absorbed, done.refused) == (4, 8, 0)
    assert 0 < done.rewritten < 3
    assert "budget_tokens_per_run is 1050" in str(done.stopped)
    waiting = [row for row in list_merged(pairs) if "rewrite_pending" in row.details]
    assert [row.consolidation_method for row in waiting] == ["heuristic"] * (3 - done.rewritten)
    assert pairs.value("SELECT count(*) FROM {s}.consolidation_events WHERE type = 'budget.exhausted'") == 1
    job = pairs.rows("SELECT status, metrics FROM {s}.consolidation_jobs")[0]
    assert (job.status, job.metrics["stopped"][0]["by"], "state" in job.metrics) == ("completed", "budget", False)
    assert find_broken_rules(pairs) == []
    pairs.configure(**OPTIONS)
    again = run_merging(pairs)
    assert (again.created, again.extended, again.absorbed) == (0, 0, 0)
    assert again.rewritten == len(waiting)
    assert len(provider.requests) == 3
    assert [row.details for row in list_merged(pairs)] == [{}] * 4
    assert run_merging(pairs) == merged_memories.MergeResult()


def test_unreachable_llm_leaves_merges_lossless(pairs: Pipeline, provider: OpenAIServer) -> None:
    provider.behaviour = reply_with_error(401)
    done = run_merging(pairs)
    assert (done.created, done.rewritten, "status 401" in str(done.stopped)) == (4, 0, True)
    [failing] = pairs.value("SELECT metrics -> 'failing' FROM {s}.consolidation_jobs")
    assert (failing["purpose"], failing["groups"]) == ("merged_memories", 3)
    assert find_broken_rules(pairs) == []
    again = run_merging(pairs)
    assert (again.created, again.rewritten) == (0, 0)
    versions = pairs.rows("SELECT DISTINCT version FROM {s}.consolidated_memories")
    assert [row.version for row in versions] == [1]
    provider.behaviour = reply_with_json(rewrite_reply)
    assert run_merging(pairs).rewritten == 3


def test_grown_merge_is_rewritten_from_all_sources(pairs: Pipeline, provider: OpenAIServer) -> None:
    run_merging(pairs)
    pairs.add([note("later", f"{PAIRS[0][0]} Seen again today.")])
    all_three = f"{PAIRS[0][1]}\nSeen again today."
    provider.behaviour = reply_with_json(lambda _: {"content": all_three})
    done = run_merging(pairs)
    assert (done.extended, done.rewritten, len(provider.requests)) == (1, 1, 4)
    assert len(shown_memories(provider.requests[-1])) == 3
    (grown,) = [row for row in list_merged(pairs) if row.version == 2]
    assert (grown.content, grown.source_count) == (all_three, 3)


def test_too_long_merge_group_is_not_rewritten(pipeline: Pipeline, provider: OpenAIServer) -> None:
    long = " ".join(f"Step {at} of the release copies table number {at} to the archive." for at in range(150))
    pipeline.configure_new(**OPTIONS, t_merge=0.8, t_suggest=0.7, t_pattern=0.6)
    pipeline.add([note("a", long), note("b", f"Note to self: {long}")])
    done = run_merging(pipeline)
    assert (done.created, done.rewritten, done.stopped, provider.requests) == (1, 0, None, [])
    assert list_merged(pipeline)[0].consolidation_method == "heuristic"


def test_lossless_merge_makes_no_llm_call(pairs: Pipeline, provider: OpenAIServer) -> None:
    pairs.configure(**{**OPTIONS, "merge_style": "lossless"})
    done = run_merging(pairs)
    assert (done.created, done.rewritten, provider.requests) == (4, 0, [])
    pairs.configure(**OPTIONS)
    assert run_merging(pairs) == merged_memories.MergeResult()
