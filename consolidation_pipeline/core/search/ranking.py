"""Ranking: texts by the words they share with a question, and several rankings of the same things made one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray


class Comparable(Hashable, Protocol):
    """An id: it can be looked up, and ids have an order."""

    def __lt__(self, other: Any, /) -> bool: ...


Id = TypeVar("Id", bound=Comparable)


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[Id]], weights: Sequence[float], k: float = 60
) -> list[tuple[Id, float]]:
    """Ids with the sum of weight / (k + rank) over the rankings, highest first, ties by id.

    Each ranking lists ids, best first; ranks count from 1, an id that a ranking lacks gets nothing from it, and of one
    that it repeats the first place counts. After Cormack, Clarke and Büttcher (2009), with a weight for each ranking.

    Raises:
        ValueError: not one weight for each ranking, or k is not above -1.
    """
    _check(rankings, weights)
    if not k > -1:
        raise ValueError(f"k is {k}; it must be above -1, so that no rank is divided by zero")
    parts: dict[Id, list[float]] = {}
    for ranking, weight in zip(rankings, weights, strict=True):
        for rank, id_ in enumerate(dict.fromkeys(ranking), 1):
            parts.setdefault(id_, []).append(weight / (k + rank))
    return _sorted(parts)


def weighted_z_scores(
    scores: Sequence[Mapping[Id, float]], weights: Sequence[float], absent: Sequence[float]
) -> list[tuple[Id, float]]:
    """Ids with the weighted sum of their standardised scores, highest first, ties by id.

    Each mapping holds the scores of one ranking; to an id that it lacks it gives what ``absent`` says. Standardised is
    (score - mean) / standard deviation over all ids that any ranking has; a ranking without spread says nothing.

    Raises:
        ValueError: not one weight and one absent score for each ranking, or a score is not finite.
    """
    _check(scores, weights)
    _check(scores, absent)
    ids = sorted({id_ for listed in scores for id_ in listed})
    table = np.array(
        [[listed.get(id_, missing) for id_ in ids] for listed, missing in zip(scores, absent, strict=True)]
    )
    if not np.isfinite(table).all():
        raise ValueError("a score is NaN or infinite; scores must be finite")
    if not ids:
        return []
    spread = table.max(axis=1) > table.min(axis=1)
    deviation = np.where(spread, table.std(axis=1), 0.0)[:, None]
    z = np.divide(table - table.mean(axis=1)[:, None], deviation, out=np.zeros_like(table), where=deviation > 0)
    # Summed from the smallest to the largest: the order of the rankings does not show.
    summed = np.sort(z * np.array(weights)[:, None], axis=0).sum(axis=0)
    order = np.argsort(-summed, kind="stable")
    return [(ids[at], score) for at, score in zip(order.tolist(), summed[order].tolist(), strict=True)]


def _check(legs: Sequence[Any], numbers: Sequence[float]) -> None:
    if len(legs) != len(numbers):
        raise ValueError(f"{len(legs)} rankings have {len(numbers)} weights or absent scores: give one for each")


def _sorted(parts: Mapping[Id, Sequence[float]]) -> list[tuple[Id, float]]:
    # Summed without rounding in between: the order of the rankings does not show.
    summed = ((id_, math.fsum(terms)) for id_, terms in parts.items())
    return sorted(summed, key=lambda pair: (-pair[1], pair[0]))


def bm25(lengths: NDArray[Any], counts: NDArray[Any], *, k1: float = 1.2, b: float = 0.75) -> NDArray[np.float64]:
    """Scores (n,) of texts by Okapi BM25 (Robertson and Zaragoza 2009): rare words count more, long texts less.

    ``lengths`` (n,): words of each text; ``counts`` (n, m): how often it has each of the m words that were asked for.
    How rare a word is, and the mean length, are taken from these texts themselves. The weight of a word is
    ln(1 + (n - df + 0.5) / (df + 0.5)), which is never negative; a text without any of the words scores 0.
    """
    having = (counts > 0).sum(axis=0)
    weights = np.log1p((len(lengths) - having + 0.5) / (having + 0.5))
    mean = lengths.mean() if lengths.any() else 1.0
    damped = counts + (k1 * (1 - b + b * lengths / mean))[:, None]
    scores: NDArray[np.float64] = (counts * (k1 + 1) / damped) @ weights
    return scores
