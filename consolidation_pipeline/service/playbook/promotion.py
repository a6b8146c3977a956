"""Promotion to the playbook: patterns and principles become entries, support others, or wait for a person."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.grouping.clustering import ALGORITHM_VERSION
from consolidation_pipeline.core.knowledge.disputes import say_other_things
from consolidation_pipeline.core.knowledge.playbook import compute_priority, find_category
from consolidation_pipeline.core.knowledge.quality_gates import (
    ENTRY_REVIEW_FROM,
    MAX_HEURISTIC_WAITING,
    EntryAction,
    Verdict,
    judge_fit,
)
from consolidation_pipeline.core.knowledge.risky_text import find_risks
from consolidation_pipeline.core.memories.memories import consolidated_id
from consolidation_pipeline.core.similarity.scoped_join import scoped_similarity_join
from consolidation_pipeline.service.playbook.judgement import Judgement, PromotionRules, count_writers, judge_candidate
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.playbook import Candidate, PlaybookEntry


@dataclass(frozen=True, kw_only=True)
class PromotionInputs:
    """The inputs of ``draft_entries``.

    ``vectors``: float32 (d,) of entries and candidates, by id; entries without one are not compared. ``successors``:
    the active successor of each superseded source, by id. ``withdrawn``: content hashes of entries whose creation a
    person undid one by one, by source id. ``outdated``: entries that tell what newer memories replaced
    (``outdated_entries``). ``texts``: of raw memories, by id, which are searched for injections.
    """

    candidates: Sequence[Candidate]
    entries: Sequence[PlaybookEntry]
    vectors: Mapping[UUID, Vectors]
    successors: Mapping[UUID, UUID] = field(default_factory=dict)
    withdrawn: Mapping[UUID, frozenset[str]] = field(default_factory=dict)
    outdated: frozenset[UUID] = frozenset()
    texts: Mapping[UUID, str] = field(default_factory=dict)


@dataclass
class EntryDraft:
    """An entry as the run leaves it.

    ``existing``: the stored entry, None for a new one. ``vector_id``: id of the entry or candidate that has the vector
    of its text.
    """

    entry: PlaybookEntry
    existing: PlaybookEntry | None
    vector_id: UUID
    reasons: list[str] = field(default_factory=list)
    is_reinforced: bool = False

    def update(self, entry: PlaybookEntry, reason: str) -> None:
        """Replace the entry and note the reason, if it differs."""
        if entry != self.entry:
            self.entry = entry
            self.reasons.append(reason)


@dataclass(frozen=True)
class PlaybookChanges:
    """Result of ``draft_entries``.

    ``drafts``: the entries to write. ``below``: number of candidates that the gates discarded. ``held_back``: number of
    extracted candidates that wait until a person has decided on others.
    """

    drafts: Sequence[EntryDraft]
    below: int
    held_back: int


def draft_entries(slug: str, inputs: PromotionInputs, rules: PromotionRules) -> PlaybookChanges:
    """Return the entries that a run changes; a second run over the result changes nothing.

    0. An active entry waits for a person if its text has a risk, unless a person set its status last, and if it tells
       what newer memories replaced since its status was set.
    1. Stored entries follow their sources. If a source was superseded, its successor becomes the entry's source, unless
       the successor is the source of another entry. The entry takes over text and evidence of its source. An active
       entry takes a new text only from a source that would be promoted. A text that a person edited stays. An entry
       whose source was retired or dismissed without a successor otherwise stays as it is.
    2. A waiting entry becomes active if its source passes the gate now, unless the entry is similar to another one, or
       a person set its status last.
    3. The other candidates are compared with the entries one by one: those of a model first, principles before
       patterns, then by confidence, evidence and id. From a cosine of 0.90 with entries, a candidate reinforces one of
       them, an active one if possible. From 0.85, or if it was extracted or says something else than an entry that is
       as similar, it becomes an entry that waits for a person.
    """
    judged = {candidate.id: judge_candidate(candidate, rules, inputs.texts) for candidate in inputs.candidates}
    verdicts = {id_: judgement.verdict for id_, judgement in judged.items()}
    drafts = [EntryDraft(entry, entry, entry.id) for entry in inputs.entries]
    _withdraw(drafts, inputs.outdated)
    _follow_successors(drafts, inputs.successors)
    by_source = _index_by_source(drafts)
    for candidate in inputs.candidates:
        if candidate.id in by_source:
            _follow_source(by_source[candidate.id], candidate, verdicts[candidate.id])
    withdrawn = {c.id for c in inputs.candidates if c.content_hash in inputs.withdrawn.get(c.id, ())}
    new = [c for c in inputs.candidates if c.id not in by_source and c.id not in withdrawn]
    passed = sorted((c for c in new if verdicts[c.id] is not Verdict.DISCARD), key=_candidate_order)
    playbook = _PlaybookDraft(slug, drafts, passed, inputs.vectors)
    for candidate in sorted(inputs.candidates, key=_candidate_order):
        if candidate.id in by_source and verdicts[candidate.id] is Verdict.STORE:
            playbook.activate(by_source[candidate.id])
    for candidate in passed:
        playbook.promote(candidate, judged[candidate.id])
    changed = [draft for draft in playbook.drafts if draft.entry != draft.existing]
    return PlaybookChanges(changed, len(new) - len(passed), playbook.held_back)


def _candidate_order(candidate: Candidate) -> tuple[bool, bool, float, int, UUID]:
    is_pattern = candidate.kind != "principle"
    return candidate.is_heuristic, is_pattern, -(candidate.confidence or 0.0), -len(candidate.raw_ids), candidate.id


def _withdraw(drafts: Iterable[EntryDraft], outdated: frozenset[UUID]) -> None:
    for draft in drafts:
        entry = draft.entry
        if entry.status != "active":
            continue
        reasons = [] if entry.is_status_manual else [risk.reason for risk in find_risks(entry.content)]
        if entry.id in outdated:
            reasons.append("newer memories replaced what it rests on")
        if reasons:
            draft.update(replace(entry, status="review"), f"waits for a person: {'; '.join(reasons)}")


_STATUS_ORDER = {"active": 0, "review": 1, "retired": 2}


def _sort_drafts(drafts: Iterable[EntryDraft]) -> list[EntryDraft]:
    """Return the drafts by status, active ones first, then by priority; ties: by id."""
    return sorted(drafts, key=lambda d: (_STATUS_ORDER[d.entry.status], -d.entry.priority, d.entry.id))


def _index_by_source(drafts: Sequence[EntryDraft]) -> dict[UUID, EntryDraft]:
    """Return the first draft of each source in the order of ``_sort_drafts``."""
    return {d.entry.source_id: d for d in reversed(_sort_drafts(drafts)) if d.entry.source_id is not None}


def _follow_successors(drafts: Sequence[EntryDraft], successors: Mapping[UUID, UUID]) -> None:
    source_ids = {draft.entry.source_id for draft in drafts}
    for draft in _sort_drafts(d for d in drafts if d.entry.status != "retired"):
        source_id = draft.entry.source_id
        successor = None if source_id is None else successors.get(source_id)
        if successor is not None and successor not in source_ids:
            source_ids.add(successor)
            draft.update(replace(draft.entry, source_id=successor), f"{source_id} was superseded by {successor}")


def _follow_source(draft: EntryDraft, source: Candidate, verdict: Verdict) -> None:
    """Take over the text and evidence of the source."""
    entry = draft.entry
    if entry.status == "retired":
        return
    if not entry.is_text_manual and (entry.status == "review" or verdict is Verdict.STORE):
        entry = replace(entry, confidence=source.confidence)
        if source.content_hash != entry.content_hash:
            entry = _with_source_text(entry, source)
            draft.vector_id = source.id
    draft.update(_with_evidence(entry, source), f"its {source.kind} changed: {_describe_evidence(source)}")


class _PlaybookDraft:
    """The entries of a project as the run leaves them, and the similar pairs among entries and new candidates."""

    def __init__(
        self, slug: str, drafts: list[EntryDraft], candidates: Sequence[Candidate], vectors: Mapping[UUID, Vectors]
    ) -> None:
        self.drafts = list(drafts)
        self.held_back = 0
        self._slug = slug
        self._ids = {draft.entry.id for draft in drafts}
        self._heuristic_waiting = sum(d.entry.status == "review" and d.entry.is_heuristic for d in drafts)
        compared = [d for d in drafts if d.entry.status != "retired" and d.vector_id in vectors]
        # Row of a vector -> its draft. A candidate's row is added when it becomes an entry.
        self._draft_at = dict(enumerate(compared))
        self._row = {id_: row for row, id_ in enumerate([*(d.entry.id for d in compared), *(c.id for c in candidates)])}
        vector_ids = [d.vector_id for d in compared] + [c.id for c in candidates]
        scopes = [d.entry.scope_key for d in compared] + [c.scope_key for c in candidates]
        self._neighbours = _find_neighbours([vectors[id_] for id_ in vector_ids], scopes)

    def promote(self, candidate: Candidate, judgement: Judgement) -> None:
        """Make the candidate an entry, or let it reinforce one."""
        similar = self._find_similar(self._row[candidate.id])
        similarity, nearest = similar[0] if similar else (None, None)
        action = judge_fit(similarity)
        # "Always lock the row" is no evidence for "Never lock the row", however similar they are.
        rival = next((draft for _, draft in similar if say_other_things(candidate.content, draft.entry.content)), None)
        if rival is not None:
            self._add_waiting(candidate, judgement, f"says something else than entry {rival.entry.id}")
        elif nearest is None or action is EntryAction.CREATE:
            self._add(candidate, judgement)
        elif action is EntryAction.REVIEW:
            self._add_waiting(candidate, judgement, f"similar to entry {nearest.entry.id} ({similarity:.2f})")
        else:
            same = [draft for cosine, draft in similar if judge_fit(cosine) is EntryAction.REINFORCE]
            _reinforce(next((draft for draft in same if draft.entry.status == "active"), same[0]), candidate, same)

    def activate(self, draft: EntryDraft) -> None:
        """Activate an entry that waits, unless a person set its status last or it is similar to another entry."""
        entry = draft.entry
        if entry.status != "review" or entry.is_status_manual or entry.id not in self._row:
            return
        similar = self._find_similar(self._row[entry.id])
        if judge_fit(similar[0][0] if similar else None) is EntryAction.CREATE:
            draft.update(replace(entry, status="active"), "promoted: its source has enough confidence now")

    def _find_similar(self, row: int) -> list[tuple[float, EntryDraft]]:
        """Return (cosine, draft) of the drafts similar to the vector at ``row``, most similar first; ties: by id."""
        similar = [
            (cosine, self._draft_at[other]) for cosine, other in self._neighbours[row] if other in self._draft_at
        ]
        return sorted(similar, key=lambda one: (-one[0], one[1].entry.id))

    def _add_waiting(self, candidate: Candidate, judgement: Judgement, obstacle: str) -> None:
        obstacles = (*judgement.obstacles, obstacle)
        self._add(candidate, replace(judgement, verdict=Verdict.REVIEW, obstacles=obstacles))

    def _add(self, candidate: Candidate, judgement: Judgement) -> None:
        waits = judgement.verdict is Verdict.REVIEW
        if waits and candidate.is_heuristic:
            if self._heuristic_waiting >= MAX_HEURISTIC_WAITING:
                self.held_back += 1
                return
            self._heuristic_waiting += 1
        draft = EntryDraft(_new_entry(self._new_id(candidate), candidate, waits), None, candidate.id)
        draft.reasons.append(_explain_new_entry(candidate, judgement))
        self.drafts.append(draft)
        self._ids.add(draft.entry.id)
        self._draft_at[self._row[candidate.id]] = draft

    def _new_id(self, candidate: Candidate) -> UUID:
        """Return an unused id: an older entry made of this candidate may follow another source by now."""
        names = [candidate.id]
        while (id_ := consolidated_id(self._slug, "playbook", names, ALGORITHM_VERSION)) in self._ids:
            names.append(id_)
        return id_


def _find_neighbours(vectors: Sequence[Vectors], scopes: Sequence[str | None]) -> dict[int, list[tuple[float, int]]]:
    """Return for each row (cosine, other row) of the rows of its scope from a cosine of ``ENTRY_REVIEW_FROM``."""
    neighbours: dict[int, list[tuple[float, int]]] = defaultdict(list)
    if len(vectors) > 1:
        numbers = np.unique([scope or "" for scope in scopes], return_inverse=True)[1].reshape(-1)
        pairs = scoped_similarity_join(np.stack(vectors), ENTRY_REVIEW_FROM, numbers)
        for i, j, cosine in zip(pairs.i.tolist(), pairs.j.tolist(), pairs.similarity.tolist(), strict=True):
            neighbours[i].append((cosine, j))
            neighbours[j].append((cosine, i))
    return neighbours


def _reinforce(draft: EntryDraft, candidate: Candidate, same: Sequence[EntryDraft]) -> None:
    """Add the candidate's memories to an entry, unless they add nothing to one of the entries in ``same``."""
    if any(_with_evidence(one.entry, candidate).supporting_ids == one.entry.supporting_ids for one in same):
        return
    draft.is_reinforced = True
    reason = f"supported by {candidate.kind} {candidate.id}: {_describe_evidence(candidate)}"
    draft.update(_with_evidence(draft.entry, candidate), reason)


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
        supporting_ids=(),
        is_heuristic=source.is_heuristic,
        scope_key=source.scope_key,
    )
    return _with_evidence(_with_source_text(empty, source), source)


def _with_source_text(entry: PlaybookEntry, source: Candidate) -> PlaybookEntry:
    """Return the entry with the text of its source, and the category of that text."""
    texts = (source.content, source.details.get("summary") or "", *source.details.get("best_practices", ()))
    return replace(
        entry,
        content=source.content,
        content_hash=source.content_hash,
        category=find_category("\n".join(texts)),
        tags=source.tags,
    )


def _with_evidence(entry: PlaybookEntry, source: Candidate) -> PlaybookEntry:
    """Return the entry with the memories of ``source`` added, except declined ones; its priority never falls."""
    new = {*source.raw_ids} - {*entry.supporting_ids} - entry.declined_ids
    supporting_ids = tuple(sorted({*entry.supporting_ids, *new})) if new else entry.supporting_ids
    writers = entry.writers | source.writers if new else entry.writers
    priority = compute_priority(entry.confidence, len(writers))
    return replace(entry, supporting_ids=supporting_ids, writers=writers, priority=max(entry.priority, priority))


def _describe_evidence(source: Candidate) -> str:
    confidence = "no confidence" if source.confidence is None else f"confidence {source.confidence:.2f}"
    return f"{len(source.raw_ids)} memories of {count_writers(len(source.writers))}, {confidence}"


def _explain_new_entry(source: Candidate, judgement: Judgement) -> str:
    origin = f"{source.kind} of {_describe_evidence(source)}"
    if judgement.verdict is Verdict.STORE:
        return f"promoted from a {origin}"
    return f"proposed from a {origin}: {'; '.join(judgement.tell_obstacles())}"
