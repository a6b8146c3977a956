"""Budgets of LLM calls: reservation before each request, also under failures, crashes and concurrency."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.jobs.spending import Bill, Budgets
from consolidation_pipeline.errors import BudgetExhaustedError
from consolidation_pipeline.llm.gateway import Answer, Gateway
from consolidation_pipeline.llm.pricing import FALLBACK_PRICE, Price, Pricing
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.llm.patterns import COST, KEY, MODEL, SOURCES, Connect, Pattern, ask_for, calls, spent
from consolidation_pipeline_tests.llm.patterns import well as answer_well
from consolidation_pipeline_tests.openai_server import (
    Behaviour,
    OpenAIServer,
    Reply,
    Request,
    drop_connection,
    openai_server,
    reply_with_broken_json,
    reply_with_error,
    reply_with_json,
    reply_with_text,
)


def reserved_for_one(connect: Connect, ledger: SpendLedger) -> Decimal:
    """Return the dollars that one request reserves."""
    elsewhere = replace(ledger, project_id=uuid4())
    connect(ledger=elsewhere).ask(ask_for(), Pattern)
    reserved: Decimal = calls(elsewhere)[0].reserved_usd
    return reserved


def with_budget(ledger: SpendLedger, usd: Decimal, **budgets: Any) -> SpendLedger:
    return replace(ledger, budgets=replace(ledger.budgets, usd_per_run=float(usd), **budgets))


def test_call_needs_its_full_reservation(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    needed = reserved_for_one(connect, ledger)
    provider.requests.clear()
    short = with_budget(ledger, needed - Decimal("0.00000001"))
    with pytest.raises(BudgetExhaustedError, match="pattern was not sent to openai/gpt-4o-mini: budget_usd_per_run is"):
        connect(ledger=short).ask(ask_for(), Pattern)
    assert (provider.requests, calls(ledger)) == ([], [])
    assert connect(ledger=with_budget(ledger, needed)).ask(ask_for(), Pattern).usd == COST


@pytest.mark.parametrize(
    ("budgets", "named"),
    [
        (Budgets(0, 5, 10_000), "budget_usd_per_run is 0 USD"),
        (Budgets(1, 0, 10_000), "budget_usd_per_day is 0 USD"),
        (Budgets(1, 5, 600), "budget_tokens_per_run is 600"),
    ],
)
def test_exhausted_budget_is_named(
    provider: OpenAIServer, connect: Connect, ledger: SpendLedger, budgets: Budgets, named: str
) -> None:
    with pytest.raises(BudgetExhaustedError, match=named):
        connect(ledger=replace(ledger, budgets=budgets)).ask(ask_for(), Pattern)
    assert provider.requests == []


def test_cache_answers_without_budget(connect: Connect, ledger: SpendLedger) -> None:
    paid = connect().ask(ask_for(), Pattern)
    broke = connect(ledger=with_budget(ledger, Decimal(0)))
    outcomes = broke.ask_many([ask_for(), ask_for(1)], Pattern)
    assert outcomes[0] == Answer(paid.value, Decimal(0), is_cached=True)
    assert isinstance(outcomes[1], BudgetExhaustedError)


def test_unpriced_model_is_billed_at_fallback_price(connect: Connect, ledger: SpendLedger) -> None:
    answer = connect(model="openai/our-own-model").ask(ask_for(), Pattern)
    assert answer.usd == Decimal(str((100 * FALLBACK_PRICE.input + 20 * FALLBACK_PRICE.output) / 1e6))
    free = connect(model="openai/our-own-model", fallback_price=Price(0, 0), ledger=with_budget(ledger, Decimal(0)))
    assert free.ask(ask_for(1), Pattern).usd == 0


def test_pricing_uses_list_or_fallback() -> None:
    assert Pricing(MODEL).bill(1_000_000, 1_000_000) == Bill(1_000_000, 1_000_000, Decimal("0.75"))
    assert Pricing("openai/our-own-model").bill(1_000_000, 1_000_000).usd == 90


def test_reservation_covers_prompt_and_longest_reply() -> None:
    messages = ask_for().messages()
    most = Pricing(MODEL).max_bill(messages, Pattern.model_json_schema(), 500)
    assert most.completion_tokens == 500
    assert most.prompt_tokens > len(" ".join(message["content"] for message in messages).split())


def test_prompt_waits_for_reserved_budget(connect: Connect, ledger: SpendLedger) -> None:
    for_one = with_budget(ledger, reserved_for_one(connect, ledger) + 9 * COST)
    outcomes = connect(ledger=for_one).ask_many([ask_for(n) for n in range(10)], Pattern)
    assert all(isinstance(outcome, Answer) for outcome in outcomes)
    assert spent(for_one) == 10 * COST


def test_concurrent_gateways_respect_budget(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    needed = reserved_for_one(connect, ledger)
    provider.behaviour = reply_with_json(answer_well, usage=None)  # each call costs its reservation
    frugal = with_budget(ledger, 5 * needed)
    found: list[list[Any]] = []

    def work(first: int) -> None:
        found.append(connect(ledger=frugal).ask_many([ask_for(n) for n in range(first, first + 6)], Pattern))

    workers = [threading.Thread(target=work, args=(first,)) for first in (0, 10, 20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    kinds = Counter(type(outcome) for outcomes in found for outcome in outcomes)
    assert kinds == {Answer: 5, BudgetExhaustedError: 13}
    assert spent(frugal) == 5 * needed


def test_concurrent_gateways_pay_once_per_prompt(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    class Late(SpendLedger):
        """Ledger that reads the cache before the other gateway stores its answer."""

        def load(self, prompt_hashes: Sequence[str]) -> Any:
            found = super().load(prompt_hashes)
            if not found:
                connect().ask(ask_for(), Pattern)
            return found

    late = Late(ledger.engine, ledger.project_id, ledger.job_id, ledger.budgets)
    assert connect(ledger=late).ask(ask_for(), Pattern).is_cached
    assert len(provider.requests) == 1


DOOMED = """
import sys
from uuid import UUID
from consolidation_pipeline.core.jobs.spending import Budgets
from consolidation_pipeline.store.database.engine import connect_engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline_tests.llm.patterns import KEY, MODEL, Pattern, ask_for
from consolidation_pipeline.llm.gateway import Gateway
url, project, job, base = sys.argv[1:]
ledger = SpendLedger(connect_engine(url), UUID(project), UUID(job), Budgets(1, 5, 10_000))
Gateway(MODEL, ledger, api_base=base, api_key=KEY).ask(ask_for(), Pattern)
"""


@pytest.mark.slow
def test_killed_llm_call_keeps_reservation_spent(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    url = ledger.engine.url.render_as_string(hide_password=False)
    arguments = [url, str(ledger.project_id), str(ledger.job_id), provider.api_base]
    children: list[subprocess.Popen[bytes]] = []
    provider.behaviour = _killing(children)
    children.append(subprocess.Popen([sys.executable, "-c", DOOMED, *arguments]))
    assert children[0].wait() == -signal.SIGKILL
    [row] = calls(ledger)
    assert (row.status, row.cost_usd) == ("reserved", None)
    assert spent(ledger) == row.reserved_usd > 0
    provider.behaviour = reply_with_json(answer_well)
    connect().ask(ask_for(), Pattern)
    assert [(row.status, row.attempt) for row in calls(ledger)] == [("reserved", 1), ("settled", 2)]
    assert spent(ledger) == row.reserved_usd + COST


def _killing(children: Sequence[subprocess.Popen[bytes]]) -> Behaviour:
    def behaviour(request: Request) -> Reply:
        os.kill(children[0].pid, signal.SIGKILL)
        return drop_connection(request)

    return behaviour


class PowerCutError(Exception):
    """Simulated end of the process."""


@dataclass(frozen=True)
class Dying(SpendLedger):
    """Ledger whose process dies before one of ``every`` calls is settled."""

    every: int = 3

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        if call_id.int % self.every == 0:
            raise PowerCutError
        super().settle(call_id, bill, response)


KINDS: dict[str, Behaviour] = {
    "well": reply_with_json(answer_well),
    "without usage": reply_with_json(answer_well, usage=None),
    "nonsense": reply_with_text("nonsense"),
    "429": reply_with_error(429),
    "400": reply_with_error(400),
    "500": reply_with_error(500),
    "502": reply_with_error(502),
    "cut short": reply_with_broken_json,
    "hung up": drop_connection,
}
RUNS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 4), max_size=5), st.lists(st.sampled_from(list(KINDS)), max_size=8), st.booleans()
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(20), deadline=None)
@given(runs=RUNS, calls_in_budget=st.integers(1, 6))
def test_budget_holds_under_failures_and_crashes(
    engine: Engine, runs: list[tuple[list[int], list[str], bool]], calls_in_budget: int
) -> None:
    one = Pricing(MODEL).max_bill(ask_for().messages(), Pattern.model_json_schema(), 500).usd
    budgets = Budgets(float(calls_in_budget * one * Decimal("1.3")), 5, 1_000_000)
    ledger = Dying(engine, uuid4(), uuid4(), budgets)
    with openai_server(reply_with_json(answer_well)) as provider:
        for numbers, kinds, is_new_job in runs:
            ledger = replace(ledger, job_id=uuid4()) if is_new_job else ledger
            provider.then(*[KINDS[kind] for kind in kinds])
            gateway = Gateway(MODEL, ledger, api_base=provider.api_base, api_key=KEY, sleep=lambda _: None)
            with suppress(PowerCutError):
                gateway.ask_many([ask_for(n) for n in numbers], Pattern)
        requests = len(provider.requests)
    _check(ledger, requests)


def _check(ledger: SpendLedger, requests: int) -> None:
    rows = [row for row in calls(ledger) if row.status != "cached"]
    assert requests == len(rows)  # exactly one reservation per request
    in_job: Counter[UUID] = Counter()
    for row in rows:
        in_job[row.job_id] += row.reserved_usd if row.cost_usd is None else row.cost_usd
    assert all(usd <= Decimal(str(ledger.budgets.usd_per_run)) for usd in in_job.values())
    assert all(count == 1 for count in Counter(row.prompt_hash for row in rows if row.status == "settled").values())
    assert max(Counter((row.job_id, row.prompt_hash) for row in rows).values(), default=0) <= 5


def test_ledger_does_not_store_prompts(connect: Connect, ledger: SpendLedger) -> None:
    connect().ask(ask_for(), Pattern)
    [row] = calls(ledger)
    assert all(source not in str(row) for source in SOURCES)
