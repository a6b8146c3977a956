"""Spans of model calls by the GenAI conventions (see ``tracing``): model, tokens and finish reason."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from consolidation_pipeline import tracing

# Names of providers: litellm's -> the conventions', where they differ.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}


def call_span(operation: str, model: str, attributes: tracing.Attributes) -> AbstractContextManager[None]:
    """Open a span around a call of a model by its litellm name. As in litellm, a name without provider is OpenAI's."""
    provider, _, name = model.rpartition("/")
    first = provider.partition("/")[0] or "openai"
    described = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _PROVIDERS.get(first, first),
        "gen_ai.request.model": name,
    }
    return tracing.span(f"{operation} {name}", {**described, **attributes}, is_call=True)


def record_reply(reply: Any, choice: Any = None) -> None:
    """Add what a reply of litellm reports about itself to the current span. Missing values are left out."""
    usage = getattr(reply, "usage", None)
    reason = getattr(choice, "finish_reason", None)
    reported = {
        "gen_ai.response.id": getattr(reply, "id", None),
        "gen_ai.response.model": getattr(reply, "model", None),
        "gen_ai.response.finish_reasons": [str(reason)] if reason else None,
        "gen_ai.usage.input_tokens": getattr(usage, "prompt_tokens", None),
        "gen_ai.usage.output_tokens": getattr(usage, "completion_tokens", None),
    }
    tracing.set_attributes({name: value for name, value in reported.items() if value is not None})
