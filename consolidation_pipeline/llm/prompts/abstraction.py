"""Base of the replies with patterns and principles, and their checks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, Field

from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.reply_checks import find_invented_literals, find_invented_quotes, find_unknown_ids


class Quote(BaseModel):
    """Words that stand in the memory of this number."""

    unit: int = Field(description="Number of the memory.")
    quote: str = Field(description="A part of that memory, word for word.")


class AbstractionReply(BaseModel):
    """Base of the replies with a pattern or a principle."""

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


def find_problems(prompt: Prompt, reply: AbstractionReply) -> list[str]:
    """Return the problems of a reply: no text, unknown memories, invented quotes and literals."""
    sources = dict(enumerate(prompt.sources, start=1))
    quotes = [(item.unit, item.quote) for item in reply.evidence if item.unit in sources]
    blank = [] if reply.statement.strip() and reply.summary.strip() else ["it says nothing: write a text and a summary"]
    return [
        *blank,
        *find_unknown_ids([item.unit for item in reply.evidence], list(sources)),
        *find_invented_quotes(quotes, sources),
        *find_invented_literals("\n".join(reply.stored_texts()), prompt.sources),
    ]
