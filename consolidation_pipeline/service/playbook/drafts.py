"""Entries of the playbook as a run leaves them: made of a source, borne out by others, held against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.knowledge.playbook import compute_priority, find_category
from consolidation_pipeline.core.knowledge.quality_gates import (
    ENTRY_REVIEW_FROM,
    MAX_HEURISTIC_WAITING,
    EntryAction,
    Verdict,
    judge_fit,
)
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.core.similarity.similarity_join import similarity_join
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.playbook import Candidate, PlaybookEntry


@dataclass
class EntryDraft:
    """An entry as the run leaves it. ``held``: as it was, None = new; ``words_from``: whose vector its text has now."""

    entry: PlaybookEntry
    held: PlaybookEntry | None
    words_from: UUID
    reasons: list[str] = field(default_factory=list)
    reinforced: bool = False

    def become(self, entry: PlaybookEntry, reason: str) -> None:
        """Have the entry look like this from now on."""
        if entry != self.entry:
            self.entry = entry
            self.reasons.append(reason)


def with_source_text(entry: PlaybookEntry, source: Candidate) -> PlaybookEntry:
    """The entry in its source's words; a source does not say its category, so its words do."""
    said = (source.content, source.details.get("summary") or "", *source.details.get("best_practices", ()))
    return replace(
        entry,
        content=source.content,
        content_hash=source.content_hash,
        category=find_category("\n".join(said)),
        tags=source.tags,
    )


def with_evidence(entry: PlaybookEntry, leaves: Iterable[UUID]) -> PlaybookEntry:
    """The entry with these memories behind it too, but for those that a person took out; its priority never falls."""
    new = {*leaves} - {*entry.supporting} - entry.declined
    supporting = tuple(sorted({*entry.supporting, *new})) if new else entry.supporting
    least = compute_priority(entry.confidence, len(supporting))
    return replace(entry, supporting=supporting, priority=max(entry.priority, least))


def describe_evidence(source: Candidate) -> str:
    sure = "no confidence" if source.confidence is None else f"confidence {source.confidence:.2f}"
    return f"{len(source.leaves)} memories, {sure}"


class PlaybookDraft:
    """The drafts, and which of them and of the candidates resemble each other."""

    def __init__(
        self, slug: str, drafts: list[EntryDraft], candidates: Sequence[Candidate], vectors: Mapping[UUID, Vectors]
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
        if nearest is None or fit is EntryAction.CREATE:
            self._add(candidate, verdict, None)
        elif fit is EntryAction.REVIEW:
            self._add(candidate, Verdict.REVIEW, f"much like entry {nearest.entry.id} ({similarity:.2f})")
        else:
            same = [draft for cosine, draft in near if judge_fit(cosine) is EntryAction.REINFORCE]
            _reinforce(_first_active(same), candidate, same)

    def activate(self, draft: EntryDraft) -> None:
        """What waited for its source alone waits no longer."""
        entry = draft.entry
        if entry.status != "review" or entry.status_by_hand or entry.id not in self._row:
            return
        near = self._most_similar(self._row[entry.id])
        if judge_fit(near[0][0] if near else None) is EntryAction.CREATE:
            draft.become(replace(entry, status="active"), "promoted: what it was made from is sure enough by now")

    def _most_similar(self, row: int) -> list[tuple[float, EntryDraft]]:
        """The drafts that resemble what stands at ``row``, the most similar first; ties: the smaller id."""
        near = [(cosine, self._at[other]) for cosine, other in self._near[row] if other in self._at]
        return sorted(near, key=lambda one: (-one[0], one[1].entry.id))

    def _add(self, candidate: Candidate, verdict: Verdict, doubt: str | None) -> None:
        waits = verdict is Verdict.REVIEW
        if waits and candidate.is_heuristic:
            if self._waiting >= MAX_HEURISTIC_WAITING:
                self.held_back += 1
                return
            self._waiting += 1
        draft = EntryDraft(_new_entry(self._free_id(candidate), candidate, waits), None, candidate.id)
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


def _first_active(drafts: Sequence[EntryDraft]) -> EntryDraft:
    return next((draft for draft in drafts if draft.entry.status == "active"), drafts[0])


def _reinforce(draft: EntryDraft, candidate: Candidate, same: Sequence[EntryDraft]) -> None:
    """Put the candidate's memories behind an entry, unless one that says the same has them all."""
    if any(with_evidence(one.entry, candidate.leaves).supporting == one.entry.supporting for one in same):
        return
    grown = with_evidence(draft.entry, candidate.leaves)
    draft.reinforced = True
    draft.become(grown, f"borne out by {candidate.kind} {candidate.id}: {describe_evidence(candidate)}")


def _new_entry(id_: UUID, source: Candidate, waits: bool) -> PlaybookEntry:
    empty = PlaybookEntry(
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
    return with_evidence(with_source_text(empty, source), source.leaves)


def _why(source: Candidate, waits: bool, doubt: str | None) -> str:
    made = f"{source.kind} of {describe_evidence(source)}"
    if not waits:
        return f"promoted from a {made}"
    unsure = "needs review itself" if source.needs_review else "not sure enough to be promoted unasked"
    return f"proposed from a {made}: {doubt or ('made without a model' if source.is_heuristic else unsure)}"
