"""Vectors of the product's default model, the same for every system that takes vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.embed import load_embedder

Vectors = NDArray[np.float32]

DIMENSION = 256


def embed(texts: Sequence[str]) -> Vectors:
    """Return a vector of length 1 for each text: (n, ``DIMENSION``)."""
    if not texts:
        return np.zeros((0, DIMENSION), np.float32)
    return np.asarray(load_embedder("local").embed(list(texts)), np.float32)


def rank(query: str, texts: Sequence[str], k: int) -> list[str]:
    """Return the ``k`` texts that are nearest to the query, best first."""
    scores = embed(texts) @ embed([query])[0]
    return [texts[at] for at in np.argsort(-scores, kind="stable")[:k]]
