"""Local embedder, the default: static word vectors from the wordllama wheel, without network, key or torch."""

import logging
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.embed.embedder import Usage, Vectors, check_texts, check_vectors

LOCAL_MODEL = "wordllama/l2_supercat_256"
DIMENSION = 256

# Token vectors summed at a time (4 MB), so that a text of any length needs little memory.
_TOKENS_AT_ONCE = 4096
# Texts tokenised per call: enough to make the call's overhead small, few enough for the CPU cache.
_TEXTS_AT_ONCE = 256


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
        model = _load_model()
        vectors = np.empty((len(texts), DIMENSION))
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            batch = model.tokenizer.encode_batch_fast(texts[start : start + _TEXTS_AT_ONCE], add_special_tokens=False)
            for row, encoding in enumerate(batch, start):
                vectors[row] = _mean_vector(model.embedding, encoding.ids)
        return check_vectors(vectors, texts, dimension=DIMENSION)

    def estimate(self, texts: Sequence[str]) -> Usage:  # noqa: ARG002  always free
        """Return zero tokens and zero dollars."""
        return Usage(tokens=0, cost_usd=0.0)


def _mean_vector(table: NDArray[np.float32], ids: list[int]) -> NDArray[np.float64]:
    total = np.zeros(table.shape[1])
    for start in range(0, len(ids), _TOKENS_AT_ONCE):
        total += table[ids[start : start + _TOKENS_AT_ONCE]].sum(axis=0)
    return total / max(len(ids), 1)


@cache
def _load_model() -> Any:
    # With downloads disabled, wordllama looks for the tokenizer in the folder "tokenizer" of its package. The wheel has
    # it in "tokenizers", the folder that wordllama expects in its cache. So the package is given as the cache.
    wordllama = _import_wordllama()
    package = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=package, dim=DIMENSION, disable_download=True)
    model.tokenizer.no_padding()
    return model


def _import_wordllama() -> Any:
    # Its import calls logging.basicConfig(level=INFO), which would send INFO lines of all libraries to standard error.
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    import wordllama

    root.handlers[:] = handlers
    root.setLevel(level)
    return wordllama
