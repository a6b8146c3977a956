"""Relevance of memories, which falls with age and disuse and rises with relations, importance and confidence."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.vectors import check_numbers


@dataclass(frozen=True)
class DecayRates:
    """Constants of the decay formula; see ``compute_relevance``."""

    age: float = 0.1
    """Decay per day of age: a half-life of 6.9 days."""
    access: float = 0.05
    """Decay per day since the last access."""
    access_base: float = 0.3
    """Access factor of a memory that is never used again."""
    access_weight: float = 0.3
    """Amount that a fresh access adds to the access factor."""
    relations: float = 0.3
    """Weight of ln(1 + number of relations)."""
    importance_base: float = 0.5
    """Added to the importance that people and agents set."""
    confidence_base: float = 0.7
    """Confidence factor at confidence 0."""
    confidence_weight: float = 0.3
    """Amount that full confidence adds to the confidence factor."""
    default_confidence: float = 0.5
    """Mean confidence of a memory without relations."""
    floor: float = 0.001
    """Lower bound of the relevance; there is no upper bound."""


DEFAULT_RATES = DecayRates()


def compute_relevance(
    age_days: ArrayLike,
    access_days: ArrayLike | None,
    relations: ArrayLike,
    importance: ArrayLike,
    confidence: ArrayLike | None,
    *,
    rates: DecayRates = DEFAULT_RATES,
) -> NDArray[np.float64]:
    """Return the relevance of memories::

        exp(-0.1 age) * (0.3 + 0.3 exp(-0.05 access)) * (1 + 0.3 ln(1 + relations))
                      * (0.5 + importance) * (0.7 + 0.3 confidence), at least 0.001

    Inputs (n,) broadcast with scalars.

    Args:
        age_days: Days since the memory was learned. Negative values count as 0.
        access_days: Days since the last access. Negative values count as 0. None or NaN, for a memory that was never
            accessed, counts as the age.
        relations: Number of relations that count.
        importance: Importance, 0 or more.
        confidence: Mean confidence of the relations. It counts as 0.5 if it is None or NaN, or without relations.
        rates: Constants of the formula.

    Raises:
        ValueError: An age is NaN, or ``relations`` or ``importance`` is NaN or negative.
    """
    age = np.maximum(check_numbers("age_days", age_days, minimum=-np.inf), 0.0)
    links = check_numbers("relations", relations, minimum=0.0)
    weight = check_numbers("importance", importance, minimum=0.0)
    since = np.asarray(access_days, dtype=np.float64)
    idle = np.maximum(np.where(np.isnan(since), age, since), 0.0)
    trust = np.asarray(confidence, dtype=np.float64)
    trust = np.where(np.isnan(trust) | (links == 0.0), rates.default_confidence, trust)
    score = (
        np.exp(-rates.age * age)
        * (rates.access_base + rates.access_weight * np.exp(-rates.access * idle))
        * (1.0 + rates.relations * np.log1p(links))
        * (rates.importance_base + weight)
        * (rates.confidence_base + rates.confidence_weight * trust)
    )
    relevance: NDArray[np.float64] = np.maximum(score, rates.floor)
    return relevance
