"""Similarity of texts by their words alone (TF-IDF), for texts without vectors of an embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.core.similarity.similarity_join import SLACK, SimilarPairs

# Cosine of TF-IDF vectors from which texts may say the same (pipeline.md, consolidation_suggestions).
T_TERMS = 0.85
# Texts whose products are held at once.
_ROWS = 1000

# First texts, second texts, cosines.
_Block = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


def join_terms(texts: Sequence[tuple[str | None, str | None]], threshold: float = T_TERMS) -> SimilarPairs:
    """Return all pairs i < j of ``texts`` with a TF-IDF cosine of at least ``threshold``, sorted by (i, j).

    None is no text, and says nothing. Where no text has a word, there are no pairs.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    documents = [" ".join(part for part in pair if part) for pair in texts]
    try:
        x = TfidfVectorizer().fit_transform(documents).tocsr()
    except ValueError:  # the vocabulary is empty
        return _pairs([])
    return _pairs([_block(x, at, threshold) for at in range(0, x.shape[0], _ROWS)])


def _block(x: Any, start: int, threshold: float) -> _Block:
    """The pairs whose first text is one of the ``_ROWS`` from ``start`` on; ``x``: sparse (n, words), of length 1."""
    product = (x[start : start + _ROWS] @ x[start:].T).tocoo()
    kept = (product.row < product.col) & (product.data >= threshold - SLACK)
    return product.row[kept] + start, product.col[kept] + start, product.data[kept]


def _pairs(blocks: Sequence[_Block]) -> SimilarPairs:
    none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    i, j, similarity = (np.concatenate(parts) for parts in zip(none, *blocks, strict=True))
    order = np.lexsort((j, i))
    cosines = np.clip(similarity[order], 0.0, 1.0).astype(np.float32)
    return SimilarPairs(i[order].astype(np.int32), j[order].astype(np.int32), cosines)
