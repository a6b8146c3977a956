"""How much a memory matters now: decay by age and disuse, raised by links, importance and confidence."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consolidation_pipeline.core.vectors import check_numbers


@dataclass(frozen=True)
class Rates:
    """The constants of the decay formula, one field each; see ``relevance``."""

    age: float = 0.1
    """Decay per day of age: half of it is gone after 6.9 days."""
    access: float = 0.05
    """Decay per day since the last access."""
    access_base: float = 0.3
    """What remains of the access factor when a memory is never used again."""
    access_weight: float = 0.3
    """What a fresh access adds to it."""
    relations: float = 0.3
    """Weight of ln(1 + number of relations)."""
    importance_base: float = 0.5
    """Added to the importance that people and agents set."""
    confidence_base: float = 0.7
    """Confidence factor at confidence 0."""
    confidence_weight: float = 0.3
    """What full confidence adds to it."""
    default_confidence: float = 0.5
    """Mean confidence assumed where there are no relations."""
    floor: float = 0.001
    """Relevance never falls below this; there is no ceiling."""


DEFAULT = Rates()


def relevance(
    age_days: ArrayLike,
    access_days: ArrayLike | None,
    relations: ArrayLike,
    importance: ArrayLike,
    confidence: ArrayLike | None,
    *,
    rates: Rates = DEFAULT,
) -> float | NDArray[np.float64]:
    """Relevance of memories as of one instant, by the decay formula of this project's pipeline::

        exp(-0.1 age) * (0.3 + 0.3 exp(-0.05 access)) * (1 + 0.3 ln(1 + relations))
                      * (0.5 + importance) * (0.7 + 0.3 confidence), at least 0.001

    ``age_days`` and ``access_days`` are fractional days since the memory was learned and last accessed; negative ones
    count as 0, and None or NaN in ``access_days`` (never accessed) counts as the age. ``relations`` is how many count,
    ``confidence`` their mean confidence; None, NaN or no relations count as 0.5. ``importance`` >= 0.

    Scalars give a float; arrays of shape (n,), which broadcast with scalars, give float64 (n,). A pure function: it
    knows no clock, and computing it twice changes nothing. ValueError: a NaN age, or a NaN or negative ``relations``
    or ``importance``.
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
    floored = np.maximum(score, rates.floor)
    return float(floored) if floored.ndim == 0 else np.asarray(floored)
