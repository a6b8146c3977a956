"""Prices of requests, from litellm's price list or a fallback price."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from consolidation_pipeline.core.jobs.spending import Bill, dollars
from consolidation_pipeline.llm.litellm_import import load_litellm
from consolidation_pipeline.llm.prompt import Message

# Tokens are counted with OpenAI's tokenizer. Others give up to about a quarter more tokens for the same text.
TOKEN_MARGIN = 1.25


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float


# For models without a listed price: that of the most expensive common models, so that the budget holds.
FALLBACK_PRICE = Price(input=15.0, output=75.0)


@dataclass(frozen=True)
class Pricing:
    """Prices of one model. ``fallback`` is used if litellm lists none."""

    model: str
    fallback: Price = FALLBACK_PRICE

    def bill(self, prompt_tokens: int, completion_tokens: int) -> Bill:
        """Return the bill of these tokens, without discounts for cached prompts."""
        if self.is_listed:
            sent, received = load_litellm().cost_per_token(
                model=self.model, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens
            )
        else:
            sent = prompt_tokens * self.fallback.input / 1e6
            received = completion_tokens * self.fallback.output / 1e6
        return Bill(prompt_tokens, completion_tokens, dollars(sent + received))

    def max_bill(self, messages: Sequence[Message], schema: dict[str, Any], max_tokens: int) -> Bill:
        """Return the largest bill of a call: its tokens, counted locally with a margin, and the longest reply."""
        litellm = load_litellm()
        counted = litellm.token_counter(model=self.model, messages=list(messages))
        counted += litellm.token_counter(model=self.model, text=json.dumps(schema))
        return self.bill(math.ceil(counted * TOKEN_MARGIN), max_tokens)

    @cached_property
    def is_listed(self) -> bool:
        """True if litellm lists a price per token for the model."""
        litellm = load_litellm()
        try:
            entry = litellm.model_cost[litellm.get_model_info(model=self.model)["key"]]
        except Exception:  # litellm raises a bare Exception for an unknown model
            return False
        has_output = entry.get("mode") != "embedding"
        return "input_cost_per_token" in entry and ("output_cost_per_token" in entry or not has_output)
