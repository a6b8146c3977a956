"""Embedding models: the one inside the package, and those that litellm reaches."""

from collections.abc import Callable

from consolidation_pipeline.embed.local import LOCAL_MODEL, LocalEmbedder
from consolidation_pipeline.embed.provider import Embedder, Usage
from consolidation_pipeline.embed.remote import LiteLLMEmbedder

__all__ = ["LOCAL_MODEL", "Embedder", "LiteLLMEmbedder", "LocalEmbedder", "Usage", "load_embedder"]


def load_embedder(name: str, *, on_usage: Callable[[Usage], None] = lambda _: None) -> Embedder:
    """Return the embedder for an ``embedding_model`` option or a stored model id.

    "local" and its full id are the model inside the package, which bills nothing; every other name is litellm's.
    ``on_usage`` is told what is billed. Nothing is imported, loaded or reached before the first text.
    """
    if name in ("local", LOCAL_MODEL):
        return LocalEmbedder()
    return LiteLLMEmbedder(name, on_usage=on_usage)
