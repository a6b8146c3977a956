"""The one way to a language model: within the budget, from the cache where possible, and only with checked replies.

    gateway = Gateway("openai/gpt-4o-mini", SpendLedger(engine, project_id, job_id, budgets))
    outcomes = gateway.ask_many(prompts, PatternReply, check=find_problems)

Every request is reserved in the ledger before it is sent and settled after: no reservation, no request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Generic, TypeVar

from pydantic import BaseModel

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.errors import AttemptsExhaustedError, BudgetExhaustedError, InvalidReplyError, LLMError
from consolidation_pipeline.llm.budget import BudgetGate, CallLedger, EarlierReplies
from consolidation_pipeline.llm.chat_model import ChatModel
from consolidation_pipeline.llm.circuit_breaker import MAX_FAILURES_IN_A_ROW, CircuitBreaker
from consolidation_pipeline.llm.litellm_import import load_litellm
from consolidation_pipeline.llm.pricing import FALLBACK_PRICE, Price, Pricing
from consolidation_pipeline.llm.prompt import Prompt, hash_prompt
from consolidation_pipeline.llm.request import Check, PromptRequest, RequestSender, describe_request, make_request
from consolidation_pipeline.llm.retries import MAX_RETRIES

CONCURRENCY = 4
MAX_REPLIES = 2  # the first one, and its repair
MAX_ATTEMPTS = MAX_RETRIES + MAX_REPLIES  # requests that one job makes for one prompt, however often it is resumed

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Answer(Generic[T]):
    """A checked reply. ``usd``: what the replies to this prompt cost now, US dollars; 0 from the cache."""

    value: T
    usd: Decimal
    is_cached: bool = False


class Gateway:
    """A model by its litellm name, for one phase of one job. Safe to use from several threads.

    ``api_base``, ``api_key``: None is what litellm reads from the environment. ``timeout``: seconds, per request.
    ``fallback_price``: what counts for a model that litellm lists no price for, US dollars per million tokens.
    ``concurrency``: most requests at once. ``failures_in_a_row``: prompts without a usable reply after which the model
    is not asked again by this gateway. ``sleep`` waits between attempts.
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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model = ChatModel(model, Pricing(model, fallback_price), api_base, api_key, timeout)
        self._ledger = ledger
        self._asker = RequestSender(self._model, BudgetGate(ledger, max_attempts=MAX_ATTEMPTS), sleep)
        self._breaker = CircuitBreaker(model, failures_in_a_row)
        self._concurrency = concurrency

    def ask(self, prompt: Prompt, schema: type[T], *, check: Check[T] = lambda *_: ()) -> Answer[T]:
        """The answer to one prompt, as by :meth:`ask_many`; what that returns as an error is raised."""
        [outcome] = self.ask_many([prompt], schema, check=check)
        if isinstance(outcome, Answer):
            return outcome
        raise outcome

    def ask_many(
        self, prompts: Sequence[Prompt], schema: type[T], *, check: Check[T] = lambda *_: ()
    ) -> list[Answer[T] | LLMError | BudgetExhaustedError]:
        """An outcome for each prompt, in their order: the answer, or why there is none; none harms another.

        A reply must fit ``schema`` and pass ``check``, which lists what is wrong (see ``guards``); one that does not is
        repaired once. Equal prompts are asked once. Who meets a BudgetExhaustedError or a ModelUnavailableError should
        keep the answers, which are paid for, and raise it then.
        """
        load_litellm()  # here, so that the threads do not import it against each other
        questions = [make_request(prompt, schema, check, self._model.name) for prompt in prompts]
        unique: dict[str, PromptRequest[T]] = {}
        for question in questions:
            unique.setdefault(question.key, question)
        earlier = self._ledger.load(list(unique))
        # Threads know nothing of the span and the job that they work for unless they are handed the context.
        contexts = [copy_context() for _ in unique]
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="llm") as pool:
            found = pool.map(lambda c, q: c.run(self._try, q, earlier.get(q.key)), contexts, unique.values())
            outcomes = dict(zip(unique, found, strict=True))
        return [_as_asked(outcomes[q.key], is_repeat=q is not unique[q.key]) for q in questions]

    def price(self, prompts: Sequence[Prompt], schema: type[BaseModel]) -> dict[str, Bill]:
        """The most that the first reply to each prompt may be billed, by its key in the cache. Nothing is sent."""
        keys = {hash_prompt(prompt, self._model.name, schema.model_json_schema()): prompt for prompt in prompts}
        return {key: self._asker.price(prompt, schema) for key, prompt in keys.items()}

    def _try(
        self, question: PromptRequest[T], earlier: EarlierReplies | None
    ) -> Answer[T] | LLMError | BudgetExhaustedError:
        try:
            return self._answer(question, earlier)
        except (LLMError, BudgetExhaustedError) as error:
            return error

    def _answer(self, question: PromptRequest[T], earlier: EarlierReplies | None) -> Answer[T]:
        accepted, refused = (earlier.accepted, earlier.refused) if earlier else (None, ())
        cached = None if accepted is None else question.read_cached(accepted)
        if cached is not None:
            return Answer(cached, Decimal(0), is_cached=True)
        if len(refused) >= MAX_REPLIES:
            raise self._invalid(question, refused[-1])
        answer = self._ask_model(question, refused, again=accepted is not None)
        return answer or self._answer(question, self._ledger.load([question.key])[question.key])

    def _ask_model(
        self, question: PromptRequest[T], refused: Sequence[tuple[str, str]], *, again: bool
    ) -> Answer[T] | None:
        """The answer, paid for; None: another process has paid for one by now."""
        self._breaker.check()
        try:
            answer = self._converse(question, refused, again=again)
        except AttemptsExhaustedError:
            raise  # says nothing about the model as it is now
        except LLMError as error:
            self._breaker.failed(error)
            raise
        self._breaker.succeeded()
        return answer

    def _converse(
        self, question: PromptRequest[T], refused: Sequence[tuple[str, str]], *, again: bool
    ) -> Answer[T] | None:
        usd, last = Decimal(0), refused[-1] if refused else None
        for _ in range(MAX_REPLIES - len(refused)):
            reply = self._asker.ask(question, last, again=again)
            if reply is None:
                return None
            usd += reply.usd
            if reply.value is not None:
                return Answer(reply.value, usd)
            last = reply.refused
        raise self._invalid(question, last)

    def _invalid(self, question: PromptRequest[T], refused: tuple[str, str] | None) -> InvalidReplyError:
        wrong = "; ".join(refused[1].split("\n")) if refused else "nothing came back"
        return InvalidReplyError(
            f"{describe_request(question, self._model)} got {MAX_REPLIES} unusable replies: {wrong}"
        )


def _as_asked(
    outcome: Answer[T] | LLMError | BudgetExhaustedError, *, is_repeat: bool
) -> Answer[T] | LLMError | BudgetExhaustedError:
    return replace(outcome, usd=Decimal(0), is_cached=True) if is_repeat and isinstance(outcome, Answer) else outcome
