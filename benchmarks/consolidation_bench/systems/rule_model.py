"""Stand-ins for a language model that decide about a new memory by rules, for systems that leave this to a model.

No model that understands text runs without cost or download, so two rules bracket what one would do:

- ``WordRule`` takes a memory as known if its words overlap with one that the system shows.
- ``OracleRule`` reads the truth of the benchmark: the decisions of a model that never errs about what it is shown.

They show what a system's own parts do: which memories it shows to its model, what it stores, how much it sends. They do
not show how well a real model would judge or write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool

from benchmarks.consolidation_bench.dataset import Dataset
from benchmarks.consolidation_bench.systems.system import Usage

CHARS_PER_TOKEN = 4
OVERLAP = 0.85
_WORD = re.compile(r"[0-9a-zà-öø-ÿœß'.:-]+|[^\W\d_]")


class Decision(NamedTuple):
    """Decision about a new memory. ``keeps``: it is stored. ``removes``: texts shown that hold no longer."""

    keeps: bool
    removes: tuple[str, ...] = ()


class Rule(Protocol):
    """Rule that decides about a new memory."""

    def decide(self, text: str, shown: Sequence[str]) -> Decision:
        """Return the decision about a text, given the stored texts that the system shows to its model."""
        ...


class WordRule:
    """A memory is known if one that is shown shares 85 % of all words of both; nothing is removed."""

    def decide(self, text: str, shown: Sequence[str]) -> Decision:
        """Return the decision by overlap of words; a Chinese or Japanese character is a word."""
        words = _read_words(text)
        return Decision(not any(_overlap(words, _read_words(other)) >= OVERLAP for other in shown))


class OracleRule:
    """A memory is known if one that is shown tells all its facts, and removes those that it truly replaces.

    Args:
        truth: Dataset whose memories are decided about.
    """

    def __init__(self, truth: Dataset) -> None:
        self._facts = {memory.text: truth.tells[memory.id] for memory in truth.memories}
        text_of = {memory.id: memory.text for memory in truth.memories}
        self._replaces = {text_of[newer]: text_of[older] for older, newer in truth.replaced.items()}

    def decide(self, text: str, shown: Sequence[str]) -> Decision:
        """Return the decision by the facts of the texts."""
        facts = self._facts[text]
        is_known = any(facts <= self._facts.get(other, frozenset()) for other in shown)
        return Decision(not is_known, tuple(other for other in shown if other == self._replaces.get(text)))


def _read_words(text: str) -> frozenset[str]:
    return frozenset(word.strip(".:-'") for word in _WORD.findall(text.casefold())) - {""}


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / max(1, len(a | b))


class RuleModel(BaseChatModel):
    """Chat model of LangChain that replies by a function and counts what it is sent."""

    reply: Callable[[Sequence[BaseMessage]], AIMessage]
    usage: Usage

    @property
    def _llm_type(self) -> str:
        return "rules"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, AIMessage]:
        """Return the model with the schemas of tools, which are sent with each call."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        answer = self.reply(messages)
        sent = [str(message.content) for message in messages] + [json.dumps(kwargs.get("tools", ""))]
        received = [str(answer.content), *(json.dumps(call["args"]) for call in answer.tool_calls)]
        self.usage.calls += 1
        self.usage.tokens += sum(map(len, sent + received)) // CHARS_PER_TOKEN
        return ChatResult(generations=[ChatGeneration(message=answer)])
