"""What becomes of the playbook: which patterns and principles become entries, which bear others out, which wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.gates import (
    ENTRY_REVIEW_FROM,
    MOST_HEURISTIC_WAITING,
    Fit,
    Verdict,
    judge_fit,
    judge_heuristic_promotion,
    judge_promotion,
)
from consolidation_pipeline.core.memories import consolidated_id
from consolidation_pipeline.core.playbook import category, contradicts_itself, priority
from consolidation_pipeline.core.similarity import similarity_join
from consolidation_pipeline.store.abstractions import APPROVED
from consolidation_pipeline.store.playbook import Candidate, Entry
from consolidation_pipeline.store.vectors_io import Vectors


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a plan is made from. ``vectors``: of entries and candidates, by id; others are compared with nothing.

    ``successors``: what a superseded source came to stand in; ``withdrawn``: by source, the hashes of the texts of
    entries that a person undid by themselves.
    """

    candidates: Sequence[Candidate]
    entries: Sequence[Entry]
    vectors: Mapping[UUID, Vectors]
    successors: Mapping[UUID, UUID] = field(default_factory=dict)
    withdrawn: Mapping[UUID, frozenset[str]] = field(default_factory=dict)


@dataclass
class Draft:
    """An entry as the run leaves it. ``held``: as it was, None = new; ``words_from``: whose vector its text has now."""

    entry: Entry
    held: Entry | None
    words_from: UUID
    reasons: list[str] = field(default_factory=list)
    reinforced: bool = False

    def become(self, entry: Entry, reason: str) -> None:
        """Have the entry look like this from now on."""
        if entry != self.entry:
            self.entry = entry
            self.reasons.append(reason)


@dataclass(frozen=True)
class Drafted:
    """The drafts that differ from what is held, and what became of the candidates that are no entry."""

    drafts: Sequence[Draft]
    below: int
    held_back: int


def judge(candidate: Candidate, *, t_promote: float) -> Verdict:
    """Whether a candidate becomes an entry, waits for a person, or neither (``core.gates``)."""
    evidence = len(candidate.leaves)
    approved = bool(candidate.details.get(APPROVED))
    if candidate.is_heuristic and not approved:
        advises = bool(candidate.details.get("best_practices") or candidate.details.get("gotchas"))
        instructs = advises and not contradicts_itself(candidate.content)
        return judge_heuristic_promotion(candidate.confidence, evidence, instructs=instructs)
    return judge_promotion(
        candidate.confidence, evidence, candidate.needs_review, t_promote=t_promote, approved=approved
    )


def draft_entries(slug: str, material: Material, *, t_promote: float) -> Drafted:
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
    verdicts = {candidate.id: judge(candidate, t_promote=t_promote) for candidate in material.candidates}
    drafts = [Draft(entry, entry, entry.id) for entry in material.entries]
    _follow_successors(drafts, material.successors)
    own = _by_source(drafts)
    for candidate in material.candidates:
        if candidate.id in own:
            _follow_source(own[candidate.id], candidate, verdicts[candidate.id])
    fresh = [c for c in material.candidates if c.id not in own and not _is_withdrawn(c, material.withdrawn)]
    chosen = sorted((c for c in fresh if verdicts[c.id] is not Verdict.DISCARD), key=_rank)
    book = _Book(slug, drafts, chosen, material.vectors)
    for candidate in sorted(material.candidates, key=_rank):
        if candidate.id in own and verdicts[candidate.id] is Verdict.STORE:
            book.activate(own[candidate.id])
    for candidate in chosen:
        book.judge(candidate, verdicts[candidate.id])
    changed = [draft for draft in book.drafts if draft.entry != draft.held]
    return Drafted(changed, len(fresh) - len(chosen), book.held_back)


def _rank(candidate: Candidate) -> tuple[bool, bool, float, int, UUID]:
    kind = candidate.kind != "principle"
    return candidate.is_heuristic, kind, -(candidate.confidence or 0.0), -len(candidate.leaves), candidate.id


def _is_withdrawn(candidate: Candidate, withdrawn: Mapping[UUID, frozenset[str]]) -> bool:
    return candidate.content_hash in withdrawn.get(candidate.id, ())


_STANDING = {"active": 0, "review": 1, "retired": 2}


def _first(drafts: Iterable[Draft]) -> list[Draft]:
    """Active ones first, then by priority, ties by id."""
    return sorted(drafts, key=lambda d: (_STANDING[d.entry.status], -d.entry.priority, d.entry.id))


def _by_source(drafts: Sequence[Draft]) -> dict[UUID, Draft]:
    return {d.entry.source_id: d for d in reversed(_first(drafts)) if d.entry.source_id is not None}


def _follow_successors(drafts: Sequence[Draft], successors: Mapping[UUID, UUID]) -> None:
    taken = {draft.entry.source_id for draft in drafts}
    for draft in _first(d for d in drafts if d.entry.status != "retired"):
        source = draft.entry.source_id
        successor = None if source is None else successors.get(source)
        if successor is not None and successor not in taken:
            taken.add(successor)
            draft.become(replace(draft.entry, source_id=successor), f"{source} was superseded by {successor}")


def _follow_source(draft: Draft, source: Candidate, verdict: Verdict) -> None:
    """Take over what the source says and rests on by now."""
    entry = draft.entry
    if entry.status == "retired":
        return
    if not entry.words_by_hand and (entry.status == "review" or verdict is Verdict.STORE):
        entry = replace(entry, confidence=source.confidence)
        if source.content_hash != entry.content_hash:
            entry = _with_words(entry, source)
            draft.words_from = source.id
    draft.become(_with_evidence(entry, source.leaves), f"its {source.kind} changed: {_told(source)}")


def _with_words(entry: Entry, source: Candidate) -> Entry:
    """The entry in its source's words; a source does not say its category, so its words do."""
    said = (source.content, source.details.get("summary") or "", *source.details.get("best_practices", ()))
    return replace(
        entry,
        content=source.content,
        content_hash=source.content_hash,
        category=category("\n".join(said)),
        tags=source.tags,
    )


def _with_evidence(entry: Entry, leaves: Iterable[UUID]) -> Entry:
    """The entry with these memories behind it too, but for those that a person took out; its priority never falls."""
    new = {*leaves} - {*entry.supporting} - entry.declined
    supporting = tuple(sorted({*entry.supporting, *new})) if new else entry.supporting
    least = priority(entry.confidence, len(supporting))
    return replace(entry, supporting=supporting, priority=max(entry.priority, least))


def _told(source: Candidate) -> str:
    sure = "no confidence" if source.confidence is None else f"confidence {source.confidence:.2f}"
    return f"{len(source.leaves)} memories, {sure}"


class _Book:
    """The drafts, and which of them and of the candidates resemble each other."""

    def __init__(
        self, slug: str, drafts: list[Draft], candidates: Sequence[Candidate], vectors: Mapping[UUID, Vectors]
    ) -> None:
        self.drafts = list(drafts)
        self.held_back = 0
        self._slug = slug
        self._ids = {draft.entry.id for draft in drafts}
        self._waiting = sum(d.entry.status == "review" and d.entry.is_heuristic for d in drafts)
        live = [d for d in drafts if d.entry.status != "retired" and d.words_from in vectors]
        self._at = dict(enumerate(live))
        self._row = {id_: row for row, id_ in enumerate([*(d.entry.id for d in live), *(c.id for c in candidates)])}
        found = [d.words_from for d in live] + [c.id for c in candidates]
        self._near = _find_neighbours([vectors[id_] for id_ in found])

    def judge(self, candidate: Candidate, verdict: Verdict) -> None:
        """Make the candidate an entry, or have it bear one out."""
        near = self._most_similar(self._row[candidate.id])
        similarity, nearest = near[0] if near else (None, None)
        fit = judge_fit(similarity)
        if nearest is None or fit is Fit.CREATE:
            self._add(candidate, verdict, None)
        elif fit is Fit.REVIEW:
            self._add(candidate, Verdict.REVIEW, f"much like entry {nearest.entry.id} ({similarity:.2f})")
        else:
            same = [draft for cosine, draft in near if judge_fit(cosine) is Fit.REINFORCE]
            _reinforce(_first_active(same), candidate, same)

    def activate(self, draft: Draft) -> None:
        """What waited for its source alone waits no longer."""
        entry = draft.entry
        if entry.status != "review" or entry.status_by_hand or entry.id not in self._row:
            return
        near = self._most_similar(self._row[entry.id])
        if judge_fit(near[0][0] if near else None) is Fit.CREATE:
            draft.become(replace(entry, status="active"), "promoted: what it was made from is sure enough by now")

    def _most_similar(self, row: int) -> list[tuple[float, Draft]]:
        """The drafts that resemble what stands at ``row``, the most similar first; ties: the smaller id."""
        near = [(cosine, self._at[other]) for cosine, other in self._near[row] if other in self._at]
        return sorted(near, key=lambda one: (-one[0], one[1].entry.id))

    def _add(self, candidate: Candidate, verdict: Verdict, doubt: str | None) -> None:
        waits = verdict is Verdict.REVIEW
        if waits and candidate.is_heuristic:
            if self._waiting >= MOST_HEURISTIC_WAITING:
                self.held_back += 1
                return
            self._waiting += 1
        draft = Draft(_new_entry(self._free_id(candidate), candidate, waits), None, candidate.id)
        draft.reasons.append(_why(candidate, waits, doubt))
        self.drafts.append(draft)
        self._ids.add(draft.entry.id)
        self._at[self._row[candidate.id]] = draft

    def _free_id(self, candidate: Candidate) -> UUID:
        """An id of its own: an entry that was made of the candidate may have gone over to what superseded that."""
        names = [candidate.id]
        while (id_ := consolidated_id(self._slug, "playbook", names, ALGORITHM_VERSION)) in self._ids:
            names.append(id_)
        return id_


def _find_neighbours(vectors: Sequence[Vectors]) -> dict[int, list[tuple[float, int]]]:
    """By row, the rows that resemble it as far as that matters, with their cosine."""
    near: dict[int, list[tuple[float, int]]] = defaultdict(list)
    if len(vectors) > 1:
        pairs = similarity_join(np.stack(vectors), ENTRY_REVIEW_FROM)
        for i, j, cosine in zip(pairs.i.tolist(), pairs.j.tolist(), pairs.similarity.tolist(), strict=True):
            near[i].append((cosine, j))
            near[j].append((cosine, i))
    return near


def _first_active(drafts: Sequence[Draft]) -> Draft:
    return next((draft for draft in drafts if draft.entry.status == "active"), drafts[0])


def _reinforce(draft: Draft, candidate: Candidate, same: Sequence[Draft]) -> None:
    """Put the candidate's memories behind an entry, unless one that says the same has them all."""
    if any(_with_evidence(one.entry, candidate.leaves).supporting == one.entry.supporting for one in same):
        return
    grown = _with_evidence(draft.entry, candidate.leaves)
    draft.reinforced = True
    draft.become(grown, f"borne out by {candidate.kind} {candidate.id}: {_told(candidate)}")


def _new_entry(id_: UUID, source: Candidate, waits: bool) -> Entry:
    empty = Entry(
        id=id_,
        version=None,
        source_id=source.id,
        status="review" if waits else "active",
        content="",
        content_hash="",
        category="",
        tags=(),
        priority=0,
        confidence=source.confidence,
        supporting=(),
        is_heuristic=source.is_heuristic,
    )
    return _with_evidence(_with_words(empty, source), source.leaves)


def _why(source: Candidate, waits: bool, doubt: str | None) -> str:
    made = f"{source.kind} of {_told(source)}"
    if not waits:
        return f"promoted from a {made}"
    unsure = "needs review itself" if source.needs_review else "not sure enough to be promoted unasked"
    return f"proposed from a {made}: {doubt or ('made without a model' if source.is_heuristic else unsure)}"
