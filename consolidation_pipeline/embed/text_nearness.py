"""Nearness of a sentence to texts, by the vectors of the local model, for checks of what a language model wrote."""

from collections.abc import Sequence

from consolidation_pipeline.embed.local import LocalEmbedder

# Lowest cosine of an English sentence and a text on one subject. Of 50 invented English sentences without a word of the
# texts, three were above it. In other languages, vectors tell the language more than the subject.
_NEAR = 0.2

_EMBEDDER = LocalEmbedder()


def is_near(sentence: str, texts: Sequence[str]) -> bool:
    """Return True if the subject of an English sentence is that of one of the texts."""
    given = [text for text in texts if text.strip()]
    if not given:
        return False
    return bool((_EMBEDDER.embed(given) @ _EMBEDDER.embed([sentence])[0]).max() >= _NEAR)
