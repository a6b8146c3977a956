"""Quality gates: rules by which a text is stored, reviewed by a person, discarded, or promoted to the playbook."""

from __future__ import annotations

from enum import StrEnum

from consolidation_pipeline.core.checks import check_count, check_share
from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE

# Confidence of a model's pattern: lower is discarded; up to ``REVIEW_UP_TO`` it waits for a person.
MIN_CONFIDENCE = 0.70
REVIEW_UP_TO = 0.80
# Lowest confidence of a promotion without review (the default of the option ``t_promote``), and with review.
T_PROMOTE = 0.85
PROMOTION_REVIEW_FROM = 0.80
# Lowest cosine with an entry at which a candidate reinforces it, and at which a person decides.
REINFORCE_FROM = 0.90
ENTRY_REVIEW_FROM = 0.85
# Lowest confidence at which an extracted text is proposed for the playbook. Measured with the local model: 12 of the 21
# patterns of examples/memories.jsonl reach it, each on one topic; of patterns from commit titles 0 of 10, from bug
# reports 1 in 11, from short questions 1 in 5. Texts below it mix sentences of several topics.
HEURISTIC_REVIEW_FROM = 0.60
# Extracted entries of a project that may wait for a person at a time, the best first.
MAX_HEURISTIC_WAITING = 20

# Similarities are computed in float32.
_SLACK = 1e-6


class Verdict(StrEnum):
    """Result of a gate for a reply, or for a candidate for the playbook."""

    DISCARD = "discard"
    REVIEW = "review"
    STORE = "store"


class Gate(StrEnum):
    """Condition that a candidate for the playbook does not meet."""

    EVIDENCE = "evidence"
    CONFIDENCE = "confidence"
    ADVICE = "advice"
    CONTRADICTION = "contradiction"


class EntryAction(StrEnum):
    """Effect of a candidate on the playbook."""

    CREATE = "create"
    REVIEW = "review"
    REINFORCE = "reinforce"


def judge_pattern(confidence: float) -> Verdict:
    """Return the verdict on a model's pattern: below 0.70 discard, up to and including 0.80 review, above it store."""
    check_share("confidence", confidence)
    if confidence < MIN_CONFIDENCE:
        return Verdict.DISCARD
    return Verdict.STORE if confidence > REVIEW_UP_TO else Verdict.REVIEW


def judge_principle(confidence: float) -> Verdict:
    """Return the verdict on a model's principle: above 0.80 store, else discard."""
    check_share("confidence", confidence)
    return Verdict.STORE if confidence > REVIEW_UP_TO else Verdict.DISCARD


def find_failed_gate(confidence: float | None, evidence: int, *, lowest_confidence: float) -> Gate | None:
    """Return the first condition on its evidence that keeps a candidate out of the playbook, or None.

    It needs at least 3 raw memories as ``evidence`` and a confidence of at least ``lowest_confidence``.
    """
    check_count("evidence", evidence)
    if confidence is not None:
        check_share("confidence", confidence)
    if evidence < REQUIRED_EVIDENCE:
        return Gate.EVIDENCE
    if confidence is None or confidence < lowest_confidence:
        return Gate.CONFIDENCE
    return None


def lowest_promotion_confidence(t_promote: float) -> float:
    """Return the confidence from which a model's pattern or principle is proposed for the playbook."""
    return min(t_promote, PROMOTION_REVIEW_FROM)


def judge_promotion(confidence: float, needs_review: bool, *, t_promote: float = T_PROMOTE) -> Verdict:
    """Return the verdict on a model's candidate that fails no gate.

    Review below ``t_promote``, or if it ``needs_review``; else store.
    """
    check_share("confidence", confidence)
    return Verdict.REVIEW if needs_review or confidence < t_promote else Verdict.STORE


def judge_fit(similarity: float | None) -> EntryAction:
    """Return the effect of a candidate by its cosine with the most similar entry.

    From 0.90 it reinforces that entry, from 0.85 a person decides, below it becomes an entry of its own, as it does if
    there is no entry (None). Thresholds are inclusive, with a slack of 1e-6. NaN raises ValueError.
    """
    if similarity is None:
        return EntryAction.CREATE
    if similarity != similarity:
        raise ValueError("similarity is NaN; it must be a cosine, or None if there is no entry")
    if similarity >= REINFORCE_FROM - _SLACK:
        return EntryAction.REINFORCE
    return EntryAction.REVIEW if similarity >= ENTRY_REVIEW_FROM - _SLACK else EntryAction.CREATE
