"""What becomes of the playbook, judged on rows in memory: gates, likeness, order, what people decided, repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consolidation_pipeline.core.knowledge.quality_gates import HEURISTIC_REVIEW_FROM, MAX_HEURISTIC_WAITING
from consolidation_pipeline.service.playbook.promotion import (
    EntryDraft,
    PlaybookChanges,
    PromotionInputs,
    draft_entries,
)
from consolidation_pipeline.store.database.vector_copy import Vectors
from consolidation_pipeline.store.knowledge.playbook import Candidate, PlaybookEntry
from consolidation_pipeline_tests.hypothesis_examples import examples

# Rounded to float32, its cosine with east is the number itself, but for the last bits.
EAST = np.array([1, 0, 0], np.float32)
NORTH = np.array([0, 1, 0], np.float32)
UP = np.array([0, 0, 1], np.float32)


def at(cosine: float) -> Vectors:
    """A vector with this cosine to EAST."""
    return np.array([cosine, np.sqrt(1 - cosine**2), 0], np.float32)


def ids(*numbers: int) -> tuple[UUID, ...]:
    return tuple(UUID(int=number) for number in numbers)


def candidate(number: int, *raw_ids: int, **fields: Any) -> Candidate:
    text = fields.pop("text", f"Say {number}.")
    return Candidate(
        **{
            "id": UUID(int=number),
            "kind": "pattern",
            "content": text,
            "content_hash": text,
            "details": {},
            "tags": ("a",),
            "confidence": 0.9,
            "needs_review": False,
            "is_heuristic": False,
            "raw_ids": ids(*(raw_ids or (1, 2, 3))),
            **fields,
        }
    )


def extracted(number: int, *raw_ids: int, **fields: Any) -> Candidate:
    advice = {"best_practices": ["Do."]}
    return candidate(number, *raw_ids, **{"confidence": 0.7, "is_heuristic": True, "details": advice, **fields})


def entry(number: int, *supporting: int, **fields: Any) -> PlaybookEntry:
    text = fields.pop("text", f"Do {number}.")
    return PlaybookEntry(
        **{
            "id": UUID(int=number),
            "version": 1,
            "source_id": None,
            "status": "active",
            "content": text,
            "content_hash": text,
            "category": "general",
            "tags": (),
            "priority": 95,
            "confidence": 0.9,
            "supporting_ids": ids(*(supporting or (1, 2, 3))),
            **fields,
        }
    )


def drafted(
    candidates: Sequence[Candidate],
    entries: Sequence[PlaybookEntry] = (),
    vectors: Mapping[int, Any] | None = None,
    **told: Any,
) -> PlaybookChanges:
    """The plan; what has no vector of its own points UP."""
    given = vectors or {}
    known = {id_: given.get(id_.int, UP) for id_ in (*(c.id for c in candidates), *(e.id for e in entries))}
    return draft_entries(
        "p", PromotionInputs(candidates=candidates, entries=entries, vectors=known, **told), t_promote=0.85
    )


def only(done: PlaybookChanges) -> EntryDraft:
    (draft,) = done.drafts
    return draft


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"confidence": 0.85}, "active"),
        ({"confidence": 0.8499}, "review"),
        ({"confidence": 0.80}, "review"),
        ({"confidence": 0.7999}, None),
        ({"confidence": None}, None),
        ({"needs_review": True}, "review"),
        ({"raw_ids": ids(1, 2)}, None),
        ({"is_heuristic": True, "details": {"gotchas": ["Mind."]}}, "review"),
        ({"is_heuristic": True}, None),
    ],
)
def test_quality_gates_set_entry_status(fields: dict[str, Any], status: str | None) -> None:
    done = drafted([candidate(9, **fields)])
    assert [draft.entry.status for draft in done.drafts] == ([] if status is None else [status])
    assert done.below == (status is None)


def test_entry_draft_copies_its_source() -> None:
    details = {"summary": "Mind the workflow.", "best_practices": ["Test it."]}
    draft = only(drafted([candidate(9, 3, 1, 2, 4, details=details)]))
    made = draft.entry
    assert (made.content, made.source_id, made.tags, made.confidence) == ("Say 9.", UUID(int=9), ("a",), 0.9)
    assert (made.category, made.priority, made.supporting_ids) == ("testing", 96, ids(1, 2, 3, 4))
    assert (draft.existing, draft.vector_id) == (None, UUID(int=9))
    assert draft.reasons == ["promoted from a pattern of 4 memories, confidence 0.90"]


@pytest.mark.parametrize(
    ("cosine", "outcome"),
    [(0.9, "reinforced"), (0.95, "reinforced"), (0.8999, "review"), (0.85, "review"), (0.8499, "active")],
)
def test_similarity_decides_reinforce_review_or_add(cosine: float, outcome: str) -> None:
    held = entry(5, 1, 2, 3, priority=95)
    draft = only(drafted([candidate(9, 3, 4, 6)], [held], {5: EAST, 9: at(cosine)}))
    if outcome == "reinforced":
        assert draft.entry == replace(held, supporting_ids=ids(1, 2, 3, 4, 6), priority=97)
        assert "supported by pattern" in draft.reasons[0]
    else:
        assert (draft.existing, draft.entry.status) == (None, outcome)


def test_reinforcement_never_lowers_priority() -> None:
    held = entry(5, 1, 2, 3, priority=99, confidence=0.5)
    assert only(drafted([candidate(9, 4, 5, 6)], [held])).entry.priority == 99


def test_active_entry_is_reinforced_before_waiting() -> None:
    rows = [entry(5, 1, 2, 3, status="review"), entry(6, 1, 2, 3)]
    done = drafted([candidate(9, 4, 5, 6)], rows, {5: at(0.99), 6: at(0.93), 9: EAST})
    assert only(done).entry.id == UUID(int=6)
    waiting = drafted([candidate(9, 4, 5, 6)], rows[:1], {5: at(0.99), 9: EAST})
    assert (only(waiting).entry.id, only(waiting).entry.status) == (UUID(int=5), "review")


def test_known_evidence_is_not_proposed_again() -> None:
    rows = [entry(5, 4, 5, 6), entry(6, 1, 2, 3)]
    assert drafted([candidate(9, 4, 5, 6)], rows, {5: at(0.91), 6: at(0.99), 9: EAST}).drafts == []


def test_retired_entry_is_not_reinforced_or_proposed() -> None:
    held = entry(5, 1, 2, 3, status="retired", source_id=UUID(int=9))
    assert drafted([candidate(9, 1, 2, 3, 4, text="New words.")], [held]).drafts == []
    (made,) = drafted([candidate(8, 4, 5, 6)], [held]).drafts
    assert (made.existing, made.entry.status) == (None, "active")


def test_candidates_reinforce_earlier_drafts() -> None:
    rows = [candidate(9, 4, 5, 6, confidence=0.88), candidate(8, 1, 2, 3, confidence=0.95)]
    done = drafted(rows, (), {8: EAST, 9: at(0.95)})
    assert (only(done).entry.source_id, only(done).entry.supporting_ids) == (UUID(int=8), ids(1, 2, 3, 4, 5, 6))
    first = [*rows, candidate(7, 7, 8, 9, kind="principle", confidence=0.86)]
    made = only(drafted(first, (), {7: at(0.97), 8: EAST, 9: at(0.95)})).entry
    assert (made.source_id, len(made.supporting_ids)) == (UUID(int=7), 9)


def test_heuristic_candidates_are_judged_last() -> None:
    rows = [extracted(7, 7, 8, 9, kind="principle"), candidate(8, 1, 2, 3)]
    made = only(drafted(rows, (), {7: EAST, 8: at(0.95)})).entry
    assert (made.source_id, made.status, len(made.supporting_ids)) == (UUID(int=8), "active", 6)


def test_grown_source_updates_entry_draft_in_place() -> None:
    held = entry(5, 1, 2, 3, source_id=UUID(int=9), text="Say 9.")
    draft = only(drafted([candidate(9, 1, 2, 4, 6, confidence=0.92)], [held]))
    assert draft.entry == replace(held, supporting_ids=ids(1, 2, 3, 4, 6), confidence=0.92, priority=98)
    assert draft.vector_id == held.id
    reworded = only(drafted([candidate(9, 1, 2, 3, text="Fix it.")], [held]))
    assert (reworded.entry.content, reworded.entry.category, reworded.vector_id) == ("Fix it.", "gotchas", UUID(int=9))


@pytest.mark.parametrize(
    ("held", "source"),
    [
        ({"is_text_manual": True}, {}),
        ({}, {"needs_review": True}),
        ({}, {"confidence": 0.7}),
        ({}, {"is_heuristic": True, "details": {"gotchas": ["Mind."]}}),
    ],
)
def test_unsure_source_does_not_replace_entry_text(held: dict[str, Any], source: dict[str, Any]) -> None:
    kept = entry(5, 1, 2, 3, source_id=UUID(int=9), **held)
    draft = only(drafted([candidate(9, 1, 2, 3, 4, **source)], [kept]))
    assert draft.entry == replace(kept, supporting_ids=ids(1, 2, 3, 4), priority=96)


def test_waiting_entry_takes_text_of_source() -> None:
    kept = entry(5, 1, 2, 3, source_id=UUID(int=9), status="review", priority=50)
    draft = only(drafted([candidate(9, needs_review=True, confidence=0.75)], [kept]))
    assert (draft.entry.content, draft.entry.status, draft.entry.priority) == ("Say 9.", "review", 87)


@pytest.mark.parametrize(
    ("fields", "near", "status"),
    [({}, 0.5, "active"), ({"is_status_manual": True}, 0.5, "review"), ({}, 0.86, "review"), ({}, 0.95, "review")],
)
def test_sure_source_activates_waiting_entry(fields: dict[str, Any], near: float, status: str) -> None:
    waiting = entry(5, 1, 2, 3, source_id=UUID(int=9), status="review", text="Say 9.", **fields)
    done = drafted([candidate(9)], [waiting, entry(6)], {5: EAST, 9: EAST, 6: at(near)})
    assert [draft.entry.status for draft in done.drafts] == (["active"] if status == "active" else [])


def test_entry_draft_moves_to_successor_of_source() -> None:
    held = entry(5, 1, 2, 3, source_id=UUID(int=8), text="Say 8.")
    draft = only(drafted([candidate(9, 1, 2, 3, 4)], [held], successors={UUID(int=8): UUID(int=9)}))
    assert (draft.entry.id, draft.entry.source_id, draft.entry.content) == (held.id, UUID(int=9), "Say 9.")
    assert draft.entry.supporting_ids == ids(1, 2, 3, 4)


def test_entry_stays_if_successor_has_its_own() -> None:
    held = entry(5, 1, 2, 3, source_id=UUID(int=8))
    other = entry(6, 1, 2, 3, 4, source_id=UUID(int=9), text="Say 9.", priority=96)
    told = {UUID(int=8): UUID(int=9)}
    assert drafted([candidate(9, 1, 2, 3, 4)], [held, other], {5: EAST}, successors=told).drafts == []
    assert drafted([], [held]).drafts == []


def test_withdrawn_entry_waits_for_changed_source() -> None:
    told = {UUID(int=9): frozenset({"Say 9."})}
    assert drafted([candidate(9)], withdrawn=told).drafts == []
    assert only(drafted([candidate(9, text="Say more.")], withdrawn=told)).entry.status == "active"


def test_declined_evidence_is_not_added_again() -> None:
    held = entry(5, 1, 2, 3, declined_ids=frozenset(ids(4, 6)))
    assert drafted([candidate(9, 4, 6, 1)], [held]).drafts == []
    assert only(drafted([candidate(9, 4, 6, 7)], [held])).entry.supporting_ids == ids(1, 2, 3, 7)


def test_waiting_heuristic_entries_are_limited() -> None:
    many = MAX_HEURISTIC_WAITING + 3
    rows = [extracted(100 + n, confidence=HEURISTIC_REVIEW_FROM + 0.001 * n) for n in range(many)]
    vectors = dict(zip((row.id.int for row in rows), np.eye(many, dtype=np.float32), strict=True))
    done = drafted(rows, (), vectors)
    assert (len(done.drafts), done.held_back, done.below) == (MAX_HEURISTIC_WAITING, 3, 0)
    assert min(draft.entry.source_id.int for draft in done.drafts if draft.entry.source_id) == 103
    held = [replace(draft.entry, version=1) for draft in done.drafts]
    held[0] = replace(held[0], status="retired")
    next_ = drafted(rows, held, vectors | {e.id.int: vectors[e.source_id.int] for e in held if e.source_id})
    assert [draft.entry.source_id for draft in next_.drafts] == [UUID(int=102)]


def test_id_of_moved_entry_is_not_reused() -> None:
    first = only(drafted([candidate(9)])).entry
    gone = replace(first, version=1, source_id=UUID(int=8), content_hash="other")
    again = only(drafted([candidate(9)], [gone], {first.id.int: EAST}))
    assert again.existing is None
    assert again.entry.id != first.id


CANDIDATES = st.lists(
    st.builds(
        candidate,
        st.integers(100, 115),
        st.integers(1, 9),
        st.integers(1, 9),
        st.integers(1, 9),
        kind=st.sampled_from(["pattern", "principle"]),
        confidence=st.sampled_from([0.65, 0.81, 0.86, 0.95]),
        needs_review=st.booleans(),
        is_heuristic=st.booleans(),
        details=st.just({"gotchas": ["Mind."]}),
    ),
    max_size=10,
    unique_by=lambda row: row.id,
)


@settings(deadline=None, max_examples=examples(150))
@given(CANDIDATES, st.data())
def test_drafting_is_idempotent_and_order_free(rows: list[Candidate], data: st.DataObject) -> None:
    whole = [replace(row, raw_ids=tuple(sorted({*row.raw_ids, *ids(20, 21)}))) for row in rows]
    angles = st.sampled_from([0.0, 0.3, 0.42, 0.5, 0.8, 0.9, 1.2])
    turned = {row.id.int: data.draw(angles) for row in whole}
    vectors = {id_: np.array([np.cos(turn), np.sin(turn), 0], np.float32) for id_, turn in turned.items()}
    before = [entry(n, 20, 21, 22) for n in range(50, data.draw(st.integers(50, 52)))]
    first = drafted(whole, before, vectors)
    shuffled = drafted(data.draw(st.permutations(whole)), before[::-1], vectors)
    assert {d.entry for d in first.drafts} == {d.entry for d in shuffled.drafts}
    held = {row.id: row for row in before} | {d.entry.id: replace(d.entry, version=1) for d in first.drafts}
    of_entries = {d.entry.id.int: vectors[d.vector_id.int] for d in first.drafts if d.vector_id.int in vectors}
    again = drafted(whole, list(held.values()), vectors | of_entries)
    assert (again.drafts, again.held_back) == ([], first.held_back)
