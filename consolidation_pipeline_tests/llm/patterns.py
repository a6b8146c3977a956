"""Prompt, reply schema and checks for tests of the gateway, and readers of the spend ledger."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy import text

from consolidation_pipeline.llm.gateway import Gateway
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.reply_checks import find_invented_literals, find_invented_quotes, find_unknown_ids
from consolidation_pipeline.store.database.schema import SCHEMA
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger

MODEL = "openai/gpt-4o-mini"
KEY = "sk-a-very-secret-key-0123456789"
# Price of a reply: 100 prompt tokens at 0.15 and 20 completion tokens at 0.60 dollars per million.
COST = Decimal("0.000027")
SOURCES = ("Retry after 30 s when the API answers 429.", "A 429 means: wait 30 s, then retry.")


class Evidence(BaseModel):
    unit: int
    quote: str


class Pattern(BaseModel):
    pattern: str
    confidence: float = Field(ge=0, le=1)
    evidence: list[Evidence]


GOOD = {
    "pattern": "Wait 30 s after a 429.",
    "confidence": 0.9,
    "evidence": [{"unit": 1, "quote": "Retry after 30 s"}, {"unit": 2, "quote": "wait 30 s"}],
}


def well(_: object) -> dict[str, Any]:
    """Return a valid reply."""
    return GOOD


def ask_for(number: int = 0, **changes: Any) -> Prompt:
    """Return a prompt; each number gives another one."""
    values = {"name": "pattern", "version": 1, "system": "Find a pattern.", "task": f"Question {number}."}
    return Prompt(**{**values, "sources": SOURCES, "max_tokens": 500, **changes})


def find_problems(prompt: Prompt, reply: Pattern) -> list[str]:
    """Return the problems of a reply, as the check of a phase does."""
    sources = dict(enumerate(prompt.sources, start=1))
    return [
        *find_unknown_ids([item.unit for item in reply.evidence], list(sources)),
        *find_invented_quotes([(item.unit, item.quote) for item in reply.evidence if item.unit in sources], sources),
        *find_invented_literals(reply.pattern, prompt.sources),
    ]


Connect = Callable[..., Gateway]
"""A gateway to the provider; keywords are the gateway's, and ``model`` and ``ledger``."""


def calls(ledger: SpendLedger) -> list[Any]:
    """Return the rows of the ledger, oldest first."""
    with ledger.engine.connect() as connection:
        query = f"SELECT * FROM {SCHEMA}.llm_calls WHERE project_id = :project ORDER BY created_at, id"
        return list(connection.execute(text(query), {"project": ledger.project_id}))


def spent(ledger: SpendLedger) -> Decimal:
    """Return the settled and reserved dollars of the project."""
    return sum((row.reserved_usd if row.cost_usd is None else row.cost_usd for row in calls(ledger)), Decimal(0))
