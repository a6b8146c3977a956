"""Ranking formulas: BM25, and the fusion of several rankings of the same ids."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from consolidation_pipeline.core.search.words import TextStatistics


class Comparable(Hashable, Protocol):
    """Hashable id with an order."""

    def __lt__(self, other: Any, /) -> bool: ...


Id = TypeVar("Id", bound=Comparable)

# Maximum number of memories that each retriever lists: so many for each hit that is shown, and at least so many, also
# in a project with indexes. Measured: docs/quality.md, docs/performance.md.
CANDIDATES_OF_HIT, MIN_CANDIDATES, MIN_INDEXED_CANDIDATES = 2, 100, 60
# Weights of the z-scores of the semantic and of the keyword retriever. Measured: docs/quality.md.
SCORE_WEIGHTS = (0.4, 0.6)
# Damping of the ranks that are fused.
_RANK_DAMPING = 60
# BM25: saturation of repeated words, and share of the normalisation by length.
_K1, _B = 1.2, 0.75


def reciprocal_rank_fusion(rankings: Sequence[Sequence[Id]], weights: Sequence[float]) -> list[tuple[Id, float]]:
    """Return the ids with their sum of weight / (60 + rank) over the rankings, highest first, ties by id.

    After Cormack, Clarke and Büttcher (2009), with a weight for each ranking.

    Args:
        rankings: Ids, best first. Ranks count from 1. For a repeated id, its first rank counts. An id that is missing
            in a ranking gets nothing from it.
        weights: One weight for each ranking.

    Raises:
        ValueError: The number of weights is not that of the rankings.
    """
    _check_lengths(rankings, weights)
    parts: dict[Id, list[float]] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        for rank, id_ in enumerate(dict.fromkeys(ranking), 1):
            parts.setdefault(id_, []).append(weight / (_RANK_DAMPING + rank))
    # fsum rounds only once, so that the order of the rankings does not matter.
    summed = ((id_, math.fsum(terms)) for id_, terms in parts.items())
    return sorted(summed, key=lambda pair: (-pair[1], pair[0]))


def weighted_z_scores(
    scores: Sequence[Mapping[Id, float]],
    weights: Sequence[float],
    absent: Sequence[float],
    outside: Collection[Id] = (),
) -> list[tuple[Id, float]]:
    """Return the ids with the weighted sum of their z-scores, highest first, ties by id.

    A z-score is (score - mean) / standard deviation over all ids of all rankings that are not ``outside``. It is 0 in a
    ranking in which all their scores are equal.

    Args:
        scores: Score by id, one mapping for each ranking.
        weights: One weight for each ranking.
        absent: For each ranking, the score of the ids that are missing in it.
        outside: Ids that get a score and do not change that of others, unless all ids are such.

    Raises:
        ValueError: The number of weights or absent scores is not that of the rankings, or a score is not finite.
    """
    _check_lengths(scores, weights)
    _check_lengths(scores, absent)
    ids = sorted(set().union(*scores))
    places = dict(zip(ids, range(len(ids)), strict=True))
    table = np.empty((len(scores), len(ids)))
    for row, listed, missing in zip(table, scores, absent, strict=True):
        row.fill(missing)
        row[list(map(places.__getitem__, listed))] = list(listed.values())
    if not np.isfinite(table).all():
        raise ValueError("a score is NaN or infinite; scores must be finite")
    if not ids:
        return []
    inside = np.array([id_ not in outside for id_ in ids]) if outside else None
    summed = sum_z_scores(table, weights, inside)
    order = np.argsort(-summed, kind="stable")
    return [(ids[at], score) for at, score in zip(order.tolist(), summed[order].tolist(), strict=True)]


def sum_z_scores(
    table: NDArray[Any], weights: Sequence[float], inside: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Return the weighted sum (n,) of the z-scores of a table (m, n) with a row of scores for each ranking.

    Of q tables (q, m, n) it returns (q, n). ``inside`` (n,) or (q, n): the columns of which mean and standard
    deviation are taken; None, or none of a table = all.
    """
    counted = np.ones(table.shape[-1], np.bool_) if inside is None else inside | ~inside.any(axis=-1, keepdims=True)
    counted = np.broadcast_to(counted[..., None, :], table.shape)
    number = counted.sum(axis=-1, keepdims=True)
    offset = table - np.where(counted, table, 0.0).sum(axis=-1, keepdims=True) / number
    highest = np.where(counted, table, -np.inf).max(axis=-1, keepdims=True)
    lowest = np.where(counted, table, np.inf).min(axis=-1, keepdims=True)
    variance = np.where(counted, offset**2, 0.0).sum(axis=-1, keepdims=True) / number
    deviation = np.where(highest > lowest, np.sqrt(variance), 0.0)
    z = np.divide(offset, deviation, out=np.zeros_like(table), where=deviation > 0)
    # Summed from the smallest to the largest term, so that the order of the rankings does not matter.
    summed: NDArray[np.float64] = np.sort(z * np.array(weights)[:, None], axis=-2).sum(axis=-2)
    return summed


def _check_lengths(rankings: Sequence[Any], numbers: Sequence[float]) -> None:
    if len(rankings) != len(numbers):
        raise ValueError(f"{len(rankings)} rankings have {len(numbers)} weights or absent scores: give one for each")


def bm25(lengths: NDArray[Any], counts: NDArray[Any], statistics: TextStatistics) -> NDArray[np.float64]:
    """Return the Okapi BM25 scores (n,) of texts (Robertson and Zaragoza 2009), or (q, n) of those of q searches.

    The weight of a word is ln(1 + (total - df + 0.5) / (df + 0.5)), which is never negative. A text without any of the
    words scores 0.

    Args:
        lengths: Length of each text (n,) or (q, n), in any unit.
        counts: Occurrences of each of the m query words in each text (n, m) or (q, n, m).
        statistics: Statistics of the texts among which these were found, or of these; of q searches, each has q rows.
    """
    df = statistics.frequencies
    weights = np.log1p((statistics.total - df + 0.5) / (df + 0.5))
    damped = counts + (_K1 * (1 - _B + _B * lengths / statistics.mean_length))[..., None]
    scores: NDArray[np.float64] = ((counts * (_K1 + 1) / damped) @ weights[..., None])[..., 0]
    return scores
