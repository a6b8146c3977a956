"""The prompts that turn a batch of memories into one summary, and several summaries into one."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.source_support import IsNear
from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.reply_checks import find_invented_literals, find_other_language, find_unsupported

# Raise it with every change of the wording or the reply class: cached replies of older versions are not used.
VERSION = 1
# Five long sentences have about 1,000 characters. A text three times as long is no summary.
MAX_CHARS = 3000

_SYSTEM = (
    "You keep the long-term memory of software agents. You read what they noted after their tasks and write down what "
    "will still matter when the single task is forgotten."
)
_RULES = """Write 2 to 5 sentences of running text in the third person ("The project ..", "The team ..", "The user ..").
Keep lasting information: decisions, preferences, how things work, what fails and what helps.
Leave out what mattered on that day only: moods, progress reports, who was busy with what. Do not list single facts.
Say nothing that the memories do not say: no number, name, version or path of your own, and no not where they have none.
{language}"""
_BATCH = "Write ONE summary that covers all of these memories, which are given oldest first.\n" + _RULES
_REDUCE = (
    "Each of these memories is itself a summary of earlier notes; they are given oldest first. Write ONE summary that "
    "stands for all of them. Where a later one contradicts an earlier one, the later one holds.\n" + _RULES
)


class SummaryReply(BaseModel):
    """A summary, as a model wrote it."""

    summary: str = Field(description="2 to 5 sentences.")


def summary_prompt(texts: Sequence[str], languages: Sequence[str]) -> Prompt:
    """Return the prompt for a batch of memories, oldest first. ``languages``: their text search configurations."""
    return _make_prompt(_BATCH, texts, languages)


def reduce_prompt(texts: Sequence[str], languages: Sequence[str]) -> Prompt:
    """Return the prompt that turns several summaries, oldest first, into one."""
    return _make_prompt(_REDUCE, texts, languages)


def find_problems(prompt: Prompt, reply: SummaryReply, *, is_near: IsNear | None = None) -> list[str]:
    """Return the problems of a reply: no text, one that is too long, inventions, another language.

    ``is_near``: as of ``SourceWords``.
    """
    return [
        *find_text_problems(prompt, "summary", reply.summary, max_chars=MAX_CHARS),
        *find_other_language(reply.summary, prompt.sources),
        *find_unsupported(reply.summary, prompt.sources, is_near=is_near),
    ]


def find_text_problems(prompt: Prompt, name: str, text: str, *, max_chars: int) -> list[str]:
    """Return the problems of a text made from all sources of a prompt. ``name``: the text's name in messages."""
    if not any(map(str.isalnum, text)):
        return [f"it says nothing: write a {name}"]
    too_long = [f"the {name} has {len(text)} characters: write at most {max_chars}"] if len(text) > max_chars else []
    return [*too_long, *find_invented_literals(text, prompt.sources)]


def _make_prompt(task: str, texts: Sequence[str], languages: Sequence[str]) -> Prompt:
    return Prompt("summary", VERSION, _SYSTEM, task.format(language=language_rule(languages)), tuple(texts))
