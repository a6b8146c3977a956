"""Base of the replies with patterns and principles, and their checks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import date
from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from consolidation_pipeline.core.knowledge.disputes import find_disputes, list_statements
from consolidation_pipeline.core.knowledge.source_support import IsNear
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.reply_checks import (
    find_contradictions,
    find_invented_literals,
    find_invented_quotes,
    find_other_language,
    find_outdated,
    find_unknown_ids,
    find_unsupported,
)

# Three long sentences have about 600 characters. A text five times as long is no pattern.
MAX_CHARS = 3000


class Quote(BaseModel):
    """Words that stand in the memory of this number."""

    unit: int = Field(description="Number of the memory.")
    quote: str = Field(description="A part of that memory, word for word.")


class AbstractionReply(BaseModel):
    """Base of the replies with a pattern or a principle. ``is_abstract``: its words need not be those of its units."""

    is_abstract: ClassVar[bool] = False

    pattern_type: Literal["success", "failure", "decision", "workflow", "gotcha"]
    confidence: float = Field(ge=0, le=1, description="How sure it is that this holds, from 0 to 1.")
    summary: str = Field(description="One sentence.")
    best_practices: list[str] = Field(
        description="What to do, one sentence each; empty where the memories say nothing."
    )
    gotchas: list[str] = Field(description="What to watch out for, one sentence each; empty where they say nothing.")
    evidence: list[Quote] = Field(min_length=1, description="Quotes that bear it out, from as many memories as do.")

    @property
    @abstractmethod
    def statement(self) -> str:
        """The text that is stored."""

    def stored_texts(self) -> Iterator[str]:
        """Yield every stored text of the reply that is not a quote."""
        yield from (self.statement, self.summary, *self.best_practices, *self.gotchas)


def dispute_rules(texts: Sequence[str], days: Sequence[date | None]) -> str:
    """Return the instructions on texts that contradict each other, one a line; empty if none do."""
    statements = list_statements(texts, days)
    rules = []
    for dispute in find_disputes(statements):
        rule, others = statements[dispute.rule], sorted({statements[at].unit + 1 for at in dispute.overruled})
        numbers = ", ".join(map(str, others))
        if others and dispute.is_decided:
            rules.append(
                f"- Memory {rule.unit + 1} of {rule.day} contradicts the older memory {numbers}: give what memory "
                f"{rule.unit + 1} says, with its date, and in the same sentence what it was before."
            )
        elif others:
            rules.append(
                f"- Memory {rule.unit + 1} contradicts memory {numbers}, and nothing tells which is right: tell both "
                "in one sentence, as an open question."
            )
    return "\n".join(dict.fromkeys(rules))


def find_problems(prompt: Prompt, reply: AbstractionReply, *, is_near: IsNear | None = None) -> list[str]:
    """Return the problems of a reply: no text, too long a text, another language, inventions, contradictions.

    ``is_near``: as of ``SourceWords``.
    """
    length = max(len(reply.statement), len(reply.summary))
    if length > MAX_CHARS:
        return [f"a text has {length} characters: write at most {MAX_CHARS}"]
    sources = dict(enumerate(prompt.sources, start=1))
    quotes = [(item.unit, item.quote) for item in reply.evidence if item.unit in sources]
    blank = [] if reply.statement.strip() and reply.summary.strip() else ["it says nothing: write a text and a summary"]
    texts, days = list(reply.stored_texts()), [day.isoformat() for day in prompt.days if day]
    return [
        *blank,
        *find_unknown_ids([item.unit for item in reply.evidence], list(sources)),
        *find_invented_quotes(quotes, sources),
        *find_invented_literals("\n".join(texts), [*prompt.sources, *days]),
        *find_other_language(reply.statement, prompt.sources),
        *find_unsupported("\n".join(texts), prompt.sources, is_abstract=reply.is_abstract, is_near=is_near),
        *find_contradictions(texts),
        *find_outdated(texts, prompt.sources, prompt.days),
    ]
