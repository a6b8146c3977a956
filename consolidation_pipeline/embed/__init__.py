"""Embedding models: the one inside the package, and those that litellm reaches."""

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
    """Whether an ``embedding_model`` option or a stored model id names the model inside the package."""
    return name in ("local", LOCAL_MODEL)


def load_embedder(name: str, *, ledger: CallLedger | None = None, patience: float | None = None) -> Embedder:
    """Return the embedder for an ``embedding_model`` option or a stored model id.

    "local" and its full id are the model inside the package, which bills nothing; every other name is litellm's, and
    what it bills is reserved in ``ledger`` first. ``patience``: seconds for the one attempt that somebody waits for;
    None: a batch has a minute, and failures are retried. Nothing is imported, loaded or reached before the first text.
    """
    if is_local(name):
        return LocalEmbedder()
    if patience is None:
        return LiteLLMEmbedder(name, ledger=ledger)
    return LiteLLMEmbedder(name, ledger=ledger, timeout=patience, retries=0)
