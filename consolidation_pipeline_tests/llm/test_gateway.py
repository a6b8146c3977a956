"""The LLM gateway through litellm over HTTP: replies, repairs, retries, caching and errors."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
import traceback
from decimal import Decimal
from typing import Any

import pytest

from consolidation_pipeline.errors import (
    AttemptsExhaustedError,
    ConsolidationError,
    InvalidReplyError,
    LLMError,
    ModelUnavailableError,
)
from consolidation_pipeline.llm.gateway import CONCURRENCY, Answer, Gateway
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline_tests.llm.patterns import (
    API_KEY,
    REPLY_COST,
    VALID_REPLY,
    Connect,
    Pattern,
    find_problems,
    make_prompt,
    sum_spent,
    valid_reply,
)
from consolidation_pipeline_tests.openai_server import (
    Behaviour,
    OpenAIServer,
    Reply,
    Request,
    change_numbers,
    drop_connection,
    drop_numbers,
    invent_quotes,
    invent_unit_ids,
    json_response,
    never_reply,
    record_concurrency,
    reply_with_broken_json,
    reply_with_error,
    reply_with_json,
    reply_with_refusal,
    reply_with_text,
    truncate_half,
    wrap_in_markdown,
    wrap_in_prose,
)
from consolidation_pipeline_tests.store.sample_rows import load_llm_calls

INVALID_REPLIES: dict[str, tuple[Behaviour, str]] = {
    "malformed": (reply_with_json(valid_reply, write=truncate_half), "no complete JSON object"),
    "prose": (reply_with_text("There is no pattern."), "no complete JSON object"),
    "empty": (reply_with_text(""), "the reply is empty"),
    "refusal": (reply_with_refusal, "the model refused: I cannot help"),
    "too long": (reply_with_text(json.dumps(VALID_REPLY), finish_reason="length"), "cut off"),
    "huge": (reply_with_text(json.dumps(VALID_REPLY) + " " * 1_000_000), "more than 500 tokens"),
    "filtered": (reply_with_text(json.dumps(VALID_REPLY), finish_reason="content_filter"), "content filter"),
    "out of range": (reply_with_json(lambda _: {**VALID_REPLY, "confidence": 7}), "confidence: Input should be less"),
    "wrong ids": (reply_with_json(valid_reply, edit=invent_unit_ids), "'999' is not one of the given memories: 1, 2"),
    "invented quotes": (reply_with_json(valid_reply, edit=invent_quotes), "is not what memory '1' says"),
    "other numbers": (reply_with_json(valid_reply, edit=change_numbers), "stands in none of the memories"),
    "no choices": (lambda _: json_response({"choices": [], "usage": {"prompt_tokens": 1, "total_tokens": 1}}), "empty"),
}
invalid_replies = pytest.mark.parametrize(("behaviour", "problem"), INVALID_REPLIES.values(), ids=INVALID_REPLIES)


def test_reply_is_parsed_and_settled(provider: OpenAIServer, gateway: Gateway, ledger: SpendLedger) -> None:
    answer = gateway.ask(make_prompt(), Pattern, check=find_problems)
    assert answer == Answer(Pattern.model_validate(VALID_REPLY), REPLY_COST)
    [row] = load_llm_calls(ledger)
    assert (row.status, row.purpose, row.prompt_tokens, row.completion_tokens) == ("settled", "pattern", 100, 20)
    assert (row.cost_usd, row.response, row.job_id) == (REPLY_COST, VALID_REPLY, ledger.job_id)
    assert row.reserved_usd > REPLY_COST
    assert len(provider.requests) == 1


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "openai/our-own-model"])
def test_price_equals_reservation(provider: OpenAIServer, connect: Connect, ledger: SpendLedger, model: str) -> None:
    gateway, prompts = connect(model=model), [make_prompt(1), make_prompt(2, max_tokens=900), make_prompt(1)]
    prices = gateway.price(prompts, Pattern)
    assert len(prices) == 2
    assert not provider.requests
    assert not load_llm_calls(ledger)
    gateway.ask_many(prompts, Pattern)
    assert {row.prompt_hash: row.reserved_usd for row in load_llm_calls(ledger)} == {
        key: bill.usd for key, bill in prices.items()
    }


def test_price_is_that_of_next_request(provider: OpenAIServer, gateway: Gateway, ledger: SpendLedger) -> None:
    prompts = [make_prompt(number) for number in (1, 2, 3)]
    gateway.ask(prompts[0], Pattern)
    provider.then(reply_with_text("nonsense"), reply_with_error(400), *[reply_with_text("nonsense")] * 2)
    for prompt in prompts[1:]:
        with pytest.raises(LLMError):
            gateway.ask(prompt, Pattern)
    [repair] = gateway.price(prompts, Pattern).values()
    gateway.ask(prompts[1], Pattern)
    assert load_llm_calls(ledger)[-1].reserved_usd == repair.usd


def test_schema_is_sent_as_response_format(provider: OpenAIServer, gateway: Gateway) -> None:
    gateway.ask(make_prompt(), Pattern)
    body = provider.requests[0].body
    assert body["response_format"]["json_schema"]["name"] == "Pattern"
    assert (body["temperature"], body["max_tokens"]) == (0.2, 500)
    assert "JSON schema" not in body["messages"][0]["content"]


def test_schema_is_put_in_system_text_if_unsupported(provider: OpenAIServer, connect: Connect) -> None:
    connect(model="openai/our-own-model").ask(make_prompt(), Pattern)
    body = provider.requests[0].body
    assert body["response_format"] == {"type": "json_object"}
    assert json.dumps(Pattern.model_json_schema()) in body["messages"][0]["content"]


def test_temperature_is_omitted_if_unsupported(provider: OpenAIServer, connect: Connect) -> None:
    connect(model="openai/gpt-5-mini").ask(make_prompt(), Pattern)
    assert "temperature" not in provider.requests[0].body


@pytest.mark.parametrize("write", [wrap_in_markdown, wrap_in_prose])
def test_fences_and_prose_around_reply_are_ignored(provider: OpenAIServer, gateway: Gateway, write: Any) -> None:
    provider.behaviour = reply_with_json(valid_reply, write=write)
    assert gateway.ask(make_prompt(), Pattern, check=find_problems).value.confidence == 0.9
    assert len(provider.requests) == 1


@invalid_replies
def test_invalid_reply_is_repaired_once(
    provider: OpenAIServer, gateway: Gateway, ledger: SpendLedger, behaviour: Behaviour, problem: str
) -> None:
    provider.then(behaviour)
    assert gateway.ask(make_prompt(), Pattern, check=find_problems).value == Pattern.model_validate(VALID_REPLY)
    first, second = provider.requests
    assert second.body["messages"][:2] == first.body["messages"]
    assert problem in second.body["messages"][3]["content"]
    assert [row.status for row in load_llm_calls(ledger)] == ["failed", "settled"]
    assert [row.attempt for row in load_llm_calls(ledger)] == [1, 2]


@invalid_replies
def test_second_invalid_reply_is_final(
    provider: OpenAIServer, connect: Connect, ledger: SpendLedger, behaviour: Behaviour, problem: str
) -> None:
    provider.behaviour = behaviour
    for _ in range(2):
        with pytest.raises(InvalidReplyError, match=r"pattern version 1 .* got 2 unusable replies") as caught:
            connect().ask(make_prompt(), Pattern, check=find_problems)
        assert problem in str(caught.value)
    assert len(provider.requests) == 2
    assert [row.status for row in load_llm_calls(ledger)] == ["failed", "failed"]


def test_reply_check_finds_dropped_numbers(provider: OpenAIServer, gateway: Gateway) -> None:
    provider.behaviour = reply_with_json(valid_reply, edit=drop_numbers)
    with pytest.raises(InvalidReplyError, match="is not what memory '1' says"):
        gateway.ask(make_prompt(), Pattern, check=find_problems)


def test_repair_resumes_after_failure(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    provider.then(reply_with_text("nonsense"), reply_with_error(400))
    with pytest.raises(LLMError, match="got no reply"):
        connect().ask(make_prompt(), Pattern)
    connect().ask(make_prompt(), Pattern)
    assert provider.requests[2].body["messages"] == provider.requests[1].body["messages"]
    assert [row.status for row in load_llm_calls(ledger)] == ["failed", "failed", "settled"]


def test_error_in_check_propagates_after_payment(provider: OpenAIServer, gateway: Gateway, ledger: SpendLedger) -> None:
    def fail(*_: object) -> list[str]:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        gateway.ask(make_prompt(), Pattern, check=fail)
    [row] = load_llm_calls(ledger)
    assert (row.status, row.cost_usd) == ("failed", REPLY_COST)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
def test_rejected_request_is_free_and_not_retried(
    provider: OpenAIServer, gateway: Gateway, ledger: SpendLedger, waits: list[float], status: int
) -> None:
    provider.behaviour = reply_with_error(status)
    told = "got no reply: attempt 1 failed" if status in (400, 422) else "takes no requests"
    with pytest.raises(LLMError, match=f"{told}.*: .*test error with status {status}"):
        gateway.ask(make_prompt(), Pattern)
    assert (len(provider.requests), waits) == (1, [])
    assert sum_spent(ledger) == 0


@pytest.mark.parametrize(
    ("behaviour", "is_billed"),
    [
        *((reply_with_error(status), False) for status in (429, 500, 503, 529)),
        *((reply_with_error(status), True) for status in (502, 504)),
        (reply_with_broken_json, True),
        (drop_connection, True),
    ],
    ids=["429", "500", "503", "529", "502", "504", "truncated", "dropped"],
)
def test_transient_error_is_tried_four_times(
    provider: OpenAIServer,
    gateway: Gateway,
    ledger: SpendLedger,
    waits: list[float],
    behaviour: Behaviour,
    is_billed: bool,
) -> None:
    provider.behaviour = behaviour
    with pytest.raises(LLMError, match="attempt 4 failed"):
        gateway.ask(make_prompt(), Pattern)
    assert len(provider.requests) == 4
    assert all(least <= wait <= 1.5 * least for wait, least in zip(waits, [1, 2, 4], strict=True))
    rows = load_llm_calls(ledger)
    assert [(row.status, row.attempt) for row in rows] == [("failed", n) for n in (1, 2, 3, 4)]
    assert all(row.cost_usd == (row.reserved_usd if is_billed else 0) for row in rows)


def test_gateway_honors_retry_after(provider: OpenAIServer, gateway: Gateway, waits: list[float]) -> None:
    provider.then(reply_with_error(429, retry_after=7), reply_with_error(500))
    gateway.ask(make_prompt(), Pattern)
    assert 7 <= waits[0] <= 10.5
    assert 2 <= waits[1] <= 3


def test_timeout_counts_as_spent(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    provider.behaviour = never_reply
    with pytest.raises(LLMError, match=r"attempt 2 failed: .*[Tt]ime"):
        connect(timeout=0.1).ask(make_prompt(), Pattern)
    assert all(row.cost_usd == row.reserved_usd > 0 for row in load_llm_calls(ledger))


def test_hanging_model_is_given_up(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    provider.behaviour = never_reply
    # Longest time: a first request alone, then twice two requests for each of the prompts that are asked at once.
    outcomes = connect(timeout=0.2).ask_many([make_prompt(number) for number in range(30)], Pattern)
    assert all(isinstance(one, LLMError) for one in outcomes)
    assert len(provider.requests) <= 2 * 8
    assert len(load_llm_calls(ledger)) == len(provider.requests)


def test_unreachable_server_costs_nothing(connect: Connect, ledger: SpendLedger) -> None:
    unreachable = connect(api_base="http://127.0.0.1:9/v1")
    with pytest.raises(LLMError, match="attempt 4 failed"):
        unreachable.ask(make_prompt(), Pattern)
    assert sum_spent(ledger) == 0


def test_reply_without_usage_costs_reservation(provider: OpenAIServer, gateway: Gateway, ledger: SpendLedger) -> None:
    provider.behaviour = reply_with_json(valid_reply, usage=None)
    answer = gateway.ask(make_prompt(), Pattern)
    [row] = load_llm_calls(ledger)
    assert answer.usd == row.cost_usd == row.reserved_usd > 0
    assert row.completion_tokens == 500


def test_job_sends_prompt_at_most_five_times(provider: OpenAIServer, connect: Connect) -> None:
    provider.behaviour = reply_with_error(500)
    with pytest.raises(LLMError, match="attempt 4"):
        connect().ask(make_prompt(), Pattern)
    for _ in range(2):
        with pytest.raises(AttemptsExhaustedError, match=r"5 times by this job, 5 are allowed; the last time: .*500"):
            connect().ask(make_prompt(), Pattern)
    assert len(provider.requests) == 5


def test_cached_reply_costs_nothing(provider: OpenAIServer, connect: Connect, ledger: SpendLedger) -> None:
    paid = connect().ask(make_prompt(), Pattern, check=find_problems)
    cached = connect().ask(make_prompt(), Pattern, check=find_problems)
    assert cached == Answer(paid.value, Decimal(0), is_cached=True)
    assert (len(provider.requests), sum_spent(ledger)) == (1, REPLY_COST)
    assert [row.status for row in load_llm_calls(ledger)] == ["settled", "cached"]


def test_cache_key_covers_prompt_model_and_schema(provider: OpenAIServer, connect: Connect) -> None:
    class Other(Pattern):
        pass

    connect().ask(make_prompt(), Pattern)
    connect().ask(make_prompt(version=2), Pattern)
    connect().ask(make_prompt(sources=("other",)), Pattern)
    connect().ask(make_prompt(), Other)
    connect(model="openai/gpt-4o").ask(make_prompt(), Pattern)
    assert len(provider.requests) == 5


def test_cached_reply_failing_check_is_requested_again(provider: OpenAIServer, gateway: Gateway) -> None:
    gateway.ask(make_prompt(), Pattern)
    provider.behaviour = reply_with_json(lambda _: {**VALID_REPLY, "confidence": 0.5})
    answer = gateway.ask(make_prompt(), Pattern, check=lambda _, reply: ["too sure"] if reply.confidence > 0.5 else [])
    assert (answer.value.confidence, answer.is_cached) == (0.5, False)


def test_failing_prompt_does_not_affect_others(provider: OpenAIServer, gateway: Gateway) -> None:
    failures = {"Question 2.": reply_with_error(400), "Question 3.": reply_with_text("")}

    def fail_for_two(request: Request) -> Reply | None:
        text = request.body["messages"][1]["content"]
        return next((reply for question, reply in failures.items() if question in text), reply_with_json(valid_reply))(
            request
        )

    provider.behaviour = fail_for_two
    outcomes = gateway.ask_many([make_prompt(n) for n in range(6)], Pattern)
    kinds = [Answer, Answer, LLMError, InvalidReplyError, Answer, Answer]
    assert [type(outcome) for outcome in outcomes] == kinds


def test_equal_prompts_are_sent_once(provider: OpenAIServer, gateway: Gateway) -> None:
    outcomes = gateway.ask_many([make_prompt(), make_prompt(1), make_prompt()], Pattern)
    answers = [(answer.usd, answer.is_cached) for answer in outcomes if isinstance(answer, Answer)]
    assert answers == [(REPLY_COST, False), (REPLY_COST, False), (0, True)]
    assert len(provider.requests) == 2
    assert gateway.ask_many([], Pattern) == []


def test_gateway_limits_concurrent_requests(provider: OpenAIServer, gateway: Gateway) -> None:
    gateway.ask(make_prompt(99), Pattern)  # until the first bill is known, requests are made one at a time
    provider.behaviour, running = record_concurrency(CONCURRENCY, reply_with_json(valid_reply))
    gateway.ask_many([make_prompt(n) for n in range(3 * CONCURRENCY)], Pattern)
    assert running == [0, CONCURRENCY]


@pytest.mark.parametrize(
    ("behaviour", "per_prompt"), [(reply_with_error(400), 1), (reply_with_text("no"), 2), (reply_with_error(500), 4)]
)
def test_gateway_stops_after_five_failures_in_row(
    provider: OpenAIServer, connect: Connect, behaviour: Behaviour, per_prompt: int
) -> None:
    provider.behaviour = behaviour
    gateway = connect(concurrency=1)
    outcomes = gateway.ask_many([make_prompt(n) for n in range(20)], Pattern)
    assert [type(outcome) is ModelUnavailableError for outcome in outcomes] == [False] * 5 + [True] * 15
    assert "failed for 5 prompts in a row, so no more are sent; the last time: " in str(outcomes[-1])
    assert all(getattr(outcome, "is_readable", None) is not True for outcome in outcomes)
    assert len(provider.requests) == 5 * per_prompt
    provider.behaviour = reply_with_json(valid_reply)
    with pytest.raises(ModelUnavailableError):
        gateway.ask(make_prompt(99), Pattern)
    assert connect().ask(make_prompt(99), Pattern).value.confidence == 0.9


def interrupt_before(behaviour: Behaviour) -> Behaviour:
    """Return a behaviour that interrupts the main thread of this process, and replies a little later."""

    def reply(request: Request) -> Reply | None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
        return behaviour(request)

    return reply


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [
        (reply_with_json(valid_reply), "settled"),
        (reply_with_text("nonsense"), "failed"),
        (reply_with_error(429, retry_after=60), "failed"),
    ],
    ids=["valid", "refused", "to be sent again"],
)
def test_interrupt_keeps_reply_under_way_and_sends_nothing_more(
    provider: OpenAIServer, connect: Connect, ledger: SpendLedger, behaviour: Behaviour, status: str
) -> None:
    provider.behaviour = interrupt_before(behaviour)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        connect(concurrency=1, sleep=None).ask_many([make_prompt(number) for number in range(3)], Pattern)
    assert time.monotonic() - began < 10
    [row] = load_llm_calls(ledger)
    assert (row.status, len(provider.requests)) == (status, 1)
    assert (row.response is None) == (row.error_message is not None and "429" in row.error_message)


def reply_with_message(message: str, status: int) -> Behaviour:
    """Return a behaviour that replies with an error and this message."""
    return lambda _: json_response({"error": {"message": message, "type": "test", "code": None}}, status=status)


@pytest.mark.parametrize(
    "behaviour",
    [
        *(reply_with_error(status) for status in (401, 403, 404)),
        reply_with_message("The model `our-own-model` does not exist", 400),
        reply_with_message("insufficient_quota: you exceeded your current quota", 429),
    ],
    ids=["401", "403", "404", "unknown model", "no credit"],
)
def test_gateway_stops_at_once_if_model_takes_nothing(
    provider: OpenAIServer, connect: Connect, ledger: SpendLedger, waits: list[float], behaviour: Behaviour
) -> None:
    provider.behaviour = behaviour
    outcomes = connect(concurrency=1).ask_many([make_prompt(n) for n in range(20)], Pattern)
    assert {type(outcome) for outcome in outcomes} == {ModelUnavailableError}
    assert (len(provider.requests), waits, sum_spent(ledger)) == (1, [], 0)


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "gemini/gemini-2.0-flash", "no-provider/x", "gpt-9-nonsense"])
def test_request_that_never_left_costs_nothing(
    connect: Connect,
    ledger: SpendLedger,
    waits: list[float],
    monkeypatch: pytest.MonkeyPatch,
    model: str,
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    outcomes = connect(model=model, api_key=None, concurrency=1).ask_many([make_prompt(n) for n in range(3)], Pattern)
    assert {type(outcome) for outcome in outcomes} == {ModelUnavailableError}
    [row] = load_llm_calls(ledger)
    assert (row.status, row.cost_usd, row.prompt_tokens + row.completion_tokens, waits) == ("failed", 0, 0, [])
    assert "credential" in row.error_message or "API key" in row.error_message or "Provider NOT" in row.error_message
    assert "Traceback" not in str(row) + str(outcomes[0])
    assert ".py" not in str(row) + str(outcomes[0])


def test_address_without_scheme_is_told_at_once(connect: Connect, ledger: SpendLedger, waits: list[float]) -> None:
    with pytest.raises(ModelUnavailableError, match="protocol"):
        connect(api_base="localhost:8000/v1").ask(make_prompt(), Pattern)
    assert (waits, sum_spent(ledger)) == ([], 0)


def test_success_resets_failure_count(provider: OpenAIServer, connect: Connect) -> None:
    for _ in range(4):
        provider.then(*[reply_with_error(400)] * 4, reply_with_json(valid_reply))
    outcomes = connect(concurrency=1).ask_many([make_prompt(n) for n in range(20)], Pattern)
    assert [isinstance(outcome, Answer) for outcome in outcomes] == ([False] * 4 + [True]) * 4


def test_cache_answers_after_gateway_stopped(provider: OpenAIServer, connect: Connect) -> None:
    connect().ask(make_prompt(7), Pattern)
    provider.behaviour = reply_with_error(401)
    gateway = connect(failures_in_a_row=1)
    with pytest.raises(LLMError):
        gateway.ask(make_prompt(8), Pattern)
    assert gateway.ask(make_prompt(7), Pattern).is_cached


def test_gateway_never_leaks_api_key(
    provider: OpenAIServer,
    connect: Connect,
    ledger: SpendLedger,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def echo_key(request: Request) -> Reply:
        error = {"message": f"wrong key {request.headers['authorization']}", "type": "auth", "code": None}
        return json_response({"error": error}, status=401 if "1." in request.body["messages"][1]["content"] else 500)

    provider.behaviour = echo_key
    with caplog.at_level(logging.DEBUG):
        outcomes = connect().ask_many([make_prompt(1), make_prompt(2)], Pattern)
    for outcome in outcomes:
        assert isinstance(outcome, ConsolidationError)
        assert "wrong key Bearer [redacted]" in str(outcome)
        assert API_KEY not in "".join(traceback.format_exception(outcome))
        assert outcome.__cause__ is None
        assert outcome.__context__ is None
    assert all(API_KEY not in str(row) for row in load_llm_calls(ledger))
    assert API_KEY not in caplog.text
    assert API_KEY not in "".join(capfd.readouterr())
    assert f"Bearer {API_KEY}" in provider.requests[0].headers["authorization"]


def test_gateway_prints_nothing_on_errors(
    provider: OpenAIServer, gateway: Gateway, capfd: pytest.CaptureFixture[str]
) -> None:
    provider.then(reply_with_error(500), reply_with_text("nonsense"))
    gateway.ask(make_prompt(), Pattern)
    assert capfd.readouterr() == ("", "")
