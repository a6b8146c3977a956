"""What may be stored, what a person looks at first, and what becomes an instruction for agents."""

from __future__ import annotations

from enum import StrEnum

from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE

# All of pipeline.md: patterns, principles, playbook_entries.
MIN_CONFIDENCE = 0.70
REVIEW_UP_TO = 0.80
T_PROMOTE = 0.85
PROMOTION_REVIEW_FROM = 0.80
REINFORCE_FROM = 0.90
ENTRY_REVIEW_FROM = 0.85
# What was made without a model waits for a person from here on. Measured with the local model: 12 of the 21 patterns of
# examples/memories.jsonl reach it, each on one topic; none of ten that string titles of commits together; one in eleven
# of those from bug reports, one in five from short questions. Below it sentences of several topics meet.
HEURISTIC_REVIEW_FROM = 0.60
# So many of a project's at a time, the best first: what a person looks through at one go.
MAX_HEURISTIC_WAITING = 20

# Similarities are computed in float32.
_SLACK = 1e-6


class Verdict(StrEnum):
    """What becomes of a reply, or of a candidate for the playbook."""

    DISCARD = "discard"
    REVIEW = "review"
    STORE = "store"


class EntryAction(StrEnum):
    """What a candidate does to the playbook."""

    CREATE = "create"
    REVIEW = "review"
    REINFORCE = "reinforce"


def judge_pattern(confidence: float) -> Verdict:
    """By the model's confidence: below 0.70 discarded, to 0.80 inclusive stored for review, above it stored.

    ValueError: confidence NaN or outside [0, 1].
    """
    _require_share("confidence", confidence)
    if confidence < MIN_CONFIDENCE:
        return Verdict.DISCARD
    return Verdict.STORE if confidence > REVIEW_UP_TO else Verdict.REVIEW


def judge_principle(confidence: float) -> Verdict:
    """By the model's confidence: stored above 0.80, else discarded. ValueError: as ``judge_pattern``."""
    _require_share("confidence", confidence)
    return Verdict.STORE if confidence > REVIEW_UP_TO else Verdict.DISCARD


def judge_promotion(
    confidence: float | None,
    evidence: int,
    needs_review: bool,
    *,
    t_promote: float = T_PROMOTE,
    approved: bool = False,
) -> Verdict:
    """Whether a pattern or principle becomes a playbook entry.

    Never with less than 3 pieces of evidence or without a confidence. Stored from ``t_promote`` on unless it needs
    review itself; then, and from 0.80 to below ``t_promote``, a person decides. What a person ``approved`` is stored
    whatever its confidence. ValueError: as ``judge_pattern``, or negative evidence.
    """
    if evidence < 0:
        raise ValueError(f"evidence is {evidence}; it must be 0 or more")
    if confidence is None:
        return Verdict.DISCARD
    _require_share("confidence", confidence)
    if evidence < REQUIRED_EVIDENCE:
        return Verdict.DISCARD
    if approved:
        return Verdict.STORE
    if confidence < min(t_promote, PROMOTION_REVIEW_FROM):
        return Verdict.DISCARD
    return Verdict.REVIEW if needs_review or confidence < t_promote else Verdict.STORE


def judge_heuristic_promotion(confidence: float | None, evidence: int, *, instructs: bool) -> Verdict:
    """Whether what was made without a model is proposed for the playbook; by itself it never becomes an entry.

    A person decides from ``HEURISTIC_REVIEW_FROM`` on, with at least 3 pieces of evidence and where it ``instructs``:
    it says what to do or to watch out for, and does not contradict itself. ValueError: as ``judge_promotion``.
    """
    if evidence < 0:
        raise ValueError(f"evidence is {evidence}; it must be 0 or more")
    if confidence is None:
        return Verdict.DISCARD
    _require_share("confidence", confidence)
    sound = instructs and evidence >= REQUIRED_EVIDENCE and confidence >= HEURISTIC_REVIEW_FROM
    return Verdict.REVIEW if sound else Verdict.DISCARD


def judge_fit(similarity: float | None) -> EntryAction:
    """By the cosine with the most similar entry of the project, None where there is none.

    From 0.90 it reinforces that entry, from 0.85 a person decides, below it is an entry of its own; thresholds are
    inclusive with a slack of 1e-6. ValueError: NaN.
    """
    if similarity is None:
        return EntryAction.CREATE
    if similarity != similarity:
        raise ValueError("similarity is NaN; it must be a cosine, or None where there is no entry")
    if similarity >= REINFORCE_FROM - _SLACK:
        return EntryAction.REINFORCE
    return EntryAction.REVIEW if similarity >= ENTRY_REVIEW_FROM - _SLACK else EntryAction.CREATE


def _require_share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}; it must be from 0 to 1")
