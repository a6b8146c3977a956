"""The prompt that finds the principle that several patterns share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import ClassVar

from pydantic import Field

from consolidation_pipeline.llm.prompt import Prompt, language_rule
from consolidation_pipeline.llm.prompts.abstraction import AbstractionReply, dispute_rules

# Raise it with every change of the wording or the reply class: cached replies of older versions are not used.
VERSION = 1

_SYSTEM = (
    "You read patterns that were found in the memories of software agents; each is given as a memory. You find the "
    "principle behind them: a rule that holds beyond the single case."
)
_TASK = """Find the one principle that these patterns share.
- principle: one or two sentences, a rule to follow; more general than each pattern, and still of use.
- pattern_type: success (works), failure (does not work), decision (a choice), workflow (steps), gotcha (a trap).
- confidence: 0.9 and more only where every pattern bears it out; 0.8 and less where they merely share a topic.
- evidence: the number of a memory and a quote from it, word for word.
Say nothing that the patterns do not say: no number, name, version or path of your own, and no not where they have none.
{language}"""


class PrincipleReply(AbstractionReply):
    """A principle, as a model found it."""

    is_abstract: ClassVar[bool] = True

    principle: str = Field(description="One or two sentences.")

    @property
    def statement(self) -> str:
        """The principle."""
        return self.principle


def principle_prompt(texts: Sequence[str], languages: Sequence[str], days: Sequence[date | None]) -> Prompt:
    """Return the prompt for one group of patterns.

    Args:
        languages: Text search configurations of the texts.
        days: On which each was learned; None if it does not tell which is newer.
    """
    task = "\n".join(filter(None, (_TASK.format(language=language_rule(languages)), dispute_rules(texts, days))))
    return Prompt("principle", VERSION, _SYSTEM, task, tuple(texts), days=tuple(days))
