"""The prompt that finds the pattern that several memories share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pydantic import Field

from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.prompts.abstraction import AbstractionReply, dispute_rules

# Raise it with every change of the wording or the reply class: cached replies of older versions are not used.
VERSION = 1

_SYSTEM = (
    "You read memories that software agents wrote after their tasks, and find what they have in common, so that the "
    "next agent need not learn it again."
)
_TASK = """Find the one pattern that these memories share.
- pattern: one to three sentences that help whoever meets the same situation; say when it holds and what to do.
- pattern_type: success (worked), failure (did not work), decision (was chosen), workflow (steps), gotcha (a trap).
- confidence: 0.9 and more only where most memories say it plainly; below 0.7 where they merely share a topic.
- evidence: the number of a memory and a quote from it, word for word.
Say nothing that the memories do not say: no number, name, version or path of your own, and no not where they have none.
{language}"""


class PatternReply(AbstractionReply):
    """A pattern, as a model found it."""

    pattern: str = Field(description="One to three sentences.")

    @property
    def statement(self) -> str:
        """The pattern."""
        return self.pattern


def pattern_prompt(texts: Sequence[str], languages: Sequence[str], days: Sequence[date | None]) -> Prompt:
    """Return the prompt for one group of memories.

    Args:
        languages: Text search configurations of the texts.
        days: On which each was learned; None if it does not tell which is newer.
    """
    task = "\n".join(filter(None, (_TASK.format(language=language_rule(languages)), dispute_rules(texts, days))))
    return Prompt("pattern", VERSION, _SYSTEM, task, tuple(texts), days=tuple(days))
