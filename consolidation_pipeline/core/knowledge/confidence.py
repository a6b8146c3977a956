"""Confidence of derived memories, from the similarity of their sources and the amount of evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable

from consolidation_pipeline.core.checks import check_share
from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE

# Highest confidence of an extracted text: below every gate of unreviewed promotion.
HEURISTIC_CAP = 0.75
# Confidence of texts that the model does not rate (summaries, profiles): above extracted texts, and not above the
# highest confidence that is stored for review.
UNRATED_LLM_CONFIDENCE = 0.80
# Assumed probability that one source, or one session, is mistaken. With it, three memories of one session keep 76 % of
# a confidence, and two memories of two sessions 91 %.
ERROR_RATE = 0.25


def heuristic_confidence(mean_similarity: float | None, support: float | None = None) -> float:
    """Return the confidence of an extracted text, from how much its sources agree: (cosine + support) / 2, up to 0.75.

    Args:
        mean_similarity: Mean cosine of the group's units, clipped to [0, 1]. A group of one (None) gives 0.
        support: Share of the units that say what the text says first; 0 if it only lists what they are about. None if
            it is not known: the cosine alone counts.

    Raises:
        ValueError: The similarity is NaN, or the support is not in [0, 1].
    """
    if mean_similarity is None:
        return 0.0
    if math.isnan(mean_similarity):
        raise ValueError("mean_similarity is NaN; it must be a cosine, or None if there is no pair")
    agreement = min(1.0, max(0.0, float(mean_similarity)))
    if support is not None:
        check_share("support", support)
        agreement = (agreement + support) / 2
    return min(HEURISTIC_CAP, agreement)


def weigh_agreement(confidence: float, units: int, overruled: int) -> float:
    """Return ``confidence`` weighed by the share of units that nothing overrules: confidence * (1 - overruled / units).

    Args:
        confidence: In [0, 1].
        units: Number of units, at least 1.
        overruled: Number of them that contradict others and are not the newest.
    """
    check_share("confidence", confidence)
    if not 0 <= overruled <= units or units < 1:
        raise ValueError(f"{overruled} of {units} units are overruled; it must be 0 to all of at least one unit")
    return confidence * (1 - overruled / units)


def weigh_evidence(confidence: float, sources: int, sessions: int, people: int = 1) -> float:
    """Return ``confidence`` weighed by its evidence: confidence * w(sources) * w(sessions + max(0, people - 1)).

    w(n) = min(1, (1 - 0.25^n) / (1 - 0.25^3)), the noisy-or of Pearl (1988): n independent sources are wrong only if
    each is mistaken, with probability ``ERROR_RATE``. The divisor is that of three sources, the evidence that promotion
    requires, so three leave a confidence unchanged. The second factor is there because memories of one session are not
    independent: ten paraphrases of a session count once. A further person counts as a further session does. The result
    never exceeds ``confidence`` and never falls if an argument grows.

    Args:
        confidence: In [0, 1].
        sources: Number of sources; 0 gives 0.
        sessions: Number of sessions, see ``count_sessions``; 0 gives 0, unless there are several people.
        people: Number of known writers.
    """
    check_share("confidence", confidence)
    if min(sources, sessions, people) < 0:
        raise ValueError(f"{sources} sources, {sessions} sessions and {people} people; a count must be 0 or more")
    return float(confidence * _weigh_count(sources) * _weigh_count(sessions + max(0, people - 1)))


def _weigh_count(count: int) -> float:
    return min(1.0, (1.0 - ERROR_RATE**count) / (1.0 - ERROR_RATE**REQUIRED_EVIDENCE))


def count_sessions(session_ids: Iterable[str | None]) -> int:
    """Return the number of sessions; each source without a known session (None) counts as a session of its own."""
    given = list(session_ids)
    return len({*given} - {None}) + given.count(None)
