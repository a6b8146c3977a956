"""Similarity of two words, by the vectors of the local model."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.embed.local import LocalEmbedder

_EMBEDDER = LocalEmbedder()


def word_similarity(one: str, other: str) -> float:
    """Return the cosine of the vectors of two words, for ``explain``. It is the same for ``other`` and ``one``."""
    return float(_embed(one) @ _embed(other))


# A server lives long: the vectors of 50,000 words take 50 MB.
@lru_cache(maxsize=50_000)
def _embed(word: str) -> NDArray[np.float32]:
    vector: NDArray[np.float32] = _EMBEDDER.embed([word])[0]
    return vector
