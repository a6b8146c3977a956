"""What every embedding model offers, and what none of them may hand on."""

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
    """What is billed: tokens, and US dollars (None where no price is known for the model)."""

    tokens: int
    cost_usd: float | None


class Embedder(Protocol):
    """An embedding model: two methods, and the name under which its vectors are stored."""

    @property
    def name(self) -> str:
        """The ``embedding_model`` of stored vectors; vectors are compared only within one name."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, d), L2-normalised, row i for text i; raise EmbeddingError and name the text."""
        ...

    def estimate(self, texts: Sequence[str]) -> Usage:
        """Return what ``embed`` would be billed for these texts, without any call."""
        ...


@runtime_checkable
class BatchEmbedder(Protocol):
    """A model that is asked for parts of what it is given, each paid for by itself."""

    def embed_batches(self, texts: Sequence[str]) -> Iterator[tuple[int, Vectors]]:
        """As :func:`embed_batches`."""
        ...


def embed_batches(embedder: Embedder, texts: Sequence[str]) -> Iterator[tuple[int, Vectors]]:
    """The vectors of ``embedder.embed``, in parts: the index of the first text, and float32 (m, d) from that one on.

    What was embedded before the model or the budget gave out is handed out before the error is raised.
    """
    if isinstance(embedder, BatchEmbedder):
        yield from embedder.embed_batches(texts)
    else:
        yield 0, embedder.embed(texts)


def is_free(embedder: Embedder) -> bool:
    """Whether embedding is not billed: a model that counts no tokens runs inside this process."""
    return embedder.estimate(["a"]).tokens == 0


def check_texts(texts: Sequence[str]) -> None:
    """Raise EmbeddingError for the first text that is blank or cannot be encoded, before anything is paid for."""
    for index, text in enumerate(texts):
        if not text.strip():
            raise EmbeddingError(f"{describe_text(index, text)} is blank: a text to embed needs at least one word")
        if _LONE_SURROGATE.search(text):
            raise EmbeddingError(f"{describe_text(index, text)} has half a surrogate pair: it must be valid Unicode")


def check_vectors(
    vectors: Sequence[Sequence[float]] | NDArray[Any],
    texts: Sequence[str],
    *,
    dimension: int | None = None,
    first: int = 0,
) -> Vectors:
    """Return the vectors as L2-normalised float32 (n, d), or raise EmbeddingError naming the first unusable one.

    Refused: another number of vectors than texts; a length other than ``dimension`` (None: that of the first vector);
    NaN, infinite and zero vectors. ``first`` is the index of ``texts[0]`` in the whole input, for the message.
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
    """Name a text in a message: its index and its first 60 characters."""
    return f"text {index} ({text[:60]!r})"
