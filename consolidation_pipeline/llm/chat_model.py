"""One chat model behind litellm: a request, its reply as text, and what it was billed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from consolidation_pipeline.core.jobs.spending import NOTHING, Bill
from consolidation_pipeline.llm.litellm_import import load_litellm
from consolidation_pipeline.llm.pricing import Pricing
from consolidation_pipeline.llm.prompt import Message, Prompt
from consolidation_pipeline.llm.reply_parsing import schema_rule
from consolidation_pipeline.llm.spans import call_span, record_reply

TEMPERATURE = 0.2


@dataclass(frozen=True)
class Completion:
    """A reply as text, what keeps it from being one at all, and its bill (None: the provider did not tell)."""

    text: str
    problem: str | None
    bill: Bill | None


@dataclass(frozen=True)
class ChatModel:
    """A model by its litellm name. ``timeout``: seconds, per request; ``api_base``, ``api_key``: None = environment."""

    name: str
    pricing: Pricing
    api_base: str | None = None
    api_key: str | None = None
    timeout: float = 120.0

    def span(self, prompt: Prompt) -> AbstractContextManager[None]:
        """A span around one request and its retries; it tells which prompt it was, never what stood in it."""
        told = {"gen_ai.prompt.name": prompt.name, "gen_ai.prompt.version": str(prompt.version)}
        asked = {"gen_ai.request.max_tokens": prompt.max_tokens, "gen_ai.request.temperature": TEMPERATURE}
        return call_span("chat", self.name, {"gen_ai.output.type": "json", **told, **asked})

    def with_schema(self, messages: Sequence[Message], schema: type[BaseModel]) -> list[Message]:
        """The messages, with the schema in the system text for a model that does not take it beside the prompt."""
        if self._takes_schema():
            return list(messages)
        system, *others = messages
        return [{**system, "content": f"{system['content']}\n\n{schema_rule(schema)}"}, *others]

    def complete(self, messages: Sequence[Message], schema: type[BaseModel], max_tokens: int) -> Completion:
        """One request, one reply; no retry of any kind. Raises what litellm raises."""
        reply = load_litellm().completion(
            model=self.name,
            messages=list(messages),
            response_format=schema if self._takes_schema() else {"type": "json_object"},
            temperature=TEMPERATURE,
            max_tokens=max_tokens,
            drop_params=True,  # some models take no temperature
            timeout=self.timeout,
            api_base=self.api_base,
            api_key=self.api_key,
            num_retries=0,
            max_retries=0,
        )
        choice = reply.choices[0] if reply.choices else None
        record_reply(reply, choice)
        # What Postgres does not take does not stand in its way later.
        text = ((choice and choice.message.content) or "").replace("\0", "").encode(errors="replace").decode()
        return Completion(text, _find_problem(choice), self._bill(reply))

    def _bill(self, reply: Any) -> Bill | None:
        usage = getattr(reply, "usage", None)
        sent, received = getattr(usage, "prompt_tokens", 0) or 0, getattr(usage, "completion_tokens", 0) or 0
        return self.pricing.bill(sent, received) if sent + received > 0 else None

    def _takes_schema(self) -> bool:
        return bool(load_litellm().supports_response_schema(model=self.name))


def _find_problem(choice: Any) -> str | None:
    reason = getattr(choice, "finish_reason", None)
    if reason == "length":
        return "the reply was cut off because it is too long: write less"
    if reason == "content_filter":
        return "the provider's content filter withheld the reply"
    refusal = ((choice and choice.message.provider_specific_fields) or {}).get("refusal")
    return f"the model refused: {refusal}" if refusal else None


def get_failure_bill(error: Exception) -> Bill | None:
    """What a request that raised ``error`` was billed: nothing where it was refused or never sent, else not known."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int) and 400 <= status < 500 and status != 408:
        return NOTHING
    return NOTHING if any(_is_unbilled(cause) for cause in _causes(error)) else None


def _is_unbilled(cause: BaseException) -> bool:
    import httpx

    if isinstance(cause, httpx.HTTPStatusError):
        # A gateway that lost its server, or patience with it, does not know what the server did.
        return cause.response.status_code not in (408, 502, 504)
    return isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
