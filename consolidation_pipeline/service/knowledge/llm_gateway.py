"""The language model of a run: its gateway within the budgets, the price of prompts, the length of texts."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from consolidation_pipeline.core.jobs.spending import Bill
from consolidation_pipeline.core.text.truncation import truncate_at_word
from consolidation_pipeline.errors import BudgetExhaustedError, ModelUnavailableError
from consolidation_pipeline.llm.gateway import Gateway
from consolidation_pipeline.llm.prompt import Prompt
from consolidation_pipeline.service.runs.project_run import ProjectRun

# Prompts that are sent together. The rows made of their replies are written together. A killed run repeats at most
# these prompts, and gets the replies from the cache.
BATCH = 16
# Errors after which the model is not asked again: the budget is used up, or the model does not answer.
STOP_ERRORS = (BudgetExhaustedError, ModelUnavailableError)
# Characters of one text in a prompt.
MAX_TEXT_CHARS = 1200


def open_gateway(run: ProjectRun) -> Gateway:
    """Return a gateway to the project's model; its calls count towards the project's budgets."""
    return Gateway(run.options.llm_model or "", run.spend_ledger)


def price_prompts(run: ProjectRun, prompts: Sequence[Prompt], reply: type[BaseModel]) -> list[Bill]:
    """Return the highest possible bill of each prompt that would be sent, as it has no cached reply."""
    return [*open_gateway(run).price(prompts, reply).values()] if prompts else []


def truncate_text(text: str) -> str:
    """Return at most the first ``MAX_TEXT_CHARS`` characters of a text; see ``truncate_at_word``."""
    return truncate_at_word(text, MAX_TEXT_CHARS)
