"""Paid embedding: each request is reserved in the spend ledger before and settled after."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.jobs.spending import Budgets
from consolidation_pipeline.embed.remote import BATCH_TEXTS, FALLBACK_PRICE, LiteLLMEmbedder
from consolidation_pipeline.errors import BudgetExhaustedError, EmbeddingError
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline_tests.embed.conftest import MODEL, make_texts
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.llm.patterns import kill_during_request, sum_spent
from consolidation_pipeline_tests.openai_server import (
    ERRORS,
    Behaviour,
    OpenAIServer,
    drop_last_row,
    openai_server,
    reply_with_embeddings,
    reply_with_error,
)
from consolidation_pipeline_tests.store.sample_rows import load_llm_calls


def connect(provider: OpenAIServer, ledger: SpendLedger, model: str = MODEL) -> LiteLLMEmbedder:
    key = "sk-a-very-secret-key-0123456789"
    return LiteLLMEmbedder(model, ledger=ledger, api_base=provider.api_base, api_key=key, sleep=lambda _: None)


def with_budgets(ledger: SpendLedger, **budgets: Any) -> SpendLedger:
    return replace(ledger, job_id=uuid4(), budgets=replace(ledger.budgets, **budgets))


def test_embedding_call_is_settled_without_vectors(provider: OpenAIServer, ledger: SpendLedger) -> None:
    connect(provider, ledger).embed(["three words here", "two words"])
    [row] = load_llm_calls(ledger)
    assert (row.purpose, row.model, row.status, row.response) == ("embedding", MODEL, "settled", None)
    assert (row.prompt_tokens, row.completion_tokens, row.cost_usd) == (5, 0, Decimal("0.00000065"))
    assert row.reserved_usd >= row.cost_usd


def test_same_text_may_be_embedded_repeatedly(provider: OpenAIServer, ledger: SpendLedger) -> None:
    for _ in range(7):
        connect(provider, ledger).embed(["two words"])
    assert [row.status for row in load_llm_calls(ledger)] == ["settled"] * 7


def test_embedding_without_budget_sends_nothing(provider: OpenAIServer, ledger: SpendLedger) -> None:
    penniless = with_budgets(ledger, usd_per_run=0.0)
    with pytest.raises(BudgetExhaustedError, match=f"embedding was not sent to {MODEL}: budget_usd_per_run is 0 USD"):
        connect(provider, penniless).embed(["two words"])
    assert (provider.requests, load_llm_calls(penniless)) == ([], [])


def test_exhausted_budget_returns_finished_batches(provider: OpenAIServer, ledger: SpendLedger) -> None:
    texts = make_texts(4 * BATCH_TEXTS)
    connect(provider, ledger).embed(texts[:BATCH_TEXTS])
    used = load_llm_calls(ledger)[0]
    frugal = with_budgets(ledger, tokens_per_run=int(used.prompt_tokens * 2.9))
    provider.requests.clear()
    parts: list[Any] = []
    with pytest.raises(BudgetExhaustedError, match="budget_tokens_per_run"):
        parts.extend(connect(provider, frugal).embed_batches(texts))
    assert 1 <= len(parts) == len(provider.requests) <= 2


def test_invalid_embedding_reply_is_paid(provider: OpenAIServer, ledger: SpendLedger) -> None:
    provider.behaviour = reply_with_embeddings(edit=drop_last_row)
    with pytest.raises(EmbeddingError, match="0 vectors for 1 texts"):
        connect(provider, ledger).embed(["three words here"])
    [row] = load_llm_calls(ledger)
    assert (row.status, row.prompt_tokens, row.cost_usd) == ("failed", 3, Decimal("0.00000039"))
    assert "each text needs one vector" in row.error_message


@pytest.mark.parametrize(
    ("behaviour", "attempts", "is_billed"),
    [
        (reply_with_error(429), 4, False),
        (reply_with_error(500), 4, False),
        (reply_with_error(502), 4, True),
        (reply_with_error(401), 1, False),
    ],
)
def test_each_embedding_attempt_is_reserved(
    provider: OpenAIServer, ledger: SpendLedger, behaviour: Behaviour, attempts: int, is_billed: bool
) -> None:
    provider.behaviour = behaviour
    with pytest.raises(EmbeddingError):
        connect(provider, ledger).embed(["two words"])
    rows = load_llm_calls(ledger)
    assert [(row.status, row.attempt) for row in rows] == [("failed", at + 1) for at in range(attempts)]
    assert all(row.cost_usd == (row.reserved_usd if is_billed else 0) for row in rows)
    with pytest.raises(EmbeddingError, match="4 times by this job" if attempts == 4 else "401"):
        connect(provider, ledger).embed(["two words"])


def test_unpriced_embedding_model_uses_fallback_price(provider: OpenAIServer, ledger: SpendLedger) -> None:
    connect(provider, ledger, "openai/our-own-model").embed(["two words"])
    assert float(load_llm_calls(ledger)[0].cost_usd) == pytest.approx(2 * FALLBACK_PRICE.input / 1e6)


EMBEDDING_PROGRAM = """
import sys
from uuid import UUID
from consolidation_pipeline.core.jobs.spending import Budgets
from consolidation_pipeline.embed import LiteLLMEmbedder
from consolidation_pipeline.store.database.engine import connect_engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
url, project, job, base, model = sys.argv[1:]
ledger = SpendLedger(connect_engine(url), UUID(project), UUID(job), Budgets(1, 5, 10_000))
LiteLLMEmbedder(model, ledger=ledger, api_base=base, api_key="key").embed(["two words"])
"""


@pytest.mark.slow
def test_killed_embedding_keeps_reservation_spent(provider: OpenAIServer, ledger: SpendLedger) -> None:
    kill_during_request(provider, ledger, EMBEDDING_PROGRAM, MODEL)
    [row] = load_llm_calls(ledger)
    assert (row.status, row.cost_usd) == ("reserved", None)
    assert sum_spent(ledger) == row.reserved_usd > 0


BEHAVIOURS: dict[str, Behaviour] = {
    "valid": reply_with_embeddings(),
    "one missing": reply_with_embeddings(edit=drop_last_row),
    **ERRORS,
}


@settings(max_examples=examples(12), deadline=None)
@given(
    rounds=st.lists(
        st.tuples(st.integers(1, 3 * BATCH_TEXTS), st.lists(st.sampled_from(list(BEHAVIOURS)), max_size=6)),
        min_size=1,
        max_size=4,
    ),
    tokens=st.integers(0, 2000),
)
def test_embedding_requests_never_exceed_budget(
    engine: Engine, rounds: list[tuple[int, list[str]]], tokens: int
) -> None:
    ledger = SpendLedger(engine, uuid4(), uuid4(), Budgets(1.0, 5.0, tokens))
    with openai_server() as provider:
        for count, kinds in rounds:
            provider.then(*[BEHAVIOURS[kind] for kind in kinds])
            try:
                assert len(connect(provider, ledger).embed(make_texts(count))) == count
            except (EmbeddingError, BudgetExhaustedError):
                continue
        requests = len(provider.requests)
    rows = load_llm_calls(ledger)
    assert requests == len(rows)
    assert sum(row.prompt_tokens for row in rows) <= tokens
    assert Counter(row.status for row in rows).keys() <= {"settled", "failed"}
