"""The spend ledger: reservations, budgets, attempts and cached replies, also under concurrency and crashes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy import text

from consolidation_pipeline.core.jobs.spending import NOTHING, Bill, Budgets, Call, Spent
from consolidation_pipeline.errors import AttemptsExhaustedError, BudgetExhaustedError, ConflictError
from consolidation_pipeline.store.database.engine import Engine, connect_engine
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger, load_spent
from consolidation_pipeline_tests.hypothesis_examples import examples
from consolidation_pipeline_tests.store.sample_rows import load_llm_calls

CALL = Call("pattern", "openai/gpt-4o-mini", "hash", Bill(60, 40, Decimal("0.1")))
BUDGETS = Budgets(usd_per_run=1.0, usd_per_day=5.0, tokens_per_run=100_000)


@pytest.fixture
def ledger(engine: Engine) -> SpendLedger:
    return SpendLedger(engine, uuid4(), uuid4(), BUDGETS)


def reserve(ledger: SpendLedger, key: str = "hash", usd: str = "0.1", **options: Any) -> UUID | None:
    call = replace(CALL, prompt_hash=key, max_bill=replace(CALL.max_bill, usd=Decimal(usd)))
    return ledger.reserve(call, **{"max_attempts": 1000, **options})


def reserve_id(ledger: SpendLedger, key: str = "hash", usd: str = "0.1", **options: Any) -> UUID:
    call_id = reserve(ledger, key, usd, **options)
    assert call_id is not None
    return call_id


def load_total(ledger: SpendLedger) -> Spent:
    with ledger.engine.connect() as connection:
        return load_spent(connection, ledger.project_id, ledger.job_id)


def move_to_yesterday(ledger: SpendLedger) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.llm_calls SET created_at = created_at - interval '1 day'"))


def test_reservation_counts_in_full_until_settled(ledger: SpendLedger) -> None:
    call_id = reserve_id(ledger)
    assert load_total(ledger) == Spent(Decimal("0.1"), Decimal("0.1"), 100)
    ledger.settle(call_id, Bill(50, 10, Decimal("0.03")), {"a": 1})
    assert load_total(ledger) == Spent(Decimal("0.03"), Decimal("0.03"), 60)


def test_failed_call_costs_bill_or_reservation(ledger: SpendLedger) -> None:
    ledger.fail(reserve_id(ledger), NOTHING, "refused")
    assert load_total(ledger) == Spent(Decimal(0), Decimal(0), 0)
    ledger.fail(reserve_id(ledger), None, "the connection was lost")
    assert load_total(ledger) == Spent(Decimal("0.1"), Decimal("0.1"), 100)
    assert [(row.status, row.attempt, row.error_message) for row in load_llm_calls(ledger)] == [
        ("failed", 1, "refused"),
        ("failed", 2, "the connection was lost"),
    ]


def test_budget_can_be_spent_exactly(ledger: SpendLedger) -> None:
    for _ in range(9):
        reserve(ledger)
    with pytest.raises(BudgetExhaustedError, match=r"budget_usd_per_run is 1 USD: 0\.9 USD .* up to 0\.11 USD"):
        reserve(ledger, usd="0.11")
    reserve(ledger)
    assert load_total(ledger).usd_in_run == 1
    with pytest.raises(BudgetExhaustedError, match="pattern was not sent to openai/gpt-4o-mini: budget_usd_per_run"):
        reserve(ledger, usd="0.00000001")


def test_daily_budget_covers_all_runs_of_project(ledger: SpendLedger) -> None:
    for _ in range(5):
        reserve(replace(ledger, job_id=uuid4()), usd="1")
    with pytest.raises(BudgetExhaustedError, match="budget_usd_per_day"):
        reserve(ledger)
    reserve(replace(ledger, project_id=uuid4()))


def test_daily_budget_resets_but_run_budget_stays(ledger: SpendLedger) -> None:
    for job in [uuid4() for _ in range(4)]:
        reserve(replace(ledger, job_id=job), usd="1")
    reserve(ledger, usd="0.9")
    move_to_yesterday(ledger)
    assert load_total(ledger) == Spent(Decimal("0.9"), Decimal(0), 100)
    with pytest.raises(BudgetExhaustedError, match="budget_usd_per_run"):
        reserve(ledger, usd="0.2")
    reserve(ledger)


def test_tokens_have_their_own_budget(ledger: SpendLedger) -> None:
    frugal = replace(ledger, budgets=replace(BUDGETS, tokens_per_run=250))
    reserve(frugal, usd="0")
    reserve(frugal, usd="0")
    with pytest.raises(BudgetExhaustedError, match=r"budget_tokens_per_run is 250: 200 .* up to 100"):
        reserve(frugal, usd="0")


def test_job_attempts_per_prompt_are_limited(ledger: SpendLedger) -> None:
    for _ in range(2):
        reserve(ledger, max_attempts=3)
    ledger.fail(reserve_id(ledger, max_attempts=3), NOTHING, "overloaded")
    with pytest.raises(AttemptsExhaustedError, match=r"3 times by this job, 3 are allowed; the last time: overloaded"):
        reserve(ledger, max_attempts=3)
    reserve(ledger, "other", max_attempts=3)
    assert reserve(replace(ledger, job_id=uuid4()), max_attempts=3) is not None
    assert [row.attempt for row in load_llm_calls(ledger)] == [1, 2, 3, 1, 1]


def test_answered_prompt_is_not_reserved_again(ledger: SpendLedger) -> None:
    ledger.settle(reserve_id(ledger), CALL.max_bill, {"a": 1})
    assert reserve(ledger) is None
    assert reserve(replace(ledger, job_id=uuid4())) is None
    assert reserve(ledger, again=True) is not None


def test_replies_are_shared_within_project_only(ledger: SpendLedger) -> None:
    ledger.settle(reserve_id(ledger), CALL.max_bill, {"a": 1})
    later = replace(ledger, job_id=uuid4())
    assert later.load(["hash", "other"])["hash"].accepted == {"a": 1}
    assert replace(ledger, project_id=uuid4()).load(["hash"]) == {}
    cached = load_llm_calls(ledger)[-1]
    assert (cached.status, cached.job_id, cached.cost_usd, cached.prompt_tokens) == ("cached", later.job_id, 0, 0)
    assert load_total(later).usd_in_run == 0


def test_rejected_replies_belong_to_their_job(ledger: SpendLedger) -> None:
    for reply in ("first", "second"):
        ledger.fail(reserve_id(ledger), CALL.max_bill, f"{reply} is wrong", reply)
    ledger.fail(reserve_id(ledger), NOTHING, "no reply")
    assert ledger.load(["hash"])["hash"].refused == (("first", "first is wrong"), ("second", "second is wrong"))
    assert replace(ledger, job_id=uuid4()).load(["hash"]) == {}


def test_llm_call_ends_only_once(ledger: SpendLedger) -> None:
    call_id = reserve_id(ledger)
    ledger.settle(call_id, None, {})
    with pytest.raises(ConflictError, match="it is not reserved"):
        ledger.fail(call_id, NOTHING, "late")


def test_concurrent_threads_respect_budget(ledger: SpendLedger) -> None:
    def try_to_reserve(number: int) -> bool:
        try:
            return reserve(ledger, f"prompt {number}", "0.07") is not None
        except BudgetExhaustedError:
            return False

    with ThreadPoolExecutor(12) as pool:
        granted = sum(pool.map(try_to_reserve, range(60)))
    assert granted == 14
    assert load_total(ledger).usd_in_run == Decimal("0.98")


def test_concurrent_processes_respect_budget(ledger: SpendLedger) -> None:
    url = ledger.engine.url.render_as_string(hide_password=False)
    fork_server = _fork_server()
    arguments = (url, ledger.project_id, ledger.job_id, fork_server.Barrier(3))
    children = [fork_server.Process(target=_reserve_all, args=arguments) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert load_total(ledger).usd_in_run == 1
    assert len(load_llm_calls(ledger)) == 100


def test_killed_process_keeps_reservation_spent(ledger: SpendLedger) -> None:
    url = ledger.engine.url.render_as_string(hide_password=False)
    child = _fork_server().Process(target=_reserve_and_die, args=(url, ledger.project_id, ledger.job_id))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert load_total(ledger) == Spent(Decimal("0.1"), Decimal("0.1"), 100)
    with pytest.raises(AttemptsExhaustedError, match="the process died"):
        reserve(ledger, max_attempts=1)


def _fork_server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _reserve_all(url: str, project_id: UUID, job_id: UUID, barrier: Any) -> None:
    ledger = SpendLedger(connect_engine(url), project_id, job_id, BUDGETS)
    barrier.wait()
    while True:
        try:
            reserve(ledger, usd="0.01")
        except BudgetExhaustedError:
            return


def _reserve_and_die(url: str, project_id: UUID, job_id: UUID) -> None:
    reserve(SpendLedger(connect_engine(url), project_id, job_id, BUDGETS))
    os.kill(os.getpid(), signal.SIGKILL)


ENDS = st.sampled_from(["settle", "fail", "lose", "crash"])
STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), ENDS, st.integers(0, 40), st.floats(0, 1), st.booleans()), max_size=25
)


@hypothesis_settings(
    max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_call_failures_never_exceed_budget(engine: Engine, steps: list[tuple[str, str, int, float, bool]]) -> None:
    ledger = SpendLedger(engine, uuid4(), uuid4(), replace(BUDGETS, usd_per_day=1.5))
    answered: Counter[str] = Counter()
    for key, end, cents, share, is_new_job in steps:
        ledger = replace(ledger, job_id=uuid4()) if is_new_job else ledger
        try:
            call_id = reserve(ledger, key, str(Decimal(cents) / 100), max_attempts=4)
        except (BudgetExhaustedError, AttemptsExhaustedError):
            continue
        assert (call_id is None) == (answered[key] > 0)
        if call_id is None or end == "crash":
            continue
        bill = Bill(1, 1, (Decimal(cents) / 100 * Decimal(str(round(share, 3)))).quantize(Decimal("0.00000001")))
        if end == "settle":
            ledger.settle(call_id, bill, {"a": 1})
            answered[key] += 1
        else:
            ledger.fail(call_id, None if end == "lose" else bill, end)
        total = load_total(ledger)
        assert total.usd_in_run <= 1
        assert total.usd_in_day <= Decimal("1.5")
    paid = Counter(row.prompt_hash for row in load_llm_calls(ledger) if row.status == "settled")
    assert all(count == 1 for count in paid.values())
