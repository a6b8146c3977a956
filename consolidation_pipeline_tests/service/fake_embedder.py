"""Embedding model without weights: the normalised sum of one fixed direction per word."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.embed.embedder import Usage

VOCABULARY = "amber birch cedar delta ember flint grove heron iris juniper".split()


class WordEmbedder:
    """Embedder that sums word vectors of length ``dimension`` and records its texts in ``seen``."""

    def __init__(self, name: str = "test/words", *, dimension: int = 8) -> None:
        self.name = name
        self.dimension = dimension
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return float32 vectors (n, dimension), L2-normalised; a text without letters gets a zero vector."""
        self.seen.extend(texts)
        rows = np.zeros((len(texts), self.dimension))
        for at, text in enumerate(texts):
            for word in text.split():
                if word.isalpha():
                    rows[at] += _direction(f"{self.name} {word}", self.dimension)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.where(lengths == 0.0, 1.0, lengths), dtype=np.float32)

    def estimate(self, texts: Sequence[str]) -> Usage:
        """Return zero usage."""
        del texts
        return Usage(tokens=0, cost_usd=0.0)


@cache
def _direction(word: str, dimension: int) -> npt.NDArray[np.float64]:
    seed = int.from_bytes(sha256(word.encode()).digest()[:8], "big")
    return np.random.default_rng(seed).normal(size=dimension)
