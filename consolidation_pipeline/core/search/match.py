"""Match of a memory and a query: what the memory tells about it in itself, whatever else a search finds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.search.words import TextStatistics


def compute_word_shares(
    counts: NDArray[Any], queries: Sequence[Collection[int]], statistics: TextStatistics
) -> NDArray[np.float64]:
    """Return the share of a query's words that each of n texts has (n,), 0 to 1, rare words counting more.

    The weight of a word is ln(1 + (total + 1) / (df + 0.5)). It is never near 0, unlike that of BM25, so that a few
    texts tell as much as many.

    Args:
        counts: Occurrences of each of the m query words in each text (n, m).
        queries: Columns of ``counts`` that are the query in one language each. The best language of a text counts.
        statistics: Statistics of the texts among which these were found, or of these.
    """
    present = counts > 0
    weights = np.log1p((statistics.total + 1) / (statistics.frequencies + 0.5))
    shares = [present[:, columns] @ weights[columns] / weights[columns].sum() for columns in map(list, queries)]
    found: NDArray[np.float64] = np.max(shares, axis=0)
    return found


def compute_match(similarity: float | None, word_share: float | None, *, unrelated: float, same: float) -> float:
    """Return how well a memory answers a query, 0 to 1: the mean of what meaning and words tell.

    Meaning is the place of the cosine between that of unrelated texts and that of texts that say the same. Measured:
    docs/quality.md.

    Args:
        similarity: Cosine similarity; None = unknown, so that words alone tell.
        word_share: Share of the query's words; None = the query has none, so that meaning alone tells.
        unrelated: Cosine similarity of a query and a text that has nothing to do with it.
        same: Cosine similarity of texts that say the same, above ``unrelated``.
    """
    told = []
    if similarity is not None:
        told.append(min(1.0, max(0.0, (similarity - unrelated) / (same - unrelated))))
    if word_share is not None:
        told.append(word_share)
    return round(sum(told) / len(told), 4) if told else 0.0
