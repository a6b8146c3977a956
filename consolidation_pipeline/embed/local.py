"""Local embedder, the default: static word vectors from the wordllama wheel, without network, key or torch.

By its vectors, words are compared, and sentences of a language model are checked.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.embed.embedder import Usage, Vectors, check_texts, check_vectors
from consolidation_pipeline.errors import EmbeddingError

LOCAL_MODEL = "wordllama/l2_supercat_256"
DIMENSION = 256

# Token vectors summed at a time (4 MB), so that a text of any length needs little memory.
_TOKENS_AT_ONCE = 4096
# Texts tokenised per call: enough to make the call's overhead small, few enough for the CPU cache.
_TEXTS_AT_ONCE = 256
# Lowest cosine of an English sentence and a text on one subject. Of 50 invented English sentences without a word of the
# texts, three were above it. In other languages, vectors tell the language more than the subject.
_NEAR = 0.2


class LocalEmbedder:
    """wordllama's ``l2_supercat`` with 256 dimensions: the mean of the vectors of a text's tokens."""

    name = LOCAL_MODEL

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 (n, 256), L2-normalised, row i for text i. Nothing is truncated.

        A text is tokenised and averaged alone, so its vector does not depend on the other texts, not even by a bit.

        Raises:
            EmbeddingError: A text is blank or not valid Unicode.
        """
        check_texts(texts)
        if not texts:
            return np.empty((0, DIMENSION), dtype=np.float32)
        tokenizer, table = _load_model()
        vectors = np.empty((len(texts), DIMENSION))
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            batch = tokenizer.encode_batch_fast(texts[start : start + _TEXTS_AT_ONCE], add_special_tokens=False)
            for row, encoding in enumerate(batch, start):
                vectors[row] = _mean_vector(table, encoding.ids)
        return check_vectors(vectors, texts, dimension=DIMENSION)

    def knows(self, word: str) -> bool:
        """Return True if the model has a vector for a word, and does not split it into pieces."""
        tokenizer, _ = _load_model()
        return len(tokenizer.encode(word, add_special_tokens=False).ids) == 1

    def estimate(self, texts: Sequence[str]) -> Usage:  # noqa: ARG002  always free
        """Return zero tokens and zero dollars."""
        return Usage(tokens=0, cost_usd=0.0)


def _mean_vector(table: NDArray[np.float32], ids: list[int]) -> NDArray[np.float64]:
    total = np.zeros(table.shape[1])
    for start in range(0, len(ids), _TOKENS_AT_ONCE):
        total += table[ids[start : start + _TOKENS_AT_ONCE]].sum(axis=0)
    return total / max(len(ids), 1)


@cache
def _load_model() -> tuple[Any, NDArray[np.float32]]:
    """Return the tokenizer and the vectors of its tokens, float32 (tokens, 256).

    The files of the package are read without its code, whose import takes as long as a search.
    """
    from safetensors import safe_open
    from tokenizers import Tokenizer

    package = find_spec("wordllama")
    if package is None or package.origin is None:
        raise EmbeddingError("the package wordllama, which holds the local embedding model, is not installed")
    folder = Path(package.origin).parent
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with safe_open(folder / "weights" / f"l2_supercat_{DIMENSION}.safetensors", framework="np") as weights:
        return tokenizer, weights.get_tensor("embedding.weight").astype(np.float32)


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


def is_near(sentence: str, texts: Sequence[str]) -> bool:
    """Return True if the subject of an English sentence is that of one of the texts."""
    given = [text for text in texts if text.strip()]
    if not given:
        return False
    return bool((_EMBEDDER.embed(given) @ _EMBEDDER.embed([sentence])[0]).max() >= _NEAR)
