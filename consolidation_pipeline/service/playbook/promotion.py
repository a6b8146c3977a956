"""What becomes of the playbook: which patterns and principles become entries, which bear others out, which wait."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from consolidation_pipeline.core.knowledge.playbook import contradicts_itself
from consolidation_pipeline.core.knowledge.quality_gates import Verdict, judge_heuristic_promotion, judge_promotion
from consolidation_pipeline.service.playbook.drafts import (
    EntryDraft,
    PlaybookDraft,
    describe_evidence,
    with_evidence,
    with_source_text,
)
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.abstractions import APPROVED
from consolidation_pipeline.store.knowledge.playbook import Candidate, PlaybookEntry


@dataclass(frozen=True, kw_only=True)
class PromotionInputs:
    """What a plan is made from. ``vectors``: of entries and candidates, by id; others are compared with nothing.

    ``successors``: what a superseded source came to stand in; ``withdrawn``: by source, the hashes of the texts of
    entries that a person undid by themselves.
    """

    candidates: Sequence[Candidate]
    entries: Sequence[PlaybookEntry]
    vectors: Mapping[UUID, Vectors]
    successors: Mapping[UUID, UUID] = field(default_factory=dict)
    withdrawn: Mapping[UUID, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class PlaybookChanges:
    """The drafts that differ from what is held, and what became of the candidates that are no entry."""

    drafts: Sequence[EntryDraft]
    below: int
    held_back: int


def judge_candidate(candidate: Candidate, *, t_promote: float) -> Verdict:
    """Whether a candidate becomes an entry, waits for a person, or neither (``core.gates``)."""
    evidence = len(candidate.leaves)
    approved = bool(candidate.details.get(APPROVED))
    if candidate.is_heuristic and not approved:
        verdict = judge_heuristic_promotion(candidate.confidence, evidence, instructs=_advises(candidate))
        # Read last: it is all that costs time, and many candidates fall short anyway.
        return verdict if verdict is Verdict.DISCARD or not contradicts_itself(candidate.content) else Verdict.DISCARD
    return judge_promotion(
        candidate.confidence, evidence, candidate.needs_review, t_promote=t_promote, approved=approved
    )


def _advises(candidate: Candidate) -> bool:
    return bool(candidate.details.get("best_practices") or candidate.details.get("gotchas"))


def draft_entries(slug: str, material: PromotionInputs, *, t_promote: float) -> PlaybookChanges:
    """The playbook after a run, as far as it differs.

    First the entries there are follow their sources: to what superseded them, unless that has an entry of its own, and
    to what they say and rest on now. What was retired or dismissed without a successor leaves its entry as it is, for
    what was promoted is not silently lost. An active entry takes new words only from a source that would be promoted
    as it is, none takes them where a person has worded it.

    Then candidates are judged one after the other, each against what the earlier ones left: first those of a model,
    principles before patterns, by confidence, evidence and id. What an entry says already, at a cosine of 0.90, bears
    that out, an active one rather than one that waits; what resembles one from 0.85 on waits for a person, as does what
    was made without a model. A waiting entry becomes active when nothing but its source stood in the way, and that has
    become sure enough; not where a person had the last word on it. A second run drafts nothing.
    """
    verdicts = {candidate.id: judge_candidate(candidate, t_promote=t_promote) for candidate in material.candidates}
    drafts = [EntryDraft(entry, entry, entry.id) for entry in material.entries]
    _follow_successors(drafts, material.successors)
    own = _by_source(drafts)
    for candidate in material.candidates:
        if candidate.id in own:
            _follow_source(own[candidate.id], candidate, verdicts[candidate.id])
    fresh = [c for c in material.candidates if c.id not in own and not _is_withdrawn(c, material.withdrawn)]
    chosen = sorted((c for c in fresh if verdicts[c.id] is not Verdict.DISCARD), key=_rank)
    book = PlaybookDraft(slug, drafts, chosen, material.vectors)
    for candidate in sorted(material.candidates, key=_rank):
        if candidate.id in own and verdicts[candidate.id] is Verdict.STORE:
            book.activate(own[candidate.id])
    for candidate in chosen:
        book.judge(candidate, verdicts[candidate.id])
    changed = [draft for draft in book.drafts if draft.entry != draft.held]
    return PlaybookChanges(changed, len(fresh) - len(chosen), book.held_back)


def _rank(candidate: Candidate) -> tuple[bool, bool, float, int, UUID]:
    kind = candidate.kind != "principle"
    return candidate.is_heuristic, kind, -(candidate.confidence or 0.0), -len(candidate.leaves), candidate.id


def _is_withdrawn(candidate: Candidate, withdrawn: Mapping[UUID, frozenset[str]]) -> bool:
    return candidate.content_hash in withdrawn.get(candidate.id, ())


_STANDING = {"active": 0, "review": 1, "retired": 2}


def _first(drafts: Iterable[EntryDraft]) -> list[EntryDraft]:
    """Active ones first, then by priority, ties by id."""
    return sorted(drafts, key=lambda d: (_STANDING[d.entry.status], -d.entry.priority, d.entry.id))


def _by_source(drafts: Sequence[EntryDraft]) -> dict[UUID, EntryDraft]:
    return {d.entry.source_id: d for d in reversed(_first(drafts)) if d.entry.source_id is not None}


def _follow_successors(drafts: Sequence[EntryDraft], successors: Mapping[UUID, UUID]) -> None:
    taken = {draft.entry.source_id for draft in drafts}
    for draft in _first(d for d in drafts if d.entry.status != "retired"):
        source = draft.entry.source_id
        successor = None if source is None else successors.get(source)
        if successor is not None and successor not in taken:
            taken.add(successor)
            draft.become(replace(draft.entry, source_id=successor), f"{source} was superseded by {successor}")


def _follow_source(draft: EntryDraft, source: Candidate, verdict: Verdict) -> None:
    """Take over what the source says and rests on by now."""
    entry = draft.entry
    if entry.status == "retired":
        return
    if not entry.words_by_hand and (entry.status == "review" or verdict is Verdict.STORE):
        entry = replace(entry, confidence=source.confidence)
        if source.content_hash != entry.content_hash:
            entry = with_source_text(entry, source)
            draft.words_from = source.id
    draft.become(with_evidence(entry, source.leaves), f"its {source.kind} changed: {describe_evidence(source)}")
