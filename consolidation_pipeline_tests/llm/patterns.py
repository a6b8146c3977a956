"""Prompt, reply schema and checks for tests of the gateway, and readers of the spend ledger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, Field

from consolidation_pipeline.llm.gateway import Gateway
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.llm.reply_checks import find_invented_literals, find_invented_quotes, find_unknown_ids
from consolidation_pipeline.store.jobs.llm_calls import SpendLedger
from consolidation_pipeline_tests.openai_server import OpenAIServer, Reply, Request, drop_connection
from consolidation_pipeline_tests.store.sample_rows import load_llm_calls

MODEL = "openai/gpt-4o-mini"
API_KEY = "sk-a-very-secret-key-0123456789"
# Price of a reply: 100 prompt tokens at 0.15 and 20 completion tokens at 0.60 dollars per million.
REPLY_COST = Decimal("0.000027")
SOURCES = ("Retry after 30 s when the API answers 429.", "A 429 means: wait 30 s, then retry.")


class Evidence(BaseModel):
    unit: int
    quote: str


class Pattern(BaseModel):
    pattern: str
    confidence: float = Field(ge=0, le=1)
    evidence: list[Evidence]


VALID_REPLY = {
    "pattern": "Wait 30 s after a 429.",
    "confidence": 0.9,
    "evidence": [{"unit": 1, "quote": "Retry after 30 s"}, {"unit": 2, "quote": "wait 30 s"}],
}


def valid_reply(_: object) -> dict[str, Any]:
    """Return a valid reply."""
    return VALID_REPLY


def make_prompt(number: int = 0, **changes: Any) -> Prompt:
    """Return a prompt that differs from those of other numbers."""
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
"""Function that returns a gateway to the provider; keywords: those of the gateway, ``model`` and ``ledger``."""


def sum_spent(ledger: SpendLedger) -> Decimal:
    """Return the settled and reserved dollars of the project."""
    rows = load_llm_calls(ledger)
    return sum((row.reserved_usd if row.cost_usd is None else row.cost_usd for row in rows), Decimal(0))


def kill_during_request(provider: OpenAIServer, ledger: SpendLedger, program: str, *arguments: str) -> None:
    """Run a program in a process that is killed when its first request arrives."""
    children: list[subprocess.Popen[bytes]] = []

    def kill(request: Request) -> Reply:
        os.kill(children[0].pid, signal.SIGKILL)
        return drop_connection(request)

    provider.behaviour = kill
    url = ledger.engine.url.render_as_string(hide_password=False)
    command = [sys.executable, "-c", program, url, str(ledger.project_id), str(ledger.job_id), provider.api_base]
    children.append(subprocess.Popen([*command, *arguments]))
    assert children[0].wait() == -signal.SIGKILL
