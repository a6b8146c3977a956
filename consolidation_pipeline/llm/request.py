"""One question to a model: reserved, sent, retried, read, judged and settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel

from consolidation_pipeline.core.jobs.spending import Bill, Call
from consolidation_pipeline.errors import LLMError
from consolidation_pipeline.llm.budget import BudgetGate
from consolidation_pipeline.llm.chat_model import ChatModel, Completion, get_failure_bill
from consolidation_pipeline.llm.prompt import Message, Prompt, hash_prompt
from consolidation_pipeline.llm.redaction import redact
from consolidation_pipeline.llm.reply_parsing import ParsedReply, parse_reply, repair_messages, validate_reply
from consolidation_pipeline.llm.retries import GivenUpError, with_retries

_LONGEST_ERROR = 2000  # characters: some providers answer with whole pages

T = TypeVar("T", bound=BaseModel)

Check = Callable[[Prompt, T], Sequence[str]]
"""What is wrong with a reply that fits its schema; nothing = it is accepted."""


@dataclass(frozen=True)
class PromptRequest(Generic[T]):
    """A prompt, and what its reply must be. ``key`` is the reply cache's."""

    prompt: Prompt
    schema: type[T]
    check: Check[T]
    key: str

    def read(self, completion: Completion) -> ParsedReply[T]:
        """The value of a reply, or what is wrong with it."""
        if completion.problem is not None:
            return ParsedReply(problems=(completion.problem,))
        return self._checked(parse_reply(completion.text, self.schema))

    def read_cached(self, content: Any) -> T | None:
        """The value of an accepted reply; None when it would not be accepted today."""
        return self._checked(validate_reply(content, self.schema)).value

    def _checked(self, reading: ParsedReply[T]) -> ParsedReply[T]:
        problems = () if reading.value is None else tuple(self.check(self.prompt, reading.value))
        return ParsedReply(problems=problems) if problems else reading


def make_request(prompt: Prompt, schema: type[T], check: Check[T], model: str) -> PromptRequest[T]:
    """The question, with its key."""
    return PromptRequest(prompt, schema, check, hash_prompt(prompt, model, schema.model_json_schema()))


@dataclass(frozen=True)
class Reply(Generic[T]):
    """What came back: a value, or the text that was refused and why, a line each. ``usd``: what it cost."""

    value: T | None
    refused: tuple[str, str]
    usd: Decimal


@dataclass(frozen=True)
class RequestSender:
    """Sends questions to one model and pays for them; ``sleep`` waits between attempts."""

    model: ChatModel
    purse: BudgetGate
    sleep: Callable[[float], None] = time.sleep

    def ask(self, question: PromptRequest[T], refused: tuple[str, str] | None, *, again: bool) -> Reply[T] | None:
        """A reply, after retries; ``refused``: the reply to be repaired. None: there is an accepted one by now.

        ``again``: ask even so.

        Raises:
            LLMError: no reply came. BudgetExhaustedError, AttemptsExhaustedError: it may not be sent.
        """
        repair = repair_messages(refused[0], refused[1].split("\n")) if refused else []
        messages = [*self.model.with_schema(question.prompt.messages(), question.schema), *repair]
        most = self._most(messages, question.prompt, question.schema)
        call = Call(question.prompt.name, self.model.name, question.key, most)
        try:
            with self.model.span(question.prompt):
                made = with_retries(lambda: self._send(question, messages, call, again=again), sleep=self.sleep)
        except GivenUpError as error:
            failure = LLMError(f"{describe_request(question, self.model)} got no reply: {self._redact(error)}")
        else:
            return None if made is None else self._judge(question, call, *made)
        raise failure  # out here the provider's error, which may repeat the key, is no longer attached to it

    def price(self, prompt: Prompt, schema: type[BaseModel]) -> Bill:
        """The most that the first reply to a prompt may be billed."""
        return self._most(self.model.with_schema(prompt.messages(), schema), prompt, schema)

    def _most(self, messages: Sequence[Message], prompt: Prompt, schema: type[BaseModel]) -> Bill:
        return self.model.pricing.most(messages, schema.model_json_schema(), prompt.max_tokens)

    def _send(
        self, question: PromptRequest[T], messages: Sequence[Message], call: Call, *, again: bool
    ) -> tuple[UUID, Completion] | None:
        call_id = self.purse.reserve(call, again=again)
        if call_id is None:
            return None
        try:
            return call_id, self.model.complete(messages, question.schema, question.prompt.max_tokens)
        except Exception as error:
            self.purse.fail(call_id, get_failure_bill(error), self._redact(error))
            raise

    def _judge(self, question: PromptRequest[T], call: Call, call_id: UUID, completion: Completion) -> Reply[T]:
        try:
            reading = question.read(completion)
        except Exception as error:  # a check that breaks: what was paid is written down before that is found out
            self.purse.fail(call_id, completion.bill, f"the check failed: {error!r}", completion.text)
            raise
        usd = (completion.bill or call.most).usd
        if reading.value is not None:
            self.purse.settle(call_id, completion.bill, reading.content)
            return Reply(reading.value, ("", ""), usd)
        wrong = "\n".join(reading.problems)
        self.purse.fail(call_id, completion.bill, wrong, completion.text)
        return Reply(None, (completion.text, wrong), usd)

    def _redact(self, error: Exception) -> str:
        secrets = [self.model.api_key] if self.model.api_key else []
        return redact(str(error), secrets)[:_LONGEST_ERROR]


def describe_request(question: PromptRequest[T], model: ChatModel) -> str:
    """Name a question in a message."""
    return f"prompt {question.prompt.name} version {question.prompt.version} ({question.key[:12]}) to {model.name}"
