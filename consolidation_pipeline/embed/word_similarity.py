"""Similarity of two words, by the vectors of the local model."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.embed.local import LocalEmbedder

_EMBEDDER = LocalEmbedder()


def word_similarity(one: str, other: str) -> float:
    """Return the cosine of the vectors of two words, for ``explain``. It is the same for ``other`` and ``one``.

    It is 0 if the model has no vector for one of them. The mean of the pieces of such a word says nothing: York is like
    pork, and a tenant like ten.
    """
    a, b = _embed(one), _embed(other)
    return 0.0 if a is None or b is None else float(a @ b)


# A server lives long: the vectors of 50,000 words take 50 MB.
@lru_cache(maxsize=50_000)
def _embed(word: str) -> NDArray[np.float32] | None:
    return _EMBEDDER.embed([word])[0] if _EMBEDDER.knows(word) else None
