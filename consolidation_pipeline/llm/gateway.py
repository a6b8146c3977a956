"""Gateway to a language model: budget, reply cache, one repair per reply, and a circuit breaker.

    gateway = Gateway("openai/gpt-4o-mini", SpendLedger(engine, project_id, job_id, budgets))
    outcomes = gateway.ask_many(prompts, PatternReply, check=find_problems)

Every request is reserved in the ledger before it is sent and settled after it. Nothing else sends prompts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Generic, TypeVar

from pydantic import BaseModel

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.errors import (
    AttemptsExhaustedError,
    BudgetExhaustedError,
    InvalidReplyError,
    LLMError,
    MissingReplyError,
    ModelUnavailableError,
)
from consolidation_pipeline.llm.budget import BudgetGate, CallLedger, EarlierReplies
from consolidation_pipeline.llm.chat_model import ChatModel
from consolidation_pipeline.llm.litellm_import import load_litellm
from consolidation_pipeline.llm.pricing import FALLBACK_PRICE, Price, Pricing
from consolidation_pipeline.llm.prompt import Prompt, hash_prompt
from consolidation_pipeline.llm.reply_parsing import parse_reply
from consolidation_pipeline.llm.request import Check, PromptRequest, RequestSender, describe_request, make_request
from consolidation_pipeline.llm.retries import MAX_RETRIES

CONCURRENCY = 4
MAX_REPLIES = 2  # the first one and its repair
MAX_ATTEMPTS = MAX_RETRIES + MAX_REPLIES  # requests of one job for one prompt, over all its resumptions
MAX_FAILURES_IN_A_ROW = 5

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A checked reply. ``usd``: US dollars paid for it now; 0 from the cache."""

    value: T
    usd: Decimal
    is_cached: bool = False


Outcome = Answer[T] | LLMError | BudgetExhaustedError


class Gateway:
    """Gateway to one model for one phase of one job. Safe to use from several threads.

    Args:
        model: Its litellm name.
        ledger: Reserves and records the calls.
        api_base: URL of the provider; None = from the environment, also for ``api_key``.
        api_key: Key of the provider.
        timeout: Seconds per request.
        fallback_price: Price of a model that litellm lists no price for.
        concurrency: Most requests at the same time.
        failures_in_a_row: Number of prompts in a row without a usable reply after which the model is not asked again.
        sleep: Waits between attempts, in seconds; None = until the model is not to be asked again, at most.
    """

    def __init__(
        self,
        model: str,
        ledger: CallLedger,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        timeout: float = 120.0,
        fallback_price: Price = FALLBACK_PRICE,
        concurrency: int = CONCURRENCY,
        failures_in_a_row: int = MAX_FAILURES_IN_A_ROW,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self._model = ChatModel(model, Pricing(model, fallback_price), api_base, api_key, timeout)
        self._ledger = ledger
        self._breaker = CircuitBreaker(model, failures_in_a_row)
        self._sender = RequestSender(self._model, BudgetGate(ledger, max_attempts=MAX_ATTEMPTS), self._wait)
        self._sleep = sleep or self._breaker.wait
        self._concurrency = concurrency

    def ask(self, prompt: Prompt, schema: type[T], *, check: Check[T] = lambda *_: ()) -> Answer[T]:
        """Return the answer to one prompt; raise the error that :meth:`ask_many` would return."""
        [outcome] = self.ask_many([prompt], schema, check=check)
        if isinstance(outcome, Answer):
            return outcome
        raise outcome

    def ask_many(
        self, prompts: Sequence[Prompt], schema: type[T], *, check: Check[T] = lambda *_: ()
    ) -> list[Outcome[T]]:
        """Return the outcome of each prompt, in their order: its answer, or the error that prevented it.

        A failed prompt does not affect the others. Equal prompts are sent once. After a BudgetExhaustedError or a
        ModelUnavailableError the caller should store the answers, which are paid for, and then raise the error.
        ``check`` lists the problems of a reply (see ``reply_checks``). A reply with problems is repaired once. An
        interrupt (Ctrl-C, SIGTERM in Dagster) waits for the replies that are under way, as they are paid for; nothing
        is sent after it.
        """
        load_litellm()  # imported here, so that the threads do not import it at the same time
        requests = [make_request(prompt, schema, check, self._model.name) for prompt in prompts]
        unique: dict[str, PromptRequest[T]] = {}
        for request in requests:
            unique.setdefault(request.key, request)
        earlier = self._ledger.load(list(unique))
        # A thread has no span and no log context unless it runs in a copy of this one.
        contexts = [copy_context() for _ in unique]
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="llm") as pool:
            found = pool.map(lambda c, r: c.run(self._try, r, earlier.get(r.key)), contexts, unique.values())
            try:
                outcomes = dict(zip(unique, found, strict=True))
            except BaseException:
                self._breaker.open("the run was interrupted")
                raise
        listed: list[Outcome[T]] = []
        for request in requests:
            outcome = outcomes[request.key]
            if isinstance(outcome, Answer) and request is not unique[request.key]:
                outcome = replace(outcome, usd=Decimal(0), is_cached=True)
            listed.append(outcome)
        return listed

    def price(self, prompts: Sequence[Prompt], schema: type[BaseModel]) -> dict[str, Bill]:
        """Return the largest bill of the next reply to each prompt that would be sent, by cache key. Sends nothing."""
        keys = {hash_prompt(prompt, self._model.name, schema.model_json_schema()): prompt for prompt in prompts}
        earlier = self._ledger.find(list(keys)) if keys else {}
        bills = {}
        for key, prompt in keys.items():
            accepted, refused = (earlier[key].accepted, earlier[key].refused) if key in earlier else (None, ())
            if accepted is None and len(refused) < MAX_REPLIES:
                bills[key] = self._sender.price(prompt, schema, refused[-1] if refused else None)
        return bills

    def _wait(self, seconds: float) -> None:
        self._sleep(seconds)
        self._breaker.check()

    def _try(self, request: PromptRequest[T], earlier: EarlierReplies | None) -> Outcome[T]:
        try:
            return self._answer(request, earlier)
        except (LLMError, BudgetExhaustedError) as error:
            return error

    def _answer(self, request: PromptRequest[T], earlier: EarlierReplies | None) -> Answer[T]:
        accepted, refused = (earlier.accepted, earlier.refused) if earlier else (None, ())
        cached = None if accepted is None else request.validate_cached(accepted)
        if cached is not None:
            return Answer(cached, Decimal(0), is_cached=True)
        if len(refused) >= MAX_REPLIES:
            raise self._make_invalid_error(request, refused[-1])
        answer = self._ask_model(request, refused, again=accepted is not None)
        return answer or self._answer(request, self._ledger.load([request.key]).get(request.key))

    def _ask_model(
        self, request: PromptRequest[T], refused: Sequence[tuple[str, str]], *, again: bool
    ) -> Answer[T] | None:
        """Return a paid answer; None if another process asked in the meantime, so that its reply is looked up."""
        self._breaker.check()
        try:
            with self._ledger.claim(request.key) as is_first:
                answer = self._ask_and_repair(request, refused, again=again) if is_first else None
        except (AttemptsExhaustedError, MissingReplyError):
            raise  # says nothing about the state of the model now
        except LLMError as error:
            self._breaker.record_failure(error)
            raise
        if answer is not None:
            self._breaker.record_success()
        return answer

    def _ask_and_repair(
        self, request: PromptRequest[T], refused: Sequence[tuple[str, str]], *, again: bool
    ) -> Answer[T] | None:
        usd, last = Decimal(0), refused[-1] if refused else None
        for _ in range(MAX_REPLIES - len(refused)):
            self._breaker.check()
            reply = self._sender.send(request, last, again=again)
            if reply is None:
                return None
            usd += reply.usd
            if reply.value is not None:
                return Answer(reply.value, usd)
            last = reply.refused
        raise self._make_invalid_error(request, last)

    def _make_invalid_error(self, request: PromptRequest[T], refused: tuple[str, str] | None) -> InvalidReplyError:
        text, listed = refused or ("", "nothing came back")
        problems = "; ".join(listed.split("\n"))
        described = describe_request(request, self._model)
        return InvalidReplyError(
            f"{described} got {MAX_REPLIES} unusable replies: {problems}",
            is_readable=parse_reply(text, request.schema).value is not None,
        )


class CircuitBreaker:
    """Counter of prompts in a row without a usable reply. Threads may share it.

    Opens for good at ``limit``, or at once if the model takes no requests.
    """

    def __init__(self, model: str, limit: int = MAX_FAILURES_IN_A_ROW) -> None:
        self._model = model
        self._limit = limit
        self._failures = 0
        self._reason: str | None = None
        self._lock = threading.Lock()
        self._opened = threading.Event()

    def open(self, reason: str) -> None:
        """Open the breaker, if it is not open yet."""
        with self._lock:
            self._reason = self._reason or reason
            self._opened.set()

    def wait(self, seconds: float) -> None:
        """Wait, at most until the breaker opens."""
        self._opened.wait(seconds)

    def check(self) -> None:
        """Raise ModelUnavailableError if the breaker is open."""
        with self._lock:
            if self._reason is not None:
                raise ModelUnavailableError(self._reason)

    def record_failure(self, error: Exception) -> None:
        """Count a prompt that got no usable reply; a ModelUnavailableError opens the breaker."""
        with self._lock:
            self._failures += 1
            failures = self._failures
        if isinstance(error, ModelUnavailableError):
            self.open(str(error))
        elif failures >= self._limit:
            self.open(
                f"{self._model} failed for {failures} prompts in a row, so no more are sent; the last time: {error}"
            )

    def record_success(self) -> None:
        """Reset the count."""
        with self._lock:
            self._failures = 0
