"""Budgets of LLM calls: reservation before each request, also under failures, crashes and concurrency."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
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
from consolidation_pipeline.llm.gateway import CONCURRENCY, Answer, Gateway
from consolidation_pipeline.llm.pricing import FALLBACK_PRICE, Price, Pricing
from consolidation_pipeline.store.database.engine import Engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.llm.patterns import (
    API_KEY,
    MODEL,
    REPLY_COST,
    SOURCES,
    Connect,
    Pattern,
    kill_during_request,
    make_prompt,
    sum_spent,
    valid_reply,
)
from consolidation_pipeline_tests.openai_server import (
    ERRORS,
    Behaviour,
    OpenAIServer,
    Reply,
    Request,
    openai_server,
    reply_with_json,
    reply_with_text,
)
from consolidation_pipeline_tests.store.sample_rows import load_llm_calls


def measure_reservation(connect: Connect, ledger: SpendLedger) -> Decimal:
    """Return the dollars that one request reserves."""
    other = replace(ledger, project_id=uuid4())
    connect(ledger=other).ask(make_prompt(), Pattern)
    reserved: Decimal = load_llm_calls(other)[0].reserved_usd
    return reserved


def with_budget(ledger: SpendLedger, usd: Decimal, **budgets: Any) -> SpendLedger:
    return replace(ledger, budgets=replace(ledger.budgets, usd_per_run=float(usd), **budgets))


def test_call_needs_its_full_reservation(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    needed = measure_reservation(connect, ledger)
    provider.requests.clear()
    short = with_budget(ledger, needed - Decimal("0.00000001"))
    with pytest.raises(BudgetExhaustedError, match="pattern was not sent to openai/gpt-4o-mini: budget_usd_per_run is"):
        connect(ledger=short).ask(make_prompt(), Pattern)
    assert (provider.requests, load_llm_calls(ledger)) == ([], [])
    assert connect(ledger=with_budget(ledger, needed)).ask(make_prompt(), Pattern).usd == REPLY_COST


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
        connect(ledger=replace(ledger, budgets=budgets)).ask(make_prompt(), Pattern)
    assert provider.requests == []


def test_cache_answers_without_budget(connect: Connect, ledger: SpendLedger) -> None:
    paid = connect().ask(make_prompt(), Pattern)
    penniless = connect(ledger=with_budget(ledger, Decimal(0)))
    outcomes = penniless.ask_many([make_prompt(), make_prompt(1)], Pattern)
    assert outcomes[0] == Answer(paid.value, Decimal(0), is_cached=True)
    assert isinstance(outcomes[1], BudgetExhaustedError)


def test_unpriced_model_is_billed_at_fallback_price(connect: Connect, ledger: SpendLedger) -> None:
    answer = connect(model="openai/our-own-model").ask(make_prompt(), Pattern)
    assert answer.usd == Decimal(str((100 * FALLBACK_PRICE.input + 20 * FALLBACK_PRICE.output) / 1e6))
    free = connect(model="openai/our-own-model", fallback_price=Price(0, 0), ledger=with_budget(ledger, Decimal(0)))
    assert free.ask(make_prompt(1), Pattern).usd == 0


def test_pricing_uses_list_or_fallback() -> None:
    assert Pricing(MODEL).bill(1_000_000, 1_000_000) == Bill(1_000_000, 1_000_000, Decimal("0.75"))
    assert Pricing("openai/our-own-model").bill(1_000_000, 1_000_000).usd == 90


def test_reservation_covers_prompt_and_longest_reply() -> None:
    messages = make_prompt().messages()
    most = Pricing(MODEL).max_bill(messages, Pattern.model_json_schema(), 500)
    assert most.completion_tokens == 500
    assert most.prompt_tokens > len(" ".join(message["content"] for message in messages).split())


def test_prompt_waits_for_reserved_budget(connect: Connect, ledger: SpendLedger) -> None:
    tight = with_budget(ledger, measure_reservation(connect, ledger) + 9 * REPLY_COST)
    outcomes = connect(ledger=tight).ask_many([make_prompt(n) for n in range(10)], Pattern)
    assert all(isinstance(outcome, Answer) for outcome in outcomes)
    assert sum_spent(tight) == 10 * REPLY_COST


def test_concurrent_gateways_respect_budget(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    needed = measure_reservation(connect, ledger)
    provider.behaviour = reply_with_json(valid_reply, usage=None)  # each call costs its reservation
    frugal = with_budget(ledger, 5 * needed)
    found: list[list[Any]] = []

    def work(first: int) -> None:
        found.append(connect(ledger=frugal).ask_many([make_prompt(n) for n in range(first, first + 6)], Pattern))

    workers = [threading.Thread(target=work, args=(first,)) for first in (0, 10, 20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    kinds = Counter(type(outcome) for outcomes in found for outcome in outcomes)
    assert kinds == {Answer: 5, BudgetExhaustedError: 13}
    assert sum_spent(frugal) == 5 * needed


@pytest.mark.parametrize("daily", [False, True])
def test_budget_holds_if_bills_exceed_reservations(
    provider: OpenAIServer, connect: Connect, ledger: SpendLedger, daily: bool
) -> None:
    reserved = measure_reservation(connect, ledger)
    tokens = round(10 * reserved / Decimal("0.0000006"))  # at 0.60 dollars per million
    provider.behaviour = slowly(reply_with_json(valid_reply, usage=(0, tokens)))
    budget = float(6 * 10 * reserved)
    frugal = replace(ledger, budgets=Budgets(*((5, budget) if daily else (budget, 5)), 10_000_000))
    outcomes = connect(ledger=frugal).ask_many([make_prompt(n) for n in range(30)], Pattern)
    kinds = Counter(type(outcome) for outcome in outcomes)
    assert kinds == {Answer: 6, BudgetExhaustedError: 24}
    assert sum_spent(frugal) <= Decimal(str(budget))
    later = connect(ledger=replace(frugal, job_id=frugal.job_id if not daily else uuid4())).ask_many
    [refused] = later([make_prompt(99)], Pattern)
    assert "10 times its estimate, as bills of the model may be" in str(refused)


def test_concurrent_gateways_pay_once_per_prompt(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    class SlowLedger(SpendLedger):
        """Ledger that reads the cache before the other gateway stores its answer."""

        def load(self, prompt_hashes: Sequence[str]) -> Any:
            found = super().load(prompt_hashes)
            if not found:
                connect().ask(make_prompt(), Pattern)
            return found

    slow = SlowLedger(ledger.engine, ledger.project_id, ledger.job_id, ledger.budgets)
    assert connect(ledger=slow).ask(make_prompt(), Pattern).is_cached
    assert len(provider.requests) == 1


def slowly(behaviour: Behaviour) -> Behaviour:
    """Return a behaviour that takes a moment, so that requests overlap."""

    def reply(request: Request) -> Reply | None:
        time.sleep(0.05)
        return behaviour(request)

    return reply


ASKING_PROGRAM = """
import sys
from uuid import UUID
from consolidation_pipeline.core.jobs.spending import Budgets
from consolidation_pipeline.store.database.engine import connect_engine
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline_tests.llm.patterns import API_KEY, MODEL, Pattern, make_prompt
from consolidation_pipeline.llm.gateway import Gateway
url, project, job, base = sys.argv[1:]
ledger = SpendLedger(connect_engine(url), UUID(project), UUID(job), Budgets(1, 5, 10_000))
gateway = Gateway(MODEL, ledger, api_base=base, api_key=API_KEY)
gateway.ask_many([make_prompt(n) for n in range({count})], Pattern)
"""


@pytest.mark.slow
def test_killed_llm_call_keeps_reservation_spent(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    kill_during_request(provider, ledger, ASKING_PROGRAM.format(count=1))
    [row] = load_llm_calls(ledger)
    assert (row.status, row.cost_usd) == ("reserved", None)
    assert sum_spent(ledger) == row.reserved_usd > 0
    provider.behaviour = reply_with_json(valid_reply)
    connect().ask(make_prompt(), Pattern)
    assert [(row.status, row.attempt) for row in load_llm_calls(ledger)] == [("reserved", 1), ("settled", 2)]
    assert sum_spent(ledger) == row.reserved_usd + REPLY_COST


@pytest.mark.slow
def test_processes_never_pay_twice_for_a_prompt(provider: OpenAIServer, ledger: SpendLedger) -> None:
    count, doomed = 40, list[subprocess.Popen[bytes]]()

    def reply(request: Request) -> Reply | None:
        # One of three processes is killed while its requests are under way: the others ask for them again.
        if len(provider.requests) == count // 2:
            doomed[0].kill()
        return slowly(reply_with_json(valid_reply))(request)

    provider.behaviour = reply
    url = ledger.engine.url.render_as_string(hide_password=False)
    program = [sys.executable, "-c", ASKING_PROGRAM.format(count=count), url, str(ledger.project_id)]
    others = [subprocess.Popen([*program, str(uuid4()), provider.api_base]) for _ in range(3)]
    doomed.append(others.pop())
    assert [process.wait() for process in others] == [0, 0]
    doomed[0].wait()
    settled = [row.prompt_hash for row in load_llm_calls(ledger) if row.status == "settled"]
    lost = [row.prompt_hash for row in load_llm_calls(ledger) if row.status == "reserved"]
    assert (len(settled), len(set(settled))) == (count, count)
    # The process may be killed between a reservation and its request.
    assert count <= len(provider.requests) <= count + len(lost) <= count + CONCURRENCY


class CrashError(Exception):
    """Simulated end of the process."""


@dataclass(frozen=True)
class CrashingLedger(SpendLedger):
    """Ledger whose process dies before one of ``every`` calls is settled."""

    every: int = 3

    def settle(self, call_id: UUID, bill: Bill | None, response: Any) -> None:
        if call_id.int % self.every == 0:
            raise CrashError
        super().settle(call_id, bill, response)


BEHAVIOURS: dict[str, Behaviour] = {
    "valid": reply_with_json(valid_reply),
    "without usage": reply_with_json(valid_reply, usage=None),
    "nonsense": reply_with_text("nonsense"),
    **ERRORS,
}
RUNS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 4), max_size=5), st.lists(st.sampled_from(list(BEHAVIOURS)), max_size=8), st.booleans()
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(runs=RUNS, calls_in_budget=st.integers(1, 6))
def test_budget_holds_under_failures_and_crashes(
    engine: Engine, runs: list[tuple[list[int], list[str], bool]], calls_in_budget: int
) -> None:
    usd_per_call = Pricing(MODEL).max_bill(make_prompt().messages(), Pattern.model_json_schema(), 500).usd
    budgets = Budgets(float(calls_in_budget * usd_per_call * Decimal("1.3")), 5, 1_000_000)
    ledger = CrashingLedger(engine, uuid4(), uuid4(), budgets)
    with openai_server(reply_with_json(valid_reply)) as provider:
        for numbers, kinds, is_new_job in runs:
            ledger = replace(ledger, job_id=uuid4()) if is_new_job else ledger
            provider.then(*[BEHAVIOURS[kind] for kind in kinds])
            gateway = Gateway(MODEL, ledger, api_base=provider.api_base, api_key=API_KEY, sleep=lambda _: None)
            with suppress(CrashError):
                gateway.ask_many([make_prompt(n) for n in numbers], Pattern)
        requests = len(provider.requests)
    _check_spending(ledger, requests)


def _check_spending(ledger: SpendLedger, requests: int) -> None:
    rows = [row for row in load_llm_calls(ledger) if row.status != "cached"]
    assert requests == len(rows)  # exactly one reservation per request
    in_job: Counter[UUID] = Counter()
    for row in rows:
        in_job[row.job_id] += row.reserved_usd if row.cost_usd is None else row.cost_usd
    assert all(usd <= Decimal(str(ledger.budgets.usd_per_run)) for usd in in_job.values())
    assert all(count == 1 for count in Counter(row.prompt_hash for row in rows if row.status == "settled").values())
    assert max(Counter((row.job_id, row.prompt_hash) for row in rows).values(), default=0) <= 5


def test_ledger_does_not_store_prompts(connect: Connect, ledger: SpendLedger) -> None:
    connect().ask(make_prompt(), Pattern)
    [row] = load_llm_calls(ledger)
    assert all(source not in str(row) for source in SOURCES)
