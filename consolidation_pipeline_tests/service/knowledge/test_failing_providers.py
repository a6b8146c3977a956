"""Failing providers and killed processes: budgets hold and later runs reach the same result."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.llm import retries
from consolidation_pipeline.service.knowledge import llm_gateway
from consolidation_pipeline.service.runs.phases import PHASES
from consolidation_pipeline.service.runs.run_lifecycle import open_run
from consolidation_pipeline.settings import Settings
from consolidation_pipeline.store.database.engine import connect_engine
from consolidation_pipeline_tests.openai_server import (
    Behaviour,
    OpenAIServer,
    Reply,
    Request,
    client_environment,
    drop_connection,
    drop_numbers,
    invent_quotes,
    openai_server,
    reply_with_broken_json,
    reply_with_error,
    reply_with_json,
    reply_with_refusal,
    reply_with_text,
)
from consolidation_pipeline_tests.service.corpus import MIGRATIONS, WEBHOOKS, note, topic_notes
from consolidation_pipeline_tests.service.crash_helpers import _die_at
from consolidation_pipeline_tests.service.fork_server import ForkServer, start_fork_server
from consolidation_pipeline_tests.service.knowledge.test_merge_rewrites import MODEL, PAIRS
from consolidation_pipeline_tests.service.model_replies import reply_by_schema
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, run_phases

# Phases up to the last one that is tested with a model.
LLM_PHASES = PHASES[: PHASES.index("principles") + 1]
# Splits the three groups into two batches.
SMALL_BATCH = 2
OPTIONS: dict[str, Any] = {
    "llm_model": MODEL,
    "merge_style": "rewrite",
    "t_merge": 0.8,
    "t_suggest": 0.75,
    "t_pattern": 0.5,
}
ROWS = [
    *(note(f"{at}-{side}", text) for at, pair in enumerate(PAIRS) for side, text in enumerate(pair)),
    *topic_notes("hook", WEBHOOKS),
    *topic_notes("move", MIGRATIONS),
]


def spoiled_reply(request: Request) -> Reply | None:
    """Return a rewrite without its numbers, or a pattern with invented quotes."""
    is_merge = request.body["response_format"]["json_schema"]["name"] == "MergeReply"
    return reply_with_json(reply_by_schema, edit=drop_numbers if is_merge else invent_quotes)(request)


BEHAVIOURS: dict[str, Behaviour] = {
    "well": reply_with_json(reply_by_schema),
    "spoiled": spoiled_reply,
    "nonsense": reply_with_text("nonsense"),
    "refusal": reply_with_refusal,
    "429": reply_with_error(429),
    "401": reply_with_error(401),
    "500": reply_with_error(500),
    "502": reply_with_error(502),
    "cut short": reply_with_broken_json,
    "hung up": drop_connection,
}
FAILURES = st.lists(st.sampled_from(list(BEHAVIOURS)), max_size=12)
KILLS = st.tuples(st.integers(1, 30), st.sampled_from(["before", "after"]))


@pytest.fixture(scope="module")
def provider() -> Iterator[OpenAIServer]:
    with openai_server(reply_with_json(reply_by_schema)) as running, pytest.MonkeyPatch.context() as patch:
        for name, value in client_environment(running.api_base).items():
            patch.setenv(name, value)
        _disable_waits(patch.setattr)
        yield running


@pytest.fixture(scope="module")
def fork_server(provider: OpenAIServer) -> Iterator[ForkServer]:
    del provider
    with start_fork_server(__name__) as running:
        yield running


def _disable_waits(set_: Callable[[Any, str, Any], None] = setattr) -> None:
    set_(retries, "_compute_wait", lambda *_: 0.0)
    set_(llm_gateway, "BATCH", SMALL_BATCH)


def run_until(url: str, commit: int, when: str) -> None:
    """Run and die before or after the ``commit``-th commit since merging began; complete if there are fewer."""
    _disable_waits()
    engine = connect_engine(url)
    with open_run(engine, SLUG, settings=Settings(), planned=LLM_PHASES) as run:
        before = LLM_PHASES.index("merged_memories")
        run_phases(run, LLM_PHASES[:before])
        _die_at(engine, commit, when)
        run_phases(run, LLM_PHASES[before:])


def reset_project(pipeline: Pipeline, **options: Any) -> None:
    pipeline.clear()
    pipeline.write("DELETE FROM {s}.llm_calls")
    pipeline.configure_new(**OPTIONS, **options)
    pipeline.add(ROWS)


def run(pipeline: Pipeline) -> None:
    with pipeline.open(planned=LLM_PHASES) as opened:
        run_phases(opened, LLM_PHASES)


def load_knowledge(pipeline: Pipeline) -> dict[str, Any]:
    """Return all consolidated memories by id, with their texts and sources."""
    query = """
        SELECT id, kind, content, details, source_memory_ids, superseded_by_id, retired_at IS NULL AS active,
            consolidation_method AS method, (SELECT jsonb_agg(jsonb_build_array(parent_id, parent_kind) ORDER BY 1)
                FROM (SELECT parent_id, parent_kind FROM {s}.memory_lineage l WHERE l.child_id = c.id ORDER BY 1) l)
        FROM {s}.consolidated_memories c
    """
    return {str(row.id): json.loads(json.dumps(dict(row._mapping), default=str)) for row in pipeline.rows(query)}


@pytest.fixture(scope="module")
def expected_knowledge(shared: Pipeline, provider: OpenAIServer) -> dict[str, dict[str, Any]]:
    """Consolidated memories of runs without failures, with rewritten texts (``llm``) and lossless ones (``hybrid``)."""
    del provider
    reset_project(shared)
    run(shared)
    rewritten = load_knowledge(shared)
    reset_project(shared)
    shared.configure(**{**OPTIONS, "merge_style": "lossless"})
    run(shared)
    assert Counter((row["kind"], row["method"]) for row in rewritten.values()) == {
        ("merged", "llm"): 3,
        ("pattern", "llm"): 2,
    }
    lossless = {id_: row | {"method": "hybrid"} for id_, row in load_knowledge(shared).items()}
    return {"llm": rewritten, "hybrid": lossless}


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(failures=FAILURES, later_failures=FAILURES, kill=KILLS, tokens=st.sampled_from([0, 1_500, 5_000, 2_000_000]))
def test_budget_holds_and_result_survives_failures(
    shared: Pipeline,
    provider: OpenAIServer,
    fork_server: ForkServer,
    expected_knowledge: dict[str, dict[str, Any]],
    failures: list[str],
    later_failures: list[str],
    kill: tuple[int, str],
    tokens: int,
) -> None:
    reset_project(shared, budget_tokens_per_run=tokens)
    provider.requests.clear()
    provider.then(*(BEHAVIOURS[kind] for kind in failures))
    url = shared.engine.url.render_as_string(hide_password=False)
    assert fork_server.wait(fork_server.spawn(run_until, url, *kill)) in (0, -signal.SIGKILL)
    provider.then(*(BEHAVIOURS[kind] for kind in later_failures))
    run(shared)
    check_spending(shared, len(provider.requests), tokens)
    provider._orders.clear()
    shared.configure(**OPTIONS)
    run(shared)
    run(shared)
    request_count = len(provider.requests)
    found = load_knowledge(shared)
    # A merge whose rewrite was refused twice keeps its lossless text.
    assert found == {id_: expected_knowledge[row["method"]][id_] for id_, row in found.items()}
    assert found.keys() == expected_knowledge["llm"].keys()
    assert all(row["method"] == "llm" for row in found.values() if row["kind"] == "pattern")
    run(shared)
    assert len(provider.requests) == request_count


def check_spending(pipeline: Pipeline, requests: int, tokens: int) -> None:
    rows = pipeline.rows("SELECT * FROM {s}.llm_calls WHERE status <> 'cached'")
    ended = sum(row.status != "reserved" for row in rows)
    # Each request has its own reservation. A kill after the reservation may prevent the request.
    assert ended <= requests <= len(rows)
    spent: Counter[Any] = Counter()
    for row in rows:
        spent[row.job_id] += row.prompt_tokens + row.completion_tokens
    assert max(spent.values(), default=0) <= tokens
    settled = Counter(row.prompt_hash for row in rows if row.status == "settled")
    assert max(settled.values(), default=1) == 1
