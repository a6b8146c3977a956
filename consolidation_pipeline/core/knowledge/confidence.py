"""Confidence of derived memories: from the similarity of their sources, weighed by the amount of evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable

from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE

# Highest confidence of an extracted text: below every gate of unreviewed promotion.
HEURISTIC_CAP = 0.75
# Confidence of texts that the model does not rate (summaries, profiles): above extracted texts, and not above the
# highest confidence that is stored for review.
UNRATED_LLM_CONFIDENCE = 0.80
# Assumed probability that one source, or one session, is mistaken. With it, three memories of one session keep 76 % of
# a confidence, and two memories of two sessions 91 %.
ERROR_RATE = 0.25


def heuristic_confidence(mean_similarity: float | None) -> float:
    """Return the confidence of an extracted text: the mean cosine of the group's units, clipped to [0, 0.75].

    Args:
        mean_similarity: None for a group of one, which gives 0.

    Raises:
        ValueError: ``mean_similarity`` is NaN.
    """
    if mean_similarity is None:
        return 0.0
    if math.isnan(mean_similarity):
        raise ValueError("mean_similarity is NaN; it must be a cosine, or None where there is no pair")
    return min(HEURISTIC_CAP, max(0.0, float(mean_similarity)))


def weigh_evidence(confidence: float, sources: int, sessions: int) -> float:
    """Return ``confidence`` weighed by its evidence: confidence * w(sources) * w(sessions).

    w(n) = min(1, (1 - 0.25^n) / (1 - 0.25^3)), the noisy-or of Pearl (1988): n independent witnesses are wrong only if
    all of them are mistaken, each with probability ``ERROR_RATE``. It is relative to three witnesses, the evidence that
    promotion requires, so three leave a confidence unchanged. Memories of one session witness one occasion, hence the
    second factor. The result never exceeds ``confidence`` and never falls when an argument grows.

    Args:
        confidence: in [0, 1].
        sources: number of sources; 0 gives 0.
        sessions: number of sessions, see ``count_sessions``; 0 gives 0.

    Raises:
        ValueError: ``confidence`` is NaN or outside [0, 1], or a count is negative.
    """
    if not 0.0 <= confidence <= 1.0:
        raise ValueError(f"confidence is {confidence}; it must be from 0 to 1")
    if sources < 0 or sessions < 0:
        raise ValueError(f"{sources} sources and {sessions} sessions given; a count must be 0 or more")
    return float(confidence * _weigh_count(sources) * _weigh_count(sessions))


def _weigh_count(count: int) -> float:
    return min(1.0, (1.0 - ERROR_RATE**count) / (1.0 - ERROR_RATE**REQUIRED_EVIDENCE))


def count_sessions(session_ids: Iterable[str | None]) -> int:
    """Return the number of sessions; each source without a known session (None) counts as one of its own."""
    known: set[str] = set()
    unknown = 0
    for session in session_ids:
        unknown += session is None
        known.update(() if session is None else (session,))
    return len(known) + unknown
