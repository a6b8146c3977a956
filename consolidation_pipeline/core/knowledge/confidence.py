"""How far a derived memory is to be trusted: by the likeness of its sources, and by how many bear it out."""

from __future__ import annotations

import math
from collections.abc import Iterable

from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE

# What was put together without a model stays below every gate of promotion (pipeline.md, patterns).
HEURISTIC_CAP = 0.75
# Of what a model wrote and was not asked how sure it is of (summaries, profiles): above that, and not above what is
# stored without review.
UNRATED_LLM_CONFIDENCE = 0.80
# Chance that one source, or one session, is mistaken: half of the notes that agents take would be far too many, none
# too few. With it three memories of a single session keep 76 % of a confidence, two of two sessions 91 %.
DOUBT = 0.25


def heuristic_confidence(mean_similarity: float | None) -> float:
    """Confidence in [0, 0.75] of what was extracted without a model: the mean cosine between the group's units.

    ``None`` (a group of one) is 0: nothing bears it out. ValueError: NaN.
    """
    if mean_similarity is None:
        return 0.0
    if math.isnan(mean_similarity):
        raise ValueError("mean_similarity is NaN; it must be a cosine, or None where there is no pair")
    return min(HEURISTIC_CAP, max(0.0, float(mean_similarity)))


def weigh_evidence(confidence: float, sources: int, sessions: int) -> float:
    """``confidence`` in [0, 1] weighed by what bears it out: c * w(sources) * w(sessions).

    w(n) = min(1, (1 - 0.25^n) / (1 - 0.25^3)) is the noisy-or of Pearl (1988), which is right unless all of its
    independent witnesses are mistaken, each with a chance of ``DOUBT``; as a share of what the three witnesses that
    promotion asks for give, so that they keep a confidence just as it is, and with it the gates. Memories of one
    session are witnesses of one occasion, hence the second factor. Never above ``confidence``, it falls in none of the
    three; 0 sources or sessions give 0. For sessions see ``count_sessions``. ValueError: confidence outside [0, 1] or
    NaN, a negative count.
    """
    if not 0.0 <= confidence <= 1.0:
        raise ValueError(f"confidence is {confidence}; it must be from 0 to 1")
    if sources < 0 or sessions < 0:
        raise ValueError(f"{sources} sources and {sessions} sessions given; a count must be 0 or more")
    return float(confidence * _witness(sources) * _witness(sessions))


def _witness(count: int) -> float:
    return min(1.0, (1.0 - DOUBT**count) / (1.0 - DOUBT**REQUIRED_EVIDENCE))


def count_sessions(session_ids: Iterable[str | None]) -> int:
    """How many sessions the sources come from; one without a known session is a session of its own."""
    known: set[str] = set()
    unknown = 0
    for session in session_ids:
        unknown += session is None
        known.update(() if session is None else (session,))
    return len(known) + unknown
