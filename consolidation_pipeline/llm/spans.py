"""Calls to models as spans, by the GenAI conventions (see ``tracing``): who was asked, tokens, how the reply ended."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from consolidation_pipeline import tracing

# litellm's names of providers, where the conventions have others.
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
    """A span around a call of a model by its litellm name; a name without a provider is OpenAI's, as litellm has it."""
    provider, _, name = model.rpartition("/")
    first = provider.partition("/")[0] or "openai"
    asked = {"gen_ai.provider.name": _PROVIDERS.get(first, first), "gen_ai.request.model": name}
    told = {"gen_ai.operation.name": operation, **asked, **attributes}
    return tracing.span(f"{operation} {name}", told, is_call=True)


def record_reply(reply: Any, choice: Any = None) -> None:
    """Note on the span around what a reply of litellm's says of itself; what it does not say is left out."""
    usage = getattr(reply, "usage", None)
    reason = getattr(choice, "finish_reason", None)
    told = {
        "gen_ai.response.id": getattr(reply, "id", None),
        "gen_ai.response.model": getattr(reply, "model", None),
        "gen_ai.response.finish_reasons": [str(reason)] if reason else None,
        "gen_ai.usage.input_tokens": getattr(usage, "prompt_tokens", None),
        "gen_ai.usage.output_tokens": getattr(usage, "completion_tokens", None),
    }
    tracing.set_attributes({name: value for name, value in told.items() if value is not None})
