"""Judgement on candidates for the playbook: which gate fails, and what keeps a candidate waiting for a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from consolidation_pipeline.core.knowledge.advice import advises
from consolidation_pipeline.core.knowledge.disputes import contradicts_itself
from consolidation_pipeline.core.knowledge.playbook import REQUIRED_EVIDENCE
from consolidation_pipeline.core.knowledge.quality_gates import (
    HEURISTIC_REVIEW_FROM,
    Gate,
    Verdict,
    find_failed_gate,
    judge_promotion,
    lowest_promotion_confidence,
)
from consolidation_pipeline.core.knowledge.risky_text import find_delicate_subject, find_risks
from consolidation_pipeline.options import ConsolidationOptions
from consolidation_pipeline.store.knowledge.abstractions import APPROVED
from consolidation_pipeline.store.knowledge.playbook import Candidate


@dataclass(frozen=True)
class PromotionRules:
    """Options of a promotion. ``is_automatic``: entries may become active without a person."""

    t_promote: float
    is_automatic: bool

    @classmethod
    def of(cls, options: ConsolidationOptions) -> PromotionRules:
        """Return the rules of a project's options."""
        return cls(options.t_promote, options.playbook_approval == "automatic")


@dataclass(frozen=True)
class Judgement:
    """Verdict on a candidate; ``STORE`` means an active entry.

    ``obstacles``: why it waits although no gate fails. ``unread``: a text whose risks are obstacles too. They decide
    nothing, so they are looked for only when they are told: of many extracted candidates, few become entries.
    """

    verdict: Verdict
    obstacles: tuple[str, ...] = ()
    unread: str = ""

    def tell_obstacles(self) -> tuple[str, ...]:
        """Return the obstacles, risks first."""
        return (*_list_risks(self.unread), *self.obstacles)


def judge_candidate(candidate: Candidate, rules: PromotionRules, texts: Mapping[UUID, str] | None = None) -> Judgement:
    """Return the judgement on a candidate.

    One that fails no gate becomes active only if a person approved it, or the rules allow it, it is sure enough and has
    enough independent writers. If its text has a risk, or one of ``texts`` that it is made of may be an injection, it
    waits in any case.
    """
    if find_candidate_gate(candidate, rules) is not None:
        return Judgement(Verdict.DISCARD)
    if candidate.details.get(APPROVED):
        risks = _list_risks(candidate.content)
        return Judgement(Verdict.REVIEW if risks else Verdict.STORE, tuple(risks))
    if candidate.is_heuristic:
        return Judgement(Verdict.REVIEW, ("made without a model",), unread=candidate.content)
    assert candidate.confidence is not None  # Else it fails a gate.
    if judge_promotion(candidate.confidence, candidate.needs_review, t_promote=rules.t_promote) is Verdict.REVIEW:
        doubt = "needs review itself" if candidate.needs_review else "too little confidence to be promoted unseen"
        return Judgement(Verdict.REVIEW, (doubt,), unread=candidate.content)
    if not rules.is_automatic:
        reason = "a person approves entries (playbook_approval = person)"
        return Judgement(Verdict.REVIEW, (reason,), unread=candidate.content)
    obstacles = [*_list_risks(candidate.content), *_find_planted(candidate, texts or {})]
    if subject := find_delicate_subject(candidate.content):
        obstacles.append(f"a person decides on what it is about: {subject!r}")
    if len(candidate.writers) < REQUIRED_EVIDENCE:
        obstacles.append(f"evidence of {count_writers(len(candidate.writers))}, {REQUIRED_EVIDENCE} are required")
    return Judgement(Verdict.REVIEW if obstacles else Verdict.STORE, tuple(obstacles))


def _list_risks(text: str) -> list[str]:
    return [risk.reason for risk in find_risks(text)]


def find_candidate_gate(candidate: Candidate, rules: PromotionRules) -> Gate | None:
    """Return the gate that keeps a candidate out of the playbook, or None."""
    is_extracted = _is_extracted(candidate)
    gate = find_failed_gate(
        candidate.confidence,
        len(candidate.raw_ids),
        lowest_confidence=lowest_confidence(candidate, rules),
    )
    # The slow checks come last: many candidates fail another gate.
    if gate is None and is_extracted:
        # A template family has neither practices nor gotchas: its line has many values.
        found = candidate.details.get("best_practices") or candidate.details.get("gotchas")
        summary, title = (candidate.details.get(key) or "" for key in ("summary", "title"))
        if not found or not advises(candidate.content, summary, title):
            return Gate.ADVICE
        return Gate.CONTRADICTION if contradicts_itself(candidate.content) else None
    return gate


def lowest_confidence(candidate: Candidate, rules: PromotionRules) -> float:
    """Return the confidence from which this candidate is proposed."""
    if _is_extracted(candidate):
        return HEURISTIC_REVIEW_FROM
    return 0.0 if candidate.details.get(APPROVED) else lowest_promotion_confidence(rules.t_promote)


def _is_extracted(candidate: Candidate) -> bool:
    return candidate.is_heuristic and not candidate.details.get(APPROVED)


def _find_planted(candidate: Candidate, texts: Mapping[UUID, str]) -> list[str]:
    """Return the first injection in the memories that a candidate is made of, as a list of at most one reason."""
    for raw_id in candidate.raw_ids:
        for risk in find_risks(texts.get(raw_id, "")):
            if risk.is_injection:
                return [f"memory {raw_id} behind it: {risk.reason}"]
    return []


def count_writers(number: int) -> str:
    """Return a number of independent writers in words."""
    return "1 independent writer" if number == 1 else f"{number} independent writers"
