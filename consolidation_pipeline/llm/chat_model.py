"""Chat model behind litellm: sends one request, returns its reply as text and its bill."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.llm.litellm_import import load_litellm
from consolidation_pipeline.llm.pricing import Pricing
from consolidation_pipeline.llm.prompt import Message, Prompt
from consolidation_pipeline.llm.reply_parsing import schema_rule
from consolidation_pipeline.llm.spans import call_span, record_reply

TEMPERATURE = 0.2
# No tokenizer gives fewer tokens for a text in any language. Some servers ignore the limit of a reply, and reading a
# text of megabytes takes minutes.
_CHARS_PER_TOKEN = 10


@dataclass(frozen=True)
class Completion:
    """A reply as text. ``problem``: why it is unusable. ``bill``: None if the provider did not report usage."""

    text: str
    problem: str | None
    bill: Bill | None


@dataclass(frozen=True)
class ChatModel:
    """A model by its litellm name.

    ``api_base``, ``api_key``: None = from the environment. ``timeout``: seconds per request.
    """

    name: str
    pricing: Pricing
    api_base: str | None = None
    api_key: str | None = None
    timeout: float = 120.0

    def span(self, prompt: Prompt) -> AbstractContextManager[None]:
        """Open a span around one request and its retries, with the prompt's name but not its text."""
        attributes = {
            "gen_ai.output.type": "json",
            "gen_ai.prompt.name": prompt.name,
            "gen_ai.prompt.version": str(prompt.version),
            "gen_ai.request.max_tokens": prompt.max_tokens,
            "gen_ai.request.temperature": TEMPERATURE,
        }
        return call_span("chat", self.name, attributes)

    def add_schema(self, messages: Sequence[Message], schema: type[BaseModel]) -> list[Message]:
        """Return the messages, with the schema in the system message if the model takes no response schema."""
        if self._supports_schema():
            return list(messages)
        system, *others = messages
        return [{**system, "content": f"{system['content']}\n\n{schema_rule(schema)}"}, *others]

    def complete(self, messages: Sequence[Message], schema: type[BaseModel], max_tokens: int) -> Completion:
        """Send one request without retries and return its reply. Errors of litellm are passed on."""
        reply = load_litellm().completion(
            model=self.name,
            messages=list(messages),
            response_format=schema if self._supports_schema() else {"type": "json_object"},
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
        # Postgres stores neither NUL nor half of a surrogate pair.
        text = ((choice and choice.message.content) or "").replace("\0", "").encode(errors="replace").decode()
        problem, longest = _find_problem(choice), max_tokens * _CHARS_PER_TOKEN
        if len(text) > longest:
            problem = problem or f"the reply has {len(text)} characters, more than {max_tokens} tokens: write less"
        return Completion(text[:longest], problem, self._bill(reply))

    def _bill(self, reply: Any) -> Bill | None:
        usage = getattr(reply, "usage", None)
        sent, received = getattr(usage, "prompt_tokens", 0) or 0, getattr(usage, "completion_tokens", 0) or 0
        return self.pricing.bill(sent, received) if sent + received > 0 else None

    def _supports_schema(self) -> bool:
        return bool(load_litellm().supports_response_schema(model=self.name))


def _find_problem(choice: Any) -> str | None:
    # These texts are sent to the model when it is asked to repair its reply.
    reason = getattr(choice, "finish_reason", None)
    if reason == "length":
        return "the reply was cut off because it is too long: write less"
    if reason == "content_filter":
        return "the provider's content filter withheld the reply"
    refusal = ((choice and choice.message.provider_specific_fields) or {}).get("refusal")
    return f"the model refused: {refusal}" if refusal else None
