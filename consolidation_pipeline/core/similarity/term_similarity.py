"""Similarity of texts by their words alone (TF-IDF), for texts without vectors of an embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from consolidation_pipeline.core.similarity.similarity_join import SLACK, SimilarPairs, concatenate_pairs

# Lowest cosine of TF-IDF vectors of texts that may say the same.
T_TERMS = 0.85
# Texts that are multiplied with all later ones at a time.
_ROWS = 1000


def join_terms(texts: Sequence[tuple[str | None, str | None]], threshold: float = T_TERMS) -> SimilarPairs:
    """Return all pairs i < j of ``texts`` with a TF-IDF cosine of at least ``threshold``, sorted by (i, j).

    Args:
        texts: Each in two parts, either of which may be None.
        threshold: Lowest cosine.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    documents = [" ".join(part for part in pair if part) for pair in texts]
    try:
        x = TfidfVectorizer().fit_transform(documents).tocsr()
    except ValueError:  # the vocabulary is empty
        return concatenate_pairs([])
    return concatenate_pairs([_join_block(x, at, threshold) for at in range(0, x.shape[0], _ROWS)])


def _join_block(x: Any, start: int, threshold: float) -> SimilarPairs:
    """Return the pairs whose first text is among the ``_ROWS`` from ``start``. ``x``: sparse unit rows (n, words)."""
    product = (x[start : start + _ROWS] @ x[start:].T).tocoo()
    kept = np.flatnonzero((product.row < product.col) & (product.data >= threshold - SLACK))
    kept = kept[np.lexsort((product.col[kept], product.row[kept]))]
    cosines = np.clip(product.data[kept], 0.0, 1.0).astype(np.float32)
    return SimilarPairs(
        (product.row[kept] + start).astype(np.int32), (product.col[kept] + start).astype(np.int32), cosines
    )
