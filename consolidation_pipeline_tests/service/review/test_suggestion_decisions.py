"""Decisions on suggestions: their effects, all or nothing, and their rollback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from consolidation_pipeline.core.knowledge import difference_kinds
from consolidation_pipeline.core.knowledge.merge_proposals import fingerprint
from consolidation_pipeline.errors import ConflictError, NotFoundError, UsageError
from consolidation_pipeline.service.admin.erase import erase_memories
from consolidation_pipeline.service.lifecycle.manual_actions import archive_manually, pin_memories
from consolidation_pipeline.service.review.suggestion_bulk import Rule, decide_matching
from consolidation_pipeline.service.review.suggestion_decisions import (
    SuggestionDecision,
    approve_suggestion,
    reject_suggestion,
    withdraw_suggestion,
)
from consolidation_pipeline.service.review.suggestions import Suggestion, get_suggestion, list_suggestions
from consolidation_pipeline.store.ledger.ledger_writer import Author
from consolidation_pipeline.store.review.suggestions import NewSuggestion, append_suggestions, load_originals
from consolidation_pipeline.store.similarity.calibrations import load_decided_texts, load_decisions
from consolidation_pipeline_tests.service.corpus import LESSONS, NEAR_MISSES, note
from consolidation_pipeline_tests.service.pipeline_runner import SLUG, Pipeline, call_concurrently
from consolidation_pipeline_tests.service.rules import find_broken_rules
from consolidation_pipeline_tests.service.table_dumps import dump_knowledge

TEXTS = [text for pair in NEAR_MISSES for text in pair]


class SuggestionReview:
    """Project with three pairs of memories and a suggestion for each; decisions on them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.engine = pipeline, pipeline.engine
        pipeline.configure_new(archive=False, summarize=False)
        rows = [note(f"{at}", text) for at, text in enumerate(TEXTS)]
        pipeline.add([{**row, "memory_type": "warning" if at < 2 else "learning"} for at, row in enumerate(rows)])
        found = pipeline.rows("SELECT external_id, id FROM {s}.task_memories")
        self.raw = [id_ for _, id_ in sorted((int(row.external_id), row.id) for row in found)]
        self.ids = [self.suggest(self.raw[at : at + 2], 0.90 + at / 100) for at in (0, 2, 4)]

    def suggest(self, ids: Sequence[UUID], similarity: float | None = 0.9) -> UUID:
        """Insert a pending suggestion to merge these memories; return its id."""
        with self.engine.begin() as connection:
            rows = load_originals(connection, ids)
            new = NewSuggestion(
                cluster_key="key",
                originals=[(id_, rows[id_].version) for id_ in ids],
                fingerprint=fingerprint((id_, rows[id_].content_hash) for id_ in ids),
                content=f"Proposed for {ids[0]}.",
                lessons_learned="Look it up.",
                keywords=["gateway"],
                similarity=similarity,
                rationale="2 memories may say the same",
                method="llm",
            )
            author = Author(self.pipeline.project().id, None, "tester")
            return append_suggestions(connection, author, [new], now=datetime.now(UTC))[0]

    def approve(self, id_: UUID, *, by: str = "anna", **how: Any) -> SuggestionDecision:
        return approve_suggestion(self.engine, id_, decided_by=by, settings=self.pipeline.settings, **how)

    def reject(self, id_: UUID, *, by: str = "anna", **how: Any) -> SuggestionDecision:
        return reject_suggestion(self.engine, id_, decided_by=by, **how)

    def get(self, id_: UUID) -> Suggestion:
        return get_suggestion(self.engine, id_)

    def memory(self, id_: UUID | None) -> Any:
        return self.pipeline.rows("SELECT * FROM {s}.consolidated_memories WHERE id = :id", id=id_)[0]

    def events(self) -> list[str]:
        of = "FROM {s}.consolidation_events WHERE type = 'suggestion.decided' ORDER BY created_at"
        return [row[0] for row in self.pipeline.rows(f"SELECT payload ->> 'status' {of}")]


@pytest.fixture
def review(shared: Pipeline) -> SuggestionReview:
    shared.clear()
    return SuggestionReview(shared)


# --- approval --------------------------------------------------------------------------------------------------------


def test_undone_approval_makes_suggestion_pending(review: SuggestionReview) -> None:
    before = dump_knowledge(review.pipeline)
    done = review.approve(review.ids[0], note="Same gateway")
    memory, shown = review.memory(done.memory_id), review.get(review.ids[0])
    assert memory.content == f"Proposed for {review.raw[0]}.\nLook it up."
    assert (memory.consolidation_method, memory.memory_type, memory.source_count) == ("llm", "warning", 2)
    assert memory.embedding is not None
    assert "gateway" in memory.tags
    assert (shown.status, shown.reviewed_by, shown.review_note) == ("validated", "anna", "Same gateway")
    assert (shown.memory_id, shown.group_id) == (done.memory_id, done.group_id)
    hidden = review.pipeline.rows(
        "SELECT id FROM {s}.task_memories WHERE consolidated_into_id = :id", id=done.memory_id
    )
    assert {row.id for row in hidden} == set(review.raw[:2])
    review.pipeline.roll_back(done.group_id)
    assert dump_knowledge(review.pipeline) == before
    assert review.get(review.ids[0]).status == "pending"
    assert review.approve(review.ids[0]).memory_id == done.memory_id


def test_edited_approval_keeps_left_out_texts(review: SuggestionReview) -> None:
    assert review.get(review.ids[0]).left_out == ("30 seconds", "60 seconds")
    text = "  Idle connections close after 60 seconds. "
    done = review.approve(review.ids[0], content=text, lessons_learned="")
    memory = review.memory(done.memory_id)
    assert memory.content == "Idle connections close after 60 seconds."
    assert (memory.consolidation_method, memory.details["approved"]) == ("hybrid", True)
    assert memory.details["dropped"] == [TEXTS[0]]


def test_part_is_approved_and_undone(review: SuggestionReview) -> None:
    review.reject(review.ids[0])
    review.reject(review.ids[1])
    before = dump_knowledge(review.pipeline)
    whole = review.suggest(review.raw[:3])
    pending = review.get(whole)
    done = review.approve(whole, leave_out=[review.raw[2]], note="not the third")
    memory, shown = review.memory(done.memory_id), review.get(whole)
    assert set(memory.source_memory_ids) == set(review.raw[:2])
    assert TEXTS[2] not in memory.content
    assert "gateway" not in memory.tags
    assert ([one.id for one in shown.originals], shown.content) == (review.raw[:2], memory.content)
    assert shown.rationale == "a person approved 2 of 3 memories"
    with review.engine.connect() as connection:
        decisions = load_decisions(connection, review.pipeline.project().id)
    assert (frozenset(review.raw[:2]), True) in {(frozenset(ids), same) for ids, same in decisions}
    review.pipeline.roll_back(done.group_id)
    assert review.get(whole) == replace(pending, worth=review.get(whole).worth)
    assert dump_knowledge(review.pipeline)["task_memories"] == before["task_memories"]


def test_memory_that_was_left_out_can_be_erased(review: SuggestionReview) -> None:
    review.reject(review.ids[0])
    review.reject(review.ids[1])
    done = review.approve(review.suggest(review.raw[:3]), leave_out=[review.raw[2]])
    erase_memories(review.engine, [review.raw[2]], changed_by="me")
    assert set(review.memory(done.memory_id).source_memory_ids) == set(review.raw[:2])
    assert find_broken_rules(review.pipeline) == []
    with pytest.raises(ConflictError, match="erased"):
        review.pipeline.roll_back(done.group_id)


def test_part_of_one_or_of_others_is_refused(review: SuggestionReview) -> None:
    with pytest.raises(UsageError, match="1 of 2 originals are left out, and a merge needs two"):
        review.approve(review.ids[0], leave_out=[review.raw[0]])
    with pytest.raises(UsageError, match="is no original of suggestion"):
        review.approve(review.ids[0], leave_out=[review.raw[4]])
    assert review.get(review.ids[0]).status == "pending"


@pytest.mark.parametrize(("content", "message"), [(" ", "blank"), ("x" * 100_001, "100,000")])
def test_blank_or_oversized_suggestion_text_is_refused(review: SuggestionReview, content: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        review.approve(review.ids[0], content=content, lessons_learned="")
    assert review.get(review.ids[0]).status == "pending"


def test_approval_unites_sources_of_merged_memories(review: SuggestionReview) -> None:
    first, second = review.approve(review.ids[0]).memory_id, review.approve(review.ids[1]).memory_id
    assert first is not None
    assert second is not None
    review.reject(review.ids[2])
    before = dump_knowledge(review.pipeline)
    done = review.approve(review.suggest([first, second, review.raw[4]]))
    kept = review.memory(done.memory_id)
    gone = review.memory(({first, second} - {done.memory_id}).pop())
    assert (kept.source_count, gone.superseded_by_id) == (5, kept.id)
    assert set(kept.source_memory_ids) == set(review.raw[:5])
    parents = review.pipeline.rows("SELECT parent_id FROM {s}.memory_lineage WHERE child_id = :id", id=kept.id)
    assert {row.parent_id for row in parents} == set(review.raw[:5])
    review.pipeline.roll_back(done.group_id)
    assert dump_knowledge(review.pipeline)["task_memories"] == before["task_memories"]


def test_approved_text_survives_extension(review: SuggestionReview) -> None:
    pipeline, lesson = review.pipeline, LESSONS[0]
    pipeline.add([note("a", lesson), note("b", f"Note to self: {lesson}")])
    ids = [row.id for row in pipeline.rows("SELECT id FROM {s}.task_memories WHERE external_id IN ('a', 'b')")]
    done = review.approve(review.suggest(ids), content="Migrations come before the deployment.", lessons_learned="")
    pipeline.add([note("c", f"Learned once more: {lesson}")])
    pipeline.run()
    memory = review.memory(done.memory_id)
    assert memory.source_count == 3
    assert memory.content.startswith("Migrations come before the deployment.\n\nLearned once more: ")
    assert memory.details["approved"]


def test_approval_refuses_text_of_other_memory(review: SuggestionReview) -> None:
    review.approve(review.ids[1], content="The same words.", lessons_learned="")
    with pytest.raises(ConflictError, match="has the same text"):
        review.approve(review.ids[2], content="The same words.", lessons_learned="")
    assert review.get(review.ids[2]).status == "pending"
    review.approve(review.ids[2], content="Other words.", lessons_learned="")


# --- changed originals -----------------------------------------------------------------------------------------------


def _archive(review: SuggestionReview) -> None:
    archive_manually(review.engine, [review.raw[1]], changed_by="tester")


def _edit(review: SuggestionReview) -> None:
    pin_memories(review.engine, [review.raw[1]], pinned=True, changed_by="tester")


def _merge(review: SuggestionReview) -> None:
    review.reject(review.ids[1])
    review.pipeline.write("DELETE FROM {s}.suggestion_originals")  # lets another suggestion contain the memories
    review.approve(review.suggest([review.raw[1], review.raw[2]]))


def _remove(review: SuggestionReview) -> None:
    review.pipeline.write("DELETE FROM {s}.task_memories WHERE id = :id", id=review.raw[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [(_archive, "was archived"), (_edit, "was changed"), (_merge, "was merged"), (_remove, "was removed")],
)
def test_changed_original_supersedes_suggestion(
    review: SuggestionReview, change: Callable[[SuggestionReview], None], message: str
) -> None:
    change(review)
    tables = ("task_memories", "consolidated_memories", "memory_lineage")
    before = {name: rows for name, rows in dump_knowledge(review.pipeline).items() if name in tables}
    with pytest.raises(ConflictError, match=message) as refused:
        review.approve(review.ids[0])
    assert refused.value.conflicts == (str(review.raw[1]),)
    shown = review.get(review.ids[0])
    assert (shown.status, shown.memory_id, shown.reviewed_by) == ("superseded", None, None)
    assert {name: rows for name, rows in dump_knowledge(review.pipeline).items() if name in tables} == before
    assert review.events()[-1] == "superseded"
    with pytest.raises(ConflictError, match="it was superseded"):
        review.approve(review.ids[0])


# --- concurrent decisions --------------------------------------------------------------------------------------------


def test_one_of_concurrent_decisions_wins(review: SuggestionReview) -> None:
    id_ = review.ids[0]
    outcomes = call_concurrently(
        lambda: review.approve(id_, by="anna"),
        lambda: review.approve(id_, by="ben"),
        lambda: review.reject(id_, by="carl"),
        lambda: review.reject(id_, by="dora"),
    )
    won = [one for one in outcomes if isinstance(one, SuggestionDecision)]
    lost = [str(one) for one in outcomes if isinstance(one, ConflictError)]
    assert len(won) == 1
    assert len(lost) == 3
    winner = review.get(id_).reviewed_by
    assert all(f"by {winner}" in why for why in lost)


def test_one_of_overlapping_approvals_wins(review: SuggestionReview) -> None:
    review.reject(review.ids[1])
    # Databases older than the constraint may overlap: switch its trigger off.
    review.pipeline.write("ALTER TABLE {s}.consolidation_suggestions DISABLE TRIGGER hold_originals")
    other = review.suggest([review.raw[1], review.raw[2]])
    review.pipeline.write("ALTER TABLE {s}.consolidation_suggestions ENABLE TRIGGER hold_originals")
    outcomes = call_concurrently(lambda: review.approve(review.ids[0]), lambda: review.approve(other))
    (lost,) = [one for one in outcomes if isinstance(one, ConflictError)]
    assert f"memory {review.raw[1]} was merged since it was made" in str(lost)
    assert sorted((review.get(review.ids[0]).status, review.get(other).status)) == ["superseded", "validated"]
    merged = review.pipeline.rows("SELECT id FROM {s}.consolidated_memories WHERE retired_at IS NULL")
    assert len(merged) == 1


# --- rejection, withdrawal, rules ------------------------------------------------------------------------------------


def test_rejection_changes_only_status_and_is_undoable(review: SuggestionReview) -> None:
    before = dump_knowledge(review.pipeline)
    done = review.reject(review.ids[0], note=" Two gateways ")
    after = dump_knowledge(review.pipeline)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"consolidation_suggestions", "suggestion_originals"}
    shown = review.get(review.ids[0])
    assert (shown.status, shown.review_note, shown.group_id) == ("rejected", "Two gateways", done.group_id)
    with pytest.raises(ConflictError, match="it was rejected by anna at"):
        review.approve(review.ids[0])
    review.pipeline.roll_back(done.group_id)
    assert dump_knowledge(review.pipeline) == before


def test_rollback_of_rejection_refuses_overlap(review: SuggestionReview) -> None:
    done = review.reject(review.ids[0])
    review.reject(review.ids[1])
    review.suggest([review.raw[1], review.raw[2]])
    with pytest.raises(ConflictError, match="another row is in the way"):
        review.pipeline.roll_back(done.group_id)


def test_decided_suggestions_become_labelled_pairs(review: SuggestionReview) -> None:
    review.approve(review.ids[0])
    review.reject(review.ids[1])
    assert withdraw_suggestion(review.engine, review.ids[2], decided_by="anna").status == "expired"
    with review.engine.connect() as connection:
        decisions = load_decisions(connection, review.pipeline.project().id)
    assert {(frozenset(ids), same) for ids, same in decisions} == {
        (frozenset(review.raw[:2]), True),
        (frozenset(review.raw[2:4]), False),
    }


def test_labelled_pair_uses_text_at_decision_time(review: SuggestionReview) -> None:
    merged = review.approve(review.ids[0]).memory_id
    assert merged is not None
    review.reject(review.ids[1])
    project = review.pipeline.project().id
    review.reject(review.suggest([merged, review.raw[2]]))
    with review.engine.connect() as connection:
        assert load_decided_texts(connection, project) == {merged: review.memory(merged).content}
    review.reject(review.ids[2])
    review.approve(review.suggest([merged, review.raw[3]]), content="Now it says more.")
    with review.engine.connect() as connection:
        assert load_decided_texts(connection, project) == {}


def test_decisions_by_rule_continue_after_conflict(review: SuggestionReview) -> None:
    archive_manually(review.engine, [review.raw[5]], changed_by="tester")
    how = {"settings": review.pipeline.settings, "decided_by": "anna"}
    done = decide_matching(review.engine, Rule(SLUG, min_similarity=0.92, type="learning"), "approve", **how)
    assert [one.suggestion_id for one in done.decided] == [review.ids[1]]
    ((refused, why),) = done.refused
    assert refused == review.ids[2]
    assert "was archived" in why
    assert [review.get(id_).status for id_ in review.ids] == ["pending", "validated", "superseded"]
    rejected = decide_matching(review.engine, Rule(SLUG, limit=1), "reject", **how)
    assert [one.suggestion_id for one in rejected.decided] == [review.ids[0]]


def test_suggestion_shows_differences_with_passages(review: SuggestionReview) -> None:
    for id_, kind in zip(review.ids, ("value", "value", "polarity"), strict=True):
        shown = review.get(id_)
        texts = {original.id: original.content for original in shown.originals}
        (found,) = shown.differences
        assert (found.kind, found.contradicts, {found.a_id, found.b_id}) == (kind, True, texts.keys())
        assert found.a or found.b
        for side, passages in ((found.a_id, found.a), (found.b_id, found.b)):
            assert all(texts[side][one.start :].startswith(one.text) for one in passages)


def test_suggestion_compares_each_pair_of_originals(review: SuggestionReview, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["The customer prefers tea.", "The customer prefers coffee.", "Note: the customer prefers tea."]
    review.pipeline.add([note(f"more-{at}", text) for at, text in enumerate(texts)])
    found = review.pipeline.rows(
        "SELECT id FROM {s}.task_memories WHERE external_id LIKE 'more-%' ORDER BY external_id"
    )
    tea, coffee, again = (row.id for row in found)
    id_ = review.suggest([tea, coffee, again])
    shown = review.get(id_)
    differences = shown.differences
    assert {frozenset((one.a_id, one.b_id)) for one in differences} == {
        frozenset((tea, coffee)),
        frozenset((again, coffee)),
    }
    assert {(one.kind, one.contradicts) for one in differences} == {("word", False)}
    (listed,) = shown.list_differences()
    said = {
        passage.text: numbers
        for passage, numbers in zip((*listed.a, *listed.b), (listed.numbers_a, listed.numbers_b), strict=True)
    }
    order = [original.id for original in shown.originals]
    assert said == {"coffee": [order.index(coffee) + 1], "tea": sorted(order.index(one) + 1 for one in (tea, again))}
    monkeypatch.setattr(difference_kinds, "MAX_PAIRS", 1)
    assert len(review.get(id_).differences) < len(differences)


def test_what_one_original_adds_is_listed_first(review: SuggestionReview) -> None:
    texts = ["The export runs on Mondays.", "The export runs only on Mondays.", "Note: the export runs on Mondays."]
    review.pipeline.add([note(f"adds-{at}", text) for at, text in enumerate(texts)])
    found = review.pipeline.rows(
        "SELECT id FROM {s}.task_memories WHERE external_id LIKE 'adds-%' ORDER BY external_id"
    )
    shown = review.get(review.suggest([row.id for row in found]))
    (listed,) = shown.list_differences()
    only = [original.content for original in shown.originals].index(texts[1]) + 1
    assert next(passage.text for passage in listed.a) == "only"
    assert (listed.b, listed.numbers_a, listed.numbers_b) == ((), [only], sorted({1, 2, 3} - {only}))


def test_suggestion_list_is_filtered_and_paged(review: SuggestionReview) -> None:
    def listed(**chosen: Any) -> list[UUID]:
        return [one.id for one in list_suggestions(review.engine, SLUG, **chosen).suggestions]

    assert listed() == review.ids[::-1]
    assert listed(type="warning") == review.ids[:1]
    assert listed(min_similarity=0.92) == review.ids[:0:-1]
    page = list_suggestions(review.engine, None, limit=1, offset=1)
    assert (page.total, [one.id for one in page.suggestions]) == (3, [review.ids[1]])
    review.reject(review.ids[0])
    assert listed(status="rejected") == review.ids[:1]
    assert listed(status=None) == [review.ids[0], review.ids[2], review.ids[1]]


def test_unknown_suggestion_and_filter_are_refused(review: SuggestionReview) -> None:
    for decide in (review.get, review.approve, review.reject):
        with pytest.raises(NotFoundError, match="suggestions list"):
            decide(uuid4())
    with pytest.raises(UsageError, match="status 'open'"):
        list_suggestions(review.engine, SLUG, status="open")
    with pytest.raises(UsageError, match="type 'x'"):
        list_suggestions(review.engine, SLUG, type="x")
