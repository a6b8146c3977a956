"""Interface of embedding models, and checks of texts and vectors."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.vectors import find_unusable, normalize
from consolidation_pipeline.errors import EmbeddingError

Vectors = NDArray[np.float32]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Usage:
    """Estimated bill: tokens, and US dollars (None if the model has no known price)."""

    tokens: int
    cost_usd: float | None


class Embedder(Protocol):
    """An embedding model."""

    @property
    def name(self) -> str:
        """Name stored with the vectors. Only vectors with the same name are compared."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, d), L2-normalised, row i for text i. Raise EmbeddingError, which names the text."""
        ...

    def estimate(self, texts: Sequence[str]) -> Usage:
        """Return what ``embed`` would bill for these texts, without a request."""
        ...


@runtime_checkable
class BatchEmbedder(Protocol):
    """Embedding model that is paid per batch, and returns each batch when it is ready."""

    def embed_batches(self, texts: Sequence[str]) -> Iterator[tuple[int, Vectors]]:
        """Yield vectors batch by batch, see :func:`embed_batches`."""
        ...


def embed_batches(embedder: Embedder, texts: Sequence[str]) -> Iterator[tuple[int, Vectors]]:
    """Yield the vectors of ``embedder.embed`` in batches: the index of the first text, and float32 (m, d).

    If the model fails or the budget is used up, the finished batches are yielded before the error is raised.
    """
    if isinstance(embedder, BatchEmbedder):
        yield from embedder.embed_batches(texts)
    else:
        yield 0, embedder.embed(texts)


def is_free(embedder: Embedder) -> bool:
    """Return True if the model bills nothing: it runs inside this process and counts no tokens."""
    return embedder.estimate(["a"]).tokens == 0


def check_texts(texts: Sequence[str]) -> None:
    """Raise EmbeddingError for the first text that is blank or not valid Unicode."""
    for index, text in enumerate(texts):
        if not text.strip():
            raise EmbeddingError(f"{describe_text(index, text)} is blank: a text to embed needs at least one word")
        if _LONE_SURROGATE.search(text):
            raise EmbeddingError(f"{describe_text(index, text)} has half a surrogate pair: it must be valid Unicode")


def check_vectors(
    vectors: Sequence[Sequence[float] | NDArray[Any]] | NDArray[Any],
    texts: Sequence[str],
    *,
    dimension: int | None = None,
    first: int = 0,
) -> Vectors:
    """Return the vectors as L2-normalised float32 (n, d).

    Args:
        vectors: One vector per text.
        texts: The embedded texts.
        dimension: Expected length of a vector; None = length of the first one.
        first: Index of ``texts[0]`` in the whole input, for error messages.

    Raises:
        EmbeddingError: The number of vectors is wrong, or a vector has another length, NaN, infinity or only zeros.
    """
    if len(vectors) != len(texts):
        raise EmbeddingError(f"{len(texts)} texts from text {first} on got {len(vectors)} vectors: each needs one")
    if not len(vectors):
        return np.empty((0, dimension or 0), dtype=np.float32)
    expected = dimension or len(vectors[0])
    for index, vector in enumerate(vectors):
        if len(vector) != expected:
            where = describe_text(first + index, texts[index])
            raise EmbeddingError(f"{where}: its vector has {len(vector)} dimensions, {expected} are expected")
    rows = np.asarray(vectors, dtype=np.float64)
    for index in find_unusable(rows)[:1].tolist():
        where = describe_text(first + index, texts[index])
        raise EmbeddingError(f"{where}: its vector is zero or holds NaN or infinity, so it has no direction")
    return normalize(rows)


def describe_text(index: int, text: str) -> str:
    """Return the name of a text for messages: its index and its first 60 characters."""
    return f"text {index} ({text[:60]!r})"
