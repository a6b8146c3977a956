"""The prompts that turn a batch of memories into one summary, and several summaries into one."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.reply_checks import find_invented_literals

# Raise it with every change of the words below: replies to the old ones are not used any more.
VERSION = 1
# Five long sentences have some 1000 characters. What is three times as long is no summary.
LONGEST = 3000

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
    """What is asked about a batch of memories, oldest first, written in these text search configurations."""
    return _ask(_BATCH, texts, languages)


def reduce_prompt(texts: Sequence[str], languages: Sequence[str]) -> Prompt:
    """What is asked about several summaries, oldest first, that are to become one."""
    return _ask(_REDUCE, texts, languages)


def find_problems(prompt: Prompt, reply: SummaryReply) -> list[str]:
    """What is wrong: nothing said, far too much said, literals that stand in none of the memories."""
    return find_text_problems(prompt, "summary", reply.summary, longest=LONGEST)


def find_text_problems(prompt: Prompt, name: str, text: str, *, longest: int) -> list[str]:
    """What is wrong with a text made of all of a prompt's sources; ``name`` is what the text is called."""
    if not any(map(str.isalnum, text)):
        return [f"it says nothing: write a {name}"]
    long = [f"the {name} has {len(text)} characters: write at most {longest}"] if len(text) > longest else []
    return [*long, *find_invented_literals(text, prompt.sources)]


def _ask(task: str, texts: Sequence[str], languages: Sequence[str]) -> Prompt:
    return Prompt("summary", VERSION, _SYSTEM, task.format(language=language_rule(languages)), tuple(texts))
