"""Embedding models: the local one, and those that litellm reaches."""

from consolidation_pipeline.embed.embedder import Embedder, Usage, embed_batches
from consolidation_pipeline.embed.local import LOCAL_MODEL, LocalEmbedder
from consolidation_pipeline.embed.remote import LiteLLMEmbedder
from consolidation_pipeline.llm.budget import CallLedger

__all__ = [
    "LOCAL_MODEL",
    "Embedder",
    "LiteLLMEmbedder",
    "LocalEmbedder",
    "Usage",
    "embed_batches",
    "is_local",
    "load_embedder",
]


def is_local(name: str) -> bool:
    """Return True if an ``embedding_model`` option or a stored model name is that of the local model."""
    return name in ("local", LOCAL_MODEL)


def load_embedder(name: str, *, ledger: CallLedger | None = None, timeout: float | None = None) -> Embedder:
    """Return the embedder for an ``embedding_model`` option or a stored model name.

    Nothing is imported, loaded or requested before the first text is embedded.

    Args:
        name: "local", the full name of the local model, or a name of litellm.
        ledger: Reserves and records the calls of litellm's models; the local model is free.
        timeout: Seconds for a single attempt, because a user waits. None: a minute per batch, with retries.
    """
    if is_local(name):
        return LocalEmbedder()
    if timeout is None:
        return LiteLLMEmbedder(name, ledger=ledger)
    return LiteLLMEmbedder(name, ledger=ledger, timeout=timeout, retries=0)
