"""One request to a model: reserve, send with retries, parse the reply, check it, settle."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel

from consolidation_pipeline.core.jobs.spending import Bill, Call
from consolidation_pipeline.errors import LLMError, ModelUnavailableError
from consolidation_pipeline.llm.budget import BudgetGate
from consolidation_pipeline.llm.chat_model import ChatModel, Completion
from consolidation_pipeline.llm.prompt import Message, Prompt, hash_prompt
from consolidation_pipeline.llm.provider_errors import describe_error, get_failure_bill, is_permanent
from consolidation_pipeline.llm.reply_parsing import ParsedReply, parse_reply, repair_messages, validate_reply
from consolidation_pipeline.llm.retries import MAX_TIMEOUT_RETRIES, GivenUpError, with_retries

T = TypeVar("T", bound=BaseModel)

Check = Callable[[Prompt, T], Sequence[str]]
"""Lists the problems of a reply that fits its schema; without problems the reply is accepted."""


@dataclass(frozen=True)
class PromptRequest(Generic[T]):
    """A prompt, and the schema and check of its reply. ``key``: its key in the reply cache."""

    prompt: Prompt
    schema: type[T]
    check: Check[T]
    key: str

    def parse(self, completion: Completion) -> ParsedReply[T]:
        """Return the value of a reply, or its problems."""
        if completion.problem is not None:
            return ParsedReply(problems=(completion.problem,))
        return self._checked(parse_reply(completion.text, self.schema))

    def validate_cached(self, content: Any) -> T | None:
        """Return the value of a stored accepted reply; None if it would not be accepted today."""
        return self._checked(validate_reply(content, self.schema)).value

    def _checked(self, parsed: ParsedReply[T]) -> ParsedReply[T]:
        # Texts of one reply that repeat each other have the same problems.
        problems = () if parsed.value is None else tuple(dict.fromkeys(self.check(self.prompt, parsed.value)))
        return ParsedReply(problems=problems) if problems else parsed


def make_request(prompt: Prompt, schema: type[T], check: Check[T], model: str) -> PromptRequest[T]:
    """Return the request of a prompt to a model, with its cache key."""
    return PromptRequest(prompt, schema, check, hash_prompt(prompt, model, schema.model_json_schema()))


@dataclass(frozen=True)
class Reply(Generic[T]):
    """A reply: its value, or the refused text and its problems, one per line. ``usd``: US dollars paid for it."""

    value: T | None
    refused: tuple[str, str]
    usd: Decimal


@dataclass(frozen=True)
class RequestSender:
    """Sender of requests to one model, which reserves and settles them.

    ``wait`` waits seconds before another attempt; it raises an error if the model is not to be asked again.
    """

    model: ChatModel
    gate: BudgetGate
    wait: Callable[[float], None] = time.sleep

    def send(self, request: PromptRequest[T], refused: tuple[str, str] | None, *, again: bool) -> Reply[T] | None:
        """Return a reply, after retries.

        Args:
            request: The request.
            refused: The reply to repair and its problems; None for the first reply.
            again: Send it even if an accepted reply exists. If False, None is returned for it.

        Raises:
            ModelUnavailableError: The model refuses every request, see ``is_permanent``.
            LLMError: No reply came.
            BudgetExhaustedError: The request could exceed a budget.
            AttemptsExhaustedError: The prompt was sent as often as one job may send it.
        """
        messages = self._make_messages(request.prompt, request.schema, refused)
        max_bill = self._max_bill(messages, request.prompt, request.schema)
        call = Call(request.prompt.name, self.model.name, request.key, max_bill)
        try:
            with self.model.span(request.prompt):
                sent = with_retries(
                    lambda: self._send_once(request, messages, call, again=again),
                    timeout_retries=MAX_TIMEOUT_RETRIES,
                    sleep=self.wait,
                )
        except GivenUpError as error:
            failure = self._make_failure(request, error)
        else:
            return None if sent is None else self._settle(request, call, *sent)
        raise failure  # outside of the except block, so that it is not chained: the provider's error may have the key

    def price(self, prompt: Prompt, schema: type[BaseModel], refused: tuple[str, str] | None) -> Bill:
        """Return the largest bill that a reply to a prompt can have; ``refused``: as of ``send``."""
        return self._max_bill(self._make_messages(prompt, schema, refused), prompt, schema)

    def _make_messages(self, prompt: Prompt, schema: type[BaseModel], refused: tuple[str, str] | None) -> list[Message]:
        repair = repair_messages(refused[0], refused[1].split("\n")) if refused else []
        return [*self.model.add_schema(prompt.messages(), schema), *repair]

    def _max_bill(self, messages: Sequence[Message], prompt: Prompt, schema: type[BaseModel]) -> Bill:
        return self.model.pricing.max_bill(messages, schema.model_json_schema(), prompt.max_tokens)

    def _send_once(
        self, request: PromptRequest[T], messages: Sequence[Message], call: Call, *, again: bool
    ) -> tuple[UUID, Completion] | None:
        call_id = self.gate.reserve(call, again=again)
        if call_id is None:
            return None
        try:
            return call_id, self.model.complete(messages, request.schema, request.prompt.max_tokens)
        except Exception as error:
            self.gate.fail(call_id, get_failure_bill(error), self._describe(error))
            raise

    def _settle(self, request: PromptRequest[T], call: Call, call_id: UUID, completion: Completion) -> Reply[T]:
        try:
            parsed = request.parse(completion)
        except Exception as error:  # a bug in a check: the bill is recorded before the error goes on
            self.gate.fail(call_id, completion.bill, f"the check failed: {error!r}", completion.text)
            raise
        usd = (completion.bill or call.max_bill).usd
        if parsed.value is not None:
            self.gate.settle(call_id, completion.bill, parsed.content)
            return Reply(parsed.value, ("", ""), usd)
        problems = "\n".join(parsed.problems)
        self.gate.fail(call_id, completion.bill, problems, completion.text)
        return Reply(None, (completion.text, problems), usd)

    def _make_failure(self, request: PromptRequest[T], error: GivenUpError) -> LLMError:
        reason = self._describe(error.reason)
        if is_permanent(error.reason):
            return ModelUnavailableError(f"{self.model.name} takes no requests: {reason}")
        described = describe_request(request, self.model)
        return LLMError(f"{described} got no reply: attempt {error.attempts} failed: {reason}")

    def _describe(self, error: Exception) -> str:
        return describe_error(error, [self.model.api_key] if self.model.api_key else [])


def describe_request(request: PromptRequest[T], model: ChatModel) -> str:
    """Return the name of a request for messages: its prompt, version, the start of its key, and the model."""
    return f"prompt {request.prompt.name} version {request.prompt.version} ({request.key[:12]}) to {model.name}"
